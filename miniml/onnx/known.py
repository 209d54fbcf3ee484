"""Known values: numbers out of constant inputs, and tables of bounded size made of them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..errors import OnnxError
from .tensors import checked_shape

Array = np.ndarray[Any, Any]


def ints(value: Any) -> tuple[int, ...]:
    """The whole numbers in a constant, a number being one of them."""
    return tuple(int(n) for n in np.asarray(value).ravel())


def number(value: Any) -> Any:
    """The one number in a constant, as Python's; OnnxError where there are more."""
    array = np.asarray(value)
    if array.size != 1:
        raise OnnxError(f"got a constant of shape {array.shape}; expected one number")
    return array.item()


_TABLE = 2**26  # bytes: of tables that are made while a model is read, from numbers in it


def table(*shape: int) -> tuple[int, ...]:
    """The shape of a table of int64; OnnxError for one that is too large to be made of numbers in
    a file."""
    if prod(checked_shape(shape, 8, "a table of indices")) * 8 > _TABLE:
        raise OnnxError(f"needs a table of indices of shape {shape}, more than {_TABLE:,} bytes")
    return shape


def counted(n: int) -> Array:
    """0 to n - 1; OnnxError for too many."""
    return np.arange(*table(n))


def extent(x: Any, axis: int) -> int:
    """The extent of an axis, which may count from the end; OnnxError where there is none."""
    if not -len(x.shape) <= axis < len(x.shape):
        raise OnnxError(f"axis {axis} is not one of a tensor of shape {tuple(x.shape)}")
    return int(x.shape[axis])
