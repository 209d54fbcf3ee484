"""Gradient rules of shape operations, of concat, split, slice and pad: each one's transpose."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core.abstract import PLAIN
from ...core.bprop import Bprop, bprop_getters, rule
from ...core.primitive import Primitive
from ...ops.shape import sliced_shape
from .reduce import inverse


@rule(ops.Reshape)
@rule(ops.ExpandDims)
@rule(ops.Squeeze)
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


@rule(ops.Pad)
def pad_bprop(self: ops.Pad, x: Any, out: Any, dout: Any) -> tuple[Any]:
    begin = tuple(before for before, _ in self.padding)
    end = tuple(b + n for b, n in zip(begin, x.shape, strict=True))
    return (ops.Slice(begin, end, (1,) * x.ndim)(dout),)
