"""Gradients of powers, roots, exponentials and logarithms."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from .formulas import formulas, rule


@rule(ops.Pow)
def pow_bprop(self: ops.Pow, x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    # x to the 0 is constant in x, but y * x^(y - 1) is 0 * inf where 1 / x is not finite.
    constant = ops.logical_and(y == 0, ops.logical_not(ops.isfinite(1 / x)))
    dx = dout * (y * ops.pow(ops.select(constant, 1, x), y - 1))
    log = ops.log(ops.select(x <= 0, 1, x))
    return dx, ops.select(x <= 0, 0, dout * log * out)


@rule(ops.Polygamma)
def polygamma_bprop(self: ops.Polygamma, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (dout * ops.polygamma(self.n + 1, x),)


formulas(
    {
        ops.Sqrt: lambda x, out, dout: (dout / (out * 2),),
        ops.Rsqrt: lambda x, out, dout: (dout * (out * -0.5) / x,),
        ops.Exp: lambda x, out, dout: (dout * out,),
        ops.Expm1: lambda x, out, dout: (dout * ops.exp(x),),
        ops.Exp2: lambda x, out, dout: (dout * math.log(2) * out,),
        ops.Log: lambda x, out, dout: (dout / x,),
        ops.Log1p: lambda x, out, dout: (dout / (x + 1),),
        ops.Log2: lambda x, out, dout: (dout / x * (1 / math.log(2)),),
        ops.LGamma: lambda x, out, dout: (dout * ops.digamma(x),),
        ops.Log10: lambda x, out, dout: (dout * (1 / math.log(10)) / x,),
    }
)
