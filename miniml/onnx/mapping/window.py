"""Convolution and its transpose, over any number of axes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...dtype import float64, int32
from ...errors import OnnxError
from ..known import counted, ints
from ..operators import Constant, Ints, Setting, register_operator
from ..windows import Axis, along, axes_of, spatial
from .arithmetic import quantized


def convolved(x: Any, w: Any, axes: tuple[Axis, ...], group: int) -> Any:
    """The convolution of x (N, C, ...) with w: of one axis as one row, of more than two as the sum
    over the first of convolutions over the others."""
    if len(axes) == 1:
        row = Axis(1, 1, 1, 1, 0, 0, 1)
        out = convolved(ops.expand_dims(x, 2), ops.expand_dims(w, 2), (row, *axes), group)
        return ops.squeeze(out, 2)
    if len(axes) == 2:
        pads = tuple((a.before, a.after) for a in axes)
        strides, dilations = tuple(a.stride for a in axes), tuple(a.dilation for a in axes)
        return ops.conv2d(x, w, None, strides, pads, dilations, group)
    first, rest = _first(axes)
    pads = ((0, 0), (0, 0), (first.before, first.after), *((0, 0),) * len(rest))
    padded, total = ops.pad(x, pads), None
    for tap, places in enumerate(first.places().T):
        slabs, count = _slabs(ops.gather(padded, places, 2))
        part = convolved(slabs, _tap(w, tap), rest, group)
        total = part if total is None else ops.add(total, part)
    return _stacked(total, count)


def _first(axes: tuple[Axis, ...]) -> tuple[Axis, tuple[Axis, ...]]:
    """The first axis and the others; OnnxError for more filters than are worth a node each."""
    if axes[0].size > 1000:
        raise OnnxError(f"has filters of {axes[0].size} along the first of {len(axes)} axes")
    return axes[0], axes[1:]


def _slabs(x: Any) -> tuple[Any, int]:
    """(N, C, D, ...) as D times as many images (N * D, C, ...), and D."""
    n, c, depth, *rest = x.shape
    return ops.reshape(ops.moveaxis(x, 2, 1), (n * depth, c, *rest)), depth


def _stacked(x: Any, depth: int) -> Any:
    """What `_slabs` took apart."""
    images, c, *rest = x.shape
    return ops.moveaxis(ops.reshape(x, (images // depth, depth, c, *rest)), 1, 2)


def _tap(w: Any, tap: int) -> Any:
    return ops.squeeze(ops.slice(w, (None, None, tap), (None, None, tap + 1)), 2)


def _biased(out: Any, bias: Any) -> Any:
    return out if bias is None else ops.add(out, ops.reshape(bias, along(1, len(out.shape))))


@register_operator("", "Conv", (1, None))
def conv(
    x: Any, w: Any, bias: Any = None, *, kernel_shape: Ints | None = None,
    strides: Ints | None = None, dilations: Ints | None = None, pads: Ints | None = None,
    auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), _kernel(w, kernel_shape), strides, dilations, pads, auto_pad)
    return _biased(convolved(x, w, axes, group), bias)


def _kernel(w: Any, declared: Ints | None) -> Ints:
    """The extents of the filters; OnnxError where the attribute says something else."""
    extents = spatial(w)
    if declared is not None and declared != extents:
        raise OnnxError(f"has kernel_shape {declared} and filters of shape {tuple(w.shape)}")
    return extents


@register_operator("", "ConvInteger", (10, None))
def conv_integer(
    x: Any, w: Any, x_zero_point: Setting | None = None, w_zero_point: Setting | None = None, *,
    kernel_shape: Ints | None = None, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    out = conv(
        _centred(x, x_zero_point), _centred(w, w_zero_point), kernel_shape=kernel_shape,
        strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, group=group,
    )  # fmt: skip
    return ops.cast(out, int32)


def _centred(x: Any, zero: Any) -> Any:
    """x - zero in float64, which has all these integers; zero is one number, or one for each index
    of the first axis."""
    values = ops.cast(x, float64)
    if zero is None:
        return values
    shift = ops.cast(zero, float64)
    each = len(shift.shape) == 1 and shift.shape[0] > 1
    return ops.sub(values, ops.reshape(shift, along(0, len(x.shape)) if each else ()))


@register_operator("", "QLinearConv", (10, None))
def qlinear_conv(
    x: Any, x_scale: Setting, x_zero_point: Setting, w: Any, w_scale: Setting,
    w_zero_point: Setting, y_scale: Setting, y_zero_point: Setting, bias: Any = None, *,
    kernel_shape: Ints | None = None, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    out = conv(
        _centred(x, x_zero_point), _centred(w, w_zero_point),
        None if bias is None else ops.cast(bias, float64), kernel_shape=kernel_shape,
        strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, group=group,
    )  # fmt: skip
    scales = [ops.cast(s, float64) for s in (x_scale, w_scale, y_scale)]
    scale = ops.div(ops.mul(scales[0], scales[1]), scales[2])
    channels = ops.reshape(scale, along(1, len(x.shape)) if prod(scale.shape) > 1 else ())
    return quantized(ops.mul(out, channels), np.float64(1), y_zero_point, y_zero_point.dtype)


@register_operator("", "ConvTranspose", (1, None))
def conv_transpose(
    x: Any, w: Any, bias: Any = None, *, kernel_shape: Ints | None = None,
    strides: Ints | None = None, dilations: Ints | None = None, pads: Ints | None = None,
    auto_pad: str = "NOTSET", group: int = 1, output_padding: Ints | None = None,
    output_shape: Ints | None = None,
) -> Any:  # fmt: skip
    n = len(spatial(x))
    kernel, more = _kernel(w, kernel_shape), output_padding or (0,) * n
    steps, gaps = strides or (1,) * n, dilations or (1,) * n
    targets = output_shape
    if targets is None and auto_pad.startswith("SAME"):
        targets = tuple(e * s for e, s in zip(spatial(x), steps, strict=True))
    around = pads if targets is None and auto_pad != "VALID" else None
    whole = axes_of(spatial(x), kernel, steps, gaps, around, "NOTSET")  # checks the numbers
    axes = []
    for i, a in enumerate(whole):
        full = (a.extent - 1) * a.stride + a.reach + more[i]
        before, after = a.before, a.after
        if targets is not None:
            total = max(full - targets[i], 0)
            before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            after = total - before
        extent = full - before - after if targets is None else targets[i]
        axes.append(Axis(extent, a.size, a.stride, a.dilation, before, after, a.extent))
    return _biased(transposed(x, w, tuple(axes), group), bias)


def transposed(x: Any, w: Any, axes: tuple[Axis, ...], group: int) -> Any:
    """The transpose of `convolved`: axes are those of the result, with a window for each element
    of x."""
    if len(axes) == 1:
        row = Axis(1, 1, 1, 1, 0, 0, 1)
        out = transposed(ops.expand_dims(x, 2), ops.expand_dims(w, 2), (row, *axes), group)
        return ops.squeeze(out, 2)
    if len(axes) == 2:
        return _transposed_planes(x, w, axes, group)
    first, rest = _first(axes)
    full = max(first.before + first.extent, (first.count - 1) * first.stride + first.reach)
    total = None
    for tap, places in enumerate(first.places().T):
        slabs, count = _slabs(x)
        part = _stacked(transposed(slabs, _tap(w, tap), rest, group), count)
        if total is None:
            total = ops.zeros((*part.shape[:2], full, *part.shape[3:]), x.dtype)
        total = ops.scatter_add(total, places, part, 2)
    return ops.slice(total, (None, None, first.before), (None, None, first.before + first.extent))


def _transposed_planes(x: Any, w: Any, axes: tuple[Axis, ...], group: int) -> Any:
    """By the primitive, whose result may be at most a stride longer than the windows reach; zeros
    behind make up for the rest."""
    a, b = axes
    short = _reached(a), _reached(b)
    strides, dilations = (a.stride, b.stride), (a.dilation, b.dilation)
    pads = ((a.before, a.after), (b.before, b.after))
    out = ops.Conv2DInputGrad(strides, pads, dilations, group, input_shape=short)(x, w)
    rest = ((0, a.extent - short[0]), (0, b.extent - short[1]))
    return ops.pad(out, ((0, 0), (0, 0), *rest)) if any(map(any, rest)) else out


def _reached(a: Axis) -> int:
    windows = (a.count - 1) * a.stride + a.reach - a.before - a.after
    return min(a.extent, windows + a.stride - 1)


@register_operator("", "Col2Im", (18, None))
def col2im(
    x: Any, image_shape: Constant, block_shape: Constant, *, strides: Ints | None = None,
    dilations: Ints | None = None, pads: Ints | None = None,
) -> Any:  # fmt: skip
    """Columns (N, C * block, windows) added up at their places in an image (N, C, *image_shape)."""
    axes = axes_of(ints(image_shape), ints(block_shape), strides, dilations, pads, "NOTSET")
    padded = [a.extent + a.before + a.after for a in axes]
    place: Any = np.zeros((1,) * 2 * len(axes), np.int64)
    for i, axis in enumerate(axes):
        shape = [1] * 2 * len(axes)
        shape[i], shape[i + len(axes)] = axis.size, axis.count
        place = ops.add(ops.mul(place, padded[i]), axis.places().T.reshape(shape))
    n, block = x.shape[0], prod(a.size for a in axes)
    columns = ops.reshape(x, (n, x.shape[1] // block, -1))
    image = ops.zeros((n, x.shape[1] // block, prod(padded)), x.dtype)
    image = ops.scatter_add(image, ops.reshape(place, -1), columns, 2)
    image = ops.reshape(image, (*image.shape[:2], *padded))
    begin = (None, None, *(a.before for a in axes))
    return ops.slice(image, begin, (None, None, *(a.before + a.extent for a in axes)))


@register_operator("", "CausalConvWithState", (27, None))
def causal_conv_with_state(
    x: Any, w: Any, bias: Any = None, past_state: Any = None, *, activation: str = "none"
) -> Any:
    """A convolution of each channel with what came before it, and the last of its inputs."""
    before = w.shape[-1] - 1
    if past_state is None:
        past_state = ops.zeros((*x.shape[:2], before), x.dtype)
    whole = ops.concat([past_state, x], 2)
    axes = axes_of(spatial(whole), spatial(w), None, None, None, "NOTSET")
    out = _biased(convolved(whole, w, axes, x.shape[1]), bias)
    if activation not in ("none", "silu", "swish"):
        raise OnnxError(f"activation {activation!r} is not none, silu or swish")
    out = out if activation == "none" else ops.silu(out)
    return out, ops.gather(whole, counted(before) + x.shape[2], 2)
