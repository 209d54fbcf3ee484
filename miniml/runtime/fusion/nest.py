"""The loop nest of a group of nodes: its axes, which of them are the row, and what depends on
which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...formats import FORMATS
from ...graph.ir import Node, Var
from .axes import Apart, Axes, Axis, Compound, Dims, extent
from .members import Kind, kind_of, literal, reduced_axes


class Nest:
    """The loops in which all `nodes` (in program order) are computed; Apart if there are none.

    dims: the axes of every value as loops; flat: in the order of its memory. outer, row: the loops,
    the outermost first. reduced: the loops over which a reduction runs. on: the loops that a
    value's elements depend on. kinds: of the nodes, where they are known already.
    """

    def __init__(self, nodes: Sequence[Node], kinds: Mapping[Node, Kind] | None = None):
        self.nodes, self._axes = tuple(nodes), Axes()
        self.kinds = {n: kind_of(n) for n in nodes} if kinds is None else kinds
        self.dims: dict[Var, Dims] = {}
        for node in nodes:
            for var in node.inputs if self.kinds[node] != "window" else ():
                if var not in self.dims:
                    self._set(var, self._axes.fresh(var.abstract.shape))
            self._set(node.outputs[0], self._related(node))
        self.dims = {v: tuple(map(self._axes.resolve, dims)) for v, dims in self.dims.items()}
        self.flat = {v: _flat(self.stored(v)) for v in self.dims}
        if any(len(set(flat)) != len(flat) for flat in self.flat.values()):
            raise Apart("one value is read along two different axes")
        self.made = {n.outputs[0]: n for n in nodes}
        if any(self.kinds[n] == "window" and n.inputs[0] in self.made for n in nodes):
            raise Apart("one reads a slice of the other")
        self.reduced = {n: self._reduced(n) for n in nodes if self.kinds[n] == "reduction"}
        order = self._order()
        self.inner = self._inner()
        self.row = self._row(order)
        self.outer = tuple(a for a in order if a not in self.row)
        self._check()
        self.on = self._dependences()

    def _set(self, var: Var, dims: Dims) -> None:
        """Note a value's axes; channels in blocks are two loops."""
        self.dims[var] = dims
        block = _block(var)
        if block and var.abstract.shape[1] > block:
            blocks = Axis(var.abstract.shape[1] // block), Axis(block)
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
        shape, name = node.outputs[0].abstract.shape, node.primitive.name
        kind = self.kinds[node]
        if kind == "window":
            return self._axes.fresh(shape)
        inputs = [self.dims[v] for v in node.inputs]
        if not kind:
            raise Apart(f"{name} has no expression")
        if kind == "reduction":
            return self._left(node, inputs[0])
        if name == "Transpose":
            return tuple(inputs[0][a] for a in node.attrs["axes"])
        if kind == "elements" or name == "BroadcastTo":
            return self._broadcast(shape, inputs)
        out = self._axes.fresh(shape)
        if inputs:  # a Reshape or the like
            self._axes.equate(_flat(inputs[0]), _flat(out))
        return out

    def _broadcast(self, shape: Sequence[int], inputs: Sequence[Dims]) -> Dims:
        out = list(self._axes.fresh(shape))
        for dims in inputs:
            for i, axes in enumerate(dims, len(shape) - len(dims)):
                if extent(axes) == shape[i]:
                    self._axes.equate(axes, out[i])
        return tuple(out)

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
        """The loops that are the row: what reductions that are read run over, else the last loops
        that all reductions treat alike."""
        over = {a for n in self.inner for a in self.reduced[n]}
        if over:
            return tuple(a for a in order if a in over)
        count = len(order)
        alike = [self._treated(a) for a in order]
        first = next((i for i in range(count) if len(set(alike[i:])) == 1), count)
        return order[first:]

    def _treated(self, axis: Axis) -> tuple[tuple[bool, bool], ...]:
        return tuple(
            (axis in gone, axis in self.flat[n.inputs[0]]) for n, gone in self.reduced.items()
        )

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
            if self.kinds[node] == "elements" and axes and axes not in (every, set(self.outer)):
                raise Apart(f"{node.primitive.name} has fewer elements than the loops")

    def _dependences(self) -> dict[Var, frozenset[Axis]]:
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
                on[out] = frozenset(self.flat[out] if node.primitive.name != "Full" else ())
            else:
                on[out] = frozenset().union(*[on[v] for v in node.inputs])
                on[out] = on[out].difference(self.reduced.get(node, ()))
        return on


def _block(var: Var) -> int:
    """How many channels of a value lie together; 0 where that is no matter of the format."""
    return 0 if var.abstract.format is None else FORMATS[var.abstract.format].block


def _flat(dims: Sequence[Compound]) -> Compound:
    return tuple([a for compound in dims for a in compound])
