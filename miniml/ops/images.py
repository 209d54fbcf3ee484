"""Convolution and pooling primitives, im2col (unfold, fold), interpolation, and window geometry.

In order: `Conv2D` and its two transposes; max and average pooling and their gradients; unfold and
fold; resize; the windows of one axis (`Axis`); checks of shapes and attributes.
`convolution` composes its functions for one to three axes of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ..core.abstract import Abstract, DType, Shape, float32, float64, int64, is_float
from ..core.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from ..core.options import choice, flag, integers, number
from ..core.primitive import Primitive, freeze
from . import rules
from .checks import Tensor, as_shape, composition, dtype_of, needs_float, shape_of
from .composed.rearrange import pad
from .elementwise import add, cast, mul
from .index import IndexAdd, gather
from .rules import moves
from .shape import reshape, slice, transpose

__all__ = [
    "fold", "unfold",
    "resize",
    "Conv2D", "Conv2DInputGrad", "Conv2DWeightGrad",
    "AvgPool2D", "AvgPool2DGrad", "MaxPool2D", "MaxPool2DGather", "MaxPool2DGrad",
]  # fmt: skip


Array = np.ndarray[Any, Any]
Step = tuple[int, int, tuple[int, int]]  # size, stride, padding of a pooling window on an axis
ONE: Step = (1, 1, (0, 0))  # leaves the axis as it is
Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
Paddings = tuple[Pair, ...]  # of any number of axes
Lengths = int | Sequence[int]
PaddingSpec = str | int | Sequence[int] | Sequence[Sequence[int]]
UNIT: Pair = (1, 1)
NO_PADDING: Padding = ((0, 0), (0, 0))

# The extents behind (N, C), and those of filters, by the number of axes.
EXTENTS = {1: "L", 2: "H, W", 3: "D, H, W"}
TAPS = {1: "K", 2: "KH, KW", 3: "KD, KH, KW"}


# --- Convolution ----------------------------------------------------------------------------------


class Convolution(Primitive, abstract=True):
    """The attributes of 2-d convolution, and the relation between the shapes of its three parts.

    stride, dilation: (rows, columns), at least 1. padding: ((top, bottom), (left, right)) zeros.
    groups: channels are split into that many equal groups, each convolved by itself.
    """

    autocast = "low"
    promote = "float"
    stride: Pair = UNIT
    padding: Padding = NO_PADDING
    dilation: Pair = UNIT
    groups: int = 1

    def convolved(self, x: Shape, w: Shape) -> Shape:
        """The shape (N, O, OH, OW) of the convolution of x (N, C, H, W) with w."""
        image, filters = images(self.name, "x", x), filter_shape(self.name, w, self.groups)
        takes(self.name, image, filters, self.groups)
        return (image[0], filters[0], *windows(self, image[2:], filters[2:], self.dilation))


def taps(images: Abstract, filters: Abstract) -> int:
    """Operations of a convolution or its transposes: 2 for each of the numbers in one filter and
    each pixel that the convolution gives."""
    return 2 * images.size * prod(filters.shape[1:])


class Conv2D(Convolution):
    """The cross-correlation of images x (N, C, H, W) with filters w (O, C/groups, KH, KW).

    out[n, o, r, q] = sum over c, i, j of
    w[o, c, i, j] * x[n, c, r*stride + i*dilation - top, q*stride + j*dilation - left],
    with zeros outside of x; out has shape (N, O, OH, OW), where
    OH = (H + top + bottom - dilation * (KH - 1) - 1) // stride + 1.
    """

    linear = ("x", "w")
    images = ("x", "out")

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return taps(outputs[0], inputs[1])

    def infer_shape(self, x: Shape, w: Shape) -> Shape:
        return self.convolved(x, w)


class Conv2DInputGrad(Convolution):
    """The transpose of Conv2D in x: dout (N, O, OH, OW) and w to (N, C, H, W).

    input_shape: (H, W), which stride and padding alone do not determine.
    """

    linear = ("dout", "w")
    images = ("dout", "out")
    input_shape: Pair  # type: ignore[misc]  # no default: behind others, it is given by name

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return taps(inputs[0], inputs[1])

    def infer_shape(self, dout: Shape, w: Shape) -> Shape:
        height, width = pair(self, "input_shape", self.input_shape, 0)
        given = images(self.name, "dout", dout)
        filters = filter_shape(self.name, w, self.groups)
        x = (given[0], filters[1] * self.groups, height, width)
        fits(self.name, "dout", dout, self.convolved(x, w))
        return x


class Conv2DWeightGrad(Convolution):
    """The transpose of Conv2D in w: x (N, C, H, W) and dout (N, O, OH, OW) to w's shape.

    kernel_shape: (KH, KW), which stride and padding alone do not determine. ShapeError where groups
    do not divide C.
    """

    linear = ("x", "dout")
    images = ("x", "dout")
    kernel_shape: Pair  # type: ignore[misc]  # by name, too

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return taps(inputs[1], outputs[0])

    def infer_shape(self, x: Shape, dout: Shape) -> Shape:
        rows, columns = pair(self, "kernel_shape", self.kernel_shape, 1)
        image, slopes = images(self.name, "x", x), images(self.name, "dout", dout)
        if self.groups < 1 or image[1] % self.groups:
            raise ShapeError(
                f"{self.name} cannot split the {image[1]} channels of x of shape {x} into "
                f"groups={self.groups}; take a divisor of {image[1]}"
            )
        w = (slopes[1], image[1] // self.groups, rows, columns)
        fits(self.name, "dout", dout, self.convolved(x, w))
        return w


def filter_shape(name: str, w: Shape, groups: int, n: int = 2) -> Shape:
    """The filters' shape (O, C // groups, *taps), of n axes; ShapeError for another shape."""
    if len(w) != 2 + n or 0 in w[2:]:
        raise ShapeError(
            f"{name} needs w of shape (O, C // groups, {TAPS[n]}), each of {TAPS[n]} at least 1; "
            f"got {w}"
        )
    if groups < 1 or w[0] % groups:
        raise ShapeError(
            f"{name} cannot split {w[0]} filters into groups={groups}; take a divisor of {w[0]}"
        )
    return w


def takes(name: str, x: Shape, w: Shape, groups: int) -> None:
    """ShapeError unless the filters take as many channels as x has."""
    channels = w[1] * groups
    if x[1] != channels:
        raise ShapeError(
            f"{name} got x of shape {x} and w of shape {w} with groups={groups}: x has {x[1]} "
            f"channels and the filters take {channels}; w has shape (O, C // groups, "
            f"{TAPS[len(w) - 2]})"
        )


# --- Pooling --------------------------------------------------------------------------------------


class Pooling(Primitive, abstract=True):
    """The attributes of 2-d pooling: kernel_size and stride are (rows, columns), padding is
    ((top, bottom), (left, right)), each less than the kernel, so that every window has a pixel."""

    kernel_size: Pair
    stride: Pair
    padding: Padding = NO_PADDING

    def pooled(self, x: Shape) -> Shape:
        """The shape (N, C, OH, OW) of one number per window of x (N, C, H, W)."""
        image = images(self.name, "x", x)
        size = pair(self, "kernel_size", self.kernel_size, 1)
        out = windows(self, image[2:], size, UNIT)
        if any(p >= k for pads, k in zip(self.padding, size, strict=True) for p in pads):
            raise ShapeError(
                f"{self.name} got padding {self.padding} for a kernel of {size}; pad by less than "
                "the kernel, so that no window lies in the padding alone"
            )
        if 0 in image[2:]:
            raise ShapeError(f"{self.name} got x of shape {x}, whose planes have no pixels")
        return (*image[:2], *out)


class MaxPool2D(Pooling):
    """The largest pixel of each window of x (N, C, H, W), and where it is.

    out (N, C, OH, OW); indices (N, C, OH, OW) int64 count the H*W pixels of a plane and name the
    first maximum in row-major order. Padding never wins. A NaN is larger than everything.
    """

    images = ("x", "out", "indices")
    outputs = ("out", "indices")

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return outputs[0].size * prod(self.kernel_size)

    def infer_shape(self, x: Shape) -> tuple[Shape, Shape]:
        out = self.pooled(x)
        return out, out

    def infer_dtype(self, x: DType) -> tuple[DType, DType]:
        return needs_float(self.name, x), int64


def _indexed(self: Primitive, values: DType, indices: DType) -> DType:
    """The dtype of the values, floats; DTypeError unless the indices are int64."""
    if indices != int64:
        raise DTypeError(
            f"{self.name} got indices of {indices.name}; MaxPool2D gives them as int64"
        )
    return needs_float(self.name, values)


class MaxPool2DGrad(Primitive):
    """dout (N, C, OH, OW) added up at `indices` (as MaxPool2D gives them) in zeros (N, C, H, W).

    input_shape: (H, W).
    """

    linear = ("dout",)
    images = ("dout", "indices", "out")
    input_shape: Pair

    def infer_shape(self, dout: Shape, indices: Shape) -> Shape:
        images(self.name, "dout", dout)
        fits(self.name, "indices", indices, dout)
        return (*dout[:2], *pair(self, "input_shape", self.input_shape, 1))

    infer_dtype = _indexed


class MaxPool2DGather(Primitive):
    """The pixels of x (N, C, H, W) at `indices` (as MaxPool2D gives them): (N, C, OH, OW).

    ShapeError where N or C differ, or x has no pixel.
    """

    linear = ("x",)
    images = ("x", "indices", "out")
    flops = moves

    def infer_shape(self, x: Shape, indices: Shape) -> Shape:
        image, found = images(self.name, "x", x), images(self.name, "indices", indices)
        if image[:2] != found[:2] or 0 in image[2:]:
            raise ShapeError(
                f"{self.name} got x of shape {x} and indices of shape {indices}; both have shape "
                "(N, C, ...), and x has at least one pixel"
            )
        return indices

    infer_dtype = _indexed


class AvgPool2D(Pooling):
    """The mean of each window of x (N, C, H, W): (N, C, OH, OW).

    count_include_pad: True divides by the kernel's size everywhere (padding counts as zeros),
    False by the number of pixels that lie in x.
    """

    linear = ("x",)
    images = ("x", "out")
    count_include_pad: bool = True

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return outputs[0].size * prod(self.kernel_size)

    def infer_shape(self, x: Shape) -> Shape:
        return self.pooled(x)

    infer_dtype = rules.floats


class AvgPool2DGrad(Pooling):
    """The transpose of AvgPool2D: dout (N, C, OH, OW) to (N, C, H, W). input_shape: (H, W)."""

    linear = ("dout",)
    images = ("dout", "out")
    input_shape: Pair  # type: ignore[misc]  # no default: behind others, it is given by name
    count_include_pad: bool = True

    def infer_shape(self, dout: Shape) -> Shape:
        images(self.name, "dout", dout)
        x = (*dout[:2], *pair(self, "input_shape", self.input_shape, 1))
        fits(self.name, "dout", dout, self.pooled(x))
        return x

    infer_dtype = rules.floats


# --- Unfold and fold ------------------------------------------------------------------------------


@composition
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


@composition
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
    extents are for as many axes. ShapeError where x is not what `unfold` makes of that shape.

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
    """x with axis `at` replaced by (count, size): its elements at `places`, else `value`."""
    n, low, high = shape_of(x)[at], int(places.min(initial=0)), int(places.max(initial=0))
    before, behind = max(-low, 0), max(high + 1 - n, 0)
    if before or behind:
        around = [(0, 0)] * len(shape_of(x))
        around[at] = before, behind
        x = pad(x, tuple(around), value)
    return gather(x, places + before, at)


def added_up(x: Any, axes: tuple[Axis, ...]) -> Tensor:
    """Columns (N, C * block, windows) summed into images (N, C, *extents)."""
    n, rows, _ = shape_of(x)
    sizes, counts = [a.size for a in axes], [a.count for a in axes]
    apart = reshape(x, (n, rows // prod(sizes), *sizes, *counts))
    pairs = [(2 + len(axes) + i, 2 + i) for i in range(len(axes))]
    apart = transpose(apart, (0, 1, *chain(*pairs)))
    for i, axis in enumerate(axes):
        apart = put_together(apart, 2 + i, axis)
    return apart


def put_together(x: Any, at: int, axis: Axis) -> Tensor:
    """The transpose of `laid_apart`: axes `at` (count) and `at` + 1 (size) of x summed into one
    axis at the positions they were gathered from."""
    shape, places = shape_of(x), axis.places() + axis.before
    whole = max(axis.before + axis.extent, int(places.max(initial=-1)) + 1)
    sums = IndexAdd((at,), at, (*shape[:at], whole, *shape[at + 2 :]))(x, places)
    ends = (axis.before, axis.before + axis.extent)
    if ends == (0, whole):
        return sums
    return slice(sums, *((*(None,) * at, end) for end in ends))


# --- Resize ---------------------------------------------------------------------------------------


WIDE = (float32, float64)
MODES = ("nearest", "nearest-exact", "linear", "cubic")


@composition
def resize(
    x: Any,
    size: Lengths | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """out[n, c, r, q] = sum over i, j of a[r, i] * b[q, j] * x[n, c, i, j], for weights a and b
    that interpolate each axis by itself.

    x (N, C, H, W), or with one or three axes behind (N, C) in the same way.
    size: the new extents, an int or one for each axis; or scale_factor: their ratio to the old,
    rounded down. Element r of an axis lies at (r + 1/2) / scale - 1/2 of the old one, the ends
    repeated; with align_corners at r * (old - 1) / (new - 1). mode: "nearest", the element at
    floor(r / scale); "nearest-exact", that at floor((r + 1/2) / scale); "linear", the two around
    it; "cubic", the four around it by Keys' kernel with a = -3/4. The dtype is kept, but that
    linear and cubic take integers as float32. These are the numbers of PyTorch's interpolate, where
    linear is called bilinear or trilinear for two or three axes and cubic bicubic; an axis whose
    extent stays is left as it is, which PyTorch does in some modes only.
    ShapeError, AttributeRefusedError or ValueRefusedError for what does not fit.

    >>> resize([[[1.0, 3.0]]], 4, mode="linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """
    check_resize("resize", size, scale_factor, mode, align_corners)
    given, nearest = dtype_of(x), mode.startswith("nearest")
    half = 0.0 if mode == "nearest" else 0.5
    out = x if nearest or given in WIDE else cast(x, float32)
    for at, line in enumerate(_lines(shape_of(x), size, scale_factor), 2):
        if line.extent == line.count:
            continue
        if nearest:
            nearest_index = np.minimum(line.points(half).astype(np.int64), line.extent - 1)
            out = gather(out, nearest_index, at)
        else:
            points = line.corners() if align_corners else line.points(half) - half
            out = blended(out, at, *weighted(points, line.extent, mode == "cubic"))
    kept = given if nearest or is_float(given) else float32
    return cast(out, kept) if out is x or dtype_of(out) != kept else out


def check_resize(name: str, size: Any, scale_factor: Any, mode: str, align_corners: bool) -> None:
    """Refuse an unknown mode, align_corners with one that has none, and other than one of `size`
    and `scale_factor`."""
    axes = ", for any number of axes: bilinear and trilinear are 'linear', bicubic is 'cubic'"
    choice(name, "mode", mode, MODES, axes)
    if flag(name, "align_corners", align_corners) and mode not in ("linear", "cubic"):
        raise ValueRefusedError(
            f"{name} got align_corners=True for mode={mode!r}; 'linear' and 'cubic' have corners"
        )
    if (size is None) == (scale_factor is None):
        raise AttributeRefusedError(
            f"{name} got size={size!r} and scale_factor={scale_factor!r}; give one of the two"
        )


@dataclass(frozen=True)
class Line:
    """An axis to be resized: element r of `count` lies at r * numerator / denominator."""

    extent: int
    count: int
    numerator: float
    denominator: float

    def points(self, half: float) -> Array:
        """(count,): the position of each element, shifted by `half` before scaling."""
        return np.asarray((np.arange(self.count) + half) * self.numerator / self.denominator)

    def corners(self) -> Array:
        """(count,): the positions if the first and the last element lie at the ends."""
        return np.asarray(np.arange(self.count) * (self.extent - 1) / max(self.count - 1, 1))


def _lines(shape: Shape, size: Any, scale_factor: Any) -> list[Line]:
    n = len(shape) - 2
    if n not in EXTENTS or 0 in shape[2:]:
        raise ShapeError(
            f"resize got x of shape {shape}; it takes (N, C, ...) with one to three axes behind, "
            "none of them empty"
        )
    if size is not None:
        counts = lengths("resize", "size", size, n)
        return [Line(e, m, e, m) for e, m in zip(shape[2:], counts, strict=True)]
    given = [scale_factor] * n if np.ndim(scale_factor) == 0 else [*scale_factor]
    if len(given) != n:
        raise ValueRefusedError(
            f"resize got scale_factor={scale_factor!r}; expected a number, or one for each of "
            f"({EXTENTS[n]})"
        )
    scales = [number("resize", "scale_factor", s, above=0) for s in given]
    lines = [Line(e, int(e * s), 1.0, s) for e, s in zip(shape[2:], scales, strict=True)]
    if not all(line.count for line in lines):
        raise ShapeError(f"resize got x of shape {shape}, of which {scale_factor} leaves nothing")
    return lines


def weighted(
    points: Array, extent: int, cubic: bool, a: float = -0.75, shrunk: float = 1.0,
    exclude_outside: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """(count, taps): the indices of the elements around each of `points` on an axis, and their
    weights, which sum to 1, by a linear or Keys' cubic kernel.

    shrunk: a value below 1 widens the kernel by its inverse. exclude_outside: elements outside of
    the axis have weight 0; by default the ends are repeated.
    Source of the kernel: Keys 1981, "Cubic convolution interpolation for digital image processing".
    """
    first = int(np.floor(-(2 if cubic else 1) / shrunk)) + 1
    taps = np.floor(points).astype(np.int64)[:, None] + np.arange(first, 2 - first)
    distance = np.abs(taps - points[:, None]) * shrunk
    weights = _cubic(distance, a) if cubic else np.clip(1 - distance, 0, 1)
    if exclude_outside:
        weights = weights * ((taps >= 0) & (taps < extent))
    weights = weights / weights.sum(1, keepdims=True)
    return np.clip(taps, 0, extent - 1), weights


def _cubic(t: Array, a: float) -> Array:
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0)))


def blended(x: Any, at: int, taps: Array, weights: Array) -> Tensor:
    """sum over k of weights[:, k] * x at taps[:, k], along axis `at`."""
    shape = (-1, *(1,) * (len(shape_of(x)) - 1 - at))
    factors = weights.astype(dtype_of(x)).T
    parts = (
        mul(gather(x, tap, at), factor.reshape(shape))
        for tap, factor in zip(taps.T, factors, strict=True)
    )
    return reduce(add, parts)


# --- Windows of an axis ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """The windows of one axis of `extent` elements: each of `size` elements, `dilation` apart, one
    beginning every `stride` elements, the first `before` elements ahead of the axis.

    after: the padding behind. ceil: whether a last window may reach beyond that; it begins in the
    axis or in the padding ahead of it.
    """

    extent: int
    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Number of elements that a window spans: dilation * (size - 1) + 1."""
        return self.dilation * (self.size - 1) + 1

    @cached_property
    def count(self) -> int:
        """The number of windows; 0 where the padded axis is shorter than one."""
        room = self.extent + self.before + self.after - self.reach
        count = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        if self.ceil and (count - 1) * self.stride >= self.extent + self.before:
            count -= 1
        return max(count, 0)

    @cached_property
    def behind(self) -> int:
        """The padding that the last window needs behind; with ceil it may exceed `after`."""
        return max((self.count - 1) * self.stride + self.reach - self.extent - self.before, 0)

    @property
    def overhangs(self) -> bool:
        """True if the last window reaches beyond the padding, as it may with ceil."""
        return self.behind > self.after

    def places(self) -> Array:
        """(count, size): the position on the axis of each element of each window; outside of 0 to
        extent - 1 lies the padding."""
        first = np.arange(self.count)[:, None] * self.stride - self.before
        return np.asarray(first + np.arange(self.size) * self.dilation)

    def sizes(self, with_padding: bool) -> Array:
        """(count,): number of elements of each window in the axis, or also in its padding."""
        low, high = (self.before, self.after) if with_padding else (0, 0)
        places = self.places()
        inside = (places >= -low) & (places < self.extent + high)
        return np.asarray(inside.sum(1))

    @cached_property
    def step(self) -> Step | None:
        """The window as the pooling primitives take it; None for windows that are not contiguous,
        or may lie in the padding alone, so that `laid_apart` has to gather them."""
        pads = self.before, self.behind
        runs = self.dilation == 1 and max(pads) < self.size and self.extent
        return (self.size, self.stride, pads) if runs else None


def axes_of(
    name: str,
    extents: Shape,
    kernel: Shape,
    stride: Shape,
    padding: tuple[tuple[int, int], ...],
    dilation: Shape,
    ceil: bool = False,
) -> tuple[Axis, ...]:
    """The windows of each axis; ShapeError where none fits."""
    rows = zip(extents, kernel, stride, dilation, padding, strict=True)
    axes = tuple(Axis(n, k, s, d, *pads, ceil) for n, k, s, d, pads in rows)
    for axis in axes:
        whole = axis.extent + axis.before + axis.after
        if not axis.count:
            raise ShapeError(
                f"{name} cannot fit a window of {kernel} with dilation {dilation} into an image of "
                f"{extents} with padding {padding}; one axis has {axis.extent} + {axis.before} + "
                f"{axis.after} = {whole} pixels for a window of {axis.reach}; pad more"
            )
    return axes


# --- Checks of shapes and attributes --------------------------------------------------------------


def windows(op: Any, image: Shape, kernel: Shape, dilation: Pair) -> Pair:
    """Numbers of windows (rows, columns) that fit into a padded plane; ShapeError for none."""
    strides, dilations = pair(op, "stride", op.stride, 1), pair(op, "dilation", dilation, 1)
    pads = sides(op, op.padding)
    rows, columns = axes_of(op.name, image, kernel, strides, pads, dilations)
    return rows.count, columns.count


def images(name: str, what: str, shape: Shape, n: int = 2) -> Shape:
    """The shape itself if it is (N, C) and n extents; ShapeError for another rank."""
    if len(shape) != 2 + n:
        raise ShapeError(
            f"{name} needs {what} of shape (N, C, {EXTENTS[n]}); got shape {shape}; add the axes "
            "that are missing with ops.expand_dims"
        )
    return shape


def fits(name: str, what: str, got: Shape, expected: Shape) -> None:
    """ShapeError unless the two shapes are equal."""
    if got != expected:
        raise ShapeError(f"{name} got {what} of shape {got}; the other shapes ask for {expected}")


def pair(op: Any, what: str, value: Any, least: int) -> Pair:
    """The value, two ints >= `least`."""
    return integers(op.name, what, value, 2, least)  # type: ignore[return-value]


def sides(op: Any, padding: Any) -> Padding:
    """The padding, two pairs of ints of at least 0."""
    found = isinstance(padding, tuple) and len(padding) == 2
    if not found or not all(isinstance(p, tuple) and len(p) == 2 for p in padding):
        raise AttributeRefusedError(
            f"{op.name} got padding={padding!r}; expected ((top, bottom), (left, right))"
        )
    for p in padding:
        pair(op, "padding", p, 0)
    return padding  # type: ignore[no-any-return]


def lengths(name: str, what: str, value: Lengths, n: int = 2, least: int = 1) -> tuple[int, ...]:
    """n ints >= `least`, from one for all axes or one for each."""
    given = freeze(value, name, what)
    return integers(name, what, given if isinstance(given, tuple) else (given,) * n, n, least)


def paddings(name: str, value: PaddingSpec, n: int = 2) -> Paddings:
    """n pairs (before, after), from an int, n ints, n pairs or "valid"."""
    frozen = freeze(value, name, "padding")
    if frozen == "valid":
        return ((0, 0),) * n
    if not isinstance(frozen, (int, tuple)):
        kind = ValueRefusedError if isinstance(value, str) else AttributeRefusedError
        raise kind(
            f"{name} got padding={value!r}; expected an int, one int or pair (before, after) for "
            "each axis, 'valid' or, for convolution, 'same'"
        )
    given = frozen if isinstance(frozen, tuple) else (frozen,) * n
    if len(given) != n:
        raise ValueRefusedError(
            f"{name} got padding={value!r}; expected one int or pair (before, after) for each axis "
            f"of ({EXTENTS[n]})"
        )
    pairs = (s if isinstance(s, tuple) else (s, s) for s in given)
    return tuple(integers(name, "padding", p, 2, 0) for p in pairs)  # type: ignore[misc]


def same_padding(image: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Paddings:
    """The padding for output extents of ceil(extent / stride); an odd zero goes behind."""
    pads = []
    for n, k, s, d in zip(image, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)
