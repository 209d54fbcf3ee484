"""Kernels that put arrays together and take them apart: copies to and from parts of arrays."""

from __future__ import annotations

from typing import Any

from ...registry import kernel
from ...typecodes import ANY, same
from ..array import DeviceArray
from ..move import fill, move
from .shape import Indices, selected


def concat(*xs: DeviceArray, axis: int, out: DeviceArray) -> None:
    start, axis = 0, axis % out.ndim
    for x in xs:
        move(x, part(out, axis, start, x.shape[axis]))
        start += x.shape[axis]


def split(x: DeviceArray, *, axis: int, sections: Any, out: Any) -> None:
    start, axis = 0, axis % x.ndim
    for target in out if isinstance(out, tuple) else (out,):
        move(part(x, axis, start, target.shape[axis]), target)
        start += target.shape[axis]


def part(x: DeviceArray, axis: int, start: int, extent: int) -> DeviceArray:
    """The `extent` elements along an axis that begin at `start`."""
    index = (*(slice(None),) * axis, slice(start, start + extent))
    return x.seen(lambda a: a[index])


def slice_grad(
    x: DeviceArray,
    *,
    shape: Indices,
    begin: Indices,
    end: Indices,
    strides: Indices,
    out: DeviceArray,
) -> None:
    fill(out, 0)
    index = (..., *map(selected, begin, end, strides))
    move(x, out.seen(lambda a: a[index]))


def pad(x: DeviceArray, *, padding: Any, value: Any, out: DeviceArray) -> None:
    fill(out, value)
    index = tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, padding, strict=True))
    move(x, out.seen(lambda a: a[index]) if index else out)


kernel("Concat", "cuda", *[f"{c}*->{c}" for c in ANY], strided=True)(concat)
kernel("Split", "cuda", *[f"{c}->{c}*" for c in ANY], strided=True)(split)
kernel("SliceGrad", "cuda", *same(1, ANY), strided=True)(slice_grad)
kernel("Pad", "cuda", *same(1, ANY), strided=True)(pad)
