"""Layers that convolve: Conv1d, Conv2d, Conv3d and their transposes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from .. import ops
from ..errors import ShapeError
from ..ops.inference.geometry import EXTENTS, Lengths, PaddingSpec, lengths, paddings
from . import init
from .arguments import flag, positive
from .cell import Cell
from .shapes import beside, refuse_shape, shape_of

Convolve = Callable[..., Any]
_DEFAULTS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}


class Filters(Cell):
    """Base of layers with learnt filters for `_n` axes: their arguments and first values."""

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
            raise ShapeError(
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
        return type(self)._convolve(beside(self.weight, x), self.weight, self.bias, **self._given())

    def _given(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in _DEFAULTS if k in vars(self)}

    def describe(self) -> str:
        """The layer with its channels and kernel_size, and the arguments that are not defaults."""
        parts = [f"{k}={v!r}" for k, v in self._given().items() if v != _DEFAULTS[k]]
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
        positive(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
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
        positive(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
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
    other arguments are those of the function: padding is cut off, output_padding is added behind.
    """

    _n, _convolve = 2, staticmethod(ops.conv_transpose2d)


class ConvTranspose3d(Transposed):
    """The transpose of a convolution, of x (N, in_channels, D, H, W), plus a bias:
    `ops.conv_transpose3d`.

    weight: (in_channels, out_channels / groups, KD, KH, KW), as in PyTorch. The rest: as for
    ConvTranspose2d.
    """

    _n, _convolve = 3, staticmethod(ops.conv_transpose3d)
