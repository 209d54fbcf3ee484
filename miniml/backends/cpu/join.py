"""NumPy kernels that put arrays together and take them apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from ..kernel import Array, KernelNode
from ..registry import kernel
from .filing import ANY, file, same

Indices = tuple[int, ...]


def concat(*xs: Array, axis: int, out: Array) -> None:
    np.concatenate(xs, axis=axis, out=out)


def split(x: Array, *, axis: int, sections: Any, out: tuple[Array, ...]) -> None:
    rows, start = np.moveaxis(x, axis, 0), 0
    for part in out:
        target = np.moveaxis(part, axis, 0)
        stop = start + len(target)
        target[...] = rows[start:stop]
        start = stop


def slice_(x: Array, *, begin: Indices, end: Indices, strides: Indices, dropped: Indices) -> Array:
    view: Array = x[place(begin, end, strides, dropped)]
    return view


def slice_for(node: KernelNode) -> Callable[..., Any]:
    """The slice with its index known."""
    return itemgetter(place(**node.attrs))


def slice_grad(
    x: Array, *, shape: Indices, begin: Indices, end: Indices, strides: Indices, out: Array
) -> None:
    out.fill(0)
    out[place(begin, end, strides)] = x


@lru_cache(maxsize=1024)
def place(begin: Indices, end: Indices, strides: Indices, dropped: Indices = ()) -> tuple[Any, ...]:
    """The index of the elements range(begin[i], end[i], strides[i]) along each axis i."""
    chosen: list[Any] = list(map(_selected, begin, end, strides))
    for axis in dropped:
        chosen[axis] = begin[axis]
    return (..., *chosen)


def _selected(begin: int, end: int, stride: int) -> slice:
    if not range(begin, end, stride):
        return slice(0, 0)
    return slice(begin, None if end < 0 else end, stride)  # -1 would count from the end


def pad(x: Array, *, padding: Any, value: Any, out: Array) -> None:
    out.fill(value)
    out[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, padding, strict=True))] = x


file("Concat", concat, *[f"{c}*->{c}" for c in ANY])
file("Split", split, *[f"{c}->{c}*" for c in ANY])
kernel("Slice", "cpu", *same(1, ANY), view=0, specialize=slice_for)(slice_)
file("SliceGrad", slice_grad, *same(1, ANY))
file("Pad", pad, *same(1, ANY))
