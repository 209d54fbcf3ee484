"""Pooling: one number for every window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...dtype import as_dtype, is_float
from ...errors import OnnxError
from ..known import counted, ints
from ..operators import Constant, Ints, register_operator
from ..reader import Node
from ..windows import Axis, along, axes_of, spatial

Reduce = Callable[[Any, int], Any]


def folded(x: Any, axes: Sequence[Axis], value: Any, reduce: Reduce) -> Any:
    """x, padded with a value, reduced over its windows: one axis after another."""
    pads = ((0, 0), (0, 0), *((a.before, max(a.after, a.needed_after)) for a in axes))
    x = ops.pad(x, pads, value) if any(map(any, pads)) else x
    for i, axis in enumerate(axes):
        x = reduce(ops.gather(x, axis.places(), 2 + i), 3 + i)
    return x


def _planes(x: Any, axes: Sequence[Axis]) -> tuple[Any, tuple[Any, ...]] | None:
    """x as planes, with what the 2-d primitives take; None where they do not serve: for other
    numbers of axes, dilations, integers, and windows in the padding alone."""
    if len(axes) > 2 or not is_float(as_dtype(x.dtype)) or any(a.dilation > 1 for a in axes):
        return None
    pads = [(a.before, a.needed_after) for a in axes]
    if 0 in x.shape[2:] or any(p >= a.size for a, two in zip(axes, pads, strict=True) for p in two):
        return None
    sizes, strides = [a.size for a in axes], [a.stride for a in axes]
    if len(axes) == 1:
        x, sizes, strides, pads = ops.expand_dims(x, 2), [1, *sizes], [1, *strides], [(0, 0), *pads]
    return x, (tuple(sizes), tuple(strides), tuple(pads))


def _shaped(out: Any, x: Any, axes: Sequence[Axis]) -> Any:
    shape = (*x.shape[:2], *(a.count for a in axes))
    return out if tuple(out.shape) == shape else ops.reshape(out, shape)


@register_operator("", "AveragePool", (1, None))
def average_pool(
    x: Any, *, kernel_shape: Ints, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    planes = _planes(x, axes)
    declared = all(a.needed_after <= a.after for a in axes)
    if planes is not None and (declared or not count_include_pad):
        images, windows = planes
        size, stride, padding = windows
        pool = ops.AvgPool2D(size, stride, padding, bool(count_include_pad))
        return _shaped(pool(images), x, axes)
    out = folded(x, axes, 0, ops.sum)
    for i, axis in enumerate(axes):
        share = 1 / axis.sizes(bool(count_include_pad))
        out = ops.mul(out, share.astype(x.dtype).reshape(along(2 + i, len(x.shape))))
    return out


@register_operator("", "LpPool", (2, None))
def lp_pool(
    x: Any, *, kernel_shape: Ints, p: int = 2, strides: Ints | None = None,
    dilations: Ints | None = None, pads: Ints | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return ops.pow(folded(ops.pow(ops.abs(x), float(p)), axes, 0, ops.sum), 1.0 / p)


@register_operator("", "MaxPool", (1, None))
def max_pool(
    x: Any, *, kernel_shape: Ints, strides: Ints | None = None, dilations: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, storage_order: int = 0,
    node: Node,
) -> Any:  # fmt: skip
    axes = axes_of(spatial(x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    planes = _planes(x, axes)
    if planes is not None:
        out, places = ops.MaxPool2D(*planes[1])(planes[0])
        out, places = _shaped(out, x, axes), _shaped(places, x, axes)
    else:
        kind = as_dtype(x.dtype)
        lowest = float("-inf") if is_float(kind) else int(np.iinfo(kind).min)
        out = folded(x, axes, lowest, ops.max)
        if len(node.outputs) < 2:
            return out
        places = _argmax(x, axes, lowest)
    return out, _numbered(x, places, storage_order) if len(node.outputs) > 1 else places


def _argmax(x: Any, axes: Sequence[Axis], lowest: Any) -> Any:
    """Where in its plane the first maximum of each window is, in row-major order."""
    n = len(axes)
    apart = folded(x, axes, lowest, lambda windows, axis: ops.moveaxis(windows, axis, -1))
    best = ops.argmax(ops.reshape(apart, (*x.shape[:2], *(a.count for a in axes), -1)), -1)
    place: Any = np.zeros((), np.int64)
    for i, axis in enumerate(axes):
        inner = prod(a.size for a in axes[i + 1 :])
        tap = ops.mod(ops.floor_div(best, inner), axis.size)
        first = (counted(axis.count) * axis.stride - axis.before).reshape(along(2 + i, 2 + n))
        here = ops.add(first, ops.mul(tap, axis.dilation))
        place = ops.add(ops.mul(place, axis.extent), here)
    return place


def _numbered(x: Any, places: Any, storage_order: int) -> Any:
    """Places in a plane as ONNX counts them: over the whole tensor, in columns if asked for."""
    extents = spatial(x)
    if storage_order:
        if len(extents) != 2:
            raise OnnxError(f"storage_order=1 is for planes; got shape {tuple(x.shape)}")
        rows, columns = extents
        places = ops.add(ops.mul(ops.mod(places, columns), rows), ops.floor_div(places, columns))
    planes = counted(prod(x.shape[:2])).reshape((*x.shape[:2], *(1,) * len(extents)))
    return ops.add(places, planes * prod(extents))


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
