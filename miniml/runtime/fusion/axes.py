"""Axes of loops: which axes of several arrays are run over together."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


class Axis:
    """One loop, compared by identity."""

    __slots__ = ("extent",)

    def __init__(self, extent: int):
        self.extent = extent

    def __repr__(self) -> str:
        return f"Axis({self.extent})"


Compound = tuple[Axis, ...]  # an axis of an array as loops, the outermost first; () has extent 1
Dims = tuple[Compound, ...]


class Apart(Exception):
    """Why nodes cannot be computed in the same loops."""


class Axes:
    """What is known of the axes so far. An axis may turn out to be another one, or several."""

    def __init__(self) -> None:
        self._parts: dict[Axis, Compound] = {}

    def fresh(self, shape: Sequence[int]) -> Dims:
        """Axes of their own for an array of a shape."""
        return tuple([(Axis(n),) if n != 1 else () for n in shape])

    def resolve(self, axes: Compound) -> Compound:
        """The loops that these axes are."""
        parts = self._parts
        if not any(a in parts for a in axes):
            return axes
        return tuple([part for a in axes for part in self._resolved(a)])

    def _resolved(self, axis: Axis) -> Compound:
        return self.resolve(self._parts[axis]) if axis in self._parts else (axis,)

    def equate(self, left: Compound, right: Compound) -> None:
        """Both number the same elements in row-major order; Apart where their extents do not
        line up."""
        while left and right:
            left, right = self.resolve(left), self.resolve(right)
            a, b = left[0], right[0]
            if a is b or a.extent == b.extent:
                if a is not b:
                    self._parts[b] = (a,)
                left, right = left[1:], right[1:]
            elif a.extent % b.extent == 0:
                left = self._split(a, b) + left[1:]
            elif b.extent % a.extent == 0:
                right = self._split(b, a) + right[1:]
            else:
                raise Apart(f"axes of {a.extent} and {b.extent} do not line up")

    def _split(self, whole: Axis, first: Axis) -> Compound:
        """`whole` is `first` and, inside it, an axis of its own."""
        self._parts[whole] = (first, Axis(whole.extent // first.extent))
        return self._parts[whole]


def strides_of(dims: Dims) -> dict[Axis, int]:
    """How many elements apart neighbours along each loop are in a row-major array."""
    strides, step = {}, 1
    for axis in reversed([a for compound in dims for a in compound]):
        strides[axis] = step
        step *= axis.extent
    return strides


def extent(axes: Sequence[Axis]) -> int:
    """How many elements they number."""
    return prod([a.extent for a in axes])
