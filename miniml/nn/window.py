"""Layers that look at images through windows: Conv2d, MaxPool2d, AvgPool2d; and Flatten."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..ops.inference.geometry import lengths, paddings
from . import init
from .arguments import flag, integer, positive
from .cell import Cell, differing
from .shapes import refuse_shape, shape_of

Lengths = int | tuple[int, int]
Padding = str | int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]]


class Conv2d(Cell):
    """The 2-d convolution of x (N, in_channels, H, W) with learnt filters, plus a bias.

    weight: (out_channels, in_channels / groups, rows, columns). bias: (out_channels,), or None
    with bias=False. Both start uniform in +-1 / sqrt(fan in). The other arguments are those of
    `ops.conv2d`: padding may be "same".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Lengths,
        stride: Lengths = 1,
        padding: Padding = 0,
        dilation: Lengths = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        rows, columns = pair("Conv2d", "kernel_size", kernel_size)
        positive("Conv2d", in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"Conv2d got groups={groups} for {in_channels} channels in and {out_channels} out; "
                "expected a divisor of both"
            )
        _check_windows("Conv2d", stride=stride, dilation=dilation)
        if padding != "same":
            paddings("Conv2d", padding)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding = (rows, columns), stride, padding
        self.dilation, self.groups = dilation, groups
        fan_in = in_channels // groups * rows * columns
        shape = (out_channels, in_channels // groups, rows, columns)
        self.weight = init.symmetric_uniform(shape, 1.0 / math.sqrt(fan_in))
        learnt = flag("Conv2d", "bias", bias)
        self.bias = (
            init.symmetric_uniform((out_channels,), 1.0 / math.sqrt(fan_in)) if learnt else None
        )

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) != 4 or shape[1] != self.in_channels:
            refuse_shape(self, shape, f"(N, {self.in_channels}, H, W)")
        return ops.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def describe(self) -> str:
        """Conv2d(in, out, kernel_size=...), and the arguments that are not defaults."""
        rest = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        values = {k: getattr(self, k) for k in rest}
        parts = [f"{k}={v!r}" for k, v in values.items() if v != rest[k]]
        parts += [] if self.bias is not None else ["bias=False"]
        size = f"kernel_size={self.kernel_size}"
        return f"Conv2d({', '.join([f'{self.in_channels}, {self.out_channels}', size, *parts])})"


class Pooling(Cell):
    """Base of layers that reduce each window of x (N, C, H, W) to one number."""

    _shown = "{0.kernel_size}, stride={0.stride}, padding={0.padding!r}"

    def __init__(self, kernel_size: Lengths, stride: Lengths | None = None, padding: Padding = 0):
        layer = type(self).__name__
        self.kernel_size = pair(layer, "kernel_size", kernel_size)
        self.stride, self.padding = self.kernel_size if stride is None else stride, padding
        _check_windows(layer, stride=self.stride)
        paddings(layer, padding)

    def check(self, x: Any) -> None:
        """ShapeError unless x is a batch of images."""
        shape = shape_of(self, x)
        if len(shape) != 4:
            refuse_shape(self, shape, "(N, C, H, W)")


class MaxPool2d(Pooling):
    """The largest pixel of each window of x (N, C, H, W); windows do not overlap by default."""

    def construct(self, x: Any) -> Any:
        self.check(x)
        return ops.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class AvgPool2d(Pooling):
    """The mean of each window of x (N, C, H, W); windows do not overlap by default.

    count_include_pad: False leaves padding out of the mean.
    """

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: Padding = 0,
        count_include_pad: bool = True,
    ):
        super().__init__(kernel_size, stride, padding)
        self.count_include_pad = flag("AvgPool2d", "count_include_pad", count_include_pad)

    def construct(self, x: Any) -> Any:
        self.check(x)
        return ops.avg_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.count_include_pad
        )


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


def _check_windows(layer: str, **values: Any) -> None:
    for name, value in values.items():
        lengths(layer, name, value)


def pair(layer: str, name: str, value: Any) -> tuple[int, int]:
    """(rows, columns) from an int or a pair of ints, all positive; ShapeError otherwise."""
    given = (value, value) if isinstance(value, int) else value
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ShapeError(f"{layer} got {name}={value!r}; expected an int or (rows, columns)")
    positive(layer, **{f"{name}[{i}]": v for i, v in enumerate(given)})
    return int(given[0]), int(given[1])
