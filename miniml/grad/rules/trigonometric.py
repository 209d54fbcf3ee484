"""Gradients of circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

from ... import ops
from .formulas import formulas, rule


@rule(ops.Atan2)
def atan2_bprop(self: ops.Atan2, x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    # By the ratio of the smaller to the larger: the squares of x and y may leave the range.
    steep = ops.abs(x) > ops.abs(y)
    larger = ops.select(steep, x, y)
    ratio = ops.select(steep, y, x) / larger
    whole = dout / (ops.square(ratio) + 1)
    part = whole * ratio
    dx, dy = ops.select(steep, part, whole), ops.select(steep, whole, part)
    return dx / larger, -(dy / larger)


formulas(
    {
        ops.Sin: lambda x, out, dout: (dout * ops.cos(x),),
        ops.Cos: lambda x, out, dout: (-dout * ops.sin(x),),
        ops.Tan: lambda x, out, dout: (dout * out * out + dout,),
        ops.Asin: lambda x, out, dout: (dout * ops.rsqrt((1 - x) * (1 + x)),),
        ops.Acos: lambda x, out, dout: (-dout * ops.rsqrt((1 - x) * (1 + x)),),
        ops.Sinh: lambda x, out, dout: (dout * ops.cosh(x),),
        ops.Cosh: lambda x, out, dout: (dout * ops.sinh(x),),
        ops.Tanh: lambda x, out, dout: (dout * (1 - ops.square(out)),),
        ops.Acosh: lambda x, out, dout: (dout * ops.rsqrt(x + 1) * ops.rsqrt(x - 1),),
        ops.Atanh: lambda x, out, dout: (dout / ((1 - x) * (1 + x)),),
    }
)


@rule(ops.Atan)
def atan_bprop(self: ops.Atan, x: Any, out: Any, dout: Any) -> tuple[Any]:
    near, far = _near_and_far(x)
    return (dout * far / (ops.square(near) + ops.square(far)) * far,)


def _near_and_far(x: Any) -> tuple[Any, Any]:
    """(|x|, 1) up to 1 and (1, 1 / |x|) above: 1 / (1 + x^2) is far^2 / (near^2 + far^2)."""
    size = ops.abs(x)
    return ops.minimum(size, 1), 1 / ops.maximum(size, 1)


@rule(ops.Asinh)
def asinh_bprop(self: ops.Asinh, x: Any, out: Any, dout: Any) -> tuple[Any]:
    near, far = _near_and_far(x)
    return (dout * (far * ops.rsqrt(ops.square(near) + ops.square(far))),)
