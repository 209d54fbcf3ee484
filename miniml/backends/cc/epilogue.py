"""Epilogues in C: what follows a matrix product, on the sums while they are in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..expressions.rows import Load, Reduce, RowProgram, Statement
from .loops import Loops
from .scalars import STORED


def epilogue(program: RowProgram, sums: int, rows: int) -> tuple[str, tuple[str, ...]]:
    """The text of `KERNEL_epilogue` for a product of `rows` rows, and the texts that it needs.

    program: the loops over the product's output, its last axis being the row; array number `sums`
    is the product, the others lie in `at` in their order.
    """
    return Epilogue(program, sums, rows).text()


class Epilogue(Loops):
    """A piece of one row, whose elements a product has just computed."""

    def __init__(self, program: RowProgram, sums: int, rows: int):
        super().__init__(program)
        self.sums, self.count = sums, rows

    def text(self) -> tuple[str, tuple[str, ...]]:
        """The function, and the texts that it needs."""
        return "\n".join(self._lines()) + "\n", tuple(self.shared)

    def _lines(self) -> Iterator[str]:
        c = STORED[self.program.arrays[self.sums].dtype]
        yield "static inline void KERNEL_epilogue("
        yield "    char *const *at, long batch, long row, long j, long count,"
        yield f"    const {c} *restrict sums) {{"
        yield from self._pointers()
        yield from (f"  {line}" for line in self.body())
        yield "}"

    def _pointers(self) -> Iterator[str]:
        for i, array in enumerate(self.program.arrays):
            if i != self.sums:
                c = f"{'const ' * (i < self.program.inputs)}{STORED[array.dtype]} *"
                yield f"  {c}a{i} = ({c})at[{i - (i > self.sums)}];"

    def steps(self) -> int:
        return self.rows

    def indices(self) -> Iterator[str]:
        yield f"const long r = batch * {self.count}L + row;"
        yield from self.numbered(self.program.extents[: self.program.outer])

    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        yield "MINIML_APART"
        yield "for (long i = j; i < j + count; ++i) {"
        yield from (f"  {self.statement(s, True)}" for s in elements)
        yield "}"

    def statement(self, s: Statement, each: bool) -> str:
        if isinstance(s, Load) and s.array == self.sums:
            return self.set(s.value, "sums[i - j]")
        return super().statement(s, each)
