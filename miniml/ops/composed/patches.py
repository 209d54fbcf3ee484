"""The windows of an image laid apart, and added up again: unfold and fold."""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

from ...abstract import Shape
from ...errors import ShapeError
from ..index import IndexAdd, gather
from ..inference.devices import on_one_device
from ..inference.geometry import EXTENTS, Lengths, PaddingSpec, images, lengths, paddings
from ..inference.shapes import as_shape, shape_of
from ..inference.windows import Array, Axis, axes_of
from ..join import pad, slice
from ..shape import reshape, transpose

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["fold", "unfold"]


@on_one_device
def unfold(
    x: Any,
    kernel_size: Lengths,
    dilation: Lengths = 1,
    padding: PaddingSpec = 0,
    stride: Lengths = 1,
) -> Tensor:
    """out[n, (c, i, j), (r, q)] = x[n, c, r*stride + i*dilation - top, q*stride + j*dilation -
    left], with zeros outside of x: the windows of x (N, C, H, W) as columns (N, C*KH*KW, OH*OW).

    For x of one or three axes behind (N, C) alike. The arguments are those of `conv2d`, in
    PyTorch's order. Its transpose is `fold`. ShapeError where no window fits.

    >>> unfold([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[1.0, 2.0], [2.0, 3.0]]]
    """
    shape = shape_of(x)
    axes = _columns("unfold", shape[2:], kernel_size, dilation, padding, stride)
    images("unfold", "x", shape, n := len(axes))
    for i, axis in enumerate(axes):
        x = laid_apart(x, 2 + 2 * i, axis.places())
    ordered = transpose(x, (0, 1, *range(3, 3 + 2 * n, 2), *range(2, 2 + 2 * n, 2)))
    block, count = prod(a.size for a in axes), prod(a.count for a in axes)
    return reshape(ordered, (shape[0], shape[1] * block, count))


@on_one_device
def fold(
    x: Any,
    output_size: Lengths,
    kernel_size: Lengths,
    dilation: Lengths = 1,
    padding: PaddingSpec = 0,
    stride: Lengths = 1,
) -> Tensor:
    """The transpose of `unfold`: columns added up at the pixels that they were taken from.

    x (N, C*KH*KW, OH*OW); out (N, C, H, W). output_size: (H, W), or one int for both; one or three
    extents stand for as many axes. ShapeError where x is not what `unfold` makes of that shape.

    >>> fold([[[1.0, 2.0], [2.0, 3.0]]], (3,), 2).tolist()
    [[[1.0, 4.0, 3.0]]]
    """
    extents = as_shape(output_size, "fold")
    extents = extents * 2 if isinstance(output_size, int) else extents
    axes = _columns("fold", extents, kernel_size, dilation, padding, stride)
    block, count = prod(a.size for a in axes), prod(a.count for a in axes)
    shape = shape_of(x)
    if len(shape) != 3 or shape[1] % block or shape[2] != count:
        raise ShapeError(
            f"fold got x of shape {shape}; for an image of {extents} it takes (N, C * {block}, "
            f"{count}), of {block} pixels in each of {count} windows"
        )
    return added_up(x, axes)


def _columns(
    name: str, extents: Shape, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Axis, ...]:
    n = len(extents)
    if n not in EXTENTS:
        raise ShapeError(f"{name} got an image of {n} axes behind (N, C); it takes one to three")
    kernel, step = lengths(name, "kernel_size", kernel_size, n), lengths(name, "stride", stride, n)
    gaps = lengths(name, "dilation", dilation, n)
    return axes_of(name, extents, kernel, step, paddings(name, padding, n), gaps)


def laid_apart(x: Any, at: int, places: Array, value: float = 0) -> Tensor:
    """x with axis `at` as the two of places (count, size): what lies there, `value` outside."""
    n, low, high = shape_of(x)[at], int(places.min(initial=0)), int(places.max(initial=0))
    before, behind = max(-low, 0), max(high + 1 - n, 0)
    if before or behind:
        around = [(0, 0)] * len(shape_of(x))
        around[at] = before, behind
        x = pad(x, tuple(around), value)
    return gather(x, places + before, at)


def put_together(x: Any, at: int, axis: Axis) -> Tensor:
    """The transpose of `laid_apart`: axes `at` (count) and `at` + 1 (size) of x added up at their
    places, as one axis."""
    shape, places = shape_of(x), axis.places() + axis.before
    whole = max(axis.before + axis.extent, int(places.max(initial=-1)) + 1)
    sums = IndexAdd((at,), at, (*shape[:at], whole, *shape[at + 2 :]))(x, places)
    ends = (axis.before, axis.before + axis.extent)
    if ends == (0, whole):
        return sums
    return slice(sums, *((*(None,) * at, end) for end in ends))


def added_up(x: Any, axes: tuple[Axis, ...]) -> Tensor:
    """Columns (N, C * block, windows) added up in images (N, C, *extents)."""
    n, rows, _ = shape_of(x)
    sizes, counts = [a.size for a in axes], [a.count for a in axes]
    apart = reshape(x, (n, rows // prod(sizes), *sizes, *counts))
    pairs = [(2 + len(axes) + i, 2 + i) for i in range(len(axes))]
    apart = transpose(apart, (0, 1, *chain(*pairs)))
    for i, axis in enumerate(axes):
        apart = put_together(apart, 2 + i, axis)
    return apart
