"""Pooling: one number for every window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...dtype import as_dtype, float64, is_float
from ...errors import OnnxError
from ...ops.composed.patches import laid_apart
from ...ops.composed.pooling import average, largest
from ...ops.inference.windows import Axis
from ..known import counted, ints
from ..operators import Constant, Ints, register_operator
from ..reader import Node
from ..windows import along, axes_of, bounded, spatial


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
    whole = tuple(replace(a, after=max(a.after, a.behind), ceil=False) for a in bounded(axes))
    mean = average(ops.pow(ops.abs(x), float(p)), whole, True)
    return ops.pow(ops.mul(mean, float(prod(a.size for a in axes))), 1.0 / p)


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
    """Where in its plane the first maximum of each window is, in row-major order."""
    n, apart = len(axes), x
    for i, axis in enumerate(axes):
        apart = laid_apart(apart, 2 + 2 * i, axis.places(), float("-inf"))
    ordered = ops.transpose(apart, (0, 1, *range(2, 2 + 2 * n, 2), *range(3, 3 + 2 * n, 2)))
    best = ops.argmax(ops.reshape(ordered, (*ordered.shape[: 2 + n], -1)), -1)
    place: Any = np.zeros((), np.int64)
    for i, axis in enumerate(axes):
        inner = prod(a.size for a in axes[i + 1 :])
        tap = ops.mod(ops.floor_div(best, inner), axis.size)
        first = axis.places()[:, 0].reshape(along(2 + i, 2 + n))
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
