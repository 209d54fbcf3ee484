"""Gradients of powers, roots, exponentials and logarithms."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.Pow)
def get_bprop_pow(self: ops.Pow) -> Bprop:
    def bprop(x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
        # x to the 0 is constant in x, but y * x^(y - 1) is 0 * inf where 1 / x is not finite.
        constant = ops.logical_and(y == 0, ops.logical_not(ops.isfinite(1 / x)))
        dx = dout * (y * ops.pow(ops.select(constant, 1, x), y - 1))
        log = ops.log(ops.select(x <= 0, 1, x))
        return dx, ops.select(x <= 0, 0, dout * log * out)

    return bprop


@bprop_getters.register(ops.Sqrt)
def get_bprop_sqrt(self: ops.Sqrt) -> Bprop:
    return lambda x, out, dout: (dout / (out * 2),)


@bprop_getters.register(ops.Rsqrt)
def get_bprop_rsqrt(self: ops.Rsqrt) -> Bprop:
    return lambda x, out, dout: (dout * (out * -0.5) / x,)


@bprop_getters.register(ops.Exp)
def get_bprop_exp(self: ops.Exp) -> Bprop:
    return lambda x, out, dout: (dout * out,)


@bprop_getters.register(ops.Expm1)
def get_bprop_expm1(self: ops.Expm1) -> Bprop:
    return lambda x, out, dout: (dout * ops.exp(x),)


@bprop_getters.register(ops.Exp2)
def get_bprop_exp2(self: ops.Exp2) -> Bprop:
    return lambda x, out, dout: (dout * math.log(2) * out,)


@bprop_getters.register(ops.Log)
def get_bprop_log(self: ops.Log) -> Bprop:
    return lambda x, out, dout: (dout / x,)


@bprop_getters.register(ops.Log1p)
def get_bprop_log1p(self: ops.Log1p) -> Bprop:
    return lambda x, out, dout: (dout / (x + 1),)


@bprop_getters.register(ops.Log2)
def get_bprop_log2(self: ops.Log2) -> Bprop:
    return lambda x, out, dout: (dout / x * (1 / math.log(2)),)
