"""Row programs printed as CUDA C: fused loops, for each distribution of rows over threads.

No extent, stride or constant is in the text: programs that differ in nothing else share a kernel,
which gets the numbers as a structure. Parts: the choice of a distribution; the text and statements
that all share; packs of neighbouring elements, moved together; a final class for each distribution;
and kernels of one scalar expression, with broadcasting by strides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....core.abstract import ArraySpec, DType, int64
from ....core.scope import epoch
from ... import registry
from ...expressions import (
    ROWS,
    Call,
    Expression,
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
    accumulation,
    computed,
    unsigned,
)
from ...kernel import Kernel, KernelEntry, KernelNode
from .source import (
    BLOCK,
    C_TYPES,
    PER_THREAD,
    THREADS,
    collapsed,
    grid_for,
    lanes_for,
    layout,
    packs,
    parts,
    prelude,
    spread,
    starts_of,
    structure,
    unit,
)

# --- Choice of a distribution ---------------------------------------------------------------------


ENTRY, TOGETHER = "rows", "rows_together"
Each = tuple[Statement, bool]  # True: for each element; False: once per row


class Launched(NamedTuple):
    """A launch of one of the unit's kernels; shared: bytes of dynamic shared memory."""

    entry: str
    grid: tuple[int]
    block: tuple[int]
    shared: int = 0


class Printed(NamedTuple):
    """A row program as launches of a unit's kernels: each takes the arrays (inputs, outputs and
    workspace) and the numbers. single: the numbers where an array does not begin at a multiple of
    16 bytes, so that no elements are loaded together. how: the distribution over threads."""

    text: str
    numbers: Any
    single: Any
    launches: tuple[Launched, ...]
    workspace: tuple[ArraySpec, ...]
    how: str


SHARED = 40 * 1024  # bytes of rows that a block keeps; with those it exchanges less than 48 KiB
_GATHERED = 1024  # rows added one after another, so that their sum stays accurate
_SHARE = 8  # least rows of a group, so that few partial results are left


def printed(program: RowProgram) -> Printed:
    """The kernels of a row program, with single elements, columns or parts of rows for a thread."""
    if program.reduces:
        return Rows(program).printed()
    gathers, apart = program.gathers, {s for p in program.passes for s in p.row}
    if not gathers:
        return Elements(program).printed()
    over = {_over(program, g) for g in gathers}
    by_column = len(over) == 1 and not apart.intersection(gathers)
    return (Columns if by_column else Rows)(program).printed()


def in_parts(rows: int, length: int) -> bool:
    """True for rows so few and long that a GPU is busy only where several blocks share a row; in a
    row program they do not."""
    return parts(rows, length, BLOCK) > 1


def keeps(program: RowProgram) -> bool:
    """True where a block's shared memory has room for the values that the passes of a row keep."""
    kept = [s.of for s in program.statements() if isinstance(s, Keep)]
    lanes = _lanes(program)
    return not kept or (lanes > 1 and _kept_bytes(program, kept, lanes) <= SHARED)


def _over(program: RowProgram, gather: Gather) -> frozenset[int]:
    """The outer axes that a gather reduces."""
    strides = program.arrays[gather.array].strides
    return frozenset(a for a in range(program.outer) if not strides[a])


def _lanes(program: RowProgram) -> int:
    """The number of threads that share a row; one where neighbouring rows are interleaved."""
    strides = [program.along(s) for s in program.statements() if isinstance(s, (Load, Store))]
    wide = [s for s in strides if any(s[program.outer :])]
    along = sum(s[-1] == 1 for s in wide)
    beside = sum(s[program.outer - 1] == 1 for s in wide) if program.outer else 0
    neighbours = program.extents[program.outer - 1] if beside > along else 1
    return lanes_for(prod(program.row), neighbours)


def _kept_bytes(program: RowProgram, kept: Sequence[int], lanes: int) -> int:
    """The bytes of kept values in a block, each beginning at a multiple of 16."""
    _, (block,) = grid_for(prod(program.extents[: program.outer]), lanes)
    count = block // lanes * prod(program.row)
    return sum(-(-count * computed(program.types[v]).itemsize // 16) * 16 for v in kept)


# --- Text and statements --------------------------------------------------------------------------


class Text:
    """The text around the loops, and the statements in them. Final classes distribute them over
    threads."""

    one = ""  # the condition under which a thread executes the statements done once for row r

    def __init__(self, program: RowProgram):
        self.program = program
        self.outer = list(range(program.outer))
        self.row = list(range(program.outer, len(program.extents)))
        self.rows, self.length = prod(program.extents[: program.outer]), prod(program.row)
        self.gathers = program.gathers
        self.values: list[tuple[DType, Any]] = []
        self.named: dict[object, str] = {}
        self.before: dict[str, None] = {}
        self.functions: dict[Scalar, str] = {}
        self.kept = [s.of for s in program.statements() if isinstance(s, Keep)]

    def printed(self) -> Printed:
        """The kernels; the second combines the partial results of the first's gathers."""
        lines = [f'extern "C" __global__ void {ENTRY}({self._parameters()}) {{']
        lines += [*self.body(), "}", *self._together()]
        fields = [(f"n{i}", dtype) for i, (dtype, _) in enumerate(self.values)]
        record = np.dtype(fields, align=True)
        numbers = np.array([tuple(value for _, value in self.values)], record)
        single = numbers.copy()
        if "packs" in self.named:
            single[self.named["packs"].removeprefix("s.")] = 0
        types = {f"T{i}": a.dtype for i, a in enumerate(self.program.arrays)}
        types |= {f"V_{d.name}": d for d in self.program.types if computed(d) != d}
        text = "using namespace miniml;\n" + "".join(self.before) + "\n".join(lines) + "\n"
        launches: list[Launched] = [self.launched()]
        if self.gathers:
            size = max(map(self.program.size, self.gathers))
            launches.append(Launched(TOGETHER, *grid_for(size, 32)))
        specs = tuple(
            ArraySpec((self.parts * self.program.size(g),), self._stored(g)) for g in self.gathers
        )
        code = unit(text, Numbers=record, **types)
        return Printed(code, numbers, single, tuple(launches), specs, self.how())

    def _parameters(self) -> str:
        arrays = [
            f"{'const ' * (i < self.program.inputs)}T{i}* a{i}"
            for i in range(len(self.program.arrays))
        ]
        scratch = [f"{C_TYPES[self._stored(g)]}* w{k}" for k, g in enumerate(self.gathers)]
        return ", ".join([*arrays, *scratch, "Numbers s"])

    def _stored(self, gather: Gather) -> DType:
        """The dtype of partial results."""
        adds = ROWS[gather.row].adds
        return accumulation(gather.dtype) if adds else computed(gather.dtype)

    def number(self, key: object, value: Any, dtype: DType = int64) -> str:
        """The name of a number that the kernel gets as an argument."""
        if key not in self.named:
            self.named[key] = f"s.n{len(self.values)}"
            self.values.append((computed(dtype), value))
        return self.named[key]

    def extent(self, axis: int) -> str:
        return self.number(("extent", axis), self.program.extents[axis])

    def located(self, axes: Sequence[int], source: str, lines: Sequence[str]) -> list[str]:
        """The lines, after the definitions of those indices of element `source` that they name."""
        found: dict[str, str] = {}
        for axis in reversed(axes[1:]):
            found[f"above{axis}"] = f"quotient({source}, {self.extent(axis)})"
            found[f"x{axis}"] = f"{source} - above{axis} * {self.extent(axis)}"
            source = f"above{axis}"
        if axes:
            found[f"x{axes[0]}"] = source
        return used(found, lines)

    def index(self, key: object, strides: Sequence[int], each: bool = True) -> str:
        """The element of an array with these strides."""
        axes = [*self.outer, *(self.row if each else ())]
        terms = [
            f"x{axis}" + ("" if stride == 1 else f" * {self.number((key, axis), stride)}")
            for axis, stride in enumerate(strides)
            if stride and axis in axes
        ]
        return " + ".join(terms) or "0"

    def op(self, row: str, dtype: DType) -> str:
        """The name of the structure of a reduction; adds its text to the unit."""
        name = f"{row}_{dtype.name}"
        self.before[structure(name, ROWS[row], dtype)] = None
        return name

    def set(self, value: int, text: str) -> str:
        return f"const {C_TYPES[computed(self.program.types[value])]} v{value} = {text};"

    def statement(self, s: Statement, each: bool) -> str:
        """A statement, for each element or once for a row."""
        program = self.program
        match s:
            case Load(value, array):
                text = f"load(a{array}[{self.loaded_from(s, each)}])"
                cuts = program.limits(s)
                inside = " && ".join(f"x{k} >= {begin} && x{k} < {end}" for k, begin, end in cuts)
                text = f"{inside} ? {text} : decltype({text})()" if inside else text
                return self.set(value, text)
            case Literal(value, number):
                return self.set(value, self.number(("value", value), number, program.types[value]))
            case Call(value, function, args, strides):
                return self.set(value, self._called(s, function, args, strides, each))
            case Store(array, of, _):
                index = self.stored_at(s, each)
                text = f"a{array}[{index}] = store<T{array}>(v{of});"
                return text if each else f"if ({self.one}{' && r == 0' * (index == '0')}) {text}"
            case Gather():
                text = self.gathered(self.gathers.index(s), s, each)
                return text if each else f"if ({self.one}) {text}"
            case Reduce(value, row, of):
                op = self.op(row, program.types[of])
                return f"t{value} = {op}::combine(t{value}, {op}::element(v{of}));"
            case Keep(of):
                return f"k{of}[i] = v{of};"
            case Recall(value):
                return self.set(value, f"k{value}[i]")
        raise AssertionError(s)

    def loaded_from(self, s: Load, each: bool) -> str:
        """The element that is loaded."""
        if s.strides is None:
            return self.index(("array", s.array), self.program.along(s), each)
        index = self.index(("part", s.value), s.strides, each)
        return f"{index} + {self.number(('offset', s.value), s.offset)}"

    def stored_at(self, s: Store, each: bool) -> str:
        """The element that is stored."""
        index = self.index(("array", s.array), self.program.along(s), each)
        return f"{index} + {self.number(('stored', s), s.offset)}" if s.offset else index

    def _called(
        self, s: Call, function: Scalar, args: Sequence[int], strides: Sequence[int], each: bool
    ) -> str:
        if function not in self.functions:
            name = self.functions[function] = f"{function.name.lower()}_{len(self.functions)}"
            constants = [(n, x.dtype) for n, x in function.constants]
            self.before[
                value_text(
                    name, function.name, function.expression, function.inputs, constants,
                    function.out,
                )
            ] = None  # fmt: skip
        name = self.functions[function]
        given = [f"v{a}" for a in args]
        given += [self.number((name, n), x, x.dtype) for n, x in function.constants]
        index = self.index(("number", s.value), strides, each) if strides else "0"
        return f"load(store<{C_TYPES[function.out]}>({name}({', '.join([*given, index])})))"

    def _together(self) -> Iterator[str]:
        """The second kernel: a warp for each result."""
        if not self.gathers:
            return
        yield f'extern "C" __global__ void {TOGETHER}({self._parameters()}) {{'
        yield "  const int lane = threadIdx.x % 32;"
        count = self.number("parts", self.parts)
        for k, gather in enumerate(self.gathers):
            op = self.op(gather.row, gather.dtype)
            size = self.number(("size", k), self.program.size(gather))
            yield f"  for (long long g = group_index(32); g < {size}; g += group_count(32)) {{"
            yield f"    {op}::A a = {op}::identity();"
            yield f"    for (long long p = lane; p < {count}; p += 32) {{"
            yield f"      const {op}::A b = {{w{k}[p * {size} + g]}};"
            yield f"      a = {op}::combine(a, b);"
            yield "    }"
            yield f"    a = combined<{op}>(a, 32);"
            number = f"({C_TYPES[computed(gather.dtype)]})a.value"
            if gather.over != 1:
                number += f" / {self.number(('over', k), gather.over, gather.dtype)}"
            yield f"    if (lane == 0) a{gather.array}[g] = store<T{gather.array}>({number});"
            yield "  }"
        yield "}"

    # For the final classes to define:

    parts = 1  # the number of partial results of a gather

    def body(self) -> Iterator[str]:
        """The lines of the kernel."""
        raise NotImplementedError

    def launched(self) -> Launched:
        """The kernel's launch."""
        raise NotImplementedError

    def how(self) -> str:
        """The distribution over threads, in words."""
        raise NotImplementedError

    def gathered(self, k: int, gather: Gather, each: bool) -> str:
        """One more element of a gather."""
        raise NotImplementedError

    @property
    def every(self) -> list[Each]:
        """The statements of all passes."""
        found: list[Each] = []
        for part in self.program.passes:
            found += [*((s, True) for s in part.elements), *((s, False) for s in part.row)]
        return found


def used(found: dict[str, str], lines: Sequence[str]) -> list[str]:
    """The lines, after the definitions of those indices that they name."""
    named = [*lines]
    for name, text in reversed(found.items()):
        if any(re.search(rf"\b{name}\b", line) for line in named):
            named.insert(0, f"const long long {name} = {text};")
    return named


# --- Packs of neighbours --------------------------------------------------------------------------


BYTES = 16  # a thread moves at once
_MOST = 8  # elements of a pack, because compilers unroll each of them


class Packed(Text):
    """Kernels that move neighbouring elements together.

    pack: the number of elements moved at once; 0 where they are not adjacent in an array.
    """

    def __init__(self, program: RowProgram):
        super().__init__(program)
        self.wide = _wide(program)
        sizes = [program.arrays[a].dtype.itemsize for a in self.wide]
        self.pack = min(_MOST, BYTES // max(sizes)) if sizes else 0

    def packs(self) -> str:
        """The name of the number of packs in a row, or in all rows; 0 where they are not
        aligned."""
        program, extents = self.program, self.program.extents
        apart = [n for a in self.wide for n in program.arrays[a].strides[:-1]]
        apart += [s.offset for s in program.statements() if isinstance(s, (Load, Store))]
        parts = [s.strides for s in program.statements() if isinstance(s, Load) and s.strides]
        apart += [n for strides in parts for n in strides[:-1]]
        whole = len(extents) == 1 or extents[-1] % self.pack == 0
        count = self.packed_elements() // self.pack if whole else 0
        return self.number("packs", 0 if any(n % self.pack for n in apart) else count)

    def per_pack(self, statements: Sequence[Each], axes: Sequence[int], name: str) -> list[str]:
        """The statements for the elements of a pack that begins at element `f`. name: of the
        variable with an element's index."""
        last, width = len(self.program.extents) - 1, self.pack
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        for s, each in statements:
            if isinstance(s, Load) and each:
                near = self.program.along(s)[-1]
                element = f"a{s.array}[{self.loaded_from(s, True)}]"
                pack = f"Pack<T{s.array}, {width}>"
                one = f"T{s.array} p{s.value} = {element}"
                whole = f"{pack} p{s.value} = *(const {pack}*)&{element}"
                before.append(f"const {whole if near else one};")
                inside.append(self.set(s.value, f"load(p{s.value}{'.at[v]' * bool(near)})"))
            elif isinstance(s, Store) and each:
                pack, made = f"Pack<T{s.array}, {width}>", f"q{len(after)}"
                before.append(f"{pack} {made};")
                inside.append(f"{made}.at[v] = store<T{s.array}>(v{s.of});")
                after.append(f"*({pack}*)(a{s.array} + {self.stored_at(s, True)}) = {made};")
            else:
                inside.append(self.statement(s, each))
        inside = used({f"x{last}": "begin + v", name: "f + v"}, inside)
        lines = [*before, "#pragma unroll", f"for (int v = 0; v < {width}; ++v) {{"]
        lines += [*(f"  {line}" for line in inside), "}", *after]
        return self.located(axes, "f", used({"begin": f"x{last}"}, lines))

    def packed_elements(self) -> int:
        """The number of consecutive elements that packs divide."""
        return self.length


def _wide(program: RowProgram) -> list[int]:
    """The arrays whose elements along the last axis are adjacent; none where those of another array
    are further apart."""
    found: dict[int, None] = {}
    for s in (s for p in program.passes for s in p.elements):
        if isinstance(s, (Load, Store)):
            along = program.along(s)
            part = isinstance(s, Load) and s.bounds
            if part or along[-1] not in (0, 1) or (isinstance(s, Store) and not along[-1]):
                return []
            found |= {s.array: None} if along[-1] else {}
    return [*found]


# --- Distributions over threads -------------------------------------------------------------------


class Elements(Packed):
    """No reduction: a thread computes single elements; the one with the first element of a row also
    executes the statements done once for it."""

    def __init__(self, program: RowProgram):
        super().__init__(program)
        self.one = " && ".join(f"x{axis} == 0" for axis in self.row) or "true"

    def body(self) -> Iterator[str]:
        size = self.number("size", self.rows * self.length)
        axes, begin = [*self.outer, *self.row], "0"
        if self.pack > 1:
            yield "#pragma unroll 1"
            yield f"  MINIML_FOR(p, {self.packs()}) {{"
            yield f"    const long long f = p * {self.pack};"
            yield from (f"    {line}" for line in self.per_pack(self.every, axes, "r"))
            yield "  }"
            begin = f"{self.packs()} * {self.pack}"
        yield "#pragma unroll 1"
        yield f"  MINIML_FOR_FROM(r, {begin}, {size}) {{"
        lines = self.located(axes, "r", [self.statement(s, e) for s, e in self.every])
        yield from (f"    {line}" for line in lines)
        yield "  }"

    def packed_elements(self) -> int:
        return self.rows * self.length

    def launched(self) -> Launched:
        return Launched(ENTRY, *spread(self.rows * self.length, max(self.pack, PER_THREAD)))

    def how(self) -> str:
        return "a thread for each element, or pack of neighbours"


class Columns(Text):
    """A thread reduces a part of a column, so that neighbouring threads read adjacent elements."""

    one = "column == 0"

    def __init__(self, program: RowProgram):
        super().__init__(program)
        over = _over(program, self.gathers[0])
        self.down = [a for a in self.outer if a in over]
        self.across = [a for a in (*self.outer, *self.row) if a not in over]
        self.height = prod(program.extents[a] for a in self.down)
        self.width = prod(program.extents[a] for a in self.across)
        self.parts = max(parts(self.width, self.height, 1), -(-self.height // _GATHERED))

    def body(self) -> Iterator[str]:
        width, count = self.number("width", self.width), self.number("parts", self.parts)
        yield f"  MINIML_FOR(t, {width} * {count}) {{"
        yield f"    const long long part = quotient(t, {width}), column = t - part * {width};"
        lines = self.located(self.across, "column", [*self._column()])
        yield from (f"    {line}" for line in lines)
        yield "  }"

    def _column(self) -> Iterator[str]:
        for k, g in enumerate(self.gathers):
            op = self.op(g.row, g.dtype)
            yield f"{op}::A g{k} = {op}::identity();"
        height, count = self.number("height", self.height), self.number("parts", self.parts)
        yield f"for (long long r = part; r < {height}; r += {count}) {{"
        lines = self.located(self.down, "r", [self.statement(s, each) for s, each in self.every])
        yield from (f"  {line}" for line in lines)
        yield "}"
        for k, g in enumerate(self.gathers):
            index = self.index(("array", g.array), self.program.arrays[g.array].strides)
            size = self.number(("size", k), self.program.size(g))
            yield f"w{k}[part * {size} + {index}] = g{k}.value;"

    def launched(self) -> Launched:
        return Launched(ENTRY, *spread(self.width * self.parts, 1))

    def how(self) -> str:
        return f"a thread for each column, parts: {self.parts}"

    def gathered(self, k: int, gather: Gather, each: bool) -> str:
        op = self.op(gather.row, gather.dtype)
        return f"g{k} = {op}::combine(g{k}, {op}::element(v{gather.of}));"


class Rows(Packed):
    """A thread, a warp or a block passes over a row, then over its next one."""

    one = "lane == 0"

    def __init__(self, program: RowProgram):
        super().__init__(program)
        self.lanes = _lanes(program)
        self.parts = self.rows
        if self.gathers:
            most = min(self.rows // _SHARE, THREADS // self.lanes)
            self.parts = max(most, -(-self.rows // _GATHERED))

    def body(self) -> Iterator[str]:
        lanes, count = self.number("lanes", self.lanes), self.number("parts", self.parts)
        yield f"  const int lanes = (int){lanes}, lane = threadIdx.x % lanes;"
        if self.kept:
            yield "  extern __shared__ __align__(16) unsigned char rows_kept[];"
        for number, v in enumerate(self.kept):
            c = C_TYPES[computed(self.program.types[v])]
            at = self.number(("kept", v), self._kept_at(number))
            begin = f"threadIdx.x / lanes * {self.number('length', self.length)}"
            yield f"  {c}* k{v} = ({c}*)(rows_kept + {at}) + {begin};"
        yield f"  for (long long g = group_index(lanes); g < {count}; g += group_count(lanes)) {{"
        yield from (f"    {line}" for line in self._cleared())
        yield f"    for (long long r = g; r < {self.number('rows', self.rows)}; r += {count}) {{"
        lines = self.located(self.outer, "r", [*self._all_passes()])
        yield from (f"      {line}" for line in lines)
        yield "    }"
        yield "  }"

    def _all_passes(self) -> Iterator[str]:
        for part in self.program.passes:
            yield from self._passed(part)
            yield from (self.statement(s, False) for s in part.row)

    def _passed(self, part: Pass) -> Iterator[str]:
        if not part.elements:
            return
        reduces = [s for s in part.elements if isinstance(s, Reduce)]
        ops = {s: self.op(s.row, self.program.types[s.of]) for s in reduces}
        for s, op in ops.items():
            yield f"{op}::A t{s.value} = {op}::identity();"
        begin, width = "lane", self.pack
        if width > 1 and len(self.row) == 1:
            begin = f"{self.packs()} * {width} + lane"
            first = f"long long f = lane * {width}"
            yield "#pragma unroll 1"
            yield f"for ({first}; f < {self.packs()} * {width}; f += lanes * {width}) {{"
            every = [(s, True) for s in part.elements]
            yield from (f"  {line}" for line in self.per_pack(every, self.row, "i"))
            yield "}"
            yield "#pragma unroll 1"
        length = self.number("length", self.length)
        yield f"for (long long i = {begin}; i < {length}; i += lanes) {{"
        lines = self.located(self.row, "i", [self.statement(s, True) for s in part.elements])
        yield from (f"  {line}" for line in lines)
        yield "}"
        for s, op in ops.items():
            c = C_TYPES[computed(self.program.types[s.value])]
            yield self.set(s.value, f"({c})combined<{op}>(t{s.value}, lanes).value")

    def _cleared(self) -> Iterator[str]:
        """The lines that initialise this group's partial results before the first row."""
        for k, gather in enumerate(self.gathers):
            op = self.op(gather.row, gather.dtype)
            size = self.number(("size", k), self.program.size(gather))
            yield f"{C_TYPES[self._stored(gather)]}* own{k} = w{k} + g * {size};"
            yield f"for (long long i = lane; i < {size}; i += lanes)"
            yield f"  own{k}[i] = {op}::identity().value;"
        if self.gathers:
            yield "if (lanes > 32) __syncthreads();"
            yield "else if (lanes > 1) __syncwarp();"

    def gathered(self, k: int, gather: Gather, each: bool) -> str:
        op = self.op(gather.row, gather.dtype)
        index = self.index(("array", gather.array), self.program.arrays[gather.array].strides, each)
        own = f"own{k}[{index}]"
        return f"{own} = {op}::combine({{{own}}}, {op}::element(v{gather.of})).value;"

    def _kept_at(self, number: int) -> int:
        return _kept_bytes(self.program, self.kept[:number], self.lanes)

    def launched(self) -> Launched:
        grid, block = grid_for(self.parts, self.lanes)
        shared = _kept_bytes(self.program, self.kept, self.lanes)
        return Launched(ENTRY, grid, block, shared)

    def how(self) -> str:
        return f"threads for each row: {self.lanes}"


# --- Elementwise kernels --------------------------------------------------------------------------


class Elementwise(Kernel):
    """The kernel of one expression for one node, on the device that the node names.

    Inputs may have any strides and shapes that broadcast to the output's; the output is
    contiguous, and may be an input's memory where that has its shape and is contiguous.
    """

    def __init__(self, entry: KernelEntry):
        self.entry = entry

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        compiler = node.device.compiler
        self.function = compiler.function(unit_of(self.entry), kernel_name(self.entry))
        types = scalar_types(self.entry)
        self.scalars = tuple(expression(self.entry).scalar_values(node, types))
        self.size, self.width = prod(node.outputs[0].shape), pack_width(self.entry)
        self.grid, self.block = spread(self.size, max(self.width, PER_THREAD))
        self.rest: dict[object, tuple[Any, ...]] = {}

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (out,) = outputs
        key = (out.offset % 16, *[(a.offset % 16, a.strides) for a in inputs])
        rest = self.rest.get(key)
        if rest is None:
            axes = collapsed(inputs, out.shape, self.entry.name)
            where = (layout(axes, starts_of(inputs)),) if inputs else ()
            count = np.int64(packs(axes, inputs, out, self.width))
            rest = self.rest[key] = (*self.scalars, *where, count, np.int64(self.size))
        self.function(self.grid, self.block, (*[a.flat for a in inputs], out.flat, *rest))


def expression(entry: KernelEntry) -> Expression:
    """The entry's body."""
    assert isinstance(entry.body, Expression)
    return entry.body


def dtypes_of(entry: KernelEntry) -> tuple[list[DType], DType]:
    """The dtypes of the inputs and of the output."""
    s = entry.signature
    (out,) = [d for d in s.outputs if d is not None]
    return [d for d in s.inputs if d is not None], out


def scalar_types(entry: KernelEntry) -> dict[str, DType]:
    """The scalar arguments of the kernel and their dtypes."""
    spec = registry.specs.get(entry.name)
    attributes = spec.attributes if spec is not None else None
    return expression(entry).scalar_types(entry.signature, attributes or ())


def input_names(entry: KernelEntry) -> tuple[str, ...]:
    """The names of the inputs in the expression."""
    spec = registry.specs.get(entry.name)
    if spec is not None and spec.inputs is not None:
        return spec.inputs
    return tuple(f"x{i}" for i in range(len(entry.signature.inputs)))


def pack_width(entry: KernelEntry) -> int:
    """The number of elements of an expression's widest array that fill 16 bytes, the best width for
    a thread; at most 8, because compilers unroll each of them."""
    ins, out = dtypes_of(entry)
    return min(8, 16 // max(d.itemsize for d in (*ins, out)))


def kernel_name(entry: KernelEntry) -> str:
    """The C name of an expression's kernel."""
    signature = str(entry.signature).replace("?", "Z")
    return re.sub(r"[^A-Za-z0-9]", "_", f"{entry.name}_{signature}")


def unit_of(entry: KernelEntry) -> str:
    """The text of the unit in which the expression is compiled: alone, or with all built-in
    expressions that name the same unit, because compilers start slowly."""
    unit = expression(entry).unit
    members, text = _unit(unit, epoch.now.kernels) if unit else ([], "")
    return text if entry in members else text_of([entry])


@lru_cache(maxsize=64)
def _unit(unit: str, kernels: int) -> tuple[list[KernelEntry], str]:
    """The expressions that are compiled together, in an order that never changes, and their
    text."""
    found = [
        e
        for (_, device), entries in list(registry.table.items())
        if device == "cuda"
        for e in entries
        if isinstance(e.body, Expression) and e.body.unit == unit
    ]
    found.sort(key=kernel_name)
    return found, text_of(found)


def text_of(entries: Sequence[KernelEntry]) -> str:
    """The text of a unit of expressions."""
    dtypes = {d for e in entries for ins, out in (dtypes_of(e),) for d in (*ins, out)}
    return prelude(dtypes) + "using namespace miniml;\n" + "".join(map(kernel_text, entries))


def kernel_text(entry: KernelEntry) -> str:
    """The text of an expression's kernel; a Layout gives the addresses of its inputs' elements.

    A thread computes a pack of neighbours where there are packs, and single elements elsewhere.
    """
    (ins, out), name, width = dtypes_of(entry), kernel_name(entry), pack_width(entry)
    count, result = len(ins), C_TYPES[out]
    scalars = [(n, C_TYPES[d]) for n, d in scalar_types(entry).items()]
    given = [f"const {C_TYPES[d]}* in{k}" for k, d in enumerate(ins)] + [f"{result}* out"]
    given += [f"{t} a_{n}" for n, t in scalars] + [f"Layout<{count}> where"] * bool(count)
    given += ["long long packs", "long long n"]

    def value(index: str, loads: list[str]) -> str:
        passed = [*loads, *[f"a_{n}" for n, _ in scalars], index]
        return f"store<{result}>({name}_value({', '.join(passed)}))"

    def located(index: str) -> str:
        return f"    long long at[{count}];\n    locate(where, {index}, at);\n" * bool(count)

    packed = "".join(
        f"    const Pack<{C_TYPES[d]}, {width}> p{k} = "
        f"pack_of<{width}>(in{k} + at[{k}], where, {k});\n"
        for k, d in enumerate(ins)
    )
    each = value(f"p * {width} + v", [f"load(p{k}.at[v])" for k in range(count)])
    one = value("i", [f"load(in{k}[at[{k}]])" for k in range(count)])
    return f"""{_value(entry)}extern "C" __global__ void {name}({", ".join(given)}) {{
#pragma unroll 1
  MINIML_FOR(p, packs) {{
{located(f"p * {width}")}{packed}    Pack<{result}, {width}> made;
#pragma unroll
    for (int v = 0; v < {width}; ++v) made.at[v] = {each};
    *(Pack<{result}, {width}>*)(out + p * {width}) = made;
  }}
#pragma unroll 1
  MINIML_FOR_FROM(i, packs * {width}, n) {{
{located("i")}    out[i] = {one};
  }}
}}
"""


def _value(entry: KernelEntry) -> str:
    """The expression of an entry as a function."""
    ins, out = dtypes_of(entry)
    takes = tuple(zip(input_names(entry), ins, strict=True))
    scalars = tuple(scalar_types(entry).items())
    name = f"{kernel_name(entry)}_value"
    return value_text(name, entry.name, expression(entry), takes, scalars, out)


def value_text(
    name: str,
    primitive: str,
    body: Expression,
    inputs: Sequence[tuple[str, DType]],
    scalars: Sequence[tuple[str, DType]],
    out: DType,
) -> str:
    """An expression as the function `name` of scalars and of the element's index; T and U are the
    types it may use. It returns the type in which the output is computed; casts from floats are
    left to `store`."""
    first = inputs[0][1] if inputs else out
    known = {"T": computed(first), "U": unsigned(first)}
    types = "".join(f"  typedef {C_TYPES[d]} {n};\n" for n, d in known.items() if n in body.words)
    takes = [f"{C_TYPES[computed(d)]} {n}" for n, d in inputs]
    takes += [f"{C_TYPES[d]} {n}" for n, d in scalars]
    takes.append("long long" + " index" * ("index" in body.words))
    gives = C_TYPES[computed(first if primitive == "Cast" else out)]
    return f"""static __device__ __forceinline__ {gives} {name}({", ".join(takes)}) {{
{types}#line 1 "{primitive} expression"
  return ({body.text});
#line 1 "{name}.cu"
}}
"""
