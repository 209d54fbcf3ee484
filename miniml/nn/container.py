"""Cells made of other cells, in order: Sequential and CellList."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self, overload

from ..errors import AttributeRefusedError
from .cell import Cell


class _Ordered:
    """Children of a cell by position: attributes named "0", "1", ..."""

    def append(self, cell: Cell) -> Self:
        """Add a cell at the end; returns the container."""
        if not isinstance(cell, Cell):
            raise AttributeRefusedError(
                f"{type(self).__name__} holds cells; got {cell!r} of type {type(cell).__name__}; "
                + _instead(cell)
            )
        if id(self) in map(id, cell.cells()):
            raise AttributeRefusedError(
                f"{type(self).__name__} cannot hold itself, nor a cell that holds it"
            )
        setattr(self, str(len(self)), cell)
        return self

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __iter__(self) -> Iterator[Cell]:
        return (v for v in self.__dict__.values() if isinstance(v, Cell))

    @overload
    def __getitem__(self, index: int) -> Cell: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Cell | Self:
        found = list(self)[index]
        return found if isinstance(found, Cell) else self._of(found)

    def _of(self, cells: list[Cell]) -> Self:
        """A container like this one of other cells."""
        raise NotImplementedError


def _instead(given: object) -> str:
    """What to give in place of something that is not a cell."""
    if isinstance(given, type):
        return f"make one: {given.__name__}(...)"
    if isinstance(given, (list, tuple)):
        return "give its cells one by one, as *cells"
    return "use a layer, such as nn.ReLU(), or a Cell of your own"


class Sequential(_Ordered, Cell):
    """Cells in sequence, each applied to the output of the one before.

    The cells are the arguments; `net[i]`, `len(net)`, iteration and `append` work as on a list;
    `net[1:]` is a Sequential of the same cells.
    """

    def __init__(self, *cells: Cell):
        for cell in cells:
            self.append(cell)

    def construct(self, x: Any) -> Any:
        for cell in self:
            x = cell(x)
        return x

    def _of(self, cells: list[Cell]) -> Self:
        return type(self)(*cells)


class CellList(_Ordered, Cell):
    """A list of cells whose parameters are found: "layers.0.weight". It is not called itself."""

    def __init__(self, cells: Iterable[Cell] = ()):
        if not isinstance(cells, Iterable):
            raise AttributeRefusedError(
                f"CellList got {type(cells).__name__}; expected a list of cells, as in [cell]"
            )
        for cell in cells:
            self.append(cell)

    def _of(self, cells: list[Cell]) -> Self:
        return type(self)(cells)
