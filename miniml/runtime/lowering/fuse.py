"""Fusion: nodes that share their loops become one Fused node, where C kernels run first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise
from math import prod

from ...backends.cuda.text.groups import BLOCK, parts
from ...backends.selection import Target
from ...graph.ir import Graph, Node, Var
from ...graph.state import versions
from ...ops.control import Fused
from ...settings import current
from ..fusion.anchors import anchor_of, anchors, tail
from ..fusion.axes import Apart
from ..fusion.members import kind_of, literal, reduced_axes
from ..fusion.nest import Nest
from .legalize import select

LARGEST = 48  # nodes of a group: longer texts compile slowly and spill registers
ARRAYS = 24  # that one loop reads and writes: more than that many streams are slow


def fuse(graph: Graph, target: Target) -> Graph:
    """The graph with groups of nodes as Fused nodes; the same graph where no C kernels are wanted,
    or where the outputs of every node are checked."""
    if not native(target) or current().check_nan:
        return graph
    return _Grouping(graph, target).graph_of_groups()


def native(target: Target) -> bool:
    """True where kernels in C that is written for a program go before others."""
    order = (*target.providers, "miniml")
    return "cc" in order and order.index("cc") < order.index("miniml")


def in_parts(node: Node) -> bool:
    """True for a reduction of rows so few and long that a GPU is busy only where several blocks
    share a row, which groups of nodes do not."""
    if kind_of(node) != "reduction":
        return False
    shape, axes = node.inputs[0].abstract.shape, reduced_axes(node)
    n = prod(shape[a] for a in axes)
    inner = prod(shape[max(axes, default=-1) + 1 :])
    return inner == 1 and parts(prod(shape) // n, n, BLOCK) > 1


@dataclass(eq=False, slots=True)
class Group:
    """Nodes that become one. bits: the positions of its nodes in the graph, as a set of bits;
    before: those of all nodes that must run before one of them. shape: that of all its values,
    where it has elementwise nodes only. late: it only serves new values of parameters."""

    nodes: list[Node]
    bits: int
    before: int
    late: bool
    joins: bool
    absorbs: bool = True
    shape: tuple[int, ...] | None = None
    body: list[Node] = field(default_factory=list)


class _Grouping:
    def __init__(self, graph: Graph, target: Target):
        self.graph, self.target = graph, target
        self.position = {n: i for i, n in enumerate(graph.nodes)}
        self.maker = {v: n for n in graph.nodes for v in n.outputs}
        self.kinds = {n: kind_of(n) for n in graph.nodes}
        self.roots: dict[Var, Var] = {}
        self.group: dict[Node, Group] = {}
        late = _only_for_state(graph, self._total)
        for node in graph.nodes:
            if not self._free(node):
                self._place(node, node in late)
        self._join_readers()
        readers: dict[Var, list[Node]] = {}
        for node in graph.nodes:
            for var in node.inputs:
                readers.setdefault(var, []).append(node)
        for node in graph.nodes:
            if anchors(node) and select(node, target).entry.provider == "cc":
                self._anchor(self.group[node], readers)

    def _total(self, node: Node) -> bool:
        """True for nodes whose kernels cannot fail: those in C, and NumPy's that say so."""
        if self._free(node) or self._joinable(node):
            return True
        entry = select(node, self.target).entry
        return entry.built_in and (entry.view is not None or entry.total)

    def _free(self, node: Node) -> bool:
        """True for nodes that cost nothing and stand in each group that reads them."""
        return self.kinds[node] in ("view", "window", "created")

    def root(self, var: Var) -> Var:
        """The value that `var` is a view or a slice of."""
        if var not in self.roots:
            node = self.maker.get(var)
            viewed = node is not None and self.kinds[node] in ("view", "window")
            self.roots[var] = self.root(node.inputs[0]) if node is not None and viewed else var
        return self.roots[var]

    def _makers(self, variables: Iterable[Var]) -> dict[Group, None]:
        """The groups that compute these values."""
        makers = (self.maker.get(self.root(v)) for v in variables)
        return dict.fromkeys(self.group[n] for n in makers if n in self.group)

    def _place(self, node: Node, late: bool) -> None:
        makers = self._makers(node.inputs)
        before = 0
        for maker in makers:
            before |= maker.before | maker.bits
        group = Group([node], 1 << self.position[node], before, late, False)
        self.group[node] = group
        if not self._joinable(node):
            return
        group.joins, group.shape = True, self._plain_shape(node)
        if group.shape is None and self._nest([node]) is None:
            group.absorbs = False
            group.joins = self._nest([node], absorb=False) is not None
            return
        # The last one first: another may be needed by it.
        for maker in sorted(makers, key=lambda g: -g.bits.bit_length()):
            group = self._joined(maker, group) or group

    def _joinable(self, node: Node) -> bool:
        if self.kinds[node] not in ("elements", "reduction") or node.consts:
            return False
        if self.target.home == "cuda" and in_parts(node):
            return False
        provider = select(node, self.target).entry.provider
        providers = self.target.providers
        return provider not in providers or providers.index(provider) >= providers.index("cc")

    def _plain_shape(self, node: Node) -> tuple[int, ...] | None:
        """The shape of an elementwise node that reads no views."""
        if self.kinds[node] != "elements" or any(self._absorbed(v) for v in node.inputs):
            return None
        return node.outputs[0].abstract.shape

    def _absorbed(self, var: Var) -> bool:
        return var in self.maker and self._free(self.maker[var])

    def _joined(self, first: Group, second: Group) -> Group | None:
        """The two groups as one, `first` being read by `second`; None where that cannot be."""
        if first is second:
            return first
        return None if self.why_apart(first, second) else self._merged(first, second)

    def _merged(self, first: Group, second: Group) -> Group:
        nodes = sorted({*first.nodes, *second.nodes}, key=self.position.__getitem__)
        bits = first.bits | second.bits
        before = (first.before | second.before) & ~bits
        shape = first.shape if first.shape == second.shape else None
        group = Group(nodes, bits, before, first.late, True, True, shape)
        for node in nodes:
            self.group[node] = group
        for other in dict.fromkeys(self.group.values()):
            if other is not group and other.before & bits:
                other.before |= before | bits
        return group

    def why_apart(self, first: Group, second: Group) -> str:
        """Why two groups cannot be one; "" where they can."""
        if not (first.joins and second.joins and first.absorbs and second.absorbs):
            return "one has a kernel of its own"
        if first.late != second.late:
            return "one is an update of parameters, which comes last"
        if len(first.nodes) + len(second.nodes) > LARGEST:
            return f"more than {LARGEST} nodes"
        if self._between(first, second) or self._between(second, first):
            return "one needs something else that needs the other"
        nodes = sorted({*first.nodes, *second.nodes}, key=self.position.__getitem__)
        outside = {self.root(v) for n in nodes for v in n.inputs}
        outside = {v for v in outside if self.maker.get(v) not in nodes and not literal(v)}
        if len(outside) > ARRAYS:
            return f"more than {ARRAYS} arrays"
        read = {self.root(v) for n in second.nodes for v in n.inputs}
        reads = any(v in self.maker and self.group.get(self.maker[v]) is first for v in read)
        if reads and first.shape is not None and first.shape == second.shape:
            return ""  # what the loops would show
        try:
            Nest(self.body(nodes), self.kinds)
        except Apart as reason:
            return str(reason)
        return ""

    def _between(self, first: Group, second: Group) -> bool:
        """True where something that needs `first` has to run before `second`."""
        makers = self._makers(v for n in second.nodes for v in n.inputs)
        return any(
            (m.bits | m.before) & first.bits for m in makers if m is not first and m is not second
        )

    def _nest(self, nodes: Sequence[Node], absorb: bool = True) -> Nest | None:
        try:
            return Nest(self.body(nodes, absorb), self.kinds)
        except Apart:
            return None

    def body(self, nodes: Sequence[Node], absorb: bool = True) -> list[Node]:
        """The nodes with the views and created values that they read, in program order."""
        found = dict.fromkeys(nodes)
        loops = [n for n in nodes if self.kinds[n]]  # a product reads whole arrays
        stack = [v for n in loops for v in n.inputs] if absorb else []
        while stack:
            node = self.maker.get(stack.pop())
            if node is not None and node not in found and self._free(node):
                found[node] = None
                stack += node.inputs if self.kinds[node] != "window" else ()
        return sorted(found, key=self.position.__getitem__)

    def _join_readers(self) -> None:
        """Groups that read the same array, as the gradients of a layer do, read it once."""
        readers: dict[Var, dict[Node, None]] = {}
        for group in dict.fromkeys(self.group.values()):
            for var in {self.root(v) for n in group.nodes for v in n.inputs} if group.joins else ():
                if max(var.abstract.shape, default=1) > 1:
                    readers.setdefault(var, {})[group.nodes[0]] = None
        for nodes in readers.values():
            first, *rest = nodes
            for node in rest:
                joined = self._joined(self.group[first], self.group[node])
                first = first if joined else node

    def _anchor(self, first: Group, readers: Mapping[Var, Sequence[Node]]) -> None:
        """Let the first group that reads a product, element by element, follow it in its kernel."""
        (made,) = first.nodes[0].outputs
        for second in dict.fromkeys(
            self.group[n] for n in readers.get(made, ()) if n in self.group
        ):
            fits = second.joins and second.absorbs and first.late == second.late
            if fits and not self._between(first, second) and self._follows(first, second):
                first.joins = True
                self._merged(first, second)
                return

    def _follows(self, first: Group, second: Group) -> bool:
        """True where the second group can take the sums of the product that is the first."""
        nodes, anchor = self.body(second.nodes), first.nodes[0]
        outputs = tuple(n.outputs[0] for n in second.nodes)
        try:
            tail(_body((anchor, *nodes), outputs), anchor)
        except Apart:
            return False
        return anchor_of(second.nodes) is None

    def graph_of_groups(self) -> Graph:
        """The graph with every group that joins as a Fused node."""
        outputs = self._needed()
        units: list[tuple[int, Node]] = []
        for group, made in outputs.items():
            last = max(self.position[n] for n in group.nodes)
            units.append((last, self._fused(group, made) if group.joins else group.nodes[0]))
        units += [(self.position[n], n) for n in self.kept]
        return replace(self.graph, nodes=tuple(_in_order(units)))

    def _needed(self) -> dict[Group, dict[Var, None]]:
        """The groups that are needed, and which of their values are needed outside; `kept` are the
        views and created values that are."""
        outputs: dict[Group, dict[Var, None]] = {}
        self.kept: dict[Node, None] = {}
        stack = list(self.graph.outputs)
        for node in self.graph.nodes:
            if node.primitive.effect != "pure":
                stack += node.outputs
                stack += node.inputs
                outputs.setdefault(self.group[node], {})
        while stack:
            var = stack.pop()
            if var not in self.maker:
                continue
            node = self.maker[var]
            if node not in self.group:
                if node not in self.kept:
                    self.kept[node] = None
                    stack += node.inputs
                continue
            group = self.group[node]
            if group not in outputs or not group.body:
                outputs.setdefault(group, {})
                group.body = self.body(group.nodes, group.absorbs and group.joins)
                stack += _read(group.body)
            outputs[group][var] = None
        return outputs

    def _fused(self, group: Group, made: dict[Var, None]) -> Node:
        outputs = tuple(n.outputs[0] for n in group.nodes if n.outputs[0] in made)
        body = _body(group.body, outputs)
        return Node(Fused(body), body.inputs, outputs, (), group.nodes[-1].where)


def _body(nodes: Sequence[Node], outputs: tuple[Var, ...]) -> Graph:
    """The graph of a group, named by what it computes."""
    read = _read(nodes)
    constants = tuple(v for v in read if literal(v))
    inputs = tuple(v for v in read if not literal(v))
    named = (
        n.primitive.name.lower() for n in nodes if kind_of(n) not in ("view", "created", "window")
    )
    return Graph(inputs, tuple(nodes), outputs, constants, (), "_".join(dict.fromkeys(named))[:60])


def _read(nodes: Sequence[Node]) -> list[Var]:
    """The values that these nodes read and do not make."""
    made = {v for n in nodes for v in n.outputs}
    return [v for v in dict.fromkeys(v for n in nodes for v in n.inputs) if v not in made]


def _only_for_state(graph: Graph, total: Callable[[Node], bool]) -> set[Node]:
    """The nodes that may run last: they cannot fail, and only serve new values of parameters."""
    useful = {var for _, var in versions(graph).final}
    early, late = set(graph.outputs), set()
    for node in reversed(graph.nodes):
        serves = any(v in useful for v in node.outputs) and not early.intersection(node.outputs)
        if serves and total(node):
            late.add(node)
            useful.update(node.inputs)
        else:
            early.update(node.inputs)
    return late


def _in_order(units: Sequence[tuple[int, Node]]) -> Iterator[Node]:
    """The nodes in an order in which each runs after what it reads, near that of the program; those
    with effects keep theirs."""
    maker = {v: i for i, (_, n) in enumerate(units) for v in n.outputs}
    before = [{maker[v] for v in n.inputs if v in maker} for _, n in units]
    effects = sorted((at, i) for i, (at, n) in enumerate(units) if n.primitive.effect != "pure")
    for (_, one), (_, other) in pairwise(effects):
        before[other].add(one)
    after: dict[int, list[int]] = {}
    for i, needs in enumerate(before):
        for need in needs:
            after.setdefault(need, []).append(i)
    ready: list[tuple[int, int]] = []
    for i, (at, _) in enumerate(units):
        if not before[i]:
            heappush(ready, (at, i))
    while ready:
        _, i = heappop(ready)
        yield units[i][1]
        for other in after.get(i, ()):
            before[other].discard(i)
            if not before[other]:
                heappush(ready, (units[other][0], other))
