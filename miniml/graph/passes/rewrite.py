"""Rewriting of graphs: the Rewriter, and the basic passes that all others rely on.

Rewriter: a graph is rebuilt node by node, with some values replaced. Places: where other calls
compute what a node did. Passes: constant folding, dead
code elimination (DCE), common subexpressions (CSE). Checks: a pass keeps the rules of graphs, and a
graph's inputs, outputs and effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from ...core.abstract import Abstract, canonical, listed
from ...core.errors import GraphError
from ...core.infer import infer, interleave
from ...core.primitive import Primitive, key
from ...core.scope import Location
from ...core.settings import context, unwatched
from ...core.tensor import Tensor
from ...core.trace import eager_trace
from ...ops.control import Cond
from ...ops.shape import Reshape
from ..ir import Graph, Node, Var, verify, versions

SMALL = 64 * 1024  # bytes up to which a constant is folded and compared by value


class Rewriter:
    """The graph under construction. Walk `graph.nodes` in order and, for each node, `keep` it,
    `call` another primitive in its place, or `replace` its outputs; then `finish`."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.maker: dict[Var, Node] = {}
        self._constants = list(graph.constants)
        self._stand_in: dict[Var, Var] = {}
        self._made: dict[object, Var] = {}
        self._new: dict[tuple[Primitive, tuple[Var, ...]], Var] = {}

    def now(self, var: Var) -> Var:
        """The Var of the new graph for a Var of the old one."""
        return self._stand_in.get(var, var)

    def inputs(self, node: Node) -> tuple[Var, ...]:
        """The inputs of an old node in the new graph."""
        return tuple(map(self._stand_in.get, node.inputs, node.inputs))

    def replace(self, old: Sequence[Var], new: Sequence[Var]) -> None:
        """Use these Vars of the new graph for those of the old one from here on."""
        self._stand_in.update(zip(old, map(self.now, new), strict=True))

    def keep(self, node: Node) -> None:
        """Keep the node, on its new inputs."""
        if self._stand_in:
            inputs = self.inputs(node)
            node = node if inputs == node.inputs else replace(node, inputs=inputs)
        self._append(node)

    def call(self, node: Node, primitive: Primitive, inputs: Sequence[Var]) -> None:
        """Append a call of `primitive` instead of `node`, with its outputs and its line."""
        self._append(Node(primitive, tuple(inputs), node.outputs, (), node.where))

    def new(self, primitive: Primitive, inputs: tuple[Var, ...], where: Location | None) -> Var:
        """The output of a new call, made once for equal ones."""
        if (primitive, inputs) not in self._new:
            (made,) = infer(primitive, tuple([v.abstract for v in inputs]))
            self._new[primitive, inputs] = Var(made)
            self._append(Node(primitive, inputs, (self._new[primitive, inputs],), (), where))
        return self._new[primitive, inputs]

    def inline(self, graph: Graph, inputs: Sequence[Var]) -> None:
        """Use these Vars for the inputs of a graph whose nodes come next."""
        self.replace(graph.inputs, inputs)
        self._constants += graph.constants

    def constant(self, value: np.ndarray[Any, Any]) -> Var:
        """A new constant of the graph; equal ones up to 64 KB are one."""
        made = Abstract(value.shape, canonical(value.dtype), value)
        name = made.key() if value.nbytes <= SMALL else id(value)
        if name not in self._made:
            self._made[name] = Var(made)
            self._constants.append(self._made[name])
        return self._made[name]

    def finish(self) -> Graph:
        """The new graph; the old one if nothing has changed."""
        graph, nodes = self.graph, tuple(self.nodes)
        outputs = tuple(map(self._stand_in.get, graph.outputs, graph.outputs))
        if nodes == graph.nodes and outputs == graph.outputs:
            return graph
        return replace(graph, nodes=nodes, outputs=outputs, constants=tuple(self._constants))

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        for var in node.outputs:
            self.maker[var] = node


class Place:
    """The place of a node in the graph under construction, where other calls may stand."""

    def __init__(self, rewriter: Rewriter, node: Node):
        self.rewriter, self.node = rewriter, node

    @property
    def inputs(self) -> tuple[Var, ...]:
        """The inputs of the node in the new graph."""
        return self.rewriter.inputs(self.node)

    def new(self, primitive: Primitive, *inputs: Var) -> Var:
        """The output of a new call."""
        return self.rewriter.new(primitive, inputs, self.node.where)

    def reshaped(self, x: Var, *shape: int) -> Var:
        """x in another shape."""
        return x if x.abstract.shape == shape else self.new(Reshape(shape), x)

    def made_by(self, x: Var, kind: type[Primitive]) -> Node | None:
        """The node of that kind that makes x."""
        node = self.rewriter.maker.get(x)
        return node if node is not None and isinstance(node.primitive, kind) else None


def replaced(
    graph: Graph, kinds: tuple[type[Primitive], ...], change: Callable[[Place], Var | None]
) -> Graph:
    """The graph with the Var that `change` finds for the output of each node of these kinds; None
    keeps the node."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        found = change(Place(rewriter, node)) if isinstance(node.primitive, kinds) else None
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.outputs, (found,))
    return rewriter.finish()


def everywhere(change: Callable[[Graph], Graph], graph: Graph) -> Graph:
    """`change` applied to the graphs inside the attributes, innermost first, then to the graph."""
    inside = partial(everywhere, change)
    nodes = tuple([n if n.primitive._plain else n.map_subgraphs(inside) for n in graph.nodes])
    return change(graph if nodes == graph.nodes else replace(graph, nodes=nodes))


# --- Constant folding -----------------------------------------------------------------------------


def fold(graph: Graph) -> Graph:
    """The graph with every pure node whose inputs are all constants replaced by its value.

    The eager kernels of the CPU compute it, so dtypes and bits are those of an eager call. A
    constant is held as long as the compiled program: a value above 64 KB is folded only if it is no
    larger than the constants it is computed from, so that zeros and ranges stay cheap to hold. A
    node that raises stays in the graph, so that the run reports it.
    """
    rewriter = Rewriter(graph)
    known = set(graph.constants)
    for node in graph.nodes:
        values = folded(rewriter, node) if known.issuperset(node.inputs) else None
        if values is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.outputs, [rewriter.constant(v) for v in values])
            known.update(node.outputs)
    return rewriter.finish()


def folded(rewriter: Rewriter, node: Node) -> list[np.ndarray[Any, Any]] | None:
    """The outputs of a node of constants, or None if this pass must not compute them."""
    given = [v.abstract.value for v in rewriter.inputs(node)]
    arrays = [a for a in given if a is not None]
    if len(arrays) != len(given) or node.effect != "pure":
        return None
    size = sum(v.abstract.nbytes for v in node.outputs)
    if size > max(SMALL, sum(a.nbytes for a in arrays)) or any(node.subgraphs()):
        return None
    tensors = [Tensor.wrap(a, "cpu") for a in arrays]
    try:
        with unwatched(), context(device_target="cpu"):
            outs = eager_trace().bind(
                node.primitive, interleave(node.primitive, tensors, dict(node.consts))
            )
    except Exception:
        return None
    found = [out.asnumpy() for out in outs]
    for value in found:
        value.setflags(write=False)
    return found


# --- Dead code and common subexpressions ----------------------------------------------------------


def prune(graph: Graph) -> Graph:
    """DCE: the graph without the nodes, constants and state pairs that no output or effect needs.

    Nodes with an effect stay, and so do all inputs of the graph: they are its signature. A state
    pair is dropped if its parameter is neither read nor written. Of a branch the outputs that are
    needed stay, and the operands that these need.
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.effect != "pure" or not needed.isdisjoint(node.outputs):
            kept.append(node if node.primitive._plain else narrowed(node, needed))
            needed.update(kept[-1].inputs)
    kept.reverse()
    constants = tuple([v for v in graph.constants if v in needed])
    state = tuple([(p, v) for p, v in graph.state if v in needed])
    same = len(kept) == len(graph.nodes) and all(map(is_, kept, graph.nodes))
    lengths = len(graph.constants), len(graph.state)  # parameters have no plain ==
    if same and (len(constants), len(state)) == lengths:
        return graph
    return replace(graph, nodes=tuple(kept), constants=constants, state=state)


def narrowed(node: Node, needed: Collection[Var]) -> Node:
    """A branch without the outputs that are not needed, nor the operands that only these need; any
    other node as it is."""
    cond, live = node.primitive, [i for i, v in enumerate(node.outputs) if v in needed]
    if not isinstance(cond, Cond) or len(live) in (0, len(node.outputs)):
        return node
    ways: list[tuple[Graph, list[Var]]] = []
    for graph, places in ((cond.on_true, cond.true_takes), (cond.on_false, cond.false_takes)):
        branch = prune(replace(graph, outputs=tuple([graph.outputs[i] for i in live])))
        read = {*branch.outputs, *(v for n in branch.nodes for v in n.inputs)}
        given = {v: node.inputs[1 + i] for v, i in zip(branch.inputs, places, strict=True)}
        given = {v: outer for v, outer in given.items() if v in read}
        ways.append((replace(branch, inputs=tuple(given)), [*given.values()]))
    (yes, true_gets), (no, false_gets) = ways
    operands = [*dict.fromkeys((*true_gets, *false_gets))]
    takes = [tuple(map(operands.index, gets)) for gets in (true_gets, false_gets)]
    return replace(
        node, primitive=Cond(yes, no, takes[0], takes[1]), inputs=(node.inputs[0], *operands),
        outputs=tuple([node.outputs[i] for i in live]),
    )  # fmt: skip


def share(graph: Graph) -> Graph:
    """CSE: the graph with every pure node that repeats an earlier one replaced by that.

    Two nodes are equal if primitive, attributes, const inputs and input values are: 1 and 1.0, 0.0
    and -0.0 differ. A random primitive is a function of its key and offset, so two draws are
    shared only if these are the same. Nodes with an effect are all kept. Constants up to 64 KB
    compare by value.
    """
    rewriter = Rewriter(graph)
    seen: dict[object, tuple[Var, ...]] = {}
    for var in graph.constants:
        value = var.abstract
        same = value.key() if value.nbytes <= SMALL else id(value.value)
        first = seen.setdefault(same, (var,))
        if first != (var,):
            rewriter.replace((var,), first)
    for node in graph.nodes:
        first = node.outputs
        if node.effect == "pure":
            name = node.primitive, node.consts and key(node.consts), rewriter.inputs(node)
            first = seen.setdefault(name, node.outputs)
        if first is node.outputs:
            rewriter.keep(node)
        else:
            rewriter.replace(node.outputs, first)
    return rewriter.finish()


# --- Checks of passes -----------------------------------------------------------------------------


def check(name: str, before: Graph, after: Graph) -> None:
    """Raise GraphError that names the pass, if the graph it made breaks a rule of graphs, or has
    other inputs, outputs or effects than before."""
    try:
        verify(after)
        for what, (of, same, shown) in _KEPT.items():
            if same(before) != same(after):
                raise GraphError(
                    f"graph {after.name!r} has other {what} than before: {shown(of(after))}; it "
                    f"had {shown(of(before))}"
                )
    except GraphError as error:
        broken = GraphError(
            f"pass {name!r} broke a rule of graphs: {error}; disabled_passes={name!r} switches it "
            "off"
        )
        broken.__notes__ = list(error.__notes__)  # of the node, not the runner
        raise broken from error


def _types(variables: Sequence[Var]) -> str:
    return listed(v.abstract for v in variables)


def _effects(graph: Graph) -> list[Node]:
    """The nodes with an effect, in order."""
    return [n for n in graph.nodes if n.effect != "pure"]


def _writes(graph: Graph) -> list[tuple[object, ...]]:
    """The primitives that write parameters, with these, in order."""
    writes = versions(graph).writes
    return [(n.primitive, n.consts, id(writes.get(n))) for n in _effects(graph)]


def _calls(nodes: Sequence[Node]) -> str:
    return ", ".join(n.primitive.name for n in nodes) or "none"


# Parts of a graph that a pass keeps: the part, a key that must stay equal, and its text in errors.
_KEPT: dict[str, tuple[Callable[[Graph], Any], Callable[[Graph], object], Callable[..., str]]] = {
    "inputs": (lambda g: g.inputs, lambda g: _types(g.inputs), _types),
    "outputs": (lambda g: g.outputs, lambda g: _types(g.outputs), _types),
    "effects": (_effects, _writes, _calls),
}
