"""NumPy kernels of sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Array
from ..typecodes import ANY, BF16
from .registering import in_float32, register

Pair = tuple[Array, Array]


def sort(x: Array, *, axis: int, descending: bool, out: Pair) -> None:
    values, indices = out
    indices[...] = order(x, axis, descending)
    values[...] = np.take_along_axis(x, indices, axis)


def topk(x: Array, *, k: int, axis: int, largest: bool, out: Pair) -> None:
    values, indices = out
    first = (slice(None),) * (axis % x.ndim) + (slice(k),)
    indices[...] = order(x, axis, largest)[first]
    values[...] = np.take_along_axis(x, indices, axis)


def order(x: Array, axis: int, descending: bool) -> Any:
    """The indices that sort x along axis, equal elements in their order, NaN as the largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Sorted back to front and read back to front: equal elements keep their order.
    turned = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.subtract(x.shape[axis] - 1, np.flip(turned, axis))


for name, fn in (("Sort", sort), ("TopK", topk)):
    register(name, fn, *[f"{c}->{c}l" for c in ANY if c != BF16])
    register(name, in_float32(fn), f"{BF16}->{BF16}l")
