"""NumPy kernels of sorting and searching."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import bfloat16, float32
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


def searchsorted(x: Array, values: Array, *, side: Any, out: Array) -> None:
    if x.ndim == 1:
        out[...] = np.searchsorted(x, values, side)
        return
    for row in np.ndindex(*x.shape[:-1]):
        out[row] = np.searchsorted(x[row], values[row], side)


def unique(x: Array) -> tuple[Array, ...]:
    narrow = x.dtype == bfloat16  # NumPy does not know its NaN
    values, *others = np.unique(
        x.astype(float32) if narrow else x, return_index=True, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    return (values.astype(bfloat16) if narrow else values, *others)


register("SearchSorted", searchsorted, *[f"{c}{c}->l" for c in ANY if c != BF16])
register("SearchSorted", in_float32(searchsorted), f"{BF16}{BF16}->l")
register("Unique", unique, *[f"{c}->{c}lll" for c in ANY])
for name, fn in (("Sort", sort), ("TopK", topk)):
    register(name, fn, *[f"{c}->{c}l" for c in ANY if c != BF16])
    register(name, in_float32(fn), f"{BF16}->{BF16}l")
