"""Tensors from nothing: full, zeros, ones, arange."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..abstract import Shape
from ..dtype import DType, as_dtype, canonical, scalar_dtype
from ..primitive import Primitive

__all__ = ["Full", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like"]  # fmt: skip


class Full(Primitive):
    """A tensor of `shape` and `dtype` with every element equal to `value`."""

    shape: Shape
    value: bool | int | float
    dtype: DType
    differentiable = False

    def infer_shape(self) -> Shape:
        return self.shape

    def infer_dtype(self) -> DType:
        return self.dtype


def full(shape: int | Shape, value: Any, dtype: object = None) -> Any:
    """A tensor filled with a number; its dtype is by default the number's own."""
    kind = scalar_dtype(value) if dtype is None else as_dtype(dtype)
    return Full((shape,) if isinstance(shape, int) else shape, value, kind)()


def zeros(shape: int | Shape, dtype: object = float) -> Any:
    """A tensor of zeros, float32 by default."""
    return full(shape, 0, dtype)


def ones(shape: int | Shape, dtype: object = float) -> Any:
    """A tensor of ones, float32 by default."""
    return full(shape, 1, dtype)


def full_like(x: Any, value: Any) -> Any:
    """A tensor filled with a number, of x's shape and dtype."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return full(tuple(x.shape), value, canonical(np.dtype(x.dtype)))
    array = np.asarray(x)
    return full(array.shape, value, scalar_dtype(array.flat[0].item()) if array.size else float)


def zeros_like(x: Any) -> Any:
    """Zeros of x's shape and dtype."""
    return full_like(x, 0)


def ones_like(x: Any) -> Any:
    """Ones of x's shape and dtype."""
    return full_like(x, 1)
