"""Row programs in CUDA C. No extent, stride or constant is in the text: programs that differ in
nothing else share a kernel, which gets them as a structure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ...expressions.rows import Gather, Keep, Load, Pass, Reduce, RowProgram, Store
from ...expressions.types import computed
from .groups import BLOCK, THREADS, grid_for, lanes_for, parts
from .layout import PER_THREAD, spread
from .loops import ENTRY, Launched, Printed, Text
from .packs import Packed
from .source import C_TYPES

SHARED = 40 * 1024  # bytes that a block keeps of rows; with what it exchanges less than 48 KiB
_GATHERED = 1024  # rows added one after another, so that their sum stays accurate
_SHARE = 8  # rows of a group at least, so that few partial results are left


def printed(program: RowProgram) -> Printed:
    """The kernels of a row program: threads of which each has elements, or columns, or a part of a
    row."""
    if program.reduces:
        return Rows(program).printed()
    gathers, apart = program.gathers, {s for p in program.passes for s in p.row}
    if not gathers:
        return Elements(program).printed()
    over = {_over(program, g) for g in gathers}
    return (Columns if len(over) == 1 and not apart.intersection(gathers) else Rows)(
        program
    ).printed()


def in_parts(rows: int, length: int) -> bool:
    """True for rows so few and long that a GPU is busy only where several blocks share a row, which
    those of a row program do not."""
    return parts(rows, length, BLOCK) > 1


def keeps(program: RowProgram) -> bool:
    """True where a block's shared memory has room for what the passes of a row keep."""
    kept = [s.of for s in program.statements() if isinstance(s, Keep)]
    lanes = _lanes(program)
    return not kept or (lanes > 1 and _kept_bytes(program, kept, lanes) <= SHARED)


class Elements(Packed):
    """Nothing is reduced: a thread computes single elements; the one with the first of a row does
    what is done once for it."""

    def __init__(self, program: RowProgram):
        super().__init__(program)
        self.one = " && ".join(f"x{axis} == 0" for axis in self.row) or "true"

    def body(self) -> Iterator[str]:
        size, axes, begin = (
            self.number("size", self.rows * self.length),
            [*self.outer, *self.row],
            "0",
        )
        if self.pack > 1:
            yield "#pragma unroll 1"
            yield f"  MINIML_FOR(p, {self.packs()}) {{"
            yield f"    const long long f = p * {self.pack};"
            yield from (f"    {line}" for line in self.strip(self.every, axes, "r"))
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
    """Elements of neighbouring threads stand side by side; a thread reduces a part of a column."""

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
        yield f"    const long long column = t % {width}, part = t / {width};"
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
    """A thread, a warp or a block passes over a row, then over the next one that is its."""

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
            yield from (f"  {line}" for line in self.strip(every, self.row, "i"))
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
        """This group's own partial results, before the first row."""
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
        place = f"own{k}[{index}]"
        return f"{place} = {op}::combine({{{place}}}, {op}::element(v{gather.of})).value;"

    def _kept_at(self, number: int) -> int:
        return _kept_bytes(self.program, self.kept[:number], self.lanes)

    def launched(self) -> Launched:
        grid, block = grid_for(self.parts, self.lanes)
        shared = _kept_bytes(self.program, self.kept, self.lanes)
        return Launched(ENTRY, grid, block, shared)

    def how(self) -> str:
        return f"threads for each row: {self.lanes}"


def _over(program: RowProgram, gather: Gather) -> frozenset[int]:
    """The outer axes that a gather reduces."""
    strides = program.arrays[gather.array].strides
    return frozenset(a for a in range(program.outer) if not strides[a])


def _lanes(program: RowProgram) -> int:
    """How many threads share a row; one where neighbouring rows stand side by side."""
    strides = [program.along(s) for s in program.statements() if isinstance(s, (Load, Store))]
    wide = [s for s in strides if any(s[program.outer :])]
    along = sum(s[-1] == 1 for s in wide)
    beside = sum(s[program.outer - 1] == 1 for s in wide) if program.outer else 0
    neighbours = program.extents[program.outer - 1] if beside > along else 1
    return lanes_for(prod(program.row), neighbours)


def _kept_bytes(program: RowProgram, kept: Sequence[int], lanes: int) -> int:
    """Of a block, each value beginning at a multiple of 16."""
    _, (block,) = grid_for(prod(program.extents[: program.outer]), lanes)
    count = block // lanes * prod(program.row)
    return sum(-(-count * computed(program.types[v]).itemsize // 16) * 16 for v in kept)
