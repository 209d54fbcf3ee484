"""Pooling over one to three axes, made of MaxPool2D and AvgPool2D: windows, or equal shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from ...abstract import Shape
from ...attributes import freeze
from ...errors import ShapeError
from ..arithmetic import mul
from ..inference.devices import on_one_device
from ..inference.geometry import (
    EXTENTS,
    Lengths,
    Paddings,
    PaddingSpec,
    images,
    lengths,
    paddings,
)
from ..inference.shapes import dtype_of, needs_float, shape_of
from ..inference.windows import ONE, Axis, Shares, Step, axes_of
from ..pool import AvgPool2D, MaxPool2D
from ..shape import reshape
from .patches import laid_apart

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

Axes = tuple[Axis | Shares, ...]
Pool = Callable[[Any, Any], Any]  # of planes by (kernel_size, stride, padding)
_max_pool = lru_cache(1024, typed=True)(MaxPool2D)  # found sooner than made
_avg_pool = lru_cache(1024, typed=True)(AvgPool2D)
OutputSize = int | None | Sequence[int | None]


@on_one_device
def max_pool1d(
    x: Any,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """out[n, c, r] = max over i of x[n, c, r*stride + i*dilation - before]: the largest element of
    each window of x (N, C, L), (N, C, OL). Arguments and errors: as for `max_pool2d`.

    >>> max_pool1d([[[1.0, 3.0, 2.0, 5.0, 4.0]]], 2, ceil_mode=True).tolist()
    [[[3.0, 5.0, 4.0]]]
    """
    axes = _windows("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode)
    return largest(x, axes)


@on_one_device
def max_pool2d(
    x: Any,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """out[n, c, r, q] = max over i, j of x[n, c, r*stride + i*dilation - top, q*stride + j*dilation
    - left]: the largest pixel of each window of x (N, C, H, W), (N, C, OH, OW).

    kernel_size, stride, dilation: an int, or one for each axis; stride is by default the kernel's
    size. padding: as for `conv2d`, without "same"; it never wins. ceil_mode: with a last window
    that reaches beyond the padding, if it begins in x or in the padding ahead: OH = ceil((H + top +
    bottom - dilation * (KH - 1) - 1) / stride) + 1, or one less. The gradient goes to the first of
    equal pixels; a NaN is larger than all. ShapeError where no window fits, or one would lie in the
    padding alone; DTypeError for integers.
    """
    axes = _windows("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode)
    return largest(x, axes)


@on_one_device
def max_pool3d(
    x: Any,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of x (N, C, D, H, W), (N, C, OD, OH, OW), as `max_pool2d`
    for three axes. Arguments and errors: as there."""
    axes = _windows("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode)
    return largest(x, axes)


@on_one_device
def avg_pool1d(
    x: Any,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: PaddingSpec = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    dilation: Lengths = 1,
) -> Tensor:
    """out[n, c, r] = mean over i of x[n, c, r*stride + i*dilation - before]: the mean of each
    window of x (N, C, L), (N, C, OL). Arguments and errors: as for `avg_pool2d`.

    >>> avg_pool1d([[[2.0, 4.0, 6.0]]], 2, padding=1, count_include_pad=False).tolist()
    [[[2.0, 5.0]]]
    """
    axes = _windows("avg_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode)
    return average(x, axes, count_include_pad)


@on_one_device
def avg_pool2d(
    x: Any,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: PaddingSpec = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    dilation: Lengths = 1,
) -> Tensor:
    """out[n, c, r, q] = mean over i, j of x[n, c, r*stride + i*dilation - top, q*stride +
    j*dilation - left]: the mean of each window of x (N, C, H, W), (N, C, OH, OW).

    count_include_pad: the padding counts as zeros; False leaves it out of the mean. What a last
    window has beyond it, with ceil_mode, counts never. The other arguments and errors: as for
    `max_pool2d`.
    """
    axes = _windows("avg_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode)
    return average(x, axes, count_include_pad)


@on_one_device
def avg_pool3d(
    x: Any,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: PaddingSpec = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    dilation: Lengths = 1,
) -> Tensor:
    """The mean of each window of x (N, C, D, H, W), (N, C, OD, OH, OW), as `avg_pool2d` for three
    axes. Arguments and errors: as there."""
    axes = _windows("avg_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode)
    return average(x, axes, count_include_pad)


@on_one_device
def adaptive_max_pool1d(x: Any, output_size: OutputSize) -> Tensor:
    """The largest element of each of `output_size` shares of x (N, C, L), (N, C, OL). Shares and
    errors: as for `adaptive_avg_pool2d`.

    >>> adaptive_max_pool1d([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[2.0, 3.0]]]
    """
    return largest(x, _shares("adaptive_max_pool1d", 1, x, output_size))


@on_one_device
def adaptive_max_pool2d(x: Any, output_size: OutputSize) -> Tensor:
    """The largest pixel of each of `output_size` shares of x (N, C, H, W), (N, C, OH, OW). Shares
    and errors: as for `adaptive_avg_pool2d`."""
    return largest(x, _shares("adaptive_max_pool2d", 2, x, output_size))


@on_one_device
def adaptive_max_pool3d(x: Any, output_size: OutputSize) -> Tensor:
    """The largest element of each of `output_size` shares of x (N, C, D, H, W), (N, C, OD, OH, OW).
    Shares and errors: as for `adaptive_avg_pool2d`."""
    return largest(x, _shares("adaptive_max_pool3d", 3, x, output_size))


@on_one_device
def adaptive_avg_pool1d(x: Any, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` shares of x (N, C, L), (N, C, OL). Shares and errors: as
    for `adaptive_avg_pool2d`.

    >>> adaptive_avg_pool1d([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[1.5, 2.5]]]
    """
    return average(x, _shares("adaptive_avg_pool1d", 1, x, output_size), False)


@on_one_device
def adaptive_avg_pool2d(x: Any, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` shares of x (N, C, H, W), (N, C, OH, OW).

    output_size: an int, or one for each axis; None keeps the axis as it is, and 1 reduces it.
    Share r of OH has the rows from floor(r * H / OH) to ceil((r + 1) * H / OH), that one excluded,
    so that shares overlap where OH does not divide H. ShapeError for an x of another rank or
    without pixels, DTypeError for integers.
    """
    return average(x, _shares("adaptive_avg_pool2d", 2, x, output_size), False)


@on_one_device
def adaptive_avg_pool3d(x: Any, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` shares of x (N, C, D, H, W), (N, C, OD, OH, OW). Shares and
    errors: as for `adaptive_avg_pool2d`."""
    return average(x, _shares("adaptive_avg_pool3d", 3, x, output_size), False)


def _windows(
    name: str, n: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> Axes:  # fmt: skip
    needs_float(name, dtype_of(x))
    kernel = lengths(name, "kernel_size", kernel_size, n)
    steps = kernel if stride is None else lengths(name, "stride", stride, n)
    gaps, pads = lengths(name, "dilation", dilation, n), paddings(name, padding, n)
    return _checked(name, images(name, "x", shape_of(x), n), kernel, steps, pads, gaps, ceil_mode)


@lru_cache(1024, typed=True)
def _checked(
    name: str, x: Shape, kernel: Shape, stride: Shape, padding: Paddings, dilation: Shape,
    ceil_mode: bool,
) -> Axes:  # fmt: skip
    if 0 in x[2:]:
        raise ShapeError(f"{name} got x of shape {x}, whose images have no pixels")
    axes = axes_of(name, x[2:], kernel, stride, padding, dilation, bool(ceil_mode))
    if any(not axis.sizes(False).all() for axis in axes):
        raise ShapeError(
            f"{name} got padding {padding} for a kernel of {kernel} with dilation {dilation} on "
            f"images of {x[2:]}; pad by less than the kernel, so that no window lies in the "
            "padding alone"
        )
    return axes


def _shares(name: str, n: int, x: Any, output_size: OutputSize) -> Axes:
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
    return tuple(Shares(e, m) for e, m in zip(shape[2:], counts, strict=True))


def largest(x: Any, axes: Axes) -> Tensor:
    """The largest element of each window of floats x (N, C, ...)."""
    return _reduced(x, axes, float("-inf"), lambda planes, step: _max_pool(*step)(planes)[0])


def average(x: Any, axes: Axes, with_padding: bool) -> Tensor:
    """The mean of each window of floats x (N, C, ...); with_padding: zeros of the padding count.

    Where the primitive divides by another number of elements, a factor corrects that.
    """
    plain = all(a.step and not (with_padding and a.overhangs) for a in axes)
    counted = with_padding or not plain

    def pool(planes: Any, step: Any) -> Any:
        return _avg_pool(*step, counted)(planes)

    out = _reduced(x, axes, 0.0, pool)
    for at, axis in enumerate(axes, 2) if not plain else ():
        factor = axis.size / axis.sizes(with_padding)
        shape = (-1, *(1,) * (len(out.shape) - 1 - at))
        out = mul(out, factor.astype(out.dtype).reshape(shape))
    return out


def _reduced(x: Any, axes: Axes, outside: float, pool: Pool) -> Tensor:
    """x, each window of an axis that pooling does not take laid apart, pooled: the last two axes as
    planes, then each other one as the rows of planes, so that the first of equal elements wins."""
    steps = []
    for at, axis in enumerate(axes, 2):
        if axis.step is None:
            apart = laid_apart(x, at, axis.places(), outside)
            shape = shape_of(x)
            x = reshape(apart, (*shape[:at], axis.count * axis.size, *shape[at + 1 :]))
        steps.append(axis.step or (axis.size, axis.size, (0, 0)))
    return _by_planes(x, steps, tuple(axis.count for axis in axes), pool)


def _by_planes(x: Any, steps: Sequence[Step], counts: Shape, pool: Pool) -> Tensor:
    n, c, *extents = shape_of(x)
    if len(steps) == 1:
        extents, steps = [1, *extents], [ONE, *steps]
    x = _shaped(x, (n, c * prod(extents[:-2]), *extents[-2:]))
    out = pool(x, tuple(zip(*steps[-2:], strict=True)))
    for at in reversed(range(len(steps) - 2)):
        inner = prod(counts[at + 1 :])
        out = reshape(out, (n, c * prod(extents[:at]), extents[at], inner))
        out = pool(out, tuple(zip(steps[at], ONE, strict=True)))
    return _shaped(out, (n, c, *counts))


def _shaped(x: Any, shape: Shape) -> Tensor:
    return reshape(x, shape) if shape_of(x) != shape else x
