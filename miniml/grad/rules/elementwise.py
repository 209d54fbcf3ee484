"""Gradients of the elementwise primitives. Broadcasting is undone by the engine."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.Add)
def get_bprop_add(self: ops.Add) -> Bprop:
    return lambda x, y, out, dout: (dout, dout)


@bprop_getters.register(ops.Sub)
def get_bprop_sub(self: ops.Sub) -> Bprop:
    return lambda x, y, out, dout: (dout, -dout)


@bprop_getters.register(ops.Mul)
def get_bprop_mul(self: ops.Mul) -> Bprop:
    return lambda x, y, out, dout: (dout * y, dout * x)


@bprop_getters.register(ops.Neg)
def get_bprop_neg(self: ops.Neg) -> Bprop:
    return lambda x, out, dout: (-dout,)


@bprop_getters.register(ops.Sin)
def get_bprop_sin(self: ops.Sin) -> Bprop:
    return lambda x, out, dout: (dout * ops.cos(x),)


@bprop_getters.register(ops.Cos)
def get_bprop_cos(self: ops.Cos) -> Bprop:
    return lambda x, out, dout: (-dout * ops.sin(x),)


@bprop_getters.register(ops.Exp)
def get_bprop_exp(self: ops.Exp) -> Bprop:
    return lambda x, out, dout: (dout * out,)


@bprop_getters.register(ops.Cast)
def get_bprop_cast(self: ops.Cast) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        return (None if dout is None else ops.cast(dout, x.dtype),)

    return bprop
