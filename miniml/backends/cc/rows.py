"""Row programs in C: loops that compilers vectorise, split over threads where they are long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..expressions.rows import Load, Pass, Reduce, RowProgram, Statement
from .loops import BLOCK, Loops, Printed
from .reducers import reducer
from .scalars import STORED, value_type
from .strips import Strips, in_strips


def printed(program: RowProgram) -> Printed:
    """The kernel of a row program: its arrays are the inputs, the outputs and the workspace."""
    return (Strips if in_strips(program) else Rows)(program).printed()


class Rows(Loops):
    """Row after row; each is run over in vectors."""

    def steps(self) -> int:
        return self.rows

    def indices(self) -> Iterator[str]:
        extents = self.program.extents[: self.program.outer]
        for k, n in enumerate(extents):
            step = prod(extents[k + 1 :])
            index = f"r / {step}L" if step > 1 else "r"
            yield f"    const long o{k} = {index}{f' % {n}L' if k else ''};"

    def each(self, part: Pass) -> Iterator[str]:
        """Loops over the row; its last axis in blocks where something is reduced."""
        if not part.elements:
            return
        reduces = [s for s in part.elements if isinstance(s, Reduce)]
        for s in reduces:
            start = reducer(s.row, self.program.types[s.value]).identity
            yield f"    {self.total(s)} s{s.value} = {start};"
        pad, row = "    ", self.program.row
        for k, extent in enumerate(row[:-1]):
            yield f"{pad}for (long i{k} = 0; i{k} < {extent}; ++i{k}) {{"
            pad += "  "
        last = row[-1] if row else 1
        if reduces:
            yield from (pad + line for line in self._blocks(part.elements, reduces, last))
        else:
            bounds = ("first", "last") if self.flat else ("0", str(last))
            yield from (pad + line for line in self._loop(part.elements, *bounds))
        while len(pad) > 4:
            pad = pad[2:]
            yield f"{pad}}}"
        for s in reduces:
            c = value_type(self.program.types[s.value])
            yield f"    const {c} v{s.value} = ({c})s{s.value};"

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
            found, name = reducer(s.row, self.program.types[s.value]), f"s{s.value}"
            at = there.get(s, f"t{s.value}")
            yield f"  const {self.total(s)} b{s.value} = {self.block(s)}({at}, m);"
            yield f"  {name} = {found.combine(name, f'b{s.value}')};"
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

    def between(self, statements: Sequence[Statement]) -> Iterator[str]:
        for s in statements:
            yield f"    {self.statement(s, False)}"

    def reduced(self, s: Reduce, element: str) -> str:
        """One more element of a reduction: kept until its block is complete."""
        return f"t{s.value}[i - b] = {element};"
