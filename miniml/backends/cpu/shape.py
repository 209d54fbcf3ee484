"""NumPy kernels of the shape operations: views. SumTo stands with the sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Array
from .filing import file_view


def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)  # a copy where no strides describe the new shape


def transpose(x: Array, *, axes: tuple[int, ...]) -> Array:
    return x.transpose(axes)


def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, shape)


def expand_dims(x: Array, *, axis: Any) -> Array:
    return np.expand_dims(x, axis)


def squeeze(x: Array, *, axis: Any) -> Array:
    return np.squeeze(x, axis)


def flip(x: Array, *, axis: Any) -> Array:
    return np.flip(x, axis) if x.ndim else x  # of a 0-d array NumPy makes a scalar


file_view("Reshape", reshape)
file_view("Transpose", transpose)
file_view("BroadcastTo", broadcast_to)
file_view("ExpandDims", expand_dims)
file_view("Squeeze", squeeze)
file_view("Flip", flip)
