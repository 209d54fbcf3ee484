"""Convolution, transposed convolution and pooling over one to three axes, made of 2-d primitives.

Each function is written once, and `over_axes` makes those of one, two and three axes of it. A
convolution of one axis is one of images with one row; one of three axes takes the windows of the
first axis as channels. Pooling reduces the last two axes as planes, then each further one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import cleandoc
from math import prod
from types import FunctionType, MethodType
from typing import Any, Concatenate, NamedTuple, ParamSpec

import numpy as np

from ...core.abstract import Shape, float32, promote
from ...core.errors import ShapeError
from ...core.options import flag, integer, number
from ...core.primitive import freeze
from ..checks import Tensor, composition, dtype_of, needs_float, shape_of
from ..elementwise import abs, add, mul, pow
from ..images import (
    EXTENTS,
    ONE,
    TAPS,
    AvgPool2D,
    Axis,
    Conv2D,
    Conv2DInputGrad,
    Lengths,
    MaxPool2D,
    Paddings,
    PaddingSpec,
    Step,
    axes_of,
    filter_shape,
    images,
    laid_apart,
    lengths,
    paddings,
    put_together,
    same_padding,
    takes,
)
from ..logic import equal, select
from ..reduce import mean
from ..shape import expand_dims, moveaxis, reshape, squeeze
from .elementwise import in_dtype
from .rearrange import pad

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip


P = ParamSpec("P")
Family = tuple[Callable[P, "Tensor"], Callable[P, "Tensor"], Callable[P, "Tensor"]]


class Over(NamedTuple):
    """A function of one number of axes: its name, which its errors say, and that number."""

    name: str
    n: int


def over_axes(template: Callable[Concatenate[Over, P], Tensor]) -> Family[P]:
    """The functions of one, two and three axes that a template stands for: its docstring is written
    in the words of `_WORDS`, with examples of one axis."""
    return _over(template, 1), _over(template, 2), _over(template, 3)


def _over(template: Callable[Concatenate[Over, P], Tensor], n: int) -> Callable[P, Tensor]:
    like: Any = template
    name = f"{like.__name__.removeprefix('_')}{n}d"
    # A copy has a name of its own, by which Python's errors call it.
    own = FunctionType(like.__code__, like.__globals__, name, like.__defaults__)
    text, mark, example = cleandoc(like.__doc__ or "").partition("\n\n>>> ")
    extents, taps = EXTENTS[n], TAPS[n]
    own.__doc__ = text.format(
        **dict(zip(("images", "r", "i", "at"), _WORDS[n], strict=True)),
        L=extents, K=taps, OL=", ".join(f"O{e}" for e in extents.split(", ")),
        end=extents[-1], tap=taps.split(", ")[-1], n=n,
    ) + (mark + example) * (n == 1)  # fmt: skip
    own.__annotations__ = {k: v for k, v in like.__annotations__.items() if k != "over"}
    own.__qualname__ = name
    return composition(MethodType(own, Over(name, n)))


# What a docstring says of one, two and three axes: the images, the indices of an output and of a
# tap, and where in x they meet.
_WORDS = {
    1: ("signals", "r", "i", "r*stride + i*dilation - before"),
    2: ("images", "r, q", "i, j", "r*stride + i*dilation - top, q*stride + j*dilation - left"),
    3: (
        "volumes", "p, r, q", "h, i, j", "p*stride + h*dilation - front, r*stride + i*dilation - "
        "top, q*stride + j*dilation - left",
    ),
}  # fmt: skip


# --- Convolution ----------------------------------------------------------------------------------


Axes = tuple[Axis, ...]
Grown = tuple[tuple[Axis, int], ...]
ONE_ROW = Axis(1, 1)
_conv2d = lru_cache(1024, typed=True)(Conv2D)  # a cache hit is faster than construction


def _conv(
    over: Over, x: Any, w: Any, bias: Any = None, stride: Lengths = 1, padding: PaddingSpec = 0,
    dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """out[n, o, {r}] = bias[o] + sum over c, {i} of w[o, c, {i}] * x[n, c,
    {at}],
    x being 0 outside: the convolution (cross-correlation) of {images} with filters.

    x (N, C, {L}), w (O, C/groups, {K}); out (N, O, {OL}). bias: (O,), or None. stride,
    dilation: an int, or one for each axis. padding: an int; one int or pair (before, after) for
    each axis; "valid", none; or "same", which gives O{end} = ceil({end} / stride) and puts an odd
    zero behind. Integers are convolved as float32. Raises ShapeError where channels, groups or
    extents do not fit. Memory, for three axes: x, KD times.

    >>> conv1d([[[1.0, 2.0, 4.0]]], [[[1.0, -1.0]]]).tolist()
    [[[-1.0, -2.0]]]
    """
    name, n = over
    steps, gaps = lengths(name, "stride", stride, n), lengths(name, "dilation", dilation, n)
    same = isinstance(padding, str) and padding == "same"
    pads = None if same else paddings(name, padding, n)
    groups = integer(name, "groups", groups)
    axes = _axes(name, n, shape_of(x), shape_of(w), steps, pads, gaps, groups)
    return biased(name, convolved(x, w, axes, groups), bias)


conv1d, conv2d, conv3d = over_axes(_conv)


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


def convolved(x: Any, w: Any, axes: Axes, groups: int) -> Tensor:
    """The convolution of x (N, C, ...) with w: of one axis as an image of one row; of three as one
    of two, with an image for each window of the first axis and its elements as channels."""
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


def _conv_transpose(
    over: Over, x: Any, w: Any, bias: Any = None, stride: Lengths = 1, padding: PaddingSpec = 0,
    output_padding: Lengths = 0, groups: int = 1, dilation: Lengths = 1,
) -> Tensor:  # fmt: skip
    """out[n, o, {at}]
    += w[c, o, {i}] * x[n, c, {r}] over all c, {r} and {i},
    plus bias: the transpose of `conv{n}d`.

    x (N, C, {L}), w (C, O/groups, {K}); out (N, O, {OL}), with
    O{end} = ({end} - 1) * stride + dilation * ({tap} - 1) + 1 + output_padding, less the padding.
    bias: (O,), or None. padding: is cut off, as for `conv{n}d`, without "same". output_padding:
    elements more on each axis, behind; less than the stride or the dilation. Arguments have
    PyTorch's order. Raises ShapeError where channels, groups or extents do not fit, or nothing
    would be left.

    >>> conv_transpose1d([[[1.0, 2.0]]], [[[1.0, -1.0]]], stride=2).tolist()
    [[[1.0, -1.0, 2.0, -2.0]]]
    """
    name, n = over
    steps, gaps = lengths(name, "stride", stride, n), lengths(name, "dilation", dilation, n)
    more = lengths(name, "output_padding", output_padding, n, 0)
    pads = paddings(name, padding, n)
    groups = integer(name, "groups", groups)
    axes = _grown(name, n, shape_of(x), shape_of(w), steps, pads, more, gaps, groups)
    return biased(name, transposed(x, w, axes, groups), bias)


conv_transpose1d, conv_transpose2d, conv_transpose3d = over_axes(_conv_transpose)


@lru_cache(1024, typed=True)
def _grown(
    name: str, n: int, x: Shape, w: Shape, stride: Shape, padding: Paddings, more: Shape,
    dilation: Shape, groups: int,
) -> Grown:  # fmt: skip
    """The windows of each axis of a transposed convolution's output: one for each pixel of x."""
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
    """Number of elements that `count` windows span."""
    return (count - 1) * stride + dilation * (size - 1) + 1


def grown(
    count: int, size: int, stride: int, dilation: int, before: int, extent: int
) -> tuple[Axis, int]:
    """The axis of `extent` elements, from element `before` on, of the span of `count` windows; and
    the number of elements behind the last window."""
    whole = spanned(count, size, stride, dilation)
    short = max(min(extent, whole - before), 0)
    ahead = min(before, whole)
    return Axis(short, size, stride, dilation, ahead, whole - ahead - short), extent - short


def transposed(x: Any, w: Any, axes: Grown, groups: int) -> Tensor:
    """The transpose of `convolved`; axes: of the result, as `grown` makes them."""
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


# --- Pooling --------------------------------------------------------------------------------------


Pool = Callable[[Any, Any], Any]  # of planes by (kernel_size, stride, padding)
_max_planes = lru_cache(1024, typed=True)(MaxPool2D)  # cached, as above
_avg_planes = lru_cache(1024, typed=True)(AvgPool2D)
OutputSize = int | None | Sequence[int | None]
Shares = tuple[tuple[int, int], ...]  # of each axis its extent and the number of its windows


def _max_pool(
    over: Over, x: Any, kernel_size: Lengths, stride: Lengths | None = None,
    padding: PaddingSpec = 0, dilation: Lengths = 1, ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """out[n, c, {r}] = max over {i} of x[n, c,
    {at}]:
    the largest element of each window of x (N, C, {L}), (N, C, {OL}).

    kernel_size, stride, dilation: an int, or one for each axis; stride is by default the kernel's
    size. padding: as for `conv{n}d`, without "same"; it never wins. ceil_mode: with a last window
    that reaches beyond the padding, if it begins in x or in the padding ahead: O{end} =
    ceil(({end} + padding - dilation * ({tap} - 1) - 1) / stride) + 1, or one less. The gradient
    goes to the first of equal elements; a NaN is larger than all. ShapeError where no window fits,
    or one would lie in the padding alone; DTypeError for integers.

    >>> max_pool1d([[[1.0, 3.0, 2.0, 5.0, 4.0]]], 2, ceil_mode=True).tolist()
    [[[3.0, 5.0, 4.0]]]
    """
    return largest(x, _windows(over, x, kernel_size, stride, padding, dilation, ceil_mode))


max_pool1d, max_pool2d, max_pool3d = over_axes(_max_pool)


def _avg_pool(
    over: Over, x: Any, kernel_size: Lengths, stride: Lengths | None = None,
    padding: PaddingSpec = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    dilation: Lengths = 1,
) -> Tensor:  # fmt: skip
    """out[n, c, {r}] = mean over {i} of x[n, c,
    {at}]:
    the mean of each window of x (N, C, {L}), (N, C, {OL}).

    count_include_pad: the padding counts as zeros; False leaves it out of the mean. Elements of a
    last window beyond it, with ceil_mode, never count. The other arguments and errors: as for
    `max_pool{n}d`.

    >>> avg_pool1d([[[2.0, 4.0, 6.0]]], 2, padding=1, count_include_pad=False).tolist()
    [[[2.0, 5.0]]]
    """
    axes = _windows(over, x, kernel_size, stride, padding, dilation, ceil_mode)
    return average(x, axes, flag(over[0], "count_include_pad", count_include_pad))


avg_pool1d, avg_pool2d, avg_pool3d = over_axes(_avg_pool)


def _lp_pool(
    over: Over, x: Any, p: float, kernel_size: Lengths, stride: Lengths | None = None,
    ceil_mode: bool = False, padding: PaddingSpec = 0, dilation: Lengths = 1,
) -> Tensor:  # fmt: skip
    """out[n, c, {r}] = (sum over {i} of |x[n, c,
    {at}]|^p)^(1/p):
    the p-norm of each window of x (N, C, {L}), (N, C, {OL}).

    p: a number of at least 1. The padding counts as zeros. Powers of floats of 16 bits are summed
    in float32, whose range |x|^p must not leave. The gradient of a window of zeros is 0. (PyTorch
    takes powers of x, which are negative for an odd p, and in a last window beyond x, of ceil_mode,
    counts some elements twice.) The other arguments and errors: as for `max_pool{n}d`.

    >>> lp_pool1d([[[3.0, -4.0, 0.0, 2.0]]], 2, 2).tolist()
    [[[5.0, 2.0]]]
    """
    order = number(over.name, "p", p, 1)
    axes = _windows(over, x, kernel_size, stride, padding, dilation, ceil_mode)
    return norms(x, axes, order)


lp_pool1d, lp_pool2d, lp_pool3d = over_axes(_lp_pool)


def _adaptive_max_pool(over: Over, x: Any, output_size: OutputSize) -> Tensor:
    """The largest element of each of `output_size` shares of x (N, C, {L}), (N, C, {OL}).

    Shares and errors: as for `adaptive_avg_pool{n}d`.

    >>> adaptive_max_pool1d([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[2.0, 3.0]]]
    """
    shares = _shares(over, x, output_size)
    if axes := _equal(shares):
        return largest(x, axes)
    apart, sizes = _together(x, shares, float("-inf"))
    tops = _max_planes((apart.shape[2], 1), (apart.shape[2], 1), ((0, 0), (0, 0)))(apart)[0]
    return reshape(tops, (*apart.shape[:2], *sizes.shape))


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = over_axes(_adaptive_max_pool)


def _adaptive_avg_pool(over: Over, x: Any, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` shares of x (N, C, {L}), (N, C, {OL}).

    output_size: an int, or one for each axis; None keeps the axis as it is, and 1 reduces it.
    Share r of O{end} has the elements from floor(r * {end} / O{end}) up to, not including,
    ceil((r + 1) * {end} / O{end}), so that shares overlap where O{end} does not divide {end}.
    ShapeError for an x of another rank or without pixels, DTypeError for integers.

    >>> adaptive_avg_pool1d([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[1.5, 2.5]]]
    """
    shares = _shares(over, x, output_size)
    if all(count == 1 for _, count in shares):  # whatever the extents
        return mean(x, tuple(range(2, 2 + len(shares))), True)
    if axes := _equal(shares):
        return average(x, axes, False)
    apart, sizes = _together(x, shares, 0.0)
    means = reshape(mean(apart, 2), (*apart.shape[:2], *sizes.shape))
    return mul(means, (apart.shape[2] / sizes).astype(apart.dtype))


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = over_axes(_adaptive_avg_pool)


def _windows(
    over: Over, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Axes:
    name, n = over
    needs_float(name, dtype_of(x))
    kernel = lengths(name, "kernel_size", kernel_size, n)
    steps = kernel if stride is None else lengths(name, "stride", stride, n)
    gaps, pads = lengths(name, "dilation", dilation, n), paddings(name, padding, n)
    ends = flag(name, "ceil_mode", ceil_mode)
    return _checked(name, images(name, "x", shape_of(x), n), kernel, steps, pads, gaps, ends)


@lru_cache(1024, typed=True)
def _checked(
    name: str, x: Shape, kernel: Shape, stride: Shape, padding: Paddings, dilation: Shape,
    ceil_mode: bool,
) -> Axes:  # fmt: skip
    if 0 in x[2:]:
        raise ShapeError(f"{name} got x of shape {x}, whose images have no pixels")
    axes = axes_of(name, x[2:], kernel, stride, padding, dilation, ceil_mode)
    if any(not axis.sizes(False).all() for axis in axes):
        raise ShapeError(
            f"{name} got padding {padding} for a kernel of {kernel} with dilation {dilation} on "
            f"images of {x[2:]}; pad by less than the kernel, so that no window lies in the "
            "padding alone"
        )
    return axes


def _shares(over: Over, x: Any, output_size: OutputSize) -> Shares:
    name, n = over
    needs_float(name, dtype_of(x))
    shape = images(name, "x", shape_of(x), n)
    frozen = freeze(output_size, name, "output_size")
    given = frozen if isinstance(frozen, tuple) else (frozen,) * n
    if len(given) != n or 0 in shape[2:]:
        raise ShapeError(
            f"{name} got output_size={output_size!r} for x of shape {shape}; give an int for each "
            f"axis of ({EXTENTS[n]}), None to keep it, and images with pixels"
        )
    kept = (e if m is None else m for e, m in zip(shape[2:], given, strict=True))
    counts = lengths(name, "output_size", tuple(kept), n)
    return tuple(zip(shape[2:], counts, strict=True))


def _equal(shares: Shares) -> Axes | None:
    """The windows of the axes; None where those of one differ in size."""
    if any(extent % count for extent, count in shares):
        return None
    return tuple(Axis(extent, extent // count, extent // count) for extent, count in shares)


def _together(x: Any, shares: Shares, outside: float) -> tuple[Tensor, Any]:
    """(N, C, size, windows): the elements of the windows of all axes, gathered at once, in
    row-major order, `outside` where a window has fewer; and how many each has."""
    d, places = len(shares), np.zeros((), np.int64)
    for i, (extent, count) in enumerate(shares):
        window = np.arange(count)[:, None]
        begin, end = window * extent // count, -(-(window + 1) * extent // count)
        along = begin + np.arange((end - begin).max())
        others = [a for a in range(2 * d) if a % d != i]
        along = np.expand_dims(np.where(along < end, along, -1), others)
        places = np.asarray(np.where((places < 0) | (along < 0), -1, places * extent + along))
    n, c, *extents = shape_of(x)
    flat = places.reshape(prod(places.shape[:d]), -1)
    apart = laid_apart(reshape(x, (n, c, prod(extents))), 2, flat.T % (prod(extents) + 1), outside)
    return apart, (flat >= 0).sum(1).reshape(places.shape[:d])


def largest(x: Any, axes: Axes) -> Tensor:
    """The largest element of each window of floats x (N, C, ...)."""
    return _reduced(x, axes, float("-inf"), lambda planes, step: _max_planes(*step)(planes)[0])


def average(x: Any, axes: Axes, with_padding: bool) -> Tensor:
    """The mean of each window of floats x (N, C, ...); with_padding: the padding's zeros count.

    Where the primitive divides by another number of elements, a factor corrects the result.
    """
    plain = all(a.step and not (with_padding and a.overhangs) for a in axes)
    counted = with_padding or not plain

    def pool(planes: Any, step: Any) -> Any:
        return _avg_planes(*step, counted)(planes)

    out = _reduced(x, axes, 0.0, pool)
    for at, axis in enumerate(axes, 2) if not plain else ():
        factor = axis.size / axis.sizes(with_padding)
        shape = (-1, *(1,) * (len(out.shape) - 1 - at))
        out = mul(out, factor.astype(out.dtype).reshape(shape))
    return out


def norms(x: Any, axes: Axes, p: float) -> Tensor:
    """(sum |x|^p)^(1/p) of each window of floats x (N, C, ...)."""
    given = dtype_of(x)
    wide = in_dtype(x, promote(given, float32))
    # With all its padding in the axis every window has its full number of elements.
    whole = tuple(replace(a, after=max(a.after, a.behind), ceil=False) for a in axes)
    mean = average(pow(abs(wide), p), whole, True)
    sums = mul(mean, float(prod(a.size for a in axes)))
    none = equal(sums, 0.0)  # where the root's slope is infinite
    return in_dtype(select(none, 0.0, pow(select(none, 1.0, sums), 1.0 / p)), given)


def _reduced(x: Any, axes: Axes, outside: float, pool: Pool) -> Tensor:
    """x pooled, with the windows of an axis that the primitives do not take laid apart: the last
    two axes as planes, then each other one as the rows of planes, so that the first of equal
    elements wins."""
    steps = []
    for at, axis in enumerate(axes, 2):
        if axis.step is None:
            apart = laid_apart(x, at, axis.places(), outside)
            shape = shape_of(x)
            x = reshape(apart, (*shape[:at], axis.count * axis.size, *shape[at + 1 :]))
        steps.append(axis.step or (axis.size, axis.size, (0, 0)))
    return _by_planes(x, steps, tuple(axis.count for axis in axes), pool)


def _by_planes(x: Any, steps: Sequence[Step], counts: Shape, pool: Pool) -> Tensor:
    """x pooled over the last two axes, then over each further one, from the last to the first."""
    n, c, *extents = shape_of(x)
    if len(steps) == 1:
        extents, steps = [1, *extents], [ONE, *steps]
    x = _shaped(x, (n, c * prod(extents[:-2]), *extents[-2:]))
    out = pool(x, tuple(zip(*steps[-2:], strict=True)))
    for at in reversed(range(len(steps) - 2)):
        out = reshape(out, (n, c * prod(extents[:at]), extents[at], prod(counts[at + 1 :])))
        out = pool(out, tuple(zip(steps[at], ONE, strict=True)))
    return _shaped(out, (n, c, *counts))


def _shaped(x: Any, shape: Shape) -> Tensor:
    return reshape(x, shape) if shape_of(x) != shape else x
