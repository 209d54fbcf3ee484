"""ONNX's convolutions and pooling, over any number of axes.

Parts: convolutions, their transpose and their quantized forms; pooling, one number for every
window; the windows, as ONNX's attributes describe them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import DType, as_dtype, float32, float64, int32, is_float
from ...core.errors import OnnxError
from ...ops.composed.convolution import (
    average,
    biased,
    convolved,
    grown,
    largest,
    norms,
    spanned,
    transposed,
)
from ...ops.images import Axis, added_up, laid_apart, same_padding
from ..operators import Constant, Ints, Setting, register_operator, register_writer
from ..reader import Node
from ..tensors import counted, ints, table
from .elementwise import quantized

# --- Convolution ----------------------------------------------------------------------------------


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
    """The extents of the filters; OnnxError where the attribute differs."""
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
        # float64 represents these integers exactly.
        centred(x, x_zero_point, float64, 0), centred(w, w_zero_point, float64, 0),
        kernel_shape=kernel_shape, strides=strides, dilations=dilations, pads=pads,
        auto_pad=auto_pad, group=group,
    )  # fmt: skip
    return ops.cast(out, int32)


def centred(x: Any, zero: Any, dtype: DType, axis: int) -> Any:
    """x - zero in a dtype; zero is one number, or one for each index of an axis."""
    values = ops.cast(x, dtype)
    if zero is None:
        return values
    shift, rank = ops.cast(zero, dtype), len(x.shape)
    each = len(shift.shape) == 1 < rank and shift.shape[0] > 1
    return ops.sub(values, ops.reshape(shift, along(axis % rank, rank)) if each else shift)


@register_operator("", "QLinearConv", (10, None))
def qlinear_conv(
    x: Any, x_scale: Setting, x_zero_point: Setting, w: Any, w_scale: Setting,
    w_zero_point: Setting, y_scale: Setting, y_zero_point: Setting, bias: Any = None, *,
    kernel_shape: Ints | None = None, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    """In float32 from the sums on, as onnxruntime computes it."""
    out = conv_integer(
        x, w, x_zero_point, w_zero_point, kernel_shape=kernel_shape, strides=strides,
        dilations=dilations, pads=pads, auto_pad=auto_pad, group=group,
    )  # fmt: skip
    channels = along(1, len(x.shape))
    if bias is not None:
        out = ops.add(out, ops.reshape(bias, channels))
    scales = [ops.cast(s, float32) for s in (x_scale, w_scale, y_scale)]
    scale = ops.div(ops.mul(scales[0], scales[1]), scales[2])
    scaled = ops.mul(ops.cast(out, float32), ops.reshape(scale, channels if scale.size > 1 else ()))
    return quantized(scaled, np.float32(1), y_zero_point, y_zero_point.dtype)


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
    """Columns (N, C * block, windows) added at their positions in an image (N, C, *image_shape)."""
    axes = axes_of(ints(image_shape), ints(block_shape), strides, dilations, pads, "NOTSET")
    return added_up(x, bounded(axes))


@register_operator("", "CausalConvWithState", (27, None))
def causal_conv_with_state(
    x: Any, w: Any, bias: Any = None, past_state: Any = None, *, activation: str = "none"
) -> Any:
    """A causal convolution of each channel, continued from a state, and the next state."""
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


# --- Pooling --------------------------------------------------------------------------------------


@register_operator("", "AveragePool", (1, None))
def average_pool(
    x: Any, *, kernel_shape: Ints, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return average(x, bounded(axes), bool(count_include_pad))


@register_operator("", "LpPool", (2, None))
def lp_pool(
    x: Any, *, kernel_shape: Ints, p: int = 2, strides: Ints | None = None,
    dilations: Ints | None = None, pads: Ints | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return norms(x, bounded(axes), float(p))


@register_operator("", "MaxPool", (1, None))
def max_pool(
    x: Any, *, kernel_shape: Ints, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, storage_order: int = 0,
    node: Node,
) -> Any:  # fmt: skip
    axes = bounded(axes_of(spatial(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode))
    values = x if is_float(as_dtype(x.dtype)) else ops.cast(x, float64)
    out = ops.cast(largest(values, axes), x.dtype)
    if len(node.outputs) < 2:
        return out
    return out, _numbered(x, _argmax(values, axes), storage_order)


def _argmax(x: Any, axes: Sequence[Axis]) -> Any:
    """The row-major index in its plane of the first maximum of each window."""
    n, apart = len(axes), x
    for i, axis in enumerate(axes):
        apart = laid_apart(apart, 2 + 2 * i, axis.places(), float("-inf"))
    ordered = ops.transpose(apart, (0, 1, *range(2, 2 + 2 * n, 2), *range(3, 3 + 2 * n, 2)))
    best = ops.argmax(ops.reshape(ordered, (*ordered.shape[: 2 + n], -1)), -1)
    index: Any = np.zeros((), np.int64)
    for i, axis in enumerate(axes):
        inner = prod(a.size for a in axes[i + 1 :])
        tap = ops.mod(ops.floor_div(best, inner), axis.size)
        first = axis.places()[:, 0].reshape(along(2 + i, 2 + n))
        here = ops.add(first, ops.mul(tap, axis.dilation))
        index = ops.add(ops.mul(index, axis.extent), here)
    return index


def _numbered(x: Any, indices: Any, storage_order: int) -> Any:
    """Indices in a plane as indices in the whole tensor, column by column for storage_order 1."""
    extents = spatial(x)
    if storage_order:
        if len(extents) != 2:
            raise OnnxError(f"storage_order=1 is for planes; got shape {tuple(x.shape)}")
        rows, columns = extents
        indices = ops.add(ops.mul(ops.mod(indices, columns), rows), ops.floor_div(indices, columns))
    planes = counted(prod(x.shape[:2])).reshape((*x.shape[:2], *(1,) * len(extents)))
    return ops.add(indices, planes * prod(extents))


@register_operator("", "MaxUnpool", (9, None))
def max_unpool(
    x: Any, indices: Any, output_shape: Constant | None = None, *, kernel_shape: Ints,
    strides: Ints | None = None, pads: Ints | None = None,
) -> Any:  # fmt: skip
    n = len(spatial(x))
    steps, around = strides or (1,) * n, pads or (0,) * 2 * n
    rows = zip(spatial(x), steps, kernel_shape, around[:n], around[n:], strict=True)
    extents = tuple((size - 1) * s + k - b - a for size, s, k, b, a in rows)
    shape = (*x.shape[:2], *extents)
    flat = ops.zeros((prod(shape),), x.dtype)
    out = ops.reshape(ops.scatter(flat, (ops.reshape(indices, -1),), ops.reshape(x, -1)), shape)
    if output_shape is None:
        return out
    return ops.pad(out, tuple((0, m - k) for m, k in zip(ints(output_shape), shape, strict=True)))


def _global(function: Callable[[Any, Ints, bool], Any]) -> Any:
    def pool(x: Any) -> Any:
        return function(x, tuple(range(2, len(x.shape))), True)

    return pool


register_operator("", "GlobalAveragePool", (1, None))(_global(ops.mean))
register_operator("", "GlobalMaxPool", (1, None))(_global(ops.max))


@register_operator("", "GlobalLpPool", (2, None))
def global_lp_pool(x: Any, *, p: int = 2) -> Any:
    powers = ops.pow(ops.abs(x), float(p))
    return ops.pow(ops.sum(powers, tuple(range(2, len(x.shape))), True), 1.0 / p)


# --- Windows --------------------------------------------------------------------------------------


def axes_of(
    extents: Ints,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> tuple[Axis, ...]:
    """The windows along each axis; OnnxError where the attributes differ in number or are not
    positive."""
    n = len(extents)
    sizes = kernel, strides or (1,) * n, dilations or (1,) * n
    around = pads or (0,) * 2 * n
    if n == 0 or [len(g) for g in (*sizes, around)] != [n, n, n, 2 * n]:
        raise OnnxError(
            f"got kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} for "
            f"{n} axes; expected one of each, and two pads, for an axis"
        )
    if min(map(min, sizes)) < 1 or min(around) < 0:
        raise OnnxError(
            f"kernel {kernel}, strides {strides} and dilations {dilations} are >= 1, pads >= 0"
        )
    rows = zip(extents, *sizes, around[:n], around[n:], strict=True)
    found = (Axis(n, k, s, d, b, a, bool(ceil_mode)) for n, k, s, d, b, a in rows)
    return tuple(_axis(axis, auto_pad) for axis in found)


def _axis(a: Axis, auto_pad: str) -> Axis:
    """The axis with the padding of `auto_pad`."""
    if auto_pad.startswith("SAME"):
        ((less, more),) = same_padding((a.extent,), (a.size,), (a.stride,), (a.dilation,))
        pads = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        return Axis(a.extent, a.size, a.stride, a.dilation, *pads)
    if auto_pad not in ("NOTSET", "VALID"):
        raise OnnxError(f"auto_pad {auto_pad!r} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return a if auto_pad == "NOTSET" else Axis(a.extent, a.size, a.stride, a.dilation, ceil=a.ceil)


def bounded(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes; OnnxError for windows too many or too large for a table of indices."""
    for axis in axes:
        table(axis.count, axis.size)
    return axes


def spatial(x: Any, at_least: int = 1) -> Ints:
    """The extents after (N, C); OnnxError where there are none."""
    if len(x.shape) < 2 + at_least:
        raise OnnxError(f"got shape {tuple(x.shape)}; expected (N, C, ...) with axes behind")
    return tuple(int(n) for n in x.shape[2:])


def along(axis: int, ndim: int) -> Ints:
    """The shape of a vector that broadcasts along one axis."""
    return tuple(-1 if i == axis else 1 for i in range(ndim))


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.Conv2D)
def write_conv(emit: Any, node: Any, x: Any, w: Any) -> Any:
    p = node.primitive
    named = {"strides": p.stride, "dilations": p.dilation, "pads": pads_of(p.padding)}
    return emit(
        "Conv", x, w, kernel_shape=node.inputs[1].abstract.shape[2:], group=p.groups, **named
    )


def pads_of(padding: Sequence[tuple[int, int]]) -> Ints:
    """ONNX's order: all that is before, then all that is behind."""
    return tuple(before for before, _ in padding) + tuple(behind for _, behind in padding)


def _pooling(p: Any) -> dict[str, Any]:
    return {"kernel_shape": p.kernel_size, "strides": p.stride, "pads": pads_of(p.padding)}


@register_writer(ops.AvgPool2D)
def write_avg_pool(emit: Any, node: Any, x: Any) -> Any:
    p = node.primitive
    return emit("AveragePool", x, count_include_pad=int(p.count_include_pad), **_pooling(p))


@register_writer(ops.MaxPool2D)
def write_max_pool(emit: Any, node: Any, x: Any) -> Any:
    """ONNX's indices count the whole tensor, ours a plane of it."""
    out, indices = emit.several(2, "MaxPool", x, **_pooling(node.primitive))
    plane = emit.extents(prod(node.inputs[0].abstract.shape[2:]))
    return out, emit("Mod", indices, plane)


@register_writer(ops.Conv2DInputGrad)
def write_conv_transpose(emit: Any, node: Any, dout: Any, w: Any) -> Any:
    """As ConvTranspose; what the extents of the result have beyond it is its output_padding."""
    p, (given, filters) = node.primitive, [v.abstract.shape[2:] for v in node.inputs]
    rows = zip(given, filters, p.stride, p.dilation, p.padding, p.input_shape, strict=True)
    more = tuple(
        extent - ((n - 1) * step + (size - 1) * gap + 1 - before - behind)
        for n, size, step, gap, (before, behind), extent in rows
    )
    return emit(
        "ConvTranspose", dout, w, kernel_shape=filters, strides=p.stride, dilations=p.dilation,
        pads=pads_of(p.padding), group=p.groups, output_padding=more,
    )  # fmt: skip
