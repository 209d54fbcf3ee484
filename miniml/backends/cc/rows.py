"""Row programs in C: loops that compilers vectorise, split over threads where they are long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..expressions.rows import Load, Reduce, RowProgram, Statement
from .loops import BLOCK, Loops, Printed
from .reducers import reducer
from .scalars import STORED
from .strips import Strips, in_strips


def printed(program: RowProgram) -> Printed:
    """The kernel of a row program: its arrays are the inputs, the outputs and the workspace."""
    return (Strips if in_strips(program) else Rows)(program).printed()


class Rows(Loops):
    """Row after row; each is run over in vectors."""

    def steps(self) -> int:
        return self.rows

    def indices(self) -> Iterator[str]:
        return self.numbered(self.program.extents[: self.program.outer])

    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        if reduces:
            return self._blocks(elements, reduces, n)
        return self._loop(elements, *(("first", "last") if self.flat else ("0", str(n))))

    def _loop(self, elements: Sequence[Statement], first: str, last: str) -> Iterator[str]:
        yield "MINIML_APART"
        yield f"for (long i = {first}; i < {last}; ++i) {{"
        yield from (f"  {self.statement(s, True)}" for s in elements)
        yield "}"

    def _blocks(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        """The elements of a block side by side in memory, then their sums."""
        size = min(n, BLOCK)
        whole = n % size == 0
        yield f"for (long b = 0; b < {n}; b += {size}) {{"
        yield f"  const long m = {size if whole else f'{n} - b < {size} ? {n} - b : {size}'};"
        there = {s: at for s in reduces if (at := self._in_memory(s, elements))}
        for s in reduces:
            if s not in there:
                yield f"  {self.lane_type(s)} t{s.value}[{size}];"
        rest = [s for s in elements if s not in there]
        if not all(isinstance(s, Load) for s in rest):
            yield from (f"  {line}" for line in self._loop(rest, "b", "b + m"))
        for s in reduces:
            name, at = f"s{s.value}", there.get(s, f"t{s.value}")
            yield f"  const {self.total(s)} b{s.value} = {self.block(s)}({at}, m);"
            yield f"  {name} = {self.reducer(s).combine(name, f'b{s.value}')};"
        yield "}"

    def _in_memory(self, s: Reduce, elements: Sequence[Statement]) -> str:
        """Where the elements of a block lie that are read as they are; "" if they do not."""
        made = next((e for e in elements if isinstance(e, Load) and e.value == s.of), None)
        if made is None or reducer(s.row, self.program.types[s.of]).element != "x":
            return ""
        strides = self.program.along(made)
        if strides[-1] != 1 or STORED[self.program.arrays[made.array].dtype] != self.lane_type(s):
            return ""
        return f"a{made.array} + b + {made.offset}L + {self.index((*strides[:-1], 0), True)}"
