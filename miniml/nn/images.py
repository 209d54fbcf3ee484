"""Layers for images: convolutions, their transposes, pooling; Upsample, PixelShuffle, Flatten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar

from .. import ops
from ..core.errors import ValueRefusedError
from ..core.options import count, counts, flag, integer, number
from ..core.parameter import Parameter
from ..ops.composed.rearrange import padding_mode as check_padding_mode
from ..ops.images import (
    EXTENTS,
    Lengths,
    Paddings,
    PaddingSpec,
    check_resize,
    lengths,
    paddings,
    same_padding,
)
from . import init
from .cell import Cell
from .layer import beside, refuse_shape, shape_of, shape_of_images

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Conv1d",
    "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Flatten",
    "GlobalAvgPool", "GlobalMaxPool", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "PixelShuffle", "PixelUnshuffle", "Upsample",
]  # fmt: skip

OutputSize = int | None | Sequence[int | None]


class Windowed(Cell):
    """Base of layers that call one function of `ops`, such as conv2d, named as `of`: its options
    are theirs."""

    _of: ClassVar[Callable[..., Any]]
    _n: ClassVar[int]  # axes of its images
    _options: ClassVar[dict[str, Any]]  # the arguments that both take, and the layer's defaults

    def __init_subclass__(cls, of: Callable[..., Any] | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            cls._of, cls._n = staticmethod(of), int(of.__name__[-2])
            given, own = (signature(f).parameters for f in (of, cls.__init__))
            cls._options = {name: p.default for name, p in own.items() if name in given}

    def _set(self, **options: Any) -> None:
        """Keep the options as attributes, checked."""
        layer = type(self).__name__
        for name, value in options.items():
            if isinstance(self._options[name], bool):
                value = flag(layer, name, value)
            elif name == "padding":
                paddings(layer, value, self._n)
            else:
                lengths(layer, name, value, self._n, int(name != "output_padding"))
            setattr(self, name, value)

    def construct(self, x: Any) -> Any:
        shape_of_images(self, x, None, self._n)
        return self._of(x, **self._given())

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._options}


# --- Convolutions and their transposes ------------------------------------------------------------


class Filters(Windowed):
    """Base of layers with learnt filters: their arguments and initial values."""

    _shown = "in_channels", "out_channels", "kernel_size="
    weight: Parameter
    bias: Parameter | None
    kernel_size: tuple[int, ...]
    stride: Lengths
    padding: PaddingSpec
    dilation: Lengths

    def _make(
        self, in_channels: int, out_channels: int, kernel_size: Lengths, groups: int, bias: bool,
        transposed: bool,
    ) -> None:  # fmt: skip
        """Make weight and bias, of channels and groups that are checked."""
        layer = type(self).__name__
        self.in_channels, self.out_channels, self.groups = counts(
            layer, in_channels=in_channels, out_channels=out_channels, groups=groups
        )
        self.kernel_size = lengths(layer, "kernel_size", kernel_size, self._n)
        ends = self.out_channels, self.in_channels
        if any(channels % self.groups for channels in ends):
            raise ValueRefusedError(
                f"{layer} got groups={groups} for {self.in_channels} channels in and "
                f"{self.out_channels} out; expected a divisor of both"
            )
        first, second = ends[::-1] if transposed else ends
        shape = (first, second // self.groups, *self.kernel_size)
        bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        learnt = flag(layer, "bias", bias)
        self.weight = init.symmetric_uniform(shape, bound)
        self.bias = init.symmetric_uniform((self.out_channels,), bound) if learnt else None

    def construct(self, x: Any) -> Any:
        shape_of_images(self, x, self.in_channels, self._n)
        return self._of(beside(self.weight, x), self.weight, **self._given())


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
        padding_mode: str = "zeros",
    ):
        self._set(stride=stride, dilation=dilation, padding=0 if _is_same(padding) else padding)
        self.padding = padding
        self.padding_mode = check_padding_mode(type(self).__name__, padding_mode)
        self._make(in_channels, out_channels, kernel_size, groups, bias, transposed=False)

    def construct(self, x: Any) -> Any:
        if self.padding_mode == "zeros":
            return super().construct(x)
        shape = shape_of_images(self, x, self.in_channels, self._n)
        x = ops.pad(beside(self.weight, x), ((0, 0), (0, 0), *self._margins(shape[2:])), 0,
                    self.padding_mode)  # fmt: skip
        return self._of(x, self.weight, **self._given() | {"padding": 0})

    def _margins(self, extents: tuple[int, ...]) -> Paddings:
        """The padding of images of these extents."""
        layer, n = type(self).__name__, self._n
        if not _is_same(self.padding):
            return paddings(layer, self.padding, n)
        steps, gaps = (lengths(layer, "", v, n) for v in (self.stride, self.dilation))
        return same_padding(extents, self.kernel_size, steps, gaps)


def _is_same(padding: Any) -> bool:
    return isinstance(padding, str) and padding == "same"


class Conv1d(Convolution, of=ops.conv1d):
    """The convolution of x (N, in_channels, L): `ops.conv1d`. All as for Conv2d; weight:
    (out_channels, in_channels / groups, K)."""


class Conv2d(Convolution, of=ops.conv2d):
    """The convolution of x (N, in_channels, H, W) with learnt filters, plus a bias: `ops.conv2d`.

    weight: (out_channels, in_channels / groups, KH, KW), as in PyTorch. bias: (out_channels,), or
    None with bias=False. Both start uniform in +-1 / sqrt(fan in), the number of weights of one
    filter. The other arguments are those of the function: padding may be "same". padding_mode:
    "zeros", or the mode of `ops.pad` that continues x: "edge", "reflect", "symmetric" or "wrap".
    """


class Conv3d(Convolution, of=ops.conv3d):
    """The convolution of x (N, in_channels, D, H, W): `ops.conv3d`. All as for Conv2d; weight:
    (out_channels, in_channels / groups, KD, KH, KW)."""


class Transposed(Filters):
    """Base of the transposed convolutions."""

    output_padding: Lengths

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
        self._set(stride=stride, dilation=dilation, padding=padding, output_padding=output_padding)
        self._make(in_channels, out_channels, kernel_size, groups, bias, transposed=True)


class ConvTranspose1d(Transposed, of=ops.conv_transpose1d):
    """The transpose of a convolution, of x (N, in_channels, L): `ops.conv_transpose1d`. All as for
    ConvTranspose2d; weight: (in_channels, out_channels / groups, K)."""


class ConvTranspose2d(Transposed, of=ops.conv_transpose2d):
    """The transpose of a convolution, of x (N, in_channels, H, W), plus a bias:
    `ops.conv_transpose2d`.

    weight: (in_channels, out_channels / groups, KH, KW), as in PyTorch. bias: (out_channels,), or
    None with bias=False. Both start uniform in +-1 / sqrt(out_channels / groups * KH * KW). The
    other arguments are those of the function: padding is cut off, output_padding is appended.
    """


class ConvTranspose3d(Transposed, of=ops.conv_transpose3d):
    """The transpose of a convolution, of x (N, in_channels, D, H, W): `ops.conv_transpose3d`. All
    as for ConvTranspose2d; weight: (in_channels, out_channels / groups, KD, KH, KW)."""


# --- Pooling --------------------------------------------------------------------------------------


class Pooling(Windowed):
    """Base of layers that reduce each window of x (N, C, ...) to one number."""

    _shown = "kernel_size=", "stride=", "padding="
    kernel_size: tuple[int, ...]
    stride: Lengths
    padding: PaddingSpec
    ceil_mode: bool

    def _set_windows(self, kernel_size: Lengths, stride: Lengths | None, **rest: Any) -> None:
        size = lengths(type(self).__name__, "kernel_size", kernel_size, self._n)
        self._set(kernel_size=size, stride=size if stride is None else stride, **rest)


class MaxPool(Pooling):
    """Base of max pooling."""

    dilation: Lengths

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: PaddingSpec = 0,
        dilation: Lengths = 1,
        ceil_mode: bool = False,
    ):
        rest = {"padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
        self._set_windows(kernel_size, stride, **rest)


class MaxPool1d(MaxPool, of=ops.max_pool1d):
    """The largest element of each window of x (N, C, L): `ops.max_pool1d`, as MaxPool2d."""


class MaxPool2d(MaxPool, of=ops.max_pool2d):
    """The largest pixel of each window of x (N, C, H, W): `ops.max_pool2d`. Windows do not overlap
    by default."""


class MaxPool3d(MaxPool, of=ops.max_pool3d):
    """The largest element of each window of x (N, C, D, H, W): `ops.max_pool3d`, as MaxPool2d."""


class AvgPool(Pooling):
    """Base of average pooling."""

    count_include_pad: bool

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: PaddingSpec = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        rest = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        self._set_windows(kernel_size, stride, padding=padding, **rest)


class AvgPool1d(AvgPool, of=ops.avg_pool1d):
    """The mean of each window of x (N, C, L): `ops.avg_pool1d`, as AvgPool2d."""


class AvgPool2d(AvgPool, of=ops.avg_pool2d):
    """The mean of each window of x (N, C, H, W): `ops.avg_pool2d`. Windows do not overlap by
    default.

    count_include_pad: False leaves padding out of the mean.
    """


class AvgPool3d(AvgPool, of=ops.avg_pool3d):
    """The mean of each window of x (N, C, D, H, W): `ops.avg_pool3d`, as AvgPool2d."""


class LPPool(Pooling):
    """Base of pooling by the p-norm."""

    _shown = "p=", "kernel_size=", "stride="

    def __init__(
        self, p: float, kernel_size: Lengths, stride: Lengths | None = None, ceil_mode: bool = False
    ):
        self.p = number(type(self).__name__, "p", p, 1)
        self._set_windows(kernel_size, stride, ceil_mode=ceil_mode)


class LPPool1d(LPPool, of=ops.lp_pool1d):
    """(sum |x|^p)^(1/p) of each window of x (N, C, L): `ops.lp_pool1d`, as LPPool2d."""


class LPPool2d(LPPool, of=ops.lp_pool2d):
    """(sum |x|^p)^(1/p) of each window of x (N, C, H, W): `ops.lp_pool2d`. Windows do not overlap
    by default."""


class LPPool3d(LPPool, of=ops.lp_pool3d):
    """(sum |x|^p)^(1/p) of each window of x (N, C, D, H, W): `ops.lp_pool3d`, as LPPool2d."""


class AdaptivePool(Windowed):
    """Base of layers that reduce x (N, C, ...) to output_size equal parts."""

    _shown = ("output_size",)

    def __init__(self, output_size: OutputSize):
        given = output_size if isinstance(output_size, Sequence) else (output_size,) * self._n
        sizes = tuple(1 if size is None else size for size in given)
        lengths(type(self).__name__, "output_size", sizes, self._n)
        self.output_size = output_size


class AdaptiveAvgPool1d(AdaptivePool, of=ops.adaptive_avg_pool1d):
    """The mean of each of output_size shares of x (N, C, L): `ops.adaptive_avg_pool1d`."""


class AdaptiveAvgPool2d(AdaptivePool, of=ops.adaptive_avg_pool2d):
    """The mean of each of output_size shares of x (N, C, H, W): `ops.adaptive_avg_pool2d`.

    output_size: an int, or (rows, columns), of which None keeps the axis.
    """


class AdaptiveAvgPool3d(AdaptivePool, of=ops.adaptive_avg_pool3d):
    """The mean of each of output_size shares of x (N, C, D, H, W): `ops.adaptive_avg_pool3d`."""


class AdaptiveMaxPool1d(AdaptivePool, of=ops.adaptive_max_pool1d):
    """The largest element of each of output_size shares of x (N, C, L):
    `ops.adaptive_max_pool1d`."""


class AdaptiveMaxPool2d(AdaptivePool, of=ops.adaptive_max_pool2d):
    """The largest pixel of each of output_size shares of x (N, C, H, W):
    `ops.adaptive_max_pool2d`."""


class AdaptiveMaxPool3d(AdaptivePool, of=ops.adaptive_max_pool3d):
    """The largest element of each of output_size shares of x (N, C, D, H, W):
    `ops.adaptive_max_pool3d`."""


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


# --- Upsample, PixelShuffle, Flatten --------------------------------------------------------------


class Upsample(Cell):
    """x (N, C, ...), with one to three axes after C, resized: `ops.resize`.

    size: the new extents; or scale_factor: their ratio to the old. mode: "nearest",
    "nearest-exact", "linear" (bilinear, trilinear) or "cubic" (bicubic). align_corners: the first
    and last elements stay at the ends; for "linear" and "cubic".
    """

    _shown = ()

    def __init__(
        self,
        size: Lengths | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ):
        check_resize("Upsample", size, scale_factor, mode, align_corners)
        self.align_corners = bool(align_corners)
        self.size, self.scale_factor, self.mode = size, scale_factor, mode

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) - 2 not in EXTENTS:
            refuse_shape(self, shape, "(N, C, ...), with one to three axes behind")
        return ops.resize(x, self.size, self.scale_factor, self.mode, self.align_corners)


class PixelShuffle(Cell):
    """x (N, C r^2, H, W) as (N, C, H r, W r), r = upscale_factor: `ops.pixel_shuffle`."""

    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int):
        self.upscale_factor = count("PixelShuffle", "upscale_factor", upscale_factor)

    def construct(self, x: Any) -> Any:
        shape_of_images(self, x, None, 2)
        return ops.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Cell):
    """x (N, C, H r, W r) as (N, C r^2, H, W), r = downscale_factor: `ops.pixel_unshuffle`."""

    _shown = ("downscale_factor",)

    def __init__(self, downscale_factor: int):
        self.downscale_factor = count("PixelUnshuffle", "downscale_factor", downscale_factor)

    def construct(self, x: Any) -> Any:
        shape_of_images(self, x, None, 2)
        return ops.pixel_unshuffle(x, self.downscale_factor)


class Flatten(Cell):
    """x with its axes start_dim to end_dim, both included, as one; by default all but the first.

    Negative axes count from the end. With start_dim the rank of x there is nothing to flatten,
    and x gets one more axis of extent 1.
    """

    _shown = ()

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim = integer("Flatten", "start_dim", start_dim)
        self.end_dim = integer("Flatten", "end_dim", end_dim)

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        rank = len(shape)
        start, end = (d + rank if d < 0 else d for d in (self.start_dim, self.end_dim))
        if not (0 <= start <= rank and 0 <= end < rank and (start <= end or start == rank)):
            whole = (self.start_dim, self.end_dim) == (1, -1)
            ordered = "axes from start_dim to end_dim, in this order"
            refuse_shape(self, shape, "(N, ...)" if whole else ordered)
        merged = math.prod(shape[start : end + 1])
        return ops.reshape(x, (*shape[:start], merged, *shape[end + 1 :]))
