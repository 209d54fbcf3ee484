"""Loop nests of fused groups: their axes, which of these form the row, and dependences on them.

Axes: axes of several arrays that run together are unified. Members: nodes that loops can compute,
by an expression, as a view, or as a reduction, and the graph of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from math import prod
from types import MappingProxyType
from typing import Any, Literal

from ..backends import registry
from ..backends.expressions import Scalar, table
from ..backends.kernel import KernelNode
from ..backends.product import dense_strides
from ..backends.selection import Target
from ..core.abstract import FORMATS, ArraySpec, DType, float16, moves, parse, type_code
from ..core.errors import PerformanceWarning, warn_user
from ..core.scope import epoch
from ..graph.ir import Graph, Node, Var
from ..ops.checks import normal_axes

_SHORT = 16  # elements of a row that takes as long to begin as to compute
_PARTS = 8  # that one loop writes side by side
_RESULTS = 256  # results, for each element that one of them takes, that would be many partial ones


class Nest:
    """The loops in which all `nodes` (in program order) are computed; Apart if there are none.

    dims: the axes of every value as loops; flat: in the order of its memory. outer, row: the loops,
    the outermost first. reduced: the loops over which a reduction runs. kinds: of the nodes, if
    they are known already.
    """

    def __init__(self, nodes: Sequence[Node], kinds: Mapping[Node, Member] | None = None):
        self.kinds = {n: kind_of(n) for n in nodes} if kinds is None else kinds
        windows = [n for n in nodes if self.kinds[n] == "window"]
        read = {v for n in nodes if self.kinds[n] != "window" for v in n.inputs}
        nodes = [n for n in nodes if self.kinds[n] != "window" or n.outputs[0] in read]
        self.nodes, self._axes = tuple(nodes), Axes()
        self.dims: dict[Var, Dims] = {}
        for node in nodes:
            if self.kinds[node] != "window":
                self._read(node)
            self._set(node.outputs[0], self._related(node))
        resolve, moved = self._axes.resolve, self._axes.parts.keys()
        self.dims = {
            v: tuple([axes if moved.isdisjoint(axes) else resolve(axes) for axes in dims])
            for v, dims in self.dims.items()
        }
        self.flat = {v: _flat(self.stored(v)) for v in self.dims}
        if any(len(set(flat)) != len(flat) for flat in self.flat.values()):
            raise Apart("one value is read along two different axes")
        self.made = {n.outputs[0]: n for n in nodes}
        cut = [self.made.get(n.inputs[0]) for n in windows]
        if any(n and not slices(n) for n in cut):
            raise Apart("one reads a slice of the other")
        joined = {n.outputs[0] for n in nodes if self.kinds[n] == "join"}
        if any(v in joined for n in nodes for v in n.inputs):
            raise Apart("one reads what the other joins")
        if any(len(self.dims[v][a]) > 1 for v, n in self.made.items() for a in bounds(n)):
            raise Apart("one reads a part of an axis that is two loops of the other")
        self.reduced = {n: self._reduced(n) for n in nodes if self.kinds[n] == "reduction"}
        order = self._order()
        self.inner = self._inner()
        self.row = self._row(order)
        self.outer = tuple(a for a in order if a not in self.row)
        self._check()

    def _read(self, node: Node) -> None:
        """Note the axes of inputs from outside: those of others of that shape beside them."""
        new = [v for v in node.inputs if v not in self.dims]
        each = new and self.kinds[node] == "elements"
        known = {loop_shape(v): self.dims[v] for v in node.inputs if v in self.dims} if each else {}
        for var in new:
            self._set(var, known.get(loop_shape(var)) or self._axes.fresh(loop_shape(var)))

    def _set(self, var: Var, dims: Dims) -> None:
        """Note a value's axes; channels in blocks are two loops."""
        self.dims[var] = dims
        block = _block(var)
        if block and var.abstract.shape[1] > block:
            blocks = Axis(loop_shape(var)[1] // block), Axis(block)
            self._axes.equate(dims[1], blocks)

    def stored(self, var: Var) -> Dims:
        """The axes of the array that holds a value, in its memory format."""
        dims, format = self.dims.get(var, ()), var.abstract.format
        if format is None or not dims:
            return dims
        block = _block(var)
        if not block:
            return tuple([dims[a] for a in FORMATS[format].order])
        lanes = next((i for i in range(len(dims[1]) + 1) if extent(dims[1][i:]) == block), None)
        if lanes is None:
            raise Apart("blocks of channels do not line up")
        return (dims[0], dims[1][:lanes], *dims[2:], dims[1][lanes:])

    def _related(self, node: Node) -> Dims:
        """The axes of a node's output, tied to those of its inputs."""
        kind = self.kinds[node]
        shape = loop_shape(node.inputs[0] if kind == "join" else node.outputs[0])
        if kind == "window":
            return self._axes.fresh(shape)
        inputs = [self.dims[v] for v in node.inputs]
        if not kind:
            raise Apart(f"{node.primitive.name} has no expression")
        if kind == "reduction":
            return self._left(node, inputs[0])
        view = type(node.primitive).view
        if view == "transpose":
            return tuple(inputs[0][a] for a in node.attrs["axes"])
        if kind in ("elements", "join") or view == "broadcast":
            return self._broadcast(shape, inputs)
        out = self._axes.fresh(shape)
        if inputs:  # a Reshape or the like
            self._axes.equate(_flat(inputs[0]), _flat(out))
        return out

    def _broadcast(self, shape: Sequence[int], inputs: Sequence[Dims]) -> Dims:
        out: list[Compound | None] = [() if n == 1 else None for n in shape]
        for dims in inputs:
            for i, axes in enumerate(dims, len(shape) - len(dims)):
                known = out[i]
                if axes is not known and extent(axes) == shape[i]:
                    if known is None:
                        out[i] = axes
                    else:
                        self._axes.equate(known, axes)
        return tuple([(Axis(n),) if axes is None else axes for n, axes in zip(shape, out)])

    def _left(self, node: Node, dims: Dims) -> Dims:
        """The axes that a reduction leaves, in the shape of its output."""
        gone, shape = reduced_axes(node), node.outputs[0].abstract.shape
        kept = [d for i, d in enumerate(dims) if i not in gone]
        if len(shape) == len(kept):
            return tuple(kept)
        rest = iter(kept)
        lead = len(dims) - len(shape)
        return tuple(() if i in gone else next(rest) for i in range(lead, len(dims)))

    def _reduced(self, node: Node) -> Compound:
        dims = self.dims[node.inputs[0]]
        return _flat([dims[i] for i in reduced_axes(node)])

    def _order(self) -> Compound:
        """All loops, in the order of an array that has them all."""
        every = {a for flat in self.flat.values() for a in flat}
        outside = [v for v in self.flat if v not in self.made]
        for var in (*reversed(self.made), *outside):
            if len(self.flat[var]) == len(every):
                return self.flat[var]
        raise Apart("they run over different elements")

    def _inner(self) -> set[Node]:
        """The reductions whose results other nodes of the group read."""
        read = {v for n in self.nodes for v in n.inputs}
        return {n for n in self.reduced if n.outputs[0] in read}

    def _row(self, order: Compound) -> Compound:
        """The loops that form the row: those of reductions whose results are read, else the last
        loops that all reductions treat alike, or those over which all of them run."""
        over = {a for n in self.inner for a in self.reduced[n]}
        if not over:
            count = len(order)
            flats = [(gone, self.flat[n.inputs[0]]) for n, gone in self.reduced.items()]
            alike = [tuple((a in gone, a in flat) for gone, flat in flats) for a in order]
            first = next((i for i in range(count) if len(set(alike[i:])) == 1), count)
            over = self._instead_of(order, order[first:])
        return tuple(a for a in order if a in over)

    def _instead_of(self, order: Compound, row: Compound) -> set[Axis]:
        """The loops over which all reductions run, if these make better rows than `row`: where
        partial results for several parts of the input would be as large as the input, or rows
        too short to pay for their start; else those of `row`."""
        loops = {*map(frozenset, self.reduced.values())}
        over = next(iter(loops), frozenset())
        if len(loops) > 1 or not over:
            return {*row}
        kept = extent([a for a in order if a not in over])
        few = extent([*over]) <= max(_SHORT, kept // _RESULTS)
        return {*over} if few or (extent(row) <= _SHORT and kept >= _RESULTS) else {*row}

    def _check(self) -> None:
        row, every = set(self.row), {*self.row, *self.outer}
        for node, gone in self.reduced.items():
            kept = set(self.flat[node.inputs[0]]).difference(gone)
            if row.intersection(gone) and row.intersection(kept):
                raise Apart(f"{node.primitive.name} reduces a part of the row")
            if kept.union(gone) not in (set(), every, set(self.outer)):  # each once, no more
                raise Apart(f"{node.primitive.name} reduces fewer elements than the loops have")
            if node in self.inner and not row.issuperset(gone):
                raise Apart(f"{node.primitive.name} over all rows is read by the same rows")
        for var, node in self.made.items():
            axes = set(self.flat[var])
            each = self.kinds[node] in ("elements", "join")
            if each and axes and axes not in (every, set(self.outer)):
                raise Apart(f"{node.primitive.name} has fewer elements than the loops")

    @cached_property
    def on(self) -> dict[Var, frozenset[Axis]]:
        """The loops that a value's elements depend on."""
        on: dict[Var, frozenset[Axis]] = {
            v: frozenset() if literal(v) else frozenset(flat)
            for v, flat in self.flat.items()
            if v not in self.made
        }
        for node in self.nodes:
            out, kind = node.outputs[0], self.kinds[node]
            if kind == "window":
                on[out] = frozenset(self.flat[out])
            elif kind == "created":
                numbered = "index" in table[node.primitive.name, codes_of(node)].words
                on[out] = frozenset(self.flat[out] if numbered else ())
            else:
                on[out] = frozenset().union(*[on[v] for v in node.inputs])
                on[out] = on[out].difference(self.reduced.get(node, ()))
        return on


def _block(var: Var) -> int:
    """Number of channels in a block of a value's format; 0 if it has no blocks."""
    return 0 if var.abstract.format is None else FORMATS[var.abstract.format].block


def loop_shape(var: Var) -> tuple[int, ...]:
    """The extents of the loops over a value: its shape, with all lanes of its blocks."""
    shape, block = var.abstract.shape, _block(var)
    if not block:
        return shape
    return (shape[0], -(-shape[1] // block) * block, *shape[2:])


def _flat(dims: Sequence[Compound]) -> Compound:
    return tuple([a for compound in dims for a in compound])


# --- Axes -----------------------------------------------------------------------------------------


class Axis:
    """One loop, compared by identity."""

    __slots__ = ("extent",)

    def __init__(self, extent: int):
        self.extent = extent

    def __repr__(self) -> str:
        return f"Axis({self.extent})"


Compound = tuple[Axis, ...]  # an axis of an array as loops, the outermost first; () has extent 1
Dims = tuple[Compound, ...]


class Axes:
    """Unification of axes: an axis may turn out to be another one, or several."""

    def __init__(self) -> None:
        self.parts: dict[Axis, Compound] = {}

    def fresh(self, shape: Sequence[int]) -> Dims:
        """New axes for an array of this shape."""
        return tuple([(Axis(n),) if n != 1 else () for n in shape])

    def resolve(self, axes: Compound) -> Compound:
        """The loops to which these axes resolve."""
        parts = self.parts
        if parts.keys().isdisjoint(axes):
            return axes
        found: list[Axis] = []
        for a in axes:
            if a in parts:
                parts[a] = self.resolve(parts[a])  # noted, so that no chain is followed twice
                found += parts[a]
            else:
                found.append(a)
        return tuple(found)

    def equate(self, left: Compound, right: Compound) -> None:
        """Unify axes that number the same elements in row-major order; Apart if their extents do
        not line up."""
        while left and right:
            if left[0] is not right[0]:
                left, right = self.resolve(left), self.resolve(right)
            a, b = left[0], right[0]
            if a is b or a.extent == b.extent:
                if a is not b:
                    self.parts[b] = (a,)
                left, right = left[1:], right[1:]
            elif a.extent % b.extent == 0:
                left = self._split(a, b) + left[1:]
            elif b.extent % a.extent == 0:
                right = self._split(b, a) + right[1:]
            else:
                raise Apart(f"axes of {a.extent} and {b.extent} do not line up")

    def _split(self, whole: Axis, first: Axis) -> Compound:
        """Split `whole` in `first` and, inside it, a new axis."""
        self.parts[whole] = (first, Axis(whole.extent // first.extent))
        return self.parts[whole]


def strides_of(dims: Dims) -> dict[Axis, int]:
    """Stride in elements along each loop of a row-major array."""
    strides, step = {}, 1
    for axis in reversed([a for compound in dims for a in compound]):
        strides[axis] = step
        step *= axis.extent
    return strides


def extent(axes: Sequence[Axis]) -> int:
    """Product of their extents."""
    return axes[0].extent if len(axes) == 1 else prod([a.extent for a in axes])


class Apart(Exception):
    """Reason why nodes cannot be computed in the same loops."""


# --- Members --------------------------------------------------------------------------------------

Member = Literal["elements", "created", "view", "window", "reduction", "join", ""]
FREE = "view", "window", "created"  # cost nothing: loops that read them compute them again
_WINDOWS = "Slice", "SliceGrad", "SlidingWindow"
# What primitives reduce to, and the reduction of row programs that computes it.
REDUCTIONS: dict[str | None, str] = {
    "sum": "Sum", "mean": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "any": "Any",
    "all": "All",
}  # fmt: skip


def kind_of(node: Node) -> Member:
    """Kind of a node in a loop nest; "" if loops cannot compute it."""
    name, facts = node.primitive.name, type(node.primitive)
    variables = (*node.inputs, *node.outputs)
    images = [v for v in variables if v.abstract.format is not None]
    if images and any(loop_shape(v) != v.abstract.shape for v in images):  # a block is not full
        return "elements" if _each_lane(node) else ""
    if facts.view or (name == "Convert" and not _moves(node)):
        return "view"
    if len(node.outputs) != 1 or 0 in chain.from_iterable([v.abstract.shape for v in variables]):
        return ""
    if facts.reduces in REDUCTIONS:
        return "reduction"
    if name == "SliceGrad":  # C converts float16 by runs
        dtype, steps = node.outputs[0].abstract.dtype, {*node.attrs["strides"]}
        return "window" if steps == {1} and dtype != float16 else ""
    if name in ("Slice", "SlidingWindow"):
        return "" if name == "Slice" and _whole(node) else "window"
    if name == "Concat":
        return "join" if _of_equal_parts(node) else ""
    if not _expressed(node):
        return ""
    return "elements" if node.inputs else "created"


def _expressed(node: Node) -> bool:
    """False, with a warning, if the expression may differ from the NumPy kernel."""
    name, codes = node.primitive.name, codes_of(node)
    if not _has_expression(name, codes, epoch.now.kernels):
        return False
    reason = registry.replaced and doubt(name, codes)
    if reason:
        _warn(reason, epoch.now.kernels)
    return not reason


def _each_lane(node: Node) -> bool:
    """True for an elementwise node whose images all have the same channels in the same blocks, so
    that loops may go over the lanes beside the last channel, too."""
    variables = [v for v in (*node.inputs, *node.outputs) if v.abstract.size > 1]
    kinds = {(v.abstract.format, v.abstract.shape[1:2]) for v in variables}
    one = len(kinds) == 1 and len(node.outputs) == 1 and 0 not in node.outputs[0].abstract.shape
    return one and bool(node.inputs) and not type(node.primitive).reduces and _expressed(node)


def _moves(node: Node) -> bool:
    (x,), (out,) = node.inputs, node.outputs
    return moves(x.abstract.shape, x.abstract.format, out.abstract.format)


def _whole(node: Node) -> bool:
    """True for a contiguous Slice, such as `x[t]`: it is a view by itself, and kernels that read it
    do not depend on its offset."""
    attrs = node.attrs
    taken = [*zip(attrs["begin"], attrs["end"], attrs["strides"], strict=True)]
    whole = [(0, n, 1) for n in node.inputs[0].abstract.shape]
    return taken[1:] == whole[1:] and taken[:1] != whole[:1] and attrs["strides"][:1] == (1,)


def _of_equal_parts(node: Node) -> bool:
    """True for a Concat of a few parts of one shape that are no blocks of the output: these are
    computed there, wherever that is."""
    (out,), axis = node.outputs, node.attrs["axis"] % len(node.outputs[0].abstract.shape)
    kinds = {(v.abstract.shape, v.abstract.format) for v in node.inputs}
    equal = len(kinds) == 1 and out.abstract.format is None is node.inputs[0].abstract.format
    return equal and 1 < len(node.inputs) <= _PARTS and prod(out.abstract.shape[:axis]) > 1


@lru_cache(maxsize=4096)
def _has_expression(name: str, codes: str, version: int) -> bool:
    spec = registry.specs.get(name)
    return (name, codes) in table and spec is not None and spec.inputs is not None


def doubt(name: str, signature: str) -> str:
    """The reason to doubt that the C expression of a primitive computes what its NumPy kernel does;
    "" if there is none."""
    half = registry.replaced.get((name, signature))
    if half is None or registry.believed.get():
        return ""
    other = "NumPy kernel" if half == "C expression" else "C expression"
    return (
        f"the {half} {signature} of {name} was replaced, and its {other} was not, so one may be "
        f"out of date: nothing is fused with {name} until you register the {other} again"
    )


@lru_cache(maxsize=64)
def _warn(text: str, version: int) -> None:
    warn_user(PerformanceWarning(text))


def codes_of(node: Node) -> str:
    """The signature of a node with one output, in type codes."""
    return _codes(*[v.abstract.dtype for v in (*node.inputs, node.outputs[0])])


@lru_cache(maxsize=1024)
def _codes(*dtypes: DType) -> str:
    *takes, gives = map(type_code, dtypes)
    return f"{''.join(takes)}->{gives}"


def scalar_of(node: Node) -> Scalar:
    """The scalar function that computes one element of a node's output."""
    name, codes = node.primitive.name, codes_of(node)
    expression, spec = table[name, codes], registry.specs[name]
    types = expression.scalar_types(parse(codes), spec.attributes or ())
    values = expression.scalar_values(typed(node), types)
    named = zip(spec.inputs or (), [v.abstract.dtype for v in node.inputs], strict=True)
    return Scalar(
        name,
        expression,
        tuple(named),
        node.outputs[0].abstract.dtype,
        tuple(zip(types, values, strict=True)),
    )


def typed(node: Node, layout: Mapping[Var, tuple[int, ...]] = MappingProxyType({})) -> KernelNode:
    """A node as kernels see it. layout: strides of inputs that are not in row-major order."""

    def specs(variables: tuple[Var, ...]) -> tuple[ArraySpec, ...]:
        found = (v.abstract for v in variables)
        return tuple(ArraySpec(a.shape, a.dtype, a.format) for a in found)

    strides = tuple(map(layout.get, node.inputs))
    name, attrs = node.primitive.name, node.attrs
    return KernelNode(name, specs(node.inputs), specs(node.outputs), attrs, None, strides)


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of its input over which a node reduces."""
    shape = node.inputs[0].abstract.shape
    if "axis" not in node.attrs:
        target = node.outputs[0].abstract.shape
        lead = len(shape) - len(target)
        return (*range(lead), *(lead + i for i, n in enumerate(target) if n == 1))
    return normal_axes(node.primitive.name, node.attrs["axis"], len(shape))


def window(node: Node, strides: Sequence[int] | None = None) -> tuple[tuple[int, ...], int]:
    """Strides of a Slice or of sliding windows in its input, which has these strides or is in
    row-major order, and the offset of its first element."""
    shape, attrs = node.inputs[0].abstract.shape, node.attrs
    apart = dense_strides(shape, 1) if strides is None else strides
    if node.primitive.name == "SlidingWindow":
        axis = attrs["axis"] % len(shape)
        return (*apart[:axis], apart[axis] * attrs["step"], *apart[axis + 1 :], apart[axis]), 0
    first = sum(begin * step for begin, step in zip(attrs["begin"], apart, strict=True))
    if node.primitive.name == "SliceGrad":
        return tuple(apart), -first
    steps = [n * step for n, step in zip(attrs["strides"], apart, strict=True)]
    return tuple(s for i, s in enumerate(steps) if i not in attrs["dropped"]), first


def slices(node: Node) -> bool:
    """True for a window whose elements all lie in its input, so that a window of it is one, too."""
    return node.primitive.name in _WINDOWS and kind_of(node) == "window" and not bounds(node)


def bounds(node: Node) -> dict[int, tuple[int, int]]:
    """The axes of which a SliceGrad has a part, each with the elements between which that lies."""
    if node.primitive.name != "SliceGrad":
        return {}
    cut = zip(node.attrs["begin"], node.attrs["end"], node.attrs["shape"], strict=True)
    return {a: (begin, end) for a, (begin, end, n) in enumerate(cut) if (begin, end) != (0, n)}


def of_two(name: str, dtype: DType, *names: str) -> Scalar:
    """The scalar function of a primitive of the library whose inputs and output have one dtype."""
    c = type_code(dtype)
    return Scalar(
        name, table[name, f"{c * len(names)}->{c}"], tuple((n, dtype) for n in names), dtype
    )


def cast(source: DType, target: DType) -> Scalar:
    """The scalar function of a Cast."""
    expression = table["Cast", f"{type_code(source)}->{type_code(target)}"]
    return Scalar("Cast", expression, (("x", source),), target)


def literal(var: Var) -> bool:
    """True for constants of one element, which are written into the text."""
    value = var.abstract.value
    return value is not None and value.size == 1


def body_of(nodes: Sequence[Node], outputs: tuple[Var, ...], kinds: Mapping[Node, Member]) -> Graph:
    """The graph of a group, named after its primitives."""
    read = read_by(nodes)
    constants = tuple(v for v in read if literal(v))
    inputs = tuple(v for v in read if not literal(v))
    named = (n.primitive.name.lower() for n in nodes if kinds[n] not in FREE)
    return Graph(inputs, tuple(nodes), outputs, constants, (), "_".join(dict.fromkeys(named))[:60])


def read_by(nodes: Sequence[Node]) -> list[Var]:
    """The values that these nodes read but do not make."""
    made = {v for n in nodes for v in n.outputs}
    return [v for v in dict.fromkeys(v for n in nodes for v in n.inputs) if v not in made]


def in_parts(node: Node, target: Target) -> bool:
    """True for a reduction of a few long rows that a hand-written kernel divides over a GPU."""
    if target.home != "cuda" or kind_of(node) != "reduction":
        return False
    device: Any = target.device
    shape, axes = node.inputs[0].abstract.shape, reduced_axes(node)
    n = prod(shape[a] for a in axes)
    whole = prod(shape[max(axes, default=-1) + 1 :]) == 1
    return whole and bool(device.rows.in_parts(prod(shape) // n, n))
