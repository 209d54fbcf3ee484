"""Layers that change the extents of images without learning: pooling, Upsample; and Flatten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .. import ops
from ..errors import AttributeRefusedError
from ..ops.composed.resize import check_mode
from ..ops.inference.geometry import EXTENTS, Lengths, PaddingSpec, lengths, paddings
from .arguments import flag, integer
from .cell import Cell, differing
from .shapes import refuse_shape, shape_of

OutputSize = int | None | Sequence[int | None]


class Pooling(Cell):
    """Base of layers that reduce each window of x (N, C, ...), of `_n` axes, to one number."""

    _n: ClassVar[int]
    _pool: ClassVar[Callable[..., Any]]

    def _set(self, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> None:
        layer = type(self).__name__
        self.kernel_size = lengths(layer, "kernel_size", kernel_size, self._n)
        self.stride, self.padding = self.kernel_size if stride is None else stride, padding
        lengths(layer, "stride", self.stride, self._n)
        paddings(layer, padding, self._n)
        self.ceil_mode = flag(layer, "ceil_mode", ceil_mode)

    def construct(self, x: Any) -> Any:
        _check_rank(self, x, self._n)
        return type(self)._pool(x, **{k: v for k, v in vars(self).items() if k in _TAKEN})

    def describe(self) -> str:
        """The layer with its windows, and the other arguments that are not defaults."""
        rest = {k: v for k, v in _TAKEN.items() if v is not None and k in vars(self)}
        shown = {k: getattr(self, k) for k in ("kernel_size", "stride", "padding")}
        return differing(self, rest, **shown)


# What functions of pooling take, and the defaults that `describe` leaves out.
_TAKEN = {
    "kernel_size": None, "stride": None, "padding": None, "dilation": 1, "ceil_mode": False,
    "count_include_pad": True,
}  # fmt: skip


class MaxPool(Pooling):
    """Base of max pooling."""

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: PaddingSpec = 0,
        dilation: Lengths = 1,
        ceil_mode: bool = False,
    ):
        self._set(kernel_size, stride, padding, ceil_mode)
        lengths(type(self).__name__, "dilation", dilation, self._n)
        self.dilation = dilation


class MaxPool1d(MaxPool):
    """The largest element of each window of x (N, C, L): `ops.max_pool1d`. Windows do not overlap
    by default."""

    _n, _pool = 1, staticmethod(ops.max_pool1d)


class MaxPool2d(MaxPool):
    """The largest pixel of each window of x (N, C, H, W): `ops.max_pool2d`. Windows do not overlap
    by default."""

    _n, _pool = 2, staticmethod(ops.max_pool2d)


class MaxPool3d(MaxPool):
    """The largest element of each window of x (N, C, D, H, W): `ops.max_pool3d`. Windows do not
    overlap by default."""

    _n, _pool = 3, staticmethod(ops.max_pool3d)


class AvgPool(Pooling):
    """Base of average pooling."""

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: PaddingSpec = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self._set(kernel_size, stride, padding, ceil_mode)
        name = "count_include_pad"
        self.count_include_pad = flag(type(self).__name__, name, count_include_pad)


class AvgPool1d(AvgPool):
    """The mean of each window of x (N, C, L): `ops.avg_pool1d`. Windows do not overlap by default.

    count_include_pad: False leaves padding out of the mean.
    """

    _n, _pool = 1, staticmethod(ops.avg_pool1d)


class AvgPool2d(AvgPool):
    """The mean of each window of x (N, C, H, W): `ops.avg_pool2d`. Windows do not overlap by
    default.

    count_include_pad: False leaves padding out of the mean.
    """

    _n, _pool = 2, staticmethod(ops.avg_pool2d)


class AvgPool3d(AvgPool):
    """The mean of each window of x (N, C, D, H, W): `ops.avg_pool3d`. Windows do not overlap by
    default.

    count_include_pad: False leaves padding out of the mean.
    """

    _n, _pool = 3, staticmethod(ops.avg_pool3d)


class AdaptivePool(Cell):
    """Base of layers that reduce x (N, C, ...), of `_n` axes, to output_size equal shares."""

    _shown = "{0.output_size}"
    _n: ClassVar[int]
    _pool: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: OutputSize):
        given = output_size if isinstance(output_size, Sequence) else (output_size,) * self._n
        sizes = tuple(1 if size is None else size for size in given)
        lengths(type(self).__name__, "output_size", sizes, self._n)
        self.output_size = output_size

    def construct(self, x: Any) -> Any:
        _check_rank(self, x, self._n)
        return type(self)._pool(x, self.output_size)


class AdaptiveAvgPool1d(AdaptivePool):
    """The mean of each of output_size shares of x (N, C, L): `ops.adaptive_avg_pool1d`."""

    _n, _pool = 1, staticmethod(ops.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(AdaptivePool):
    """The mean of each of output_size shares of x (N, C, H, W): `ops.adaptive_avg_pool2d`.

    output_size: an int, or (rows, columns), of which None keeps the axis.
    """

    _n, _pool = 2, staticmethod(ops.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(AdaptivePool):
    """The mean of each of output_size shares of x (N, C, D, H, W): `ops.adaptive_avg_pool3d`."""

    _n, _pool = 3, staticmethod(ops.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(AdaptivePool):
    """The largest element of each of output_size shares of x (N, C, L):
    `ops.adaptive_max_pool1d`."""

    _n, _pool = 1, staticmethod(ops.adaptive_max_pool1d)


class AdaptiveMaxPool2d(AdaptivePool):
    """The largest pixel of each of output_size shares of x (N, C, H, W):
    `ops.adaptive_max_pool2d`."""

    _n, _pool = 2, staticmethod(ops.adaptive_max_pool2d)


class AdaptiveMaxPool3d(AdaptivePool):
    """The largest element of each of output_size shares of x (N, C, D, H, W):
    `ops.adaptive_max_pool3d`."""

    _n, _pool = 3, staticmethod(ops.adaptive_max_pool3d)


class GlobalPool(Cell):
    """Base of layers that reduce each channel of x (N, C, ...) to one number: (N, C)."""

    _reduce: ClassVar[Callable[..., Any]]

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) < 3:
            refuse_shape(self, shape, "(N, C, ...), with axes behind")
        return type(self)._reduce(x, tuple(range(2, len(shape))))


class GlobalAvgPool(GlobalPool):
    """The mean of each channel of x (N, C, ...), over all axes behind: (N, C)."""

    _reduce = staticmethod(ops.mean)


class GlobalMaxPool(GlobalPool):
    """The largest element of each channel of x (N, C, ...), over all axes behind: (N, C)."""

    _reduce = staticmethod(ops.max)


class Upsample(Cell):
    """x (N, C, ...), of one to three axes behind, resized: `ops.resize`.

    size: the new extents; or scale_factor: their ratio to the old. mode: "nearest",
    "nearest-exact", "linear" (bilinear, trilinear) or "cubic" (bicubic). align_corners: the first
    and last elements stay at the ends; for "linear" and "cubic".
    """

    def __init__(
        self,
        size: Lengths | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ):
        if (size is None) == (scale_factor is None):
            raise AttributeRefusedError(
                f"Upsample got size={size!r} and scale_factor={scale_factor!r}; expected one of "
                "the two"
            )
        self.align_corners = flag("Upsample", "align_corners", align_corners)
        check_mode("Upsample", mode, align_corners)
        self.size, self.scale_factor, self.mode = size, scale_factor, mode

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) - 2 not in EXTENTS:
            refuse_shape(self, shape, "(N, C, ...), with one to three axes behind")
        return ops.resize(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def describe(self) -> str:
        """The constructor call, without defaults."""
        defaults = {"size": None, "scale_factor": None, "mode": "nearest", "align_corners": False}
        return differing(self, defaults)


class Flatten(Cell):
    """x with its axes start_dim to end_dim, both included, as one; by default all but the first.

    Negative axes count from the end. With start_dim the rank of x there is nothing to flatten,
    and x gets one more axis of extent 1.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim = integer("Flatten", "start_dim", start_dim)
        self.end_dim = integer("Flatten", "end_dim", end_dim)

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        rank = len(shape)
        start, end = (d + rank if d < 0 else d for d in (self.start_dim, self.end_dim))
        if not (0 <= start <= rank and 0 <= end < rank and (start <= end or start == rank)):
            refuse_shape(self, shape, self._expected())
        merged = math.prod(shape[start : end + 1])
        return ops.reshape(x, (*shape[:start], merged, *shape[end + 1 :]))

    def _expected(self) -> str:
        whole = (self.start_dim, self.end_dim) == (1, -1)
        return "(N, ...)" if whole else "axes from start_dim to end_dim, in this order"

    def describe(self) -> str:
        """Flatten(what is not the default)."""
        return differing(self, {"start_dim": 1, "end_dim": -1})


def _check_rank(layer: Cell, x: Any, n: int) -> None:
    """ShapeError unless x is a batch of images of n axes."""
    shape = shape_of(layer, x)
    if len(shape) != 2 + n:
        refuse_shape(layer, shape, f"(N, C, {EXTENTS[n]})")
