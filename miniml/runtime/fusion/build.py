"""From the graph of a Fused node to its row program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from ...backends.expressions.rows import (
    Array,
    Call,
    Gather,
    Keep,
    Literal,
    Load,
    Pass,
    Recall,
    Reduce,
    RowProgram,
    Scalar,
    Statement,
    Store,
    Value,
    operands,
)
from ...backends.expressions.types import computed
from ...dtype import DType, bool_, int64, uint64
from ...graph.ir import Graph, Node, Var
from .axes import Apart, Compound, extent, strides_of
from .members import REDUCTIONS, cast, kind_of, of_two, reduced_axes, scalar_of, window
from .nest import Nest

Layout = Mapping[Var, tuple[int, ...]]  # steps along the axes of values, in elements

# Functions whose value is rather kept for the next pass than computed again.
DEAR = frozenset(
    """exp exp2 expm1 log log2 log10 log1p pow tanh sinh cosh sin cos tan asin acos atan atan2 erf
    erfc erfinv fmod float_mod float_floor_div int_pow asinh acosh atanh cbrt hypot lgamma tgamma
    polygamma
    """.split()
)
_KEPT_FROM = 12  # of operations, from which on a value is kept
_ROW_BYTES = 1 << 15  # what one kept value may take on a thread's stack


def row_program(
    graph: Graph, layout: Layout = MappingProxyType({}), keeps: bool = True
) -> RowProgram:
    """The row program of a graph of nodes that share their loops; Apart if they do not.

    layout: the strides of inputs that are not in row-major order. keeps: values that are dear are
    kept for later passes, where rows are short enough.
    """
    return _Builder(graph, Nest(graph.nodes), layout, keeps).program()


def outputs_program(graph: Graph, var: Var, axes: int, layout: Layout) -> RowProgram:
    """The same for elementwise nodes that all run over the elements of `var`, whose last axes are
    the row, as one; Apart where they do not."""
    nest = Nest(graph.nodes)
    if nest.reduced:
        raise Apart("what follows reduces it")
    if nest.flat.get(var) != nest.outer + nest.row:
        raise Apart("what follows does not run over its elements in their order")
    last = sum(map(len, nest.stored(var)[-axes:]))
    program = _Builder(graph, nest, layout).program(len(nest.flat[var]) - last)
    if len(program.row) != 1:
        raise Apart("what follows does not run over its rows as they are")
    return program


class _Builder:
    """Numbers the values, sorts them into passes, and lays out the arrays."""

    def __init__(self, graph: Graph, nest: Nest, layout: Layout, keeps: bool = False):
        self.graph, self.nest, self.layout, self.keeps = graph, nest, layout, keeps
        self.types: list[DType] = []
        self.made: list[Statement] = []  # how each value is computed
        self.each: list[bool] = []  # it belongs to an element, not to the row
        self.stage: list[int] = []  # the first pass in which it can be computed
        self.cost: list[int] = []
        self.value: dict[Var, Value] = {}
        self.sinks: list[tuple[int, bool, Statement]] = []
        self.order = (*nest.outer, *nest.row)
        self.strides = [self._strides(v) for v in (*graph.inputs, *graph.outputs)]

    def program(self, outer: int | None = None) -> RowProgram:
        """The program; outer: how many axes number the rows, if that is not for it to choose."""
        for i, var in enumerate(self.graph.inputs):
            if var in self.nest.flat:
                load = Load(len(self.types), i)
                self.value[var] = self._new(load, var.abstract.dtype, self._on_row(var), 0, 1)
        for var in self.graph.constants:
            number = np.asarray(var.abstract.value).reshape(())[()]
            self.value[var] = self._new(
                Literal(len(self.types), number), var.abstract.dtype, False, 0, 0
            )
        for node in self.graph.nodes:
            self._add(node)
        for i, var in enumerate(self.graph.outputs, len(self.graph.inputs)):
            if var not in self.value:  # gathered already
                continue
            wide = bool(set(self.nest.row) & set(self.nest.flat[var]))
            self._sink(Store(i, self.value[var]), self.value[var], wide)
        return self._collapsed(self._passes(), outer)

    def _new(self, made: Statement, dtype: DType, each: bool, stage: int, cost: int) -> Value:
        self.made.append(made)
        self.types.append(dtype)
        self.each.append(each)
        self.stage.append(max(stage, 1) if each else stage)
        self.cost.append(cost)
        return len(self.made) - 1

    def _on_row(self, var: Var) -> bool:
        return not self.nest.on[var].isdisjoint(self.nest.row)

    def _add(self, node: Node) -> None:
        out, kind = node.outputs[0], kind_of(node)
        if kind == "view":
            self.value[out] = self.value[node.inputs[0]]
        elif kind == "window":
            array = self.graph.inputs.index(node.inputs[0])
            load = Load(len(self.made), array, *self._window(node))
            self.value[out] = self._new(load, out.abstract.dtype, self._on_row(out), 0, 1)
        elif kind == "reduction":
            self._reduce(node)
        else:
            args = [self.value[v] for v in node.inputs]
            function = scalar_of(node)
            numbers = self._strides(out) if "index" in function.expression.words else ()
            self.value[out] = self._call(function, args, self._on_row(out), numbers)

    def _call(
        self, function: Scalar, args: Sequence[Value], each: bool, strides: tuple[int, ...] = ()
    ) -> Value:
        stage = max([self.stage[a] + (each and not self.each[a]) for a in args], default=0)
        own = 20 if function.expression.words & DEAR else 1
        cost = own + sum(self.cost[a] for a in args if self.each[a])
        call = Call(len(self.made), function, tuple(args), strides)
        return self._new(call, function.out, each, stage, cost)

    def _reduce(self, node: Node) -> None:
        """Over the row, then over rows, then by the count for a mean."""
        var, out = node.inputs[0], node.outputs[0]
        value, row = self.value[var], REDUCTIONS[node.primitive.name]
        gone, given = set(self.nest.reduced[node]), out.abstract.dtype
        mean = node.primitive.name == "Mean"
        count = prod([var.abstract.shape[a] for a in reduced_axes(node)]) if mean else 1
        wide = summed(row, self.types[value])
        if gone.intersection(self.nest.row) or not gone:
            value = self._over_row(row, value, wide) if gone else value
        if gone.intersection(self.nest.outer):
            place = len(self.graph.inputs) + self.graph.outputs.index(out)
            elements = not gone.intersection(self.nest.row) and bool(
                set(self.nest.flat[var]).intersection(self.nest.row)
            )
            self._sink(Gather(place, row, value, wide, count), value, elements)
            return
        if count != 1:
            number = self._new(Literal(len(self.made), wide.type(count)), wide, False, 0, 0)
            value = self._call(of_two("Div", wide, "x", "y"), [value, number], self.each[value])
        if self.types[value] != given:
            value = self._call(cast(self.types[value], given), [value], self.each[value])
        self.value[out] = value

    def _over_row(self, row: str, of: Value, dtype: DType) -> Value:
        stage = self.stage[of] if self.each[of] else self.stage[of] + 1
        value = self._new(Reduce(len(self.made), row, of), dtype, False, stage, 0)
        self.sinks.append((stage, True, self.made[value]))
        return value

    def _sink(self, statement: Statement, of: Value, each: bool) -> None:
        stage = self.stage[of]
        self.sinks.append((stage + 1 if each and not self.each[of] else stage, each, statement))

    def _passes(self) -> tuple[Pass, ...]:
        """What each pass has to compute: what its sinks need, and what later passes want kept."""
        count = max([stage for stage, _, _ in self.sinks], default=0) + 1
        kept: dict[Value, None] = {}
        elements: list[tuple[Statement, ...]] = [()] * count
        for number in range(count - 1, 0, -1):  # later passes first: they say what is kept
            sinks = [s for stage, each, s in self.sinks if each and stage == number]
            sinks += [Keep(v) for v in kept if self.stage[v] == number]
            elements[number] = self._needed(sinks, number, kept)
        rows: list[list[Statement]] = [[] for _ in range(count)]
        wanted = self._row_values(elements)
        for value, made in enumerate(self.made):
            if value in wanted and not self.each[value] and not isinstance(made, Reduce):
                rows[self.stage[value]].append(made)
        for stage, each, sink in self.sinks:
            if not each:
                rows[stage].append(sink)
        return tuple(Pass(e, tuple(r)) for e, r in zip(elements, rows, strict=True))

    def _needed(
        self, sinks: list[Statement], number: int, kept: dict[Value, None]
    ) -> tuple[Statement, ...]:
        """The sinks of a pass after all that they need of the element."""
        found: dict[Value, Statement] = {}

        def need(value: Value) -> None:
            if value in found or not self.each[value]:
                return
            if self.stage[value] < number and self._keeps(value):
                kept[value] = None
                found[value] = Recall(value)
                return
            for arg in operands(self.made[value]):
                need(arg)
            found[value] = self.made[value]

        for sink in sinks:
            for value in operands(sink):
                need(value)
        return (*found.values(), *sinks)

    def _keeps(self, value: Value) -> bool:
        size = extent(self.nest.row) * computed(self.types[value]).itemsize
        return self.keeps and self.cost[value] >= _KEPT_FROM and size <= _ROW_BYTES

    def _row_values(self, elements: Sequence[Sequence[Statement]]) -> set[Value]:
        """The values of the row as a whole that somebody needs."""
        stack = [v for part in elements for s in part for v in operands(s)]
        stack += [v for _, _, s in self.sinks for v in operands(s)]
        wanted: set[Value] = set()
        while stack:
            value = stack.pop()
            if value not in wanted and not self.each[value]:
                wanted.add(value)
                stack += operands(self.made[value])
        return wanted

    def _strides(self, var: Var) -> tuple[int, ...]:
        if var in self.layout:
            return self._along(var, self.layout[var])
        along = strides_of(self.nest.stored(var))
        return tuple(along.get(a, 0) for a in self.order)

    def _window(self, node: Node) -> tuple[tuple[int, ...], int]:
        """The strides of a slice along the loops, and its first element."""
        steps, first = window(node, self.layout.get(node.inputs[0]))
        return self._along(node.outputs[0], steps), first

    def _along(self, var: Var, steps: Sequence[int]) -> tuple[int, ...]:
        """The strides along the loops of a value with these steps along the axes of its array."""
        along = {}
        for axes, step in zip(self.nest.stored(var), steps, strict=False):
            inside = strides_of((axes,))
            along.update({axis: inside[axis] * step for axis in axes})
        return tuple(along.get(a, 0) for a in self.order)

    def _collapsed(self, passes: tuple[Pass, ...], first: int | None) -> RowProgram:
        """The program with neighbouring axes as one where every array allows it."""
        every = [s for p in passes for s in (*p.elements, *p.row)]
        numbered = [s.strides for s in every if isinstance(s, (Call, Load)) and s.strides]
        border = len(self.nest.outer) if first is None else first
        groups = _runs(self.order, border, [*self.strides, *numbered])
        outer = sum(g[-1] < border for g in groups)
        if first is None and not self.nest.reduced:  # any axis may be the row: the last one
            outer = max(len(groups) - 1, 0)

        def fewer(strides: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(strides[g[-1]] for g in groups)

        def renumbered(s: Statement) -> Statement:
            if isinstance(s, (Call, Load)) and s.strides:
                return s._replace(strides=fewer(s.strides))
            return s

        variables = (*self.graph.inputs, *self.graph.outputs)
        arrays = tuple(
            Array(v.abstract.dtype, fewer(s)) for v, s in zip(variables, self.strides, strict=True)
        )
        extents = tuple(extent([self.order[i] for i in g]) for g in groups)
        made = tuple(
            Pass(tuple(map(renumbered, p.elements)), tuple(map(renumbered, p.row))) for p in passes
        )
        return RowProgram(extents, outer, arrays, len(self.graph.inputs), tuple(self.types), made)


def _runs(order: Compound, outer: int, strides: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The axes, numbered, in groups that every one of the arrays runs over as one axis."""
    groups: list[tuple[int, ...]] = []
    for i, axis in enumerate(order):
        joins = groups and i != outer and all(s[i - 1] == s[i] * axis.extent for s in strides)
        groups[len(groups) - bool(joins) :] = [(*(groups[-1] if joins else ()), i)]
    return groups


def summed(row: str, dtype: DType) -> DType:
    """The dtype of a reduction's result before it is cast to that of the output."""
    if row in ("Any", "All"):
        return bool_
    if row in ("Max", "Min"):
        return dtype
    if dtype.kind in "iub":
        return uint64 if dtype.kind == "u" else int64
    return computed(dtype)
