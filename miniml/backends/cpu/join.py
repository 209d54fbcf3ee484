"""NumPy kernels that put arrays together and take them apart."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from ..kernel import Array, Kernel, KernelNode
from ..registry import view_kernel
from ..typecodes import ANY, same
from .registering import register

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


class SliceKernel(Kernel):
    """A view by an index that is known when the kernel is prepared."""

    def prepare(self, node: KernelNode) -> None:
        self.call = itemgetter(place(**node.attrs))


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


register("Concat", concat, *[f"{c}*->{c}" for c in ANY])
register("Split", split, *[f"{c}->{c}*" for c in ANY])
view_kernel("Slice", "cpu")(SliceKernel)
register("SliceGrad", slice_grad, *same(1, ANY))
register("Pad", pad, *same(1, ANY))
