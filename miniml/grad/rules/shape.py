"""Gradient rules of shape operations, of concat, split, slice and pad: each one's transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import PLAIN, is_inexact
from ...core.bprop import Bprop, bprop_getters, rule
from ...core.primitive import Primitive
from ...ops.checks import normal_axis
from ...ops.shape import filled_shape, sliced_shape
from ..batching import Batched, all_in_front, batch_rules, batches, behind, padded, shifted
from ..forward import moved_or_zeros, moves_along
from .reduce import inverse


@rule(ops.Reshape, ops.ExpandDims, ops.Squeeze)
def reshape_bprop(self: Primitive, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.reshape(dout, x.shape),)


@rule(ops.Convert)
def convert_bprop(self: ops.Convert, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.Convert(PLAIN)(dout),)


@rule(ops.BroadcastTo)
def broadcast_to_bprop(self: ops.BroadcastTo, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.sum_to(dout, x.shape),)


@rule(ops.SumTo)
def sum_to_bprop(self: ops.SumTo, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.broadcast_to(dout, x.shape),)


@bprop_getters.register(ops.Transpose)
def get_bprop_transpose(self: ops.Transpose) -> Bprop:
    axes = tuple(a % len(self.axes) for a in self.axes)
    return lambda x, out, dout: (ops.transpose(dout, inverse(axes)),)


@bprop_getters.register(ops.Flip)
def get_bprop_flip(self: ops.Flip) -> Bprop:
    return lambda x, out, dout: (ops.flip(dout, self.axis),)


@rule(ops.Concat)
def concat_bprop(self: ops.Concat, *values: Any) -> tuple[Any, ...]:
    *xs, _, dout = values
    return ops.split(dout, tuple(x.shape[self.axis] for x in xs), self.axis)


@bprop_getters.register(ops.Split)
def get_bprop_split(self: ops.Split) -> Bprop:
    return lambda x, out, dout: (ops.concat(dout, self.axis),)


@rule(ops.Slice)
def slice_bprop(self: ops.Slice, x: Any, out: Any, dout: Any) -> tuple[Any]:
    elements = self.begin, self.end, self.strides
    if self.dropped:
        dout = ops.reshape(dout, sliced_shape("Slice", x.shape, *elements))
    return (ops.SliceGrad(x.shape, *elements)(dout),)


@bprop_getters.register(ops.SliceGrad)
def get_bprop_slice_grad(self: ops.SliceGrad) -> Bprop:
    return lambda x, out, dout: (ops.Slice(self.begin, self.end, self.strides)(dout),)


@rule(ops.SlidingWindow)
def sliding_window_bprop(self: ops.SlidingWindow, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """The gradients of the windows, added up at the elements that they were taken from."""
    axis = normal_axis("SlidingWindow", self.axis, len(x.shape))
    places = np.arange(dout.shape[axis])[:, None] * self.step + np.arange(self.size)
    return (ops.IndexAdd((axis,), axis, x.shape)(ops.moveaxis(dout, -1, axis + 1), places),)


@rule(ops.Pad)
def pad_bprop(self: ops.Pad, x: Any, out: Any, dout: Any) -> tuple[Any]:
    begin = tuple(before for before, _ in self.padding)
    end = tuple(b + n for b, n in zip(begin, x.shape, strict=True))
    return (ops.Slice(begin, end, (1,) * x.ndim)(dout),)


# --- Batching -------------------------------------------------------------------------------------


for _cls in (ops.Flip, ops.SlidingWindow):
    batch_rules.register(_cls)(shifted("axis"))


@batches(ops.Squeeze)
def batch_squeeze(self: ops.Squeeze, batched: Batched, x: Any) -> Any:
    rank = len(x.shape) - 1
    ones = tuple([a for a in range(1, rank + 1) if x.shape[a] == 1])
    return ops.squeeze(x, ones if self.axis is None else behind(self.axis, rank))


@batches(ops.Reshape)
def batch_reshape(self: ops.Reshape, batched: Batched, x: Any) -> Any:
    return ops.reshape(x, (batched.size, *filled_shape("Reshape", x.shape[1:], self.shape)))


@batches(ops.Transpose)
def batch_transpose(self: ops.Transpose, batched: Batched, x: Any) -> Any:
    return ops.transpose(x, (0, *behind(self.axes, len(x.shape) - 1)))


@batches(ops.BroadcastTo)
def batch_broadcast_to(self: ops.BroadcastTo, batched: Batched, x: Any) -> Any:
    return ops.broadcast_to(padded(x, len(self.shape)), (batched.size, *self.shape))


@batches(ops.SumTo)
def batch_sum_to(self: ops.SumTo, batched: Batched, x: Any) -> Any:
    ones = (1,) * (len(x.shape) - 1 - len(self.shape))
    summed = ops.sum_to(x, (batched.size, *ones, *self.shape))
    return ops.reshape(summed, (batched.size, *self.shape))


@batches(ops.ExpandDims)
def batch_expand_dims(self: ops.ExpandDims, batched: Batched, x: Any) -> Any:
    count = len(self.axis) if isinstance(self.axis, tuple) else 1
    return ops.expand_dims(x, behind(self.axis, len(x.shape) - 1 + count))


@batches(ops.Pad)
def batch_pad(self: ops.Pad, batched: Batched, x: Any) -> Any:
    return ops.Pad(((0, 0), *self.padding), self.value)(x)


@batches(ops.Slice)
def batch_slice(self: ops.Slice, batched: Batched, x: Any) -> Any:
    begin, end, strides = (0, *self.begin), (batched.size, *self.end), (1, *self.strides)
    return ops.Slice(begin, end, strides, tuple([a + 1 for a in self.dropped]))(x)


@batches(ops.SliceGrad)
def batch_slice_grad(self: ops.SliceGrad, batched: Batched, x: Any) -> Any:
    begin, end, strides = (0, *self.begin), (batched.size, *self.end), (1, *self.strides)
    return ops.SliceGrad((batched.size, *self.shape), begin, end, strides)(x)


@batches(ops.Concat)
def batch_concat(self: ops.Concat, batched: Batched, *parts: Any) -> Any:
    whole = all_in_front(batched, parts)
    return ops.Concat(behind(self.axis, len(whole[0].shape) - 1))(*whole)


@batches(ops.Split)
def batch_split(self: ops.Split, batched: Batched, x: Any) -> Any:
    return ops.Split(behind(self.axis, len(x.shape) - 1), self.sections)(x)


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Concat)
def jvp_concat(self: ops.Concat, primals: Any, tangents: Any, out: Any) -> Any:
    return self(*map(moved_or_zeros, tangents, primals))


@moves_along(ops.Pad)
def jvp_pad(self: ops.Pad, primals: Any, tangents: Any, out: Any) -> Any:
    return ops.Pad(self.padding)(*tangents)


@moves_along(ops.Cast)
def jvp_cast(self: ops.Cast, primals: Any, tangents: Any, out: Any) -> Any:
    return self(*tangents) if is_inexact(out.dtype) else None
