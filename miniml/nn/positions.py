"""Cells that tell a sequence the positions of its members."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..dtype import is_float
from ..errors import ShapeError
from ..graph.tracer import as_tensor
from ..ops.inference.devices import on_device_of
from . import init
from .arguments import flag, integer, number, positive
from .cell import Cell
from .shapes import beside, refuse_shape, shape_of


class SinusoidalPositions(Cell):
    """x + `ops.sinusoidal_positions`, for x (..., T, d): waves of sines, nothing learnt.

    Called as `layer(x, start=0)`; start: the position of the first member, an int.
    Source: Vaswani et al. 2017, "Attention is all you need", section 3.5.
    """

    _shown = "{0.d}, base={0.base}"

    def __init__(self, d: int, base: float = 10000.0):
        positive("SinusoidalPositions", d=d)
        self.d, self.base = d, number("SinusoidalPositions", "base", base, 1.0)

    def construct(self, x: Any, start: int = 0) -> Any:
        shape = _sequence(self, x, self.d)
        first = integer("SinusoidalPositions", "start", start)
        x = as_tensor(x)
        dtype = x.dtype if is_float(x.dtype) else float
        with on_device_of(x):
            return x + ops.sinusoidal_positions(shape[-2], self.d, first, self.base, dtype)


class LearnedPositions(Cell):
    """x + weight[start : start + T], for x (..., T, d): a learnt row for each position.

    weight: (length, d), which starts normal with standard deviation 0.02. Called as
    `layer(x, start=0)`; positions from `length` on are refused.
    Source: Gehring et al. 2017, "Convolutional sequence to sequence learning"; the deviation is
    that of Radford et al. 2019, "Language models are unsupervised multitask learners".
    """

    _shown = "{0.length}, {0.d}"

    def __init__(self, length: int, d: int):
        positive("LearnedPositions", length=length, d=d)
        self.length, self.d = length, d
        self.weight = init.normal((length, d), 0.02)

    def construct(self, x: Any, start: int = 0) -> Any:
        shape, first = _sequence(self, x, self.d), integer("LearnedPositions", "start", start)
        last = first + shape[-2]
        if first < 0 or last > self.length:
            raise ShapeError(
                f"{self.describe()} got positions {first} to {last - 1}; it has rows for 0 to "
                f"{self.length - 1}"
            )
        return beside(self.weight, x) + self.weight[first:last]


class RotaryPositions(Cell):
    """x (..., T, d) with its pairs of features turned by their positions: `ops.rotary_embedding`.

    It is for queries and keys alike, after they are cut into heads of d features, as
    MultiHeadAttention(..., rotary=RotaryPositions(d)) does. Called as `layer(x, positions=None)`.
    Source: Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding".
    """

    _shown = "{0.d}, base={0.base}, interleaved={0.interleaved}"

    def __init__(self, d: int, base: float = 10000.0, interleaved: bool = False):
        positive("RotaryPositions", d=d)
        if d % 2:
            raise ShapeError(f"RotaryPositions got d={d}; expected an even number of features")
        self.d, self.base = d, number("RotaryPositions", "base", base, 1.0)
        self.interleaved = flag("RotaryPositions", "interleaved", interleaved)

    def construct(self, x: Any, positions: Any = None) -> Any:
        _sequence(self, x, self.d)
        return ops.rotary_embedding(as_tensor(x), positions, self.base, self.interleaved)


def _sequence(cell: Cell, x: Any, d: int) -> tuple[int, ...]:
    """The shape of x; ShapeError unless it is a sequence of d features."""
    shape = shape_of(cell, x)
    if len(shape) < 2 or shape[-1] != d:
        refuse_shape(cell, shape, f"(..., T, {d})")
    return shape
