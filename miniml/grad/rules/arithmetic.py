"""Gradients of arithmetic, rounding, bounds and casts. The engine undoes broadcasting."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.Cast)
def get_bprop_cast(self: ops.Cast) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        return (None if dout is None else ops.cast(dout, x.dtype),)

    return bprop


@bprop_getters.register(ops.Add)
def get_bprop_add(self: ops.Add) -> Bprop:
    return lambda x, y, out, dout: (dout, dout)


@bprop_getters.register(ops.Sub)
def get_bprop_sub(self: ops.Sub) -> Bprop:
    return lambda x, y, out, dout: (dout, -dout)


@bprop_getters.register(ops.Mul)
def get_bprop_mul(self: ops.Mul) -> Bprop:
    return lambda x, y, out, dout: (dout * y, dout * x)


@bprop_getters.register(ops.Div)
def get_bprop_div(self: ops.Div) -> Bprop:
    def bprop(x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
        dx = dout / y
        # Where 1 / y leaves the range, x / y^2 may be in it: at x = 0 for one.
        return dx, -ops.select(ops.isfinite(dx), dx * out, dout * out / y)

    return bprop


@bprop_getters.register(ops.Mod)
def get_bprop_mod(self: ops.Mod) -> Bprop:
    return lambda x, y, out, dout: (dout, -(dout * ops.floor_div(x, y)))


@bprop_getters.register(ops.Maximum)
def get_bprop_maximum(self: ops.Maximum) -> Bprop:
    return lambda x, y, out, dout: _shared(x > y, x < y, dout)


@bprop_getters.register(ops.Minimum)
def get_bprop_minimum(self: ops.Minimum) -> Bprop:
    return lambda x, y, out, dout: _shared(x < y, x > y, dout)


def _shared(first: Any, second: Any, dout: Any) -> tuple[Any, Any]:
    """dout to the first where it was taken, to the second where that was, half to both at ties."""
    half = dout * 0.5
    dx = ops.select(first, dout, ops.select(second, 0, half))
    return dx, ops.select(second, dout, ops.select(first, 0, half))


@bprop_getters.register(ops.Neg)
def get_bprop_neg(self: ops.Neg) -> Bprop:
    return lambda x, out, dout: (-dout,)


@bprop_getters.register(ops.Abs)
def get_bprop_abs(self: ops.Abs) -> Bprop:
    return lambda x, out, dout: (dout * ops.sign(x),)


@bprop_getters.register(ops.Square)
def get_bprop_square(self: ops.Square) -> Bprop:
    return lambda x, out, dout: (dout * x * 2,)


@bprop_getters.register(ops.Clip)
def get_bprop_clip(self: ops.Clip) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        # Inside, bounds included, clip returned x itself; it never does so outside or for NaN.
        return (ops.select(x == out, dout, 0),)

    return bprop


@bprop_getters.register(ops.Reciprocal)
def get_bprop_reciprocal(self: ops.Reciprocal) -> Bprop:
    return lambda x, out, dout: (-(dout * out * out),)
