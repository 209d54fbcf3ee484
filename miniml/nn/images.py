"""Layers for images: convolutions and their transposes, pooling, Upsample and Flatten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .. import ops
from ..core.errors import AttributeRefusedError, ValueRefusedError
from ..core.options import counts, flag, integer
from ..ops.images import EXTENTS, Lengths, PaddingSpec, check_mode, lengths, paddings
from . import init
from .arguments import beside, refuse_shape, shape_of
from .cell import Cell, differing

Convolve = Callable[..., Any]
OutputSize = int | None | Sequence[int | None]


# --- Convolutions and their transposes ------------------------------------------------------------


_DEFAULTS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}


class Filters(Cell):
    """Base of layers with learnt filters for `_n` axes: their arguments and initial values."""

    _n: ClassVar[int]
    _convolve: ClassVar[Convolve]
    in_channels: int
    out_channels: int

    def _check(self, stride: Any, dilation: Any, output_padding: Any = 0) -> None:
        layer = type(self).__name__
        lengths(layer, "stride", stride, self._n)
        lengths(layer, "dilation", dilation, self._n)
        lengths(layer, "output_padding", output_padding, self._n, 0)

    def _learn(self, first: int, second: int, kernel_size: Any, groups: int, bias: bool) -> None:
        """Make weight (first, second / groups, *kernel_size), and bias (out_channels,)."""
        layer = type(self).__name__
        self.kernel_size = lengths(layer, "kernel_size", kernel_size, self._n)
        if first % groups or second % groups:
            raise ValueRefusedError(
                f"{layer} got groups={groups} for {self.in_channels} channels in and "
                f"{self.out_channels} out; expected a divisor of both"
            )
        shape = (first, second // groups, *self.kernel_size)
        bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        learnt = flag(layer, "bias", bias)
        self.weight = init.symmetric_uniform(shape, bound)
        self.bias = init.symmetric_uniform((self.out_channels,), bound) if learnt else None

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) != 2 + self._n or shape[1] != self.in_channels:
            refuse_shape(self, shape, f"(N, {self.in_channels}, {EXTENTS[self._n]})")
        return type(self)._convolve(
            beside(self.weight, x), self.weight, self.bias, **self._arguments()
        )

    def _arguments(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in _DEFAULTS if k in vars(self)}

    def describe(self) -> str:
        """The layer with its channels and kernel_size, and the arguments that are not defaults."""
        parts = [f"{k}={v!r}" for k, v in self._arguments().items() if v != _DEFAULTS[k]]
        parts += [] if self.bias is not None else ["bias=False"]
        first = f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}"
        return f"{type(self).__name__}({', '.join([*first, *parts])})"


class Convolution(Filters):
    """Base of the convolutions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Lengths,
        stride: Lengths = 1,
        padding: PaddingSpec = 0,
        dilation: Lengths = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        layer = type(self).__name__
        in_channels, out_channels, groups = counts(
            layer, in_channels=in_channels, out_channels=out_channels, groups=groups
        )
        self._check(stride, dilation)
        if padding != "same":
            paddings(layer, padding, self._n)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self._learn(out_channels, in_channels, kernel_size, groups, bias)


class Conv1d(Convolution):
    """The convolution of x (N, in_channels, L) with learnt filters, plus a bias: `ops.conv1d`.

    weight: (out_channels, in_channels / groups, K), as in PyTorch. The rest: as for Conv2d.
    """

    _n, _convolve = 1, staticmethod(ops.conv1d)


class Conv2d(Convolution):
    """The convolution of x (N, in_channels, H, W) with learnt filters, plus a bias: `ops.conv2d`.

    weight: (out_channels, in_channels / groups, KH, KW), as in PyTorch. bias: (out_channels,), or
    None with bias=False. Both start uniform in +-1 / sqrt(fan in), the number of weights of one
    filter. The other arguments are those of the function: padding may be "same".
    """

    _n, _convolve = 2, staticmethod(ops.conv2d)


class Conv3d(Convolution):
    """The convolution of x (N, in_channels, D, H, W) with learnt filters, plus a bias:
    `ops.conv3d`.

    weight: (out_channels, in_channels / groups, KD, KH, KW), as in PyTorch. The rest: as for
    Conv2d.
    """

    _n, _convolve = 3, staticmethod(ops.conv3d)


class Transposed(Filters):
    """Base of the transposed convolutions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Lengths,
        stride: Lengths = 1,
        padding: PaddingSpec = 0,
        output_padding: Lengths = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Lengths = 1,
    ):
        layer = type(self).__name__
        in_channels, out_channels, groups = counts(
            layer, in_channels=in_channels, out_channels=out_channels, groups=groups
        )
        self._check(stride, dilation, output_padding)
        paddings(layer, padding, self._n)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.output_padding = output_padding
        self._learn(in_channels, out_channels, kernel_size, groups, bias)


class ConvTranspose1d(Transposed):
    """The transpose of a convolution, of x (N, in_channels, L), plus a bias:
    `ops.conv_transpose1d`.

    weight: (in_channels, out_channels / groups, K), as in PyTorch. The rest: as for
    ConvTranspose2d.
    """

    _n, _convolve = 1, staticmethod(ops.conv_transpose1d)


class ConvTranspose2d(Transposed):
    """The transpose of a convolution, of x (N, in_channels, H, W), plus a bias:
    `ops.conv_transpose2d`.

    weight: (in_channels, out_channels / groups, KH, KW), as in PyTorch. bias: (out_channels,), or
    None with bias=False. Both start uniform in +-1 / sqrt(out_channels / groups * KH * KW). The
    other arguments are those of the function: padding is cut off, output_padding is appended.
    """

    _n, _convolve = 2, staticmethod(ops.conv_transpose2d)


class ConvTranspose3d(Transposed):
    """The transpose of a convolution, of x (N, in_channels, D, H, W), plus a bias:
    `ops.conv_transpose3d`.

    weight: (in_channels, out_channels / groups, KD, KH, KW), as in PyTorch. The rest: as for
    ConvTranspose2d.
    """

    _n, _convolve = 3, staticmethod(ops.conv_transpose3d)


# --- Pooling --------------------------------------------------------------------------------------


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


# The arguments of the pooling functions, and the defaults that `describe` leaves out.
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
    """Base of layers that reduce x (N, C, ...), of `_n` axes, to output_size equal parts."""

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


def _check_rank(layer: Cell, x: Any, n: int) -> None:
    """ShapeError unless x is a batch of images of n axes."""
    shape = shape_of(layer, x)
    if len(shape) != 2 + n:
        refuse_shape(layer, shape, f"(N, C, {EXTENTS[n]})")


class GlobalPool(Cell):
    """Base of layers that reduce each channel of x (N, C, ...) to one number: (N, C)."""

    _reduce: ClassVar[Callable[..., Any]]

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) < 3:
            refuse_shape(self, shape, "(N, C, ...), with axes behind")
        return type(self)._reduce(x, tuple(range(2, len(shape))))


class GlobalAvgPool(GlobalPool):
    """The mean of each channel of x (N, C, ...), over all axes after C: (N, C)."""

    _reduce = staticmethod(ops.mean)


class GlobalMaxPool(GlobalPool):
    """The largest element of each channel of x (N, C, ...), over all axes after C: (N, C)."""

    _reduce = staticmethod(ops.max)


# --- Upsample and Flatten -------------------------------------------------------------------------


class Upsample(Cell):
    """x (N, C, ...), with one to three axes after C, resized: `ops.resize`.

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
        """The constructor call, without defaults."""
        return differing(self, {"start_dim": 1, "end_dim": -1})
