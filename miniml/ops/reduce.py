"""Reductions: many elements to one, along axes."""

from __future__ import annotations

from typing import Any

from ..abstract import Shape
from ..attributes import freeze
from ..dtype import SIGNED, UNSIGNED, DType, bool_, int64, uint64
from ..primitive import Primitive
from .bases import Axes, reduced_shape

__all__ = ["Sum", "sum"]  # fmt: skip


class Reduction(Primitive, abstract=True):
    """A reduction along `axis` (all axes for None), which stay as extents 1 with `keepdims`."""

    axis: Axes = None
    keepdims: bool = False

    def infer_shape(self, x: Shape) -> Shape:
        return reduced_shape(self.name, x, self.axis, self.keepdims)

    def infer_dtype(self, x: DType) -> DType:
        return x


class Sum(Reduction):
    """The sum. Integers narrower than 64 bits, and bools, are summed in 64 bits."""

    def infer_dtype(self, x: DType) -> DType:
        return accumulated(x)


def accumulated(dtype: DType) -> DType:
    """The dtype sums and products of `dtype` are given in: 64 bits for integers and bools."""
    if dtype in SIGNED or dtype == bool_:
        return int64
    return uint64 if dtype in UNSIGNED else dtype


def sum(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    """The sum of x over `axis` (an int, a tuple, or None for all axes)."""
    return Sum(freeze(axis, "Sum", "axis"), keepdims)(x)
