"""Gradient rules of elementwise primitives, and the decorators that register bprops.

`formulas` and `rule` make the getter that a user writes out under `@bprop_getters.register(Class)`.
The backward pass sums gradients to the shapes of inputs that were broadcast. Primitives that are
missing here, such as comparisons, logic and rounding, are not differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ... import ops
from ...core.bprop import Bprop, bprop_getters
from ...core.primitive import Primitive

R = TypeVar("R", bound=Callable[..., Any])


def formulas(rules: Mapping[type[Primitive], Bprop]) -> None:
    """Register the bprop of each primitive; none of them reads an attribute."""
    for primitive, formula in rules.items():
        _register(primitive, formula, lambda _, formula=formula: formula)


def rule(primitive: type[Primitive]) -> Callable[[R], R]:
    """Decorator: register `fn(primitive, *inputs, out, dout)` as the bprop of a primitive."""

    def add(fn: R) -> R:
        _register(primitive, fn, lambda self: partial(fn, self))
        return fn

    return add


def _register(primitive: type[Primitive], written: Callable[..., Any], getter: Any) -> None:
    name, bare = written.__name__, written.__name__ == "<lambda>"
    getter.__qualname__ = f"the formula of {primitive.name}" if bare else name
    getter.__module__ = written.__module__
    getter.__wrapped__ = written  # for inspect and error messages
    bprop_getters.register(primitive)(getter)


# --- Arithmetic, powers, exponentials and selection -----------------------------------------------


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
    # 1 / y may overflow where x / y^2 does not, such as at x = 0.
    return dx, -ops.select(ops.isfinite(dx), dx * out, dout * out / y)


def _shared(first: Any, second: Any, dout: Any) -> tuple[Any, Any]:
    """dout to the input that was selected, half of it to each at ties."""
    half = dout * 0.5
    dx = ops.select(first, dout, ops.select(second, 0, half))
    return dx, ops.select(second, dout, ops.select(first, 0, half))


@rule(ops.Clip)
def clip_bprop(self: ops.Clip, x: Any, out: Any, dout: Any) -> tuple[Any]:
    # Inside, bounds included, clip returned x itself; it never does so outside or for NaN.
    return (ops.select(x == out, dout, 0),)


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


@rule(ops.Select)
def select_bprop(
    self: ops.Select, cond: Any, x: Any, y: Any, out: Any, dout: Any
) -> tuple[None, Any, Any]:
    return None, ops.select(cond, dout, 0), ops.select(cond, 0, dout)


# --- Trigonometric functions ----------------------------------------------------------------------


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


# --- Activations ----------------------------------------------------------------------------------


formulas(
    {
        ops.Erf: lambda x, out, dout: (dout * _bell(x),),
        ops.Erfc: lambda x, out, dout: (-dout * _bell(x),),
        ops.NormalCDF: lambda x, out, dout: (dout * _normal_density(x),),
        ops.ErfInv: lambda x, out, dout: (dout / _bell(out),),
        ops.Sigmoid: lambda x, out, dout: (dout * (out * (1 - out)),),
        ops.Softplus: lambda x, out, dout: (dout * ops.sigmoid(x),),
        ops.ReLU: lambda x, out, dout: (ops.relu_grad(out, dout),),
        ops.ReLUGrad: lambda x, dout, out, ddout: (None, ops.relu_grad(x, ddout)),
    }
)


def _bell(x: Any) -> Any:
    """2 / sqrt(pi) * exp(-x^2), the derivative of erf."""
    return ops.ExpNegSquare()(x) * (2 / math.sqrt(math.pi))


@rule(ops.ExpNegSquare)
def gaussian_bprop(self: ops.ExpNegSquare, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (dout * out * x * (-1.0 if self.halved else -2.0),)


@rule(ops.SiLU)
def silu_bprop(self: ops.SiLU, x: Any, out: Any, dout: Any) -> tuple[Any]:
    s = ops.sigmoid(x)
    return (dout * (s + out * (1 - s)),)


@bprop_getters.register(ops.LeakyReLU)
def get_bprop_leaky_relu(self: ops.LeakyReLU) -> Bprop:
    pull = ops.LeakyReLUGrad(self.slope)
    return lambda x, out, dout: (pull(x, dout),)


@bprop_getters.register(ops.LeakyReLUGrad)
def get_bprop_leaky_relu_grad(self: ops.LeakyReLUGrad) -> Bprop:
    return lambda x, dout, out, ddout: (None, self(x, ddout))


@rule(ops.ELU)
def elu_bprop(self: ops.ELU, x: Any, out: Any, dout: Any) -> tuple[Any]:
    # Not out + alpha, which cancels. Clipped, as the exponential must not overflow above 0.
    slope = ops.exp(ops.clip(x, None, 0.0)) * self.alpha
    return (ops.select(x > 0, dout, dout * slope),)


@bprop_getters.register(ops.GELU)
def get_bprop_gelu(self: ops.GELU) -> Bprop:
    slope = _gelu_tanh_slope if self.approximate else _gelu_slope
    return lambda x, out, dout: (dout * slope(x),)


def _gelu_slope(x: Any) -> Any:
    """Phi(x) + x phi(x), with density phi and distribution function Phi of the normal law."""
    return ops.NormalCDF()(x) + x * _normal_density(x)


def _normal_density(x: Any) -> Any:
    return ops.ExpNegSquare(halved=True)(x) * (1 / math.sqrt(2 * math.pi))


def _gelu_tanh_slope(x: Any) -> Any:
    """The derivative of x * s(v(x)), s the sigmoid and v(x) = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    # From |x| = 30 on it is 0 or 1 in every dtype, where an infinite square would make it NaN.
    scale, square = 2 * math.sqrt(2 / math.pi), ops.clip(ops.square(x), None, 900.0)
    s = ops.sigmoid(x * (square * 0.044715 + 1) * scale)
    dv = (square * (3 * 0.044715) + 1) * scale
    return s + x * (s * (1 - s)) * dv
