"""Gradients of the activations and of the error function."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters
from .formulas import formulas, rule

formulas(
    {
        ops.Erf: lambda x, out, dout: (dout * _bell(x),),
        ops.Erfc: lambda x, out, dout: (-dout * _bell(x),),
        ops.ErfInv: lambda x, out, dout: (dout / _bell(out),),
        ops.Sigmoid: lambda x, out, dout: (dout * (out * (1 - out)),),
        ops.Softplus: lambda x, out, dout: (dout * ops.sigmoid(x),),
        ops.ReLU: lambda x, out, dout: (ops.relu_grad(out, dout),),
        ops.ReLUGrad: lambda x, dout, out, ddout: (None, ops.relu_grad(x, ddout)),
    }
)


def _bell(x: Any) -> Any:
    """2 / sqrt(pi) * exp(-x^2), the derivative of erf."""
    return ops.exp(-ops.square(x)) * (2 / math.sqrt(math.pi))


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
    """Phi(x) + x phi(x), with the density phi and the distribution Phi of the normal law."""
    phi = ops.exp(ops.square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    return ops.erfc(x * -math.sqrt(0.5)) * 0.5 + x * phi


def _gelu_tanh_slope(x: Any) -> Any:
    """The derivative of x * s(v(x)), s the sigmoid and v(x) = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    # From |x| = 30 on it is 0 or 1 in every dtype, where an infinite square would make it NaN.
    scale, square = 2 * math.sqrt(2 / math.pi), ops.clip(ops.square(x), None, 900.0)
    s = ops.sigmoid(x * (square * 0.044715 + 1) * scale)
    dv = (square * (3 * 0.044715) + 1) * scale
    return s + x * (s * (1 - s)) * dv
