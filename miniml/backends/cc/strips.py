"""Row programs in C with many rows side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..expressions.rows import (
    Call,
    Gather,
    Keep,
    Literal,
    Load,
    Reduce,
    RowProgram,
    Statement,
    Store,
)
from .loops import BLOCK, Loops
from .scalars import value_type

_LANES = (64, 32, 16)  # rows side by side: four vectors of float32, or fewer
_FEW = 8  # rows for which that does not pay
_SHORT = 16  # elements of a row that would not fill a vector
_KEPT = 1 << 14  # elements that all lanes may keep on a thread's stack


class Strips(Loops):
    """Many rows side by side, one in each lane: for rows that are short, or whose elements are far
    apart while those of neighbouring rows are not. Their last outer axis is run over in strips."""

    def __init__(self, program: RowProgram):
        self.last = program.extents[program.outer - 1]
        self.lanes = lanes_of(program)
        self.by_row = _row_values(program)
        super().__init__(program)

    def steps(self) -> int:
        return self.rows // self.last * -(-self.last // self.lanes)

    def indices(self) -> Iterator[str]:
        before = self.program.extents[: self.program.outer - 1]
        names = [*(f"o{k}" for k in range(len(before))), "strip"]
        yield from self.numbered((*before, -(-self.last // self.lanes)), names)
        yield f"const long c = strip * {self.lanes};"
        whole = self.last % self.lanes == 0
        rest = f"{self.last}L - c < {self.lanes} ? {self.last}L - c : {self.lanes}"
        yield f"const long lanes = {self.lanes if whole else rest};"
        for value in sorted(self.by_row):
            yield f"{value_type(self.program.types[value])} v{value}[{self.lanes}];"

    def begun(self, total: str, s: Reduce) -> Iterator[str]:
        name = total.split()[-1]
        yield f"{total}[{self.lanes}];"
        yield _each_lane(f"{name}[l] = {self.reducer(s).identity};")

    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        """In blocks, whose sums are added in a wider type; over the lanes inside."""
        yield f"for (long b = 0; b < {n}; b += {BLOCK}) {{"
        for s in reduces:
            yield from (f"  {line}" for line in self.begun(f"{self.lane_type(s)} t{s.value}", s))
        end = f"{n}" if n <= BLOCK else f"({n} - b < {BLOCK} ? {n} : b + {BLOCK})"
        yield f"  for (long i = b; i < {end}; ++i) {{"
        yield "MINIML_APART"
        yield "    for (long l = 0; l < lanes; ++l) {"
        yield from (f"      {self.statement(s, True)}" for s in elements)
        yield "    }"
        yield "  }"
        for s in reduces:
            combined = self.reducer(s).combine(f"s{s.value}[l]", f"t{s.value}[l]")
            yield f"  {_each_lane(f's{s.value}[l] = {combined};')}"
        yield "}"

    def ended(self, s: Reduce, c: str) -> Iterator[str]:
        yield _each_lane(f"v{s.value}[l] = ({c})s{s.value}[l];")

    def between(self, statements: Sequence[Statement]) -> Iterator[str]:
        """What is done once for each of the rows; adding to what they share comes one by one."""
        apart = [s for s in statements if not isinstance(s, Gather)]
        for together, found in ((False, apart), (True, [s for s in statements if s not in apart])):
            if found:
                yield from [] if together else ["MINIML_APART"]
                yield "for (long l = 0; l < lanes; ++l) {"
                yield from (f"  {self.statement(s, False)}" for s in found)
                yield "}"

    def name(self, value: int) -> str:
        return f"v{value}[l]" if value in self.by_row else f"v{value}"

    def set(self, value: int, text: str) -> str:
        return f"v{value}[l] = {text};" if value in self.by_row else super().set(value, text)

    def reduced(self, s: Reduce, element: str) -> str:
        return f"t{s.value}[l] = {self.reducer(s).combine(f't{s.value}[l]', element)};"

    def names(self, each: bool) -> list[str]:
        names = super().names(each)
        names[self.program.outer - 1] = "(c + l)"
        return names

    def kept_at(self) -> str:
        return f"{super().kept_at()} + l"


def _each_lane(statement: str) -> str:
    return f"for (long l = 0; l < lanes; ++l) {statement}"


def in_strips(program: RowProgram) -> bool:
    """True where rows are rather computed side by side."""
    gathers = any(isinstance(s, Gather) for p in program.passes for s in p.elements)
    if gathers or not program.outer or not program.row:
        return False
    if not program.reduces:
        return False
    streams = {program.along(s) for s in program.statements() if isinstance(s, (Load, Store))}
    wide = [strides for strides in streams if any(strides[program.outer :])]
    # What all rows share stays in the cache, wherever there are arrays with elements for each row.
    wide = [strides for strides in wide if strides[program.outer - 1]] or wide
    near = sum(strides[-1] == 1 for strides in wide)
    beside = sum(strides[program.outer - 1] == 1 for strides in wide)
    return lanes_of(program) >= _FEW and (beside > near or prod(program.row) <= _SHORT)


def lanes_of(program: RowProgram) -> int:
    """How many rows are computed side by side, so that what they keep fits on the stack."""
    kept = prod(program.row) * sum(isinstance(s, Keep) for s in program.statements())
    fitting = [n for n in _LANES if n * kept <= _KEPT]
    return min(program.extents[program.outer - 1], fitting[0]) if fitting else 0


def _row_values(program: RowProgram) -> frozenset[int]:
    """The values of rows as a whole."""
    found = [s for s in program.statements() if isinstance(s, Reduce)]
    rows = [s for p in program.passes for s in p.row if isinstance(s, (Load, Call, Literal))]
    return frozenset(s.value for s in (*found, *rows))
