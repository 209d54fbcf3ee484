"""Gradients of arithmetic, powers, exponentials and their kin. The engine undoes broadcasting."""

from __future__ import annotations

import math
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


@bprop_getters.register(ops.Pow)
def get_bprop_pow(self: ops.Pow) -> Bprop:
    def bprop(x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
        # x to the 0 is constant in x, but y * x^(y - 1) is 0 * inf where 1 / x is not finite.
        constant = ops.logical_and(y == 0, ops.logical_not(ops.isfinite(1 / x)))
        dx = dout * (y * ops.pow(ops.select(constant, 1, x), y - 1))
        log = ops.log(ops.select(x <= 0, 1, x))
        return dx, ops.select(x <= 0, 0, dout * log * out)

    return bprop


@bprop_getters.register(ops.Atan2)
def get_bprop_atan2(self: ops.Atan2) -> Bprop:
    def bprop(x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
        # By the ratio of the smaller to the larger: the squares of x and y may leave the range.
        steep = ops.abs(x) > ops.abs(y)
        larger = ops.select(steep, x, y)
        ratio = ops.select(steep, y, x) / larger
        whole = dout / (ops.square(ratio) + 1)
        part = whole * ratio
        dx, dy = ops.select(steep, part, whole), ops.select(steep, whole, part)
        return dx / larger, -(dy / larger)

    return bprop


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


@bprop_getters.register(ops.Sqrt)
def get_bprop_sqrt(self: ops.Sqrt) -> Bprop:
    return lambda x, out, dout: (dout / (out * 2),)


@bprop_getters.register(ops.Rsqrt)
def get_bprop_rsqrt(self: ops.Rsqrt) -> Bprop:
    return lambda x, out, dout: (dout * (out * -0.5) / x,)


@bprop_getters.register(ops.Reciprocal)
def get_bprop_reciprocal(self: ops.Reciprocal) -> Bprop:
    return lambda x, out, dout: (-(dout * out * out),)


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


@bprop_getters.register(ops.Sin)
def get_bprop_sin(self: ops.Sin) -> Bprop:
    return lambda x, out, dout: (dout * ops.cos(x),)


@bprop_getters.register(ops.Cos)
def get_bprop_cos(self: ops.Cos) -> Bprop:
    return lambda x, out, dout: (-dout * ops.sin(x),)


@bprop_getters.register(ops.Tan)
def get_bprop_tan(self: ops.Tan) -> Bprop:
    return lambda x, out, dout: (dout * out * out + dout,)


@bprop_getters.register(ops.Asin)
def get_bprop_asin(self: ops.Asin) -> Bprop:
    return lambda x, out, dout: (dout * ops.rsqrt((1 - x) * (1 + x)),)


@bprop_getters.register(ops.Acos)
def get_bprop_acos(self: ops.Acos) -> Bprop:
    return lambda x, out, dout: (-dout * ops.rsqrt((1 - x) * (1 + x)),)


@bprop_getters.register(ops.Atan)
def get_bprop_atan(self: ops.Atan) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        near, far = _near_and_far(x)
        return (dout * far / (ops.square(near) + ops.square(far)) * far,)

    return bprop


def _near_and_far(x: Any) -> tuple[Any, Any]:
    """(|x|, 1) up to 1 and (1, 1 / |x|) above: 1 / (1 + x^2) is far^2 / (near^2 + far^2)."""
    size = ops.abs(x)
    return ops.minimum(size, 1), 1 / ops.maximum(size, 1)


@bprop_getters.register(ops.Sinh)
def get_bprop_sinh(self: ops.Sinh) -> Bprop:
    return lambda x, out, dout: (dout * ops.cosh(x),)


@bprop_getters.register(ops.Cosh)
def get_bprop_cosh(self: ops.Cosh) -> Bprop:
    return lambda x, out, dout: (dout * ops.sinh(x),)


@bprop_getters.register(ops.Tanh)
def get_bprop_tanh(self: ops.Tanh) -> Bprop:
    return lambda x, out, dout: (dout * (1 - ops.square(out)),)


@bprop_getters.register(ops.Asinh)
def get_bprop_asinh(self: ops.Asinh) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        near, far = _near_and_far(x)
        return (dout * (far * ops.rsqrt(ops.square(near) + ops.square(far))),)

    return bprop


@bprop_getters.register(ops.Acosh)
def get_bprop_acosh(self: ops.Acosh) -> Bprop:
    return lambda x, out, dout: (dout * ops.rsqrt(x + 1) * ops.rsqrt(x - 1),)


@bprop_getters.register(ops.Atanh)
def get_bprop_atanh(self: ops.Atanh) -> Bprop:
    return lambda x, out, dout: (dout / ((1 - x) * (1 + x)),)
