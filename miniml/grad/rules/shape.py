"""Gradients of shape operations: each one's transpose."""

from __future__ import annotations

from ... import ops
from ...bprop import Bprop, bprop_getters
from .reduce import inverse


@bprop_getters.register(ops.Reshape)
@bprop_getters.register(ops.ExpandDims)
@bprop_getters.register(ops.Squeeze)
def get_bprop_reshape(self: ops.Reshape | ops.ExpandDims | ops.Squeeze) -> Bprop:
    return lambda x, out, dout: (ops.reshape(dout, x.shape),)


@bprop_getters.register(ops.Transpose)
def get_bprop_transpose(self: ops.Transpose) -> Bprop:
    axes = tuple(a % len(self.axes) for a in self.axes)
    return lambda x, out, dout: (ops.transpose(dout, inverse(axes)),)


@bprop_getters.register(ops.Flip)
def get_bprop_flip(self: ops.Flip) -> Bprop:
    return lambda x, out, dout: (ops.flip(dout, self.axis),)


@bprop_getters.register(ops.BroadcastTo)
def get_bprop_broadcast_to(self: ops.BroadcastTo) -> Bprop:
    return lambda x, out, dout: (ops.sum_to(dout, x.shape),)


@bprop_getters.register(ops.SumTo)
def get_bprop_sum_to(self: ops.SumTo) -> Bprop:
    return lambda x, out, dout: (ops.broadcast_to(dout, x.shape),)
