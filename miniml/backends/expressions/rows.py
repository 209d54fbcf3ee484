"""Row programs: a loop-nest IR, as plain data from which C is generated for every device.

A row program iterates over a box of indices. Its outer axes index the rows; the others are the row.
Each row takes a few passes. A pass computes values of the row's elements; its sums and maxima are
values of the row as a whole, which later passes read.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from ...core.dtype import DType
from .table import Expression

Value = int  # the index of a value in a program; each is computed once in a pass


class Array(NamedTuple):
    """An input or output: its dtype, and its strides in elements."""

    dtype: DType
    strides: tuple[int, ...]


class Scalar(NamedTuple):
    """A scalar function: an expression, the names and dtypes of its inputs, the dtype it gives and
    its constants, NumPy scalars by name."""

    name: str
    expression: Expression
    inputs: tuple[tuple[str, DType], ...]
    out: DType
    constants: tuple[tuple[str, Any], ...] = ()


class Load(NamedTuple):
    """value = the element of an array, or of a part of it with strides of its own and the offset of
    its first element."""

    value: Value
    array: int
    strides: tuple[int, ...] | None = None
    offset: int = 0


class Call(NamedTuple):
    """value = function(args). strides: of the element's index, where the function uses it."""

    value: Value
    function: Scalar
    args: tuple[Value, ...]
    strides: tuple[int, ...] = ()


class Literal(NamedTuple):
    """value = a NumPy scalar."""

    value: Value
    number: Any


class Reduce(NamedTuple):
    """value = the reduction `row` of `of` over the row: "Sum", "Prod", "Max", "Min", "Any", "All".

    Its dtype is that of `value`; sums of float32 are taken as exactly as by pairs.
    """

    value: Value
    row: str
    of: Value


class Store(NamedTuple):
    """The element of an array is set to `of`."""

    array: int
    of: Value


class Gather(NamedTuple):
    """The element of an array is the reduction `row` of all `of` that belong to it, taken in
    `dtype` and divided by `over`. Along the outer axes that it is over, its strides are 0."""

    array: int
    row: str
    of: Value
    dtype: DType
    over: int = 1


class Keep(NamedTuple):
    """The row's elements of `of` are kept for later passes."""

    of: Value


class Recall(NamedTuple):
    """value = the element that an earlier pass kept."""

    value: Value


Statement = Load | Call | Literal | Reduce | Store | Gather | Keep | Recall


class Pass(NamedTuple):
    """A pass over a row. elements: statements that run for each element, Reduce among them; row:
    statements that run once, after the elements."""

    elements: tuple[Statement, ...]
    row: tuple[Statement, ...]


class RowProgram(NamedTuple):
    """A loop nest over rows.

    extents: of all axes, the outer ones first. types: the dtype of each value. inputs: the number
    of arrays that are read; the others are written. passes: the first one has no elements where
    something is computed before the row.
    """

    extents: tuple[int, ...]
    outer: int
    arrays: tuple[Array, ...]
    inputs: int
    types: tuple[DType, ...]
    passes: tuple[Pass, ...]

    @property
    def row(self) -> tuple[int, ...]:
        """The extents of a row."""
        return self.extents[self.outer :]

    def along(self, s: Load | Store) -> tuple[int, ...]:
        """The strides with which a statement reads or writes its array."""
        own = s.strides if isinstance(s, Load) else None
        return self.arrays[s.array].strides if own is None else own

    def size(self, gather: Gather) -> int:
        """The number of results of a gather."""
        strides = self.arrays[gather.array].strides
        return prod(n for n, s in zip(self.extents, strides, strict=True) if s)

    @property
    def gathers(self) -> list[Gather]:
        """Its gathers in order."""
        return [s for s in self.statements() if isinstance(s, Gather)]

    @property
    def reduces(self) -> bool:
        """True where rows are reduced."""
        return any(isinstance(s, Reduce) for s in self.statements())

    def statements(self) -> Iterator[Statement]:
        """All statements in order."""
        for part in self.passes:
            yield from part.elements
            yield from part.row

    def __str__(self) -> str:
        lines = [f"rows {list(self.extents[: self.outer])} of {list(self.row)}"]
        for i, array in enumerate(self.arrays):
            lines.append(f"  a{i}: {array.dtype.name} {list(array.strides)}")
        for part in self.passes:
            lines += ["  each:", *(f"    {shown(s)}" for s in part.elements)] * bool(part.elements)
            lines += ["  row:", *(f"    {shown(s)}" for s in part.row)] * bool(part.row)
        return "\n".join(lines)


def inplace(program: RowProgram) -> tuple[int, ...]:
    """The inputs that an output may overwrite: each element is read once, at the index at which it
    is then written."""
    if any(isinstance(s, (Reduce, Gather)) for s in program.statements()):
        return ()
    inputs, outputs = program.arrays[: program.inputs], program.arrays[program.inputs :]
    whole = {o for o in outputs if all(o.strides)}
    loads = (s for s in program.statements() if isinstance(s, Load))
    parts = {s.array for s in loads if s.strides is not None}
    return tuple(i for i, array in enumerate(inputs) if array in whole and i not in parts)


def operands(statement: Statement) -> tuple[Value, ...]:
    """The values that a statement reads."""
    match statement:
        case Call():
            return statement.args
        case Reduce() | Store() | Gather() | Keep():
            return (statement.of,)
    return ()


def shown(s: Statement) -> str:
    """A statement as text."""
    match s:
        case Load(value, array, None):
            return f"v{value} = a{array}"
        case Load(value, array, _, offset):
            return f"v{value} = a{array} from {offset}"
        case Call(value, function, args, _):
            return f"v{value} = {function.name}({', '.join(f'v{a}' for a in args)})"
        case Literal(value, number):
            return f"v{value} = {number}"
        case Reduce(value, row, of):
            return f"v{value} = {row} v{of}"
        case Store(array, of):
            return f"a{array} = v{of}"
        case Gather(array, row, of, _, _):
            return f"a{array} {row}= v{of}"
        case Keep(of):
            return f"keep v{of}"
        case Recall(value):
            return f"recall v{value}"
