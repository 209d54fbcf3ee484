"""Gradients of shape operations: each one's transpose."""

from __future__ import annotations

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.BroadcastTo)
def get_bprop_broadcast_to(self: ops.BroadcastTo) -> Bprop:
    return lambda x, out, dout: (ops.sum_to(dout, x.shape),)


@bprop_getters.register(ops.SumTo)
def get_bprop_sum_to(self: ops.SumTo) -> Bprop:
    return lambda x, out, dout: (ops.broadcast_to(dout, x.shape),)
