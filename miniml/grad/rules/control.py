"""Gradients through state: what is assigned passes its gradient on to the value."""

from __future__ import annotations

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.Assign)
def get_bprop_assign(self: ops.Assign) -> Bprop:
    return lambda parameter, value, out, dout: (None, dout)
