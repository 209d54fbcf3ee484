"""Gradients of arithmetic, rounding, bounds and casts. The engine undoes broadcasting."""

from __future__ import annotations

from typing import Any

from ... import ops
from .formulas import formulas, rule


@rule(ops.Cast)
def cast_bprop(self: ops.Cast, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (None if dout is None else ops.cast(dout, x.dtype),)


formulas(
    {
        ops.Add: lambda x, y, out, dout: (dout, dout),
        ops.Sub: lambda x, y, out, dout: (dout, -dout),
        ops.Mul: lambda x, y, out, dout: (dout * y, dout * x),
        ops.Mod: lambda x, y, out, dout: (dout, -(dout * ops.floor_div(x, y))),
        ops.Maximum: lambda x, y, out, dout: _shared(x > y, x < y, dout),
        ops.Minimum: lambda x, y, out, dout: _shared(x < y, x > y, dout),
        ops.Neg: lambda x, out, dout: (-dout,),
        ops.Abs: lambda x, out, dout: (dout * ops.sign(x),),
        ops.Square: lambda x, out, dout: (dout * x * 2,),
        ops.Reciprocal: lambda x, out, dout: (-(dout * out * out),),
    }
)


@rule(ops.Div)
def div_bprop(self: ops.Div, x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    dx = dout / y
    # Where 1 / y leaves the range, x / y^2 may be in it: at x = 0 for one.
    return dx, -ops.select(ops.isfinite(dx), dx * out, dout * out / y)


def _shared(first: Any, second: Any, dout: Any) -> tuple[Any, Any]:
    """dout to the first where it was taken, to the second where that was, half to both at ties."""
    half = dout * 0.5
    dx = ops.select(first, dout, ops.select(second, 0, half))
    return dx, ops.select(second, dout, ops.select(first, 0, half))


@rule(ops.Clip)
def clip_bprop(self: ops.Clip, x: Any, out: Any, dout: Any) -> tuple[Any]:
    # Inside, bounds included, clip returned x itself; it never does so outside or for NaN.
    return (ops.select(x == out, dout, 0),)
