"""Convolution and its transpose, over any number of axes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...dtype import float64, int32
from ...errors import OnnxError
from ...ops.composed.convolution import biased, convolved, grown, spanned, transposed
from ...ops.composed.patches import added_up
from ..known import counted, ints
from ..operators import Constant, Ints, Setting, register_operator
from ..windows import along, axes_of, bounded, spatial
from .arithmetic import quantized


@register_operator("", "Conv", (1, None))
def conv(
    x: Any, w: Any, bias: Any = None, *, kernel_shape: Ints | None = None,
    strides: Ints | None = None, dilations: Ints | None = None, pads: Ints | None = None,
    auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), _kernel(w, kernel_shape), strides, dilations, pads, auto_pad)
    bounded(axes[:-2])
    return biased("Conv", convolved(x, w, axes, group), bias)


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
        window = a.extent, a.size, a.stride, a.dilation
        full = spanned(*window) + more[i]
        before, extent = a.before, full - a.before - a.after
        if targets is not None:
            total, extent = max(full - targets[i], 0), targets[i]
            before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        axes.append(grown(*window, before, extent))
    bounded(tuple(axis for axis, _ in axes[:-2]))
    return biased("ConvTranspose", transposed(x, w, tuple(axes), group), bias)


@register_operator("", "Col2Im", (18, None))
def col2im(
    x: Any, image_shape: Constant, block_shape: Constant, *, strides: Ints | None = None,
    dilations: Ints | None = None, pads: Ints | None = None,
) -> Any:  # fmt: skip
    """Columns (N, C * block, windows) added up at their places in an image (N, C, *image_shape)."""
    axes = axes_of(ints(image_shape), ints(block_shape), strides, dilations, pads, "NOTSET")
    return added_up(x, bounded(axes))


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
    out = biased("CausalConvWithState", convolved(whole, w, axes, x.shape[1]), bias)
    if activation not in ("none", "silu", "swish"):
        raise OnnxError(f"activation {activation!r} is not none, silu or swish")
    out = out if activation == "none" else ops.silu(out)
    return out, ops.gather(whole, counted(before) + x.shape[2], 2)
