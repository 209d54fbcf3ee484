"""Code generation for Fused nodes: their row programs, epilogues and kernels in C and CUDA C.

Row programs: values are sorted into passes over rows. Anchors: a matrix product or a convolution
with the elementwise nodes that follow it as its epilogue. Kernels: the native kernels of Fused
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import zip_longest
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from ..backends.cc.convolution import convolution, pointwise, source
from ..backends.cc.native import Keeping, NativeKernel
from ..backends.cc.product import epilogue, packing, product_text
from ..backends.cc.rows import FEW, SHORT, Printed, printed
from ..backends.cc.scalars import vectors
from ..backends.expressions import (
    ROWS,
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
    computed,
    inplace,
    operands,
)
from ..backends.kernel import Kernel, KernelNode
from ..backends.product import Product, dense_strides, product_of
from ..backends.registry import kernel
from ..core.abstract import ArraySpec, DType, float32, float64, int32
from ..core.errors import GraphError
from ..core.scope import epoch
from ..graph.ir import Graph, Node, Var
from .nest import (
    REDUCTIONS,
    Apart,
    Compound,
    Nest,
    bounds,
    cast,
    extent,
    literal,
    of_two,
    reduced_axes,
    scalar_of,
    strides_of,
    typed,
    window,
)

Layout = Mapping[Var, tuple[int, ...]]  # steps along the axes of values, in elements

# Expensive functions, whose value is kept for the next pass instead of computed again.
DEAR = frozenset(
    """exp exp2 expm1 log log2 log10 log1p pow tanh sinh cosh sin cos tan asin acos atan atan2 erf
    erfc erfinv normcdf fmod float_mod float_floor_div int_pow asinh acosh atanh cbrt hypot lgamma
    tgamma digamma polygamma gaussian log_add cexp
    """.split()
)
_KEPT_FROM = 12  # operations from which on a value is kept
_ROW_BYTES = 1 << 15  # at most, of one kept value on a thread's stack
# A row of fewer elements takes less time than the divisions that find it among rows along several
# axes; so many rows are left for threads.
_ELEMENTS, _ROWS = 16, 64


# --- Row programs ---------------------------------------------------------------------------------


def row_program(
    graph: Graph,
    layout: Layout = MappingProxyType({}),
    keeps: bool = True,
    in_outputs: bool = False,
) -> RowProgram:
    """The row program of a graph of nodes that share their loops; Apart if they do not.

    layout: the strides of inputs that are not in row-major order. keeps: expensive values are
    kept for later passes, if rows are short enough; in_outputs: those of long rows lie in outputs
    that are not written before the last of these passes.
    """
    return _Builder(graph, Nest(graph.nodes), layout, keeps, in_outputs).program()


def outputs_program(graph: Graph, var: Var, axes: int, layout: Layout) -> RowProgram:
    """The row program of elementwise nodes that all run over the elements of `var`, whose last axes
    form the row; Apart if they do not."""
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
    """Builder of a row program: it numbers values, sorts them into passes, and lays out arrays.

    By value: types; made, the statement that computes it; each, True if it belongs to an element
    and not to the row; stage, the first pass in which it can be computed; cost, in operations.
    """

    def __init__(
        self,
        graph: Graph,
        nest: Nest,
        layout: Layout,
        keeps: bool = False,
        in_outputs: bool = False,
    ):
        self.graph, self.nest = graph, nest
        self.makers = graph.makers()
        self.joins = {n.outputs[0]: n for n in graph.nodes if nest.kinds[n] == "join"}
        self.layout = {**layout, **{v: dense_strides(v.abstract.shape, 1) for v in self.joins}}
        self.keeps, self.in_outputs = keeps, in_outputs
        self.types: list[DType] = []
        self.made: list[Statement] = []
        self.each: list[bool] = []
        self.stage: list[int] = []
        self.cost: list[int] = []
        self.value: dict[Var, Value] = {}
        self.sinks: list[tuple[int, bool, Statement]] = []
        self.order = (*nest.outer, *nest.row)
        self.strides = [self._strides(v) for v in (*graph.inputs, *graph.outputs)]

    def program(self, outer: int | None = None) -> RowProgram:
        """The program. outer: the number of axes that number the rows, if that is given."""
        for i, var in enumerate(self.graph.inputs):
            if var in self.nest.flat:
                load = Load(len(self.types), i)
                self.value[var] = self._new(load, var.abstract.dtype, self._on_row(var), 0, 1)
        for var in self.graph.constants:
            number = np.asarray(var.abstract.value).reshape(())[()]
            self.value[var] = self._new(
                Literal(len(self.types), number), var.abstract.dtype, False, 0, 0
            )
        for node in self.nest.nodes:
            self._add(node)
        for i, var in enumerate(self.graph.outputs, len(self.graph.inputs)):
            wide = bool(set(self.nest.row) & set(self.nest.flat[var]))
            for value, offset in self._stored(var):
                self._sink(Store(i, value, offset), value, wide)
        return self._collapsed(self._passes(), outer)

    def _stored(self, var: Var) -> list[tuple[Value, int]]:
        """The values that an output takes, with their offsets there; none if it is gathered."""
        join = self.joins.get(var)
        if join is None:
            return [(self.value[var], 0)] if var in self.value else []
        part, axis = join.inputs[0].abstract.shape, join.attrs["axis"]
        apart = part[axis] * self.layout[var][axis]
        return [(self.value[v], k * apart) for k, v in enumerate(join.inputs)]

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
        out, kind = node.outputs[0], self.nest.kinds[node]
        if kind == "view":
            self.value[out] = self.value[node.inputs[0]]
        elif kind == "window":
            var, steps, first = self._window(node)
            array, strides = self.graph.inputs.index(var), self._along(out, steps)
            limits = {self.nest.dims[out][a][0]: cut for a, cut in bounds(node).items()}
            every = tuple([limits.get(a, (0, a.extent)) for a in self.order]) if limits else ()
            load = Load(len(self.made), array, strides, first, every)
            self.value[out] = self._new(load, out.abstract.dtype, self._on_row(out), 0, 1)
        elif kind == "reduction":
            self._reduce(node)
        elif kind != "join":
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
        """Reduce over the row, then over rows, then divide by the count for a mean."""
        var, out = node.inputs[0], node.outputs[0]
        reduces = type(node.primitive).reduces
        value, row, mean = self.value[var], REDUCTIONS[reduces], reduces == "mean"
        gone, given = set(self.nest.reduced[node]), out.abstract.dtype
        count = prod([var.abstract.shape[a] for a in reduced_axes(node)]) if mean else 1
        wide = ROWS[row].result(self.types[value])
        if gone.intersection(self.nest.row) or not gone:
            value = self._over_row(row, value, wide) if gone else value
        if gone.intersection(self.nest.outer):
            index = len(self.graph.inputs) + self.graph.outputs.index(out)
            elements = not gone.intersection(self.nest.row) and bool(
                set(self.nest.flat[var]).intersection(self.nest.row)
            )
            self._sink(Gather(index, row, value, wide, count), value, elements)
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
        """Statements of each pass: for its sinks, and for values that later passes need kept."""
        count = max([stage for stage, _, _ in self.sinks], default=0) + 1
        kept: dict[Value, int | None] = {}
        elements: list[tuple[Statement, ...]] = [()] * count
        for number in range(count - 1, 0, -1):  # later passes first: they decide what is kept
            sinks = [s for stage, each, s in self.sinks if each and stage == number]
            sinks += [
                Keep(v) if array is None else Store(array, v)
                for v, array in kept.items()
                if self.stage[v] == number
            ]
            elements[number] = self._needed(sinks, number, kept)
        rows: list[list[Statement]] = [[] for _ in range(count)]
        live = self._row_values(elements)
        for value, made in enumerate(self.made):
            if value in live and not self.each[value] and not isinstance(made, Reduce):
                rows[self.stage[value]].append(made)
        for stage, each, sink in self.sinks:
            if not each:
                rows[stage].append(sink)
        return tuple(Pass(e, tuple(r)) for e, r in zip(elements, rows, strict=True))

    def _needed(
        self, sinks: list[Statement], number: int, kept: dict[Value, int | None]
    ) -> tuple[Statement, ...]:
        """The sinks of a pass, after the statements by element that they depend on."""
        found: dict[Value, Statement] = {}

        def need(value: Value) -> None:
            if value in found or not self.each[value]:
                return
            if self.stage[value] < number and self._keeps(value, number, kept):
                array = kept[value]
                found[value] = Recall(value) if array is None else Load(value, array)
                return
            for arg in operands(self.made[value]):
                need(arg)
            found[value] = self.made[value]

        for sink in sinks:
            for value in operands(sink):
                need(value)
        return (*found.values(), *sinks)

    def _keeps(self, value: Value, number: int, kept: dict[Value, int | None]) -> bool:
        """True if a pass finds the value kept, as it is from now on: by the array of an output, if
        the row is long, for the pass after the one that makes it."""
        size = extent(self.nest.row) * computed(self.types[value]).itemsize
        if value not in kept and self.keeps and self.cost[value] >= _KEPT_FROM:
            if size <= _ROW_BYTES:
                kept[value] = None
            elif self.in_outputs and self.stage[value] == number - 1:
                taken = {a for v, a in kept.items() if self.stage[v] == number - 1}
                free = [a for a in self._free(value, number) if a not in taken]
                kept |= dict(zip([value], free))
        return value in kept

    def _free(self, value: Value, number: int) -> Iterator[int]:
        """The arrays of outputs of its dtype, with an element for each step of the loops, to which
        nothing is written before the end of a pass."""
        for stage, each, s in self.sinks:
            if each and isinstance(s, Store) and stage >= number and all(self.strides[s.array]):
                var = self.graph.outputs[s.array - len(self.graph.inputs)]
                dtype = var.abstract.dtype
                if dtype == self.types[value] == computed(dtype) and var not in self.joins:
                    yield s.array

    def _row_values(self, elements: Sequence[Sequence[Statement]]) -> set[Value]:
        """The live values of the row as a whole."""
        stack = [v for part in elements for s in part for v in operands(s)]
        stack += [v for _, _, s in self.sinks for v in operands(s)]
        live: set[Value] = set()
        while stack:
            value = stack.pop()
            if value not in live and not self.each[value]:
                live.add(value)
                stack += operands(self.made[value])
        return live

    def _strides(self, var: Var) -> tuple[int, ...]:
        if var in self.layout:
            return self._along(var, self.layout[var])
        along = strides_of(self.nest.stored(var))
        return tuple(along.get(a, 0) for a in self.order)

    def _window(self, node: Node) -> tuple[Var, tuple[int, ...], int]:
        """The array that a window, or a window of that, is read from, its strides there along its
        axes, and its first element."""
        (var,), before, strides = node.inputs, 0, self.layout.get(node.inputs[0])
        if var in self.makers:
            var, strides, before = self._window(self.makers[var])
        steps, first = window(node, strides)
        return var, steps, before + first

    def _along(self, var: Var, steps: Sequence[int]) -> tuple[int, ...]:
        """The strides along the loops of a value with these steps along the axes of its array."""
        along = {}
        for axes, step in zip(self.nest.stored(var), steps, strict=False):
            inside = strides_of((axes,))
            along.update({axis: inside[axis] * step for axis in axes})
        return tuple(along.get(a, 0) for a in self.order)

    def _collapsed(self, passes: tuple[Pass, ...], first: int | None) -> RowProgram:
        """The program with adjacent axes collapsed where every array allows it."""
        every = [s for p in passes for s in (*p.elements, *p.row)]
        numbered = [s.strides for s in every if isinstance(s, (Call, Load)) and s.strides]
        border = len(self.nest.outer) if first is None else first
        parts = [s.bounds for s in every if isinstance(s, Load) and s.bounds]
        cut = {i for ends in parts for i, a in enumerate(self.order) if ends[i] != (0, a.extent)}
        groups = _runs(self.order, border, [*self.strides, *numbered], cut)
        outer = sum(g[-1] < border for g in groups)
        extents = tuple(extent([self.order[i] for i in g]) for g in groups)
        if first is None and not self.nest.reduced:  # any axes may be the row
            outer = max(len(groups) - 1, 0)
            while prod(extents[outer:]) < _ELEMENTS and prod(extents[: outer - 1]) >= _ROWS:
                outer -= 1
        few = outer and extents[outer - 1] < FEW and prod(extents[outer:]) <= SHORT
        if first is None and self.in_outputs and few:  # these lie side by side along the last axis
            most = max(range(outer), key=lambda k: extents[k])
            by = (*range(most), *range(most + 1, outer), most, *range(outer, len(groups)))
            groups, extents = [groups[k] for k in by], tuple(extents[k] for k in by)

        def fewer(strides: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(strides[g[-1]] for g in groups)

        def renumbered(s: Statement) -> Statement:
            if isinstance(s, Load) and s.bounds:
                within = [extent([self.order[i] for i in g[1:]]) for g in groups]
                ends = [s.bounds[g[0]] for g in groups]
                s = s._replace(bounds=tuple((b * n, e * n) for (b, e), n in zip(ends, within)))
            if isinstance(s, (Call, Load)) and s.strides:
                return s._replace(strides=fewer(s.strides))
            return s

        variables = (*self.graph.inputs, *self.graph.outputs)
        arrays = tuple(
            Array(v.abstract.dtype, fewer(s)) for v, s in zip(variables, self.strides, strict=True)
        )
        made = tuple(
            Pass(tuple(map(renumbered, p.elements)), tuple(map(renumbered, p.row))) for p in passes
        )
        return RowProgram(extents, outer, arrays, len(self.graph.inputs), tuple(self.types), made)


def _runs(
    order: Compound, outer: int, strides: Sequence[tuple[int, ...]], cut: set[int]
) -> list[tuple[int, ...]]:
    """The axes, by index, in groups that every array can run over as one axis; an axis of which
    parts are read is the first of its group."""
    groups: list[tuple[int, ...]] = []
    for i, axis in enumerate(order):
        joins = groups and i != outer and all(s[i - 1] == s[i] * axis.extent for s in strides)
        joins = joins and i not in cut
        groups[len(groups) - bool(joins) :] = [(*(groups[-1] if joins else ()), i)]
    return groups


# --- Anchors --------------------------------------------------------------------------------------

_ROW_MAJOR: Layout = MappingProxyType({})

# The last axes of an anchor's output in memory, by its format: they are one row of its epilogue.
ANCHORS: dict[str, dict[str | None, int]] = {
    "MatMul": {None: 1},
    "ByteMatMul": {None: 1},
    "Conv2D": {None: 2, "CHWN": 3, "NC16HW": 1},
}
PRODUCTS = "MatMul", "ByteMatMul"


def anchor_of(nodes: Sequence[Node]) -> Node | None:
    """The anchor among these nodes, if there is one."""
    return next((n for n in nodes if _row(n)), None)


def _row(node: Node) -> int:
    """Number of axes that form a row of the epilogue; 0 for a node that is no anchor."""
    return ANCHORS.get(node.primitive.name, {}).get(node.outputs[0].abstract.format, 0)


def anchors(node: Node) -> bool:
    """True for a convolution, or a product that is not of vectors: it may have
    an epilogue. Its operands are no constants of one element, which are not arrays in the text."""
    dtype = node.outputs[0].abstract.dtype
    if not _row(node) or dtype not in (float32, float64, int32):
        return False
    if any(map(literal, node.inputs)):
        return False
    shape = node.outputs[0].abstract.shape
    operands = (*(v.abstract.shape for v in node.inputs), shape)
    if any(0 in s or len(s) < 2 for s in operands):
        return False
    if node.primitive.name == "MatMul":
        return dtype != int32 and shape[-1] != 1
    return True


def product(node: Node, layout: Layout = _ROW_MAJOR) -> Product:
    """The matrix product of an anchor."""
    return product_of(typed(node, layout)).folded


def tail(graph: Graph, anchor: Node, layout: Layout = _ROW_MAJOR) -> tuple[RowProgram, int]:
    """The row program of the epilogue of a body, for which the anchor's sums are one more input,
    and the index of that input; Apart if it is not elementwise."""
    rest = tuple(n for n in graph.nodes if n is not anchor)
    made = {v for n in rest for v in n.outputs}
    if made.intersection(anchor.inputs):
        raise Apart(f"one computes an operand of {anchor.primitive.name}")
    (sums,) = anchor.outputs
    inputs = (*graph.inputs, sums)
    body = replace(graph, inputs=inputs, nodes=rest)
    return outputs_program(body, sums, _row(anchor), layout), len(inputs) - 1


def bakes(body: Graph, var: Var, strides: tuple[int, ...]) -> bool:
    """True for an input of a body that its kernel reads in place, with these strides: convolutions
    read theirs in row-major order, and their epilogue runs over rows of several axes, which are
    one axis only in some layouts (not of a flipped image)."""
    anchor = anchor_of(body.nodes)
    if anchor is None or anchor.primitive.name in PRODUCTS:
        return True
    if var in anchor.inputs:
        return False
    try:
        tail(body, anchor, {var: strides})
    except Apart:
        return False
    return True


def anchored(
    body: Graph, anchor: Node, layout: Layout, masked: tuple[str, ...] = ()
) -> tuple[RowProgram, Printed]:
    """The row program of the epilogue, and the kernel of the whole body."""
    program, sums = tail(body, anchor, layout)
    x, y = (body.inputs.index(v) for v in anchor.inputs)
    dtype, node = anchor.outputs[0].abstract.dtype, typed(anchor)
    if anchor.primitive.name in PRODUCTS:
        made = product(anchor, layout)
        text, shared = epilogue(program, sums, made.m)
        parts = made, dtype, text, (x, y), shared
        once = sum(n.inputs.count(anchor.inputs[1]) for n in body.nodes) == 1
        words = len(body.inputs) + len(body.outputs)
        packed = partial(packing, *parts, words) if once else None
        return program, Printed(product_text(*parts), (), packed)
    text, shared = epilogue(program, sums, node.inputs[1].shape[0])
    if pixels := pointwise(node):
        return program, Printed(product_text(pixels, dtype, text, (y, x), shared), ())
    v, workspace = vectors(dtype, masked), len(body.inputs) + len(body.outputs)
    written = convolution(node, v, text, (x, y, workspace))
    made_of, size = source(written, v, shared)
    kept = Keeping(y, written[-1] * dtype.itemsize)
    return program, Printed(made_of, (ArraySpec((size,), dtype),), keeps=kept)


# --- Kernels --------------------------------------------------------------------------------------


@kernel("Fused", "cpu", ".*->.*", provider="cc", total=True)
class FusedC(NativeKernel):
    """The row program of the body in C."""

    @classmethod
    def bakes(cls, attrs: Mapping[str, Any], index: int, strides: tuple[int, ...]) -> bool:
        body: Graph = attrs["body"]
        return bakes(body, body.inputs[index], strides)

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, (self.source, self.scratch, self.packing, keeps), self.inplace = _made(
            node.attrs["body"], node.strides, node.masked, epoch.now.kernels
        )
        if keeps is not None:
            self.keep(*keeps)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.scratch


@lru_cache(maxsize=1024)
def _made(
    body: Graph, strides: tuple[tuple[int, ...] | None, ...], masked: tuple[str, ...], version: int
) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The row program of a body, its C, and the inputs that it may overwrite, memoized."""
    anchor = anchor_of(body.nodes)
    layout = {v: s for v, s in zip_longest(body.inputs, strides) if s is not None}
    with _one_loop():
        if anchor is not None:
            return _anchored(body, anchor, layout, masked)
        program = row_program(body, layout, in_outputs=True)
    return program, printed(program), inplace(program)


def _anchored(
    body: Graph, anchor: Node, layout: Layout, masked: tuple[str, ...]
) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """As `_made`, for an anchor and its epilogue. The anchor still reads its operands when the
    first outputs are written."""
    program, made = anchored(body, anchor, layout, masked)
    taken = [body.inputs.index(v) for v in anchor.inputs]
    return program, made, tuple(i for i in inplace(program) if i not in (*taken, len(body.inputs)))


@kernel("Fused", "cuda", ".*->.*", provider="cc", total=True)
class FusedCuda(Kernel):
    """The row program of the body in CUDA C."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, self.printed = _made_cuda(
            node.attrs["body"], epoch.now.kernels, node.device.rows
        )
        self.inplace, self.reason = inplace(self.program), self.printed.how
        get = node.device.compiler.function
        self.functions = [get(self.printed.text, part.entry) for part in self.printed.launches]

    def workspace(self) -> tuple[ArraySpec, ...]:
        specs: tuple[ArraySpec, ...] = self.printed.workspace
        return specs

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = (*inputs, *outputs, *workspace)
        aligned = not any(a.offset % 16 for a in arrays)
        numbers = self.printed.numbers if aligned else self.printed.single
        args = (*(a.flat for a in arrays), numbers)
        for function, part in zip(self.functions, self.printed.launches, strict=True):
            function(part.grid, part.block, args, shared_mem=part.shared)


@lru_cache(maxsize=1024)
def _made_cuda(body: Graph, version: int, printer: Any) -> tuple[RowProgram, Any]:
    """The row program of a body and its CUDA C. Values that passes share are kept if shared memory
    has room, else computed again."""
    with _one_loop():
        program = row_program(body)
        if not printer.keeps(program):
            program = row_program(body, keeps=False)
    return program, printer.printed(program)


@contextmanager
def _one_loop() -> Iterator[None]:
    try:
        yield
    except Apart as reason:
        raise GraphError(f"Fused got a body that is not one loop: {reason}") from None
