"""Convolutions of one to three axes and their transposes, all made of Conv2D."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...abstract import Shape
from ...errors import ShapeError
from ..arithmetic import add
from ..inference.devices import on_one_device
from ..inference.geometry import (
    EXTENTS,
    Lengths,
    Paddings,
    PaddingSpec,
    images,
    lengths,
    paddings,
    same_padding,
)
from ..inference.numbers import integer
from ..inference.shapes import shape_of
from ..inference.windows import Axis, axes_of
from ..join import pad
from ..shape import expand_dims, moveaxis, reshape, squeeze
from ..window import Conv2D, Conv2DInputGrad, filter_shape, takes
from .patches import laid_apart, put_together

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip

Axes = tuple[Axis, ...]
Grown = tuple[tuple[Axis, int], ...]
ONE_ROW = Axis(1, 1)
_conv2d = lru_cache(1024, typed=True)(Conv2D)  # found sooner than made


@on_one_device
def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    groups: int = 1,
) -> Tensor:
    """out[n, o, r] = bias[o] + sum over c, i of w[o, c, i] * x[n, c, r*stride + i*dilation -
    before], x being 0 outside: the convolution (cross-correlation) of signals with filters.

    x (N, C, L), w (O, C/groups, K); out (N, O, OL). Arguments and errors: as for `conv2d`, for one
    axis.

    >>> conv1d([[[1.0, 2.0, 4.0]]], [[[1.0, -1.0]]]).tolist()
    [[[-1.0, -2.0]]]
    """
    return _convolution("conv1d", 1, x, w, bias, stride, padding, dilation, groups)


@on_one_device
def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    groups: int = 1,
) -> Tensor:
    """out[n, o, r, q] = bias[o] + sum over c, i, j of w[o, c, i, j] * x[n, c, r*stride +
    i*dilation - top, q*stride + j*dilation - left], x being 0 outside: the convolution
    (cross-correlation) of images with filters.

    x (N, C, H, W), w (O, C/groups, KH, KW); out (N, O, OH, OW). bias: (O,), or None. stride,
    dilation: an int, or one for each axis. padding: an int; one int or pair (before, after) for
    each axis; "valid", none; or "same", which gives OH = ceil(H / stride) and puts an odd zero
    behind. Integers are convolved as float32. Raises ShapeError where channels, groups or extents
    do not fit.
    """
    return _convolution("conv2d", 2, x, w, bias, stride, padding, dilation, groups)


@on_one_device
def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    groups: int = 1,
) -> Tensor:
    """The sum of `conv2d` over three axes: the convolution (cross-correlation) of volumes.

    x (N, C, D, H, W), w (O, C/groups, KD, KH, KW); out (N, O, OD, OH, OW). Arguments and errors:
    as for `conv2d`, for three axes. Memory: x, KD times.
    """
    return _convolution("conv3d", 3, x, w, bias, stride, padding, dilation, groups)


@on_one_device
def conv_transpose1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
) -> Tensor:
    """out[n, o, r*stride + i*dilation - padding] += w[c, o, i] * x[n, c, r] over all c, r and i,
    plus bias: the transpose of `conv1d`.

    x (N, C, L), w (C, O/groups, K); out (N, O, OL). Arguments and errors: as for
    `conv_transpose2d`, for one axis.

    >>> conv_transpose1d([[[1.0, 2.0]]], [[[1.0, -1.0]]], stride=2).tolist()
    [[[1.0, -1.0, 2.0, -2.0]]]
    """
    rest = stride, padding, output_padding, groups, dilation
    return _transposition("conv_transpose1d", 1, x, w, bias, *rest)


@on_one_device
def conv_transpose2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
) -> Tensor:
    """out[n, o, r*stride + i*dilation - top, q*stride + j*dilation - left] += w[c, o, i, j] *
    x[n, c, r, q] over all c, r, q, i and j, plus bias: the transpose of `conv2d`.

    x (N, C, H, W), w (C, O/groups, KH, KW); out (N, O, OH, OW), with
    OH = (H - 1) * stride + dilation * (KH - 1) + 1 - top - bottom + output_padding. bias: (O,), or
    None. padding: what is cut off, as for `conv2d`, without "same". output_padding: rows and
    columns more, behind; less than the stride or the dilation. Arguments have PyTorch's order.
    Raises ShapeError where channels, groups or extents do not fit, or nothing would be left.
    """
    rest = stride, padding, output_padding, groups, dilation
    return _transposition("conv_transpose2d", 2, x, w, bias, *rest)


@on_one_device
def conv_transpose3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
) -> Tensor:
    """The sum of `conv_transpose2d` over three axes: the transpose of `conv3d`.

    x (N, C, D, H, W), w (C, O/groups, KD, KH, KW); out (N, O, OD, OH, OW). Arguments and errors: as
    for `conv_transpose2d`, for three axes.
    """
    rest = stride, padding, output_padding, groups, dilation
    return _transposition("conv_transpose3d", 3, x, w, bias, *rest)


def _convolution(
    name: str, n: int, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    steps, gaps = lengths(name, "stride", stride, n), lengths(name, "dilation", dilation, n)
    same = isinstance(padding, str) and padding == "same"
    pads = None if same else paddings(name, padding, n)
    groups = integer(name, "groups", groups)
    axes = _axes(name, n, shape_of(x), shape_of(w), steps, pads, gaps, groups)
    return biased(name, convolved(x, w, axes, groups), bias)


@lru_cache(1024, typed=True)
def _axes(
    name: str, n: int, x: Shape, w: Shape, stride: Shape, padding: Paddings | None, dilation: Shape,
    groups: int,
) -> Axes:  # fmt: skip
    """The windows of each axis of a convolution of these shapes; padding: None for "same"."""
    images(name, "x", x, n)
    takes(name, x, filter_shape(name, w, groups, n), groups)
    pads = same_padding(x[2:], w[2:], stride, dilation) if padding is None else padding
    return axes_of(name, x[2:], w[2:], stride, pads, dilation)


def _transposition(
    name: str, n: int, x: Any, w: Any, bias: Any, stride: Any, padding: Any, output_padding: Any,
    groups: int, dilation: Any,
) -> Tensor:  # fmt: skip
    steps, gaps = lengths(name, "stride", stride, n), lengths(name, "dilation", dilation, n)
    more = lengths(name, "output_padding", output_padding, n, 0)
    pads = paddings(name, padding, n)
    groups = integer(name, "groups", groups)
    axes = _grown(name, n, shape_of(x), shape_of(w), steps, pads, more, gaps, groups)
    return biased(name, transposed(x, w, axes, groups), bias)


@lru_cache(1024, typed=True)
def _grown(
    name: str, n: int, x: Shape, w: Shape, stride: Shape, padding: Paddings, more: Shape,
    dilation: Shape, groups: int,
) -> Grown:  # fmt: skip
    """The windows of each axis of what a transposed convolution gives: one for each pixel of x."""
    if 0 in images(name, "x", x, n)[2:]:
        raise ShapeError(f"{name} got x of shape {x}, whose images have no pixels")
    if filter_shape(name, w, groups, n)[0] != x[1]:
        raise ShapeError(
            f"{name} got x of shape {x} and w of shape {w}: x has {x[1]} channels and the filters "
            f"take {w[0]}; w has shape (C, O // groups, ...)"
        )
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation, strict=True)):
        raise ShapeError(
            f"{name} got output_padding {more} for stride {stride} and dilation {dilation}; "
            "expected less than the larger of the two"
        )
    rows = [*zip(x[2:], w[2:], stride, dilation, strict=True)]
    out = tuple(
        spanned(*row) - sum(pads) + m for row, pads, m in zip(rows, padding, more, strict=True)
    )
    if min(out) < 1:
        raise ShapeError(
            f"{name} got padding {padding} for images of {x[2:]}, which would leave ({EXTENTS[n]}) "
            f"= {out}; pad less"
        )
    befores = (before for before, _ in padding)
    return tuple(grown(*row, b, e) for row, b, e in zip(rows, befores, out, strict=True))


def spanned(count: int, size: int, stride: int, dilation: int) -> int:
    """How many elements that many windows span: (count - 1) * stride + dilation * (size - 1) + 1"""
    return (count - 1) * stride + dilation * (size - 1) + 1


def grown(
    count: int, size: int, stride: int, dilation: int, before: int, extent: int
) -> tuple[Axis, int]:
    """`extent` elements of what `count` windows span, from number `before` on: the axis in which
    these windows lie, and how many elements there are behind the last of them."""
    whole = spanned(count, size, stride, dilation)
    short = max(min(extent, whole - before), 0)
    ahead = min(before, whole)
    return Axis(short, size, stride, dilation, ahead, whole - ahead - short), extent - short


def convolved(x: Any, w: Any, axes: Axes, groups: int) -> Tensor:
    """The convolution of x (N, C, ...) with w: of one axis as one row; of more than two by the
    windows of the first, whose elements are more channels of as many images."""
    if len(axes) == 1:
        rows = (ONE_ROW, *axes)
        return squeeze(convolved(expand_dims(x, 2), expand_dims(w, 2), rows, groups), 2)
    if len(axes) == 2:
        return _conv2d(*_attributes(axes), groups)(x, w)
    first, *rest = axes
    (n, c, _, *inner), (o, *_) = shape_of(x), shape_of(w)
    slabs = moveaxis(laid_apart(x, 2, first.places()), 2, 1)
    slabs = reshape(slabs, (n * first.count, c * first.size, *inner))
    out = convolved(slabs, _flat(w), tuple(rest), groups)
    return moveaxis(reshape(out, (n, first.count, o, *shape_of(out)[2:])), 1, 2)


def transposed(x: Any, w: Any, axes: Grown, groups: int) -> Tensor:
    """The transpose of `convolved`: axes are those of the result, as `grown` gives them for the
    elements of x."""
    out = _transposed(x, w, tuple(axis for axis, _ in axes), groups)
    rest = tuple((0, more) for _, more in axes)
    return pad(out, ((0, 0), (0, 0), *rest)) if any(map(any, rest)) else out


def _transposed(x: Any, w: Any, axes: Axes, groups: int) -> Tensor:
    if len(axes) == 1:
        rows = (ONE_ROW, *axes)
        return squeeze(_transposed(expand_dims(x, 2), expand_dims(w, 2), rows, groups), 2)
    if len(axes) == 2:
        extents = axes[0].extent, axes[1].extent
        return Conv2DInputGrad(*_attributes(axes), groups, input_shape=extents)(x, w)
    first, *rest = axes
    n, c, depth, *inner = shape_of(x)
    slabs = reshape(moveaxis(x, 2, 1), (n * depth, c, *inner))
    out = _transposed(slabs, _flat(w), tuple(rest), groups)
    _, channels, *outer = shape_of(out)
    apart = reshape(out, (n, depth, channels // first.size, first.size, *outer))
    return put_together(moveaxis(apart, 1, 2), 2, first)


def _attributes(axes: Axes) -> tuple[Any, Any, Any]:
    """stride, padding and dilation as the primitives take them."""
    pads = tuple((a.before, a.after) for a in axes)
    return tuple(a.stride for a in axes), pads, tuple(a.dilation for a in axes)


def _flat(w: Any) -> Any:
    """Filters (O, C, KD, ...) as (O, C * KD, ...)."""
    o, c, taps, *rest = shape_of(w)
    return reshape(w, (o, c * taps, *rest))


def biased(name: str, out: Tensor, bias: Any) -> Tensor:
    """out (N, O, ...) plus bias (O,), if there is one."""
    if bias is None:
        return out
    if shape_of(bias) != (out.shape[1],):
        raise ShapeError(
            f"{name} got a bias of shape {shape_of(bias)} for {out.shape[1]} output channels; it "
            f"has shape ({out.shape[1]},)"
        )
    return add(out, reshape(bias, (-1, *(1,) * (len(out.shape) - 2))))
