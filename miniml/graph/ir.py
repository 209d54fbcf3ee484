"""Graph IR: typed programs in single-assignment form, as frozen values.

Graphs: Var, Node and Graph. Pytrees: arguments and results of traced functions are partitioned
into traced leaves and static ones. Names: inputs are named after the function's parameters and
paths in trees. Printer: one typed line per node, with parameters and small constants by name.
Verifier: the rules of a graph; an error names the node, with its text and source line. State: which
Vars are versions of which parameters, and which nodes only serve new ones.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import optree

from ..core.abstract import Abstract, is_float, scalar_dtype, typed
from ..core.errors import GraphError, MinimlError, point_at
from ..core.infer import infer, interleave
from ..core.parameter import Parameter, Reading
from ..core.primitive import Primitive, Same, key, orders, show
from ..core.scope import Location
from ..core.tensor import Array, Tensor, host_array
from ..core.trace import Guarded, partition


class Var:
    """One value of a graph, compared by identity; a constant if its abstract has a value."""

    __slots__ = ("abstract",)

    def __init__(self, abstract: Abstract):
        self.abstract = abstract

    def __repr__(self) -> str:
        return f"Var({self.abstract})"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One call of a primitive: tensors by position, const inputs by name."""

    primitive: Primitive
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    consts: tuple[tuple[str, Any], ...] = ()
    where: Location | None = None

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes and const inputs together: the kernel's keyword arguments."""
        return {**self.primitive.attributes, **dict(self.consts)}

    @property
    def effect(self) -> str:
        """That of its primitive; "ordered" for control flow around a node that has one."""
        own = self.primitive.effect
        if own != "pure" or self.primitive._plain:
            return own
        inner = any(n.effect != "pure" for _, g in self.subgraphs() for n in g.nodes)
        return "ordered" if inner else own

    @property
    def writes(self) -> bool:
        """True if the node makes a new version of the parameter that its first input is a version
        of."""
        return self.primitive.effect == "state" and bool(self.inputs)

    @property
    def abstracts(self) -> tuple[tuple[Abstract, ...], tuple[Abstract, ...]]:
        """The abstracts of the inputs and of the outputs."""
        inputs, outputs = self.inputs, self.outputs
        return tuple([v.abstract for v in inputs]), tuple([v.abstract for v in outputs])

    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        """The graphs among the attributes, also inside tuples, labelled: `branches[1]`."""
        for name, value in () if self.primitive._plain else self.primitive.attributes.items():
            yield from _subgraphs(name, value)

    def map_subgraphs(self, change: Callable[[Graph], Graph]) -> Node:
        """The node with `change` applied to each of its graphs; itself if it has none."""
        if self.primitive._plain:
            return self
        values = {k: _map_subgraphs(v, change) for k, v in self.primitive.attributes.items()}
        return replace(self, primitive=self.primitive.with_attributes(values))


@dataclass(frozen=True, eq=False)
class Graph:
    """A typed program: inputs -> nodes, in program order -> outputs.

    constants: the Vars that carry a value. state: (Parameter, Var) pairs, the values parameters
    have when the graph starts; a node whose primitive has effect "state" and whose first input is
    a version of a parameter gives its next version as first output. input_names, output_names:
    one for each, or none.

    A graph is a function of tensors: `graph(*tensors)` checks their types, compiles it once and
    returns its output, or a tuple of them if there are several; inputs that have names may be
    passed by name. Inside another trace its calls become part of that.
    """

    inputs: tuple[Var, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Var, ...]
    constants: tuple[Var, ...] = ()
    state: tuple[tuple[Parameter, Var], ...] = ()
    name: str = field(default="graph")
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._run(*args, **named)

    @cached_property
    def _run(self) -> Callable[..., Any]:
        return _runner(self)

    def trainable_params(self) -> list[Parameter]:
        """The parameters that it reads and that have `requires_grad`, for an optimizer."""
        return [p for p, _ in self.state if p.requires_grad]

    def __getstate__(self) -> dict[str, Any]:  # without cached properties
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def key(self) -> tuple[object, ...]:
        """The graph up to the names of its Vars and the source lines of its nodes.

        Vars that nothing defines, in a graph that `verify` would refuse, stand for themselves.
        """
        number: dict[Var, int] = {}
        for var in self.definitions():
            number.setdefault(var, len(number))
        formats = ([v.abstract.format for v in n.outputs] for n in self.nodes)
        body = tuple(
            (n.primitive, key(n.consts), tuple(number.get(v, v) for v in n.inputs), tuple(f))
            for n, f in zip(self.nodes, formats, strict=True)
        )
        return (
            tuple(v.abstract.key() for v in self.inputs),
            tuple(v.abstract.key() for v in self.constants),
            tuple((id(p), v.abstract.key()) for p, v in self.state),
            body,
            tuple(number.get(v, v) for v in self.outputs),
        )

    def uses(self) -> Counter[Var]:
        """Number of uses of each Var, by nodes and as an output."""
        return Counter(chain(self.outputs, *[n.inputs for n in self.nodes]))

    def definitions(self) -> Iterator[Var]:
        """Every Var in the order in which it gets its value."""
        yield from self.inputs
        yield from (v for _, v in self.state)
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def makers(self) -> dict[Var, Node]:
        """The node that makes each Var, for all that nodes make."""
        return {v: n for n in self.nodes for v in n.outputs}

    def readers(self) -> dict[Var, list[Node]]:
        """The nodes that read each Var, as often as they do, for all that nodes read or make."""
        found: dict[Var, list[Node]] = {v: [] for n in self.nodes for v in n.outputs}
        for node in self.nodes:
            for var in node.inputs:
                found.setdefault(var, []).append(node)
        return found

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)


def _subgraphs(label: str, value: Any) -> Iterator[tuple[str, Graph]]:
    if isinstance(value, Graph):
        yield label, value
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _subgraphs(f"{label}[{i}]", part)


def _map_subgraphs(value: Any, change: Callable[[Graph], Graph]) -> Any:
    if isinstance(value, Graph):
        return change(value)
    return tuple(_map_subgraphs(v, change) for v in value) if isinstance(value, tuple) else value


_runner: Callable[[Graph], Callable[..., Any]]


def run_by(runner: Callable[[Graph], Callable[..., Any]]) -> None:
    """Set the function that makes a callable of a graph; the runtime, which imports this module,
    calls it."""
    global _runner
    _runner = runner


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Stable topological order: nodes move only as far as their dependencies ask."""
    maker = {v: n for n in nodes for v in n.outputs}
    done: dict[Node, None] = {}
    for node in nodes:
        path = [node]
        while path:
            made = map(maker.get, path[-1].inputs)
            waiting = [n for n in made if n is not None and n not in done]
            if waiting:
                path += reversed(waiting)
            else:
                done.setdefault(path.pop())
    return tuple(done)


# --- Pytrees --------------------------------------------------------------------------------------

Rebuild = Callable[[Sequence[Any]], Any]
_ARRAYS = Tensor, np.ndarray, np.generic
_FOREIGN = "__dlpack__", "__array__"


def flatten_arguments(args: Any) -> tuple[list[Tensor | Array], tuple[object, ...], Rebuild]:
    """(leaves, key, rebuild) of a tree of arguments.

    leaves: the tensors and arrays to trace, arrays in dtypes that tensors have. key: hashable,
    equal if the structure and all static leaves are equal; 1, 1.0 and True differ, and so do dicts
    in another order; Parameters, cells and objects without value semantics compare by identity.
    `rebuild(leaves)` is the tree with other values for the tensors. GraphError for a static leaf
    that cannot be hashed, and for a dataclass of tensors that optree does not know.
    """
    tree = partition(args, is_traced)
    taken = tree.taken()
    for leaf in taken:
        if isinstance(leaf, Reading):
            leaf.own()  # a program may write to memory that it shares
    leaves = [leaf if isinstance(leaf, Tensor) else host_array(leaf, None) for leaf in taken]
    statics = tuple(map(static_key, tree.left()))
    return leaves, (tree.spec, orders(args), tuple(tree.positions), statics), tree.filled


def is_result(leaf: Any) -> bool:
    """True for the leaves of a result that become outputs of the graph."""
    return isinstance(leaf, _ARRAYS)


def is_traced(leaf: Any) -> bool:
    """True for the leaves of an argument that become inputs of the graph, arrays of other libraries
    included, since they may change in place."""
    if isinstance(leaf, _ARRAYS):
        return not isinstance(leaf, Parameter)
    return any(hasattr(type(leaf), name) for name in _FOREIGN)


def static_key(value: Any, who: str = "a traced function") -> object:
    """The key of a leaf that is not traced; GraphError for one that cannot be hashed."""
    refuse_dataclass(f"{who} got", value)
    found = Same(value) if isinstance(value, Tensor) else key(value)
    try:
        hash(found)
    except TypeError:
        raise GraphError(
            f"{who} got {value!r} of type {type(value).__name__}, which is neither a tensor nor "
            "hashable; pass tensors, numbers, strings, or trees of these"
        ) from None
    return found


def refuse_dataclass(who: str, leaf: Any, kind: type[MinimlError] = GraphError) -> None:
    """Refuse a leaf that is a dataclass with tensors in its fields, which no trace would see."""
    if not is_dataclass(leaf) or isinstance(leaf, (type, Guarded)):
        return
    held: Any = [getattr(leaf, f.name, None) for f in fields(leaf)]
    if any(map(is_traced, optree.tree_leaves(held))):
        name = type(leaf).__name__
        raise kind(
            f"{who} the dataclass {name}, a leaf whose tensors are not found; declare {name} with "
            '@optree.dataclasses.dataclass(namespace=""), or make it a NamedTuple'
        )


# --- Names of inputs and outputs ------------------------------------------------------------------

Path = tuple[Any, ...]


def input_names(fn: Callable[..., Any], rebuild: Rebuild, count: int) -> tuple[str, ...]:
    """The names of the tensors that `rebuild` puts into (args, named), the arguments of fn."""
    paths = _paths(rebuild, count)
    positions = max((p[1] for p in paths if p[0] == 0), default=-1) + 1
    of_position = [*_parameters(fn, positions)]
    named = [((of_position[p[1]],) if p[0] == 0 else (p[1],)) + p[2:] for p in paths]
    return unique(_joined(path) for path in named)


def output_names(rebuild: Rebuild, count: int) -> tuple[str, ...]:
    """The names of the tensors that `rebuild` puts into a result."""
    paths = _paths(rebuild, count)
    return unique(_joined(p if p and isinstance(p[0], str) else ("out", *p)) for p in paths)


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """The names, with a number appended to each that occurred before."""
    counts: dict[str, int] = dict.fromkeys(taken, 1)
    found = []
    for name in names:
        chosen = name
        while chosen in counts:
            counts[name] += 1
            chosen = f"{name}_{counts[name]}"
        counts[chosen] = 1
        found.append(chosen)
    return tuple(found)


def _joined(path: Path) -> str:
    return ".".join(map(str, path))


def _paths(rebuild: Rebuild, count: int) -> list[Path]:
    """Path of each value in the rebuilt tree, of keys, indices and names of fields."""
    tree = rebuild(list(map(Leaf, range(count))))
    found: list[Path] = [()] * count
    for accessor, leaf in zip(optree.tree_accessors(tree), optree.tree_leaves(tree), strict=True):
        if isinstance(leaf, Leaf):
            found[leaf.index] = tuple(getattr(e, "field", e.entry) for e in accessor)
    return found


class Leaf:
    """A placeholder for a traced leaf, to find where it stands."""

    def __init__(self, index: int):
        self.index = index


def _parameters(fn: Callable[..., Any], count: int) -> Iterator[str]:
    """Names of a function's first arguments by position."""
    kinds = inspect.Parameter
    known: Mapping[str, inspect.Parameter]
    try:
        known = signature_of(fn).parameters
    except (TypeError, ValueError):
        known = {}
    parameters: Sequence[inspect.Parameter] = list(known.values())
    single = [
        p.name for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    yield from single[:count]
    rest = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), "x")
    yield from (f"{rest}.{i}" for i in range(count - len(single)))


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Signature of a function: for a Cell that of its construct, for a gradient or a compiled
    function that of the function inside. TypeError or ValueError if it is unknown."""
    inner = inspect.unwrap(fn, stop=lambda f: hasattr(f, "__signature__"))
    return inspect.signature(getattr(inner, "construct", inner))


# --- Printer --------------------------------------------------------------------------------------

_WIDTH = 100
_SHOWN = 8  # constants of at most this many elements are written out


def text(graph: Graph, where: bool = False) -> str:
    """The graph as text; `where` adds the user's line to each node, as a comment.

    Scalar constants are written where they are used: `1.0` is a float32[], `1` an int64[], `True` a
    bool[], others say their dtype. Graphs inside attributes are printed below their node.
    """
    return "\n".join(_lines(graph, where))


def _lines(graph: Graph, where: bool) -> Iterator[str]:
    names = Names(graph)
    inputs = [names.typed(v) for v in graph.inputs]
    states = [f"state {names.typed(v)}" for _, v in graph.state]
    yield from _head(graph.name, inputs + states)
    for var in graph.constants:
        if not is_inline(var):
            yield f"  {names.typed(var)} = constant{_elements(var)}"
    for node in graph.nodes:
        line = f"  {names.node(node)}"
        yield f"{line}  # {user_line(node)}" if where and node.where else line
        for label, inner in node.subgraphs():
            for i, line in enumerate(_lines(inner, where)):
                yield f"    {line}" if i else f"    {label}: {line}"
    yield f"  return {', '.join(names[v] for v in graph.outputs)}".rstrip()


def _head(name: str, signature: list[str]) -> Iterable[str]:
    line = f"{name}({', '.join(signature)}):"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{name}(", *(f"    {part}," for part in signature), "):"]


def user_line(node: Node) -> str:
    """`file.py:12: y = exp(x)`, the line of the user's source that a node comes from."""
    if node.where is None:
        return ""
    line = node.where.line
    source = linecache.getline(node.where.code.co_filename, line).strip()
    return f"{os.path.basename(node.where.file)}:{line}" + (f": {source}" if source else "")


class Names:
    """The names of a graph's Vars in its text; `%?` is a Var that the graph does not define."""

    def __init__(self, graph: Graph):
        self._names: dict[Var, str] = {}
        taken: set[str] = set()
        for parameter, var in graph.state:
            self._names[var] = _unused(parameter.name, taken)
        listed = [v for v in graph.constants if not is_inline(v)]
        self._names.update((v, _unused(f"c{i}", taken)) for i, v in enumerate(listed))
        self._names.update((v, _scalar(v)) for v in graph.constants if is_inline(v))
        made = (v for n in graph.nodes for v in n.outputs)
        for number, var in enumerate(chain(graph.inputs, made)):
            self._names.setdefault(var, f"%{number}")

    def __getitem__(self, var: Var) -> str:
        return self._names.get(var, "%?")

    def typed(self, var: Var) -> str:
        """Name and type: `%1: float32[2, 3]`."""
        return f"{self[var]}: {var.abstract}"

    def node(self, node: Node) -> str:
        """The line of one node."""
        shown = ", ".join(f"{k}={show(v)}" for k, v in node.attrs.items())
        outputs = ", ".join(map(self.typed, node.outputs))
        inputs = ", ".join(self[v] for v in node.inputs)
        return f"{outputs or '_'} = {node.primitive.name}({shown}) {inputs}".rstrip()


def _unused(preferred: str, taken: set[str]) -> str:
    """`%preferred`, changed if it looks like a number or is already taken."""
    stem = re.sub(r"[^\w.]", "_", preferred) or "state"
    stem = f"p{stem}" if stem.isdigit() else stem
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    taken.add(name)
    return f"%{name}"


def is_inline(var: Var) -> bool:
    """True for scalar constants, which the text shows where they are used."""
    value = var.abstract.value
    return value is not None and value.shape == () == var.abstract.shape


def _scalar(var: Var) -> str:
    assert var.abstract.value is not None
    value = var.abstract.value.item()
    plain = scalar_dtype(value) == var.abstract.dtype
    shown = _short(var) if isinstance(value, float) else str(var.abstract.value[()])
    shown = shown.strip("()")  # of a complex number
    return shown if plain else f"{var.abstract.dtype.name}({shown})"


def _short(var: Var) -> str:
    """The shortest digits that give the same number in the constant's own dtype."""
    assert var.abstract.value is not None
    digits = str(var.abstract.value[()])
    return digits if re.search(r"[.en]", digits) else f"{digits}.0"


def _elements(var: Var) -> str:
    value = var.abstract.value
    if value is None or value.size > _SHOWN:
        return ""
    return " " + re.sub(r"\s+", " ", np.array2string(value, separator=", ", floatmode="unique"))


# --- Verifier -------------------------------------------------------------------------------------


def verify(graph: Graph) -> Graph:
    """Return the graph if it keeps all rules; else raise GraphError.

    Every Var is defined once, and before it is used; constants carry a value of their shape and
    dtype; state Vars have their parameter's; each node's outputs are those inferred from its
    inputs; a state node on a parameter writes its newest version; the graphs inside attributes
    keep the same rules. The work is linear in the number of nodes.
    """
    names = Names(graph)
    defined = _signature(graph, names)
    again = versions(graph).again
    for node in graph.nodes:
        try:
            _check_inputs(graph, node, names, defined)
            _check_types(node, names)
            if node in again:
                raise GraphError(f"it writes {names[node.inputs[0]]}, which was overwritten before")
            for label, inner in node.subgraphs():
                _check_inner(label, inner)
            _define(node.outputs, names, defined)
        except Exception as error:
            if not isinstance(error, GraphError):
                error = GraphError(f"inference refuses the node: {error}")
            refusal = GraphError(f"graph {graph.name!r}, {names.node(node)}: {error}")
            point_at(refusal, node.where)
            raise refusal from error
    for var in graph.outputs:
        if var not in defined:
            raise GraphError(f"graph {graph.name!r} returns a value that nothing defines: {var}")
    return graph


def _signature(graph: Graph, names: Names) -> set[Var]:
    """The Vars that are defined before the first node, checked."""
    defined: set[Var] = set()
    _define(graph.inputs, names, defined)
    _define((var for _, var in graph.state), names, defined)
    _define(graph.constants, names, defined)
    if len({id(p) for p, _ in graph.state}) != len(graph.state):
        raise GraphError(f"graph {graph.name!r} has one parameter twice in its state")
    for parameter, var in graph.state:
        if (parameter.shape, parameter.dtype) != (var.abstract.shape, var.abstract.dtype):
            raise GraphError(
                f"graph {graph.name!r} state {names.typed(var)} stands for {parameter.name!r}, "
                f"which is {typed(parameter)}"
            )
    for var in graph.constants:
        value = var.abstract.value
        if value is None:
            raise GraphError(f"graph {graph.name!r} constant {names.typed(var)} has no value")
        if (value.shape, value.dtype) != (var.abstract.shape, var.abstract.dtype):
            raise GraphError(
                f"graph {graph.name!r} constant {names.typed(var)} has a value of {typed(value)}"
            )
    return defined


def _define(variables: Iterable[Var], names: Names, defined: set[Var]) -> None:
    for var in variables:
        if var in defined:
            raise GraphError(f"{names[var]} is defined a second time")
        defined.add(var)


def _check_inputs(graph: Graph, node: Node, names: Names, defined: set[Var]) -> None:
    for index, var in enumerate(node.inputs):
        if var not in defined:
            raise GraphError(
                f"input {index}, {names[var]}, is used before it is defined: "
                + _why_undefined(graph, node, var, names)
            )


def _why_undefined(graph: Graph, node: Node, var: Var, names: Names) -> str:
    """Reason why a value that a node reads is undefined: it dangles, a cycle, a wrong order."""
    maker = {v: n for n in graph.nodes for v in n.outputs}
    if var not in maker:
        return "no node, input, constant or parameter of the graph gives it"
    seen, pending = set[Var](), [var]
    while pending:
        for needed in maker[pending.pop()].inputs:
            if needed in node.outputs:
                return f"{names.node(maker[var])} needs {names[needed]} in turn, which is a cycle"
            if needed in maker and needed not in seen:
                seen.add(needed)
                pending.append(needed)
    return f"{names.node(maker[var])} comes later; nodes stand in the order in which they run"


def _check_types(node: Node, names: Names) -> None:
    given = interleave(node.primitive, [v.abstract for v in node.inputs], dict(node.consts))
    inferred = infer(node.primitive, given)
    if len(inferred) != len(node.outputs):
        raise GraphError(f"it has {len(node.outputs)} outputs; inference gives {len(inferred)}")
    for var, expected in zip(node.outputs, inferred, strict=True):
        if (var.abstract.shape, var.abstract.dtype) != (expected.shape, expected.dtype):
            raise GraphError(f"output {names.typed(var)} is inferred to be {expected}")
        if var.abstract.value is not None:
            raise GraphError(f"output {names[var]} carries a constant value")


def _check_inner(label: str, inner: Graph) -> None:
    try:
        verify(inner)
    except GraphError as error:
        raise GraphError(f"in {label}: {error}") from error


# --- State ----------------------------------------------------------------------------------------


def versions(graph: Graph) -> Versions:
    """The versions of the parameters of a graph, in one walk over its nodes."""
    parameter = {var: p for p, var in graph.state}
    newest = {id(p): (p, var) for p, var in graph.state}
    writes: dict[Node, Parameter] = {}
    again = set()
    for node in graph.nodes:
        target = parameter.get(node.inputs[0]) if node.writes else None
        if target is not None:
            if newest[id(target)][1] is not node.inputs[0]:
                again.add(node)
            writes[node] = parameter[node.outputs[0]] = target
            newest[id(target)] = target, node.outputs[0]
    first = {var for _, var in graph.state}
    final = tuple((p, var) for p, var in newest.values() if var not in first)
    return Versions(parameter, writes, frozenset(again), final)


@dataclass(frozen=True, slots=True)
class Versions:
    """Reads and writes of parameters in a graph.

    parameter: the parameter of every Var that is a version of one. writes: the parameter of every
    node that makes a new version; `again` holds those among them that overwrite a version other
    than the newest, which no valid graph does. final: each written parameter, with the Var of its
    value at the end.
    """

    parameter: dict[Var, Parameter]
    writes: dict[Node, Parameter]
    again: frozenset[Node]
    final: tuple[tuple[Parameter, Var], ...]


def only_for_state(graph: Graph, total: Callable[[Node], bool]) -> set[Node]:
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


# --- Floating-point operations -------------------------------------------------------------------


def flops(graph: Graph) -> Iterator[tuple[Node, int]]:
    """Each node that computes, those of branches and loops too, and its operations in one run.

    A multiply-add counts as 2, any function of one number as 1, and nodes that only move or
    create numbers, or have integers alone, as 0. Each primitive says its formula, by `flops` in its
    class; n is the size of the inputs if the formula says so, else of the outputs:

        product of matrices     2 m n k, for each matrix of a batch
        einsum of p operands    p times the product of the extents of all labels
        convolution             2 x size of the output x numbers in one filter, and so its gradients
        pooling                 size of the output x numbers in a window
        reduction               n inputs; log-sum-exp 4 n
        softmax, log-softmax    5 n: maximum, difference, exponential, sum, quotient; and losses of
        layer and batch norm    7 n: mean, difference, square, mean, three for scale and shift
        attention               2 s (E + F) + 5 s for s scores of queries of size E and values of
                                size F; 2.5 times as many for its gradients
        factors of a matrix     the leading terms, as Golub and Van Loan (2013) count them
        everything else         n, primitives of your own as well

    A scan counts once for each step, a branch by its larger side, and a loop whose number of
    iterations is unknown by one iteration.
    """
    for node in graph.nodes:
        yield from _flops_of(node)


def _flops_of(node: Node) -> Iterator[tuple[Node, int]]:
    inner = [list(flops(graph)) for _, graph in node.subgraphs()]
    if not inner:
        floats = any(is_float(v.abstract.dtype) for v in (*node.inputs, *node.outputs))
        known = [[v.abstract for v in values] for values in (node.inputs, node.outputs)]
        yield node, node.primitive.flops(*known) if floats else 0
    elif node.primitive.name == "Cond":
        yield from max(inner, key=lambda found: sum(count for _, count in found))
    else:
        times = node.attrs.get("length", 1)
        yield from ((n, times * count) for found in inner for n, count in found)
