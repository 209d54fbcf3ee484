"""NumPy and SciPy kernels of the activations: few passes over the data, few temporaries."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...dtype import from_type_code
from ..kernel import Array, Kernel, KernelNode
from ..typecodes import FLOAT, NUMBER, same
from .registering import register, register_floats

# The least finite float32: x * P(x) has the limit -0 at -inf, where -inf * 0 would give NaN.
_LOWEST = float(np.finfo(np.float32).min)
_ZEROS = {dtype: np.zeros(1 << 18, dtype) for dtype in map(from_type_code, NUMBER)}


def erf(x: Array, *, out: Array) -> None:
    from scipy import special

    special.erf(x, out=out)


def erfc(x: Array, *, out: Array) -> None:
    from scipy import special

    special.erfc(x, out=out)


def erfinv(x: Array, *, out: Array) -> None:
    from scipy import special

    special.erfinv(x, out=out)
    np.copysign(out, x, out=out)  # -0.0 stays


def sigmoid(x: Array, *, out: Array) -> None:
    # exp(-x) overflows to inf below -88 in float32, and 1 / inf is the right 0.
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def softplus(x: Array, *, out: Array) -> None:
    # max(x, 0) + log1p(exp(-|x|)): the exponential never overflows.
    np.absolute(x, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    np.add(out, np.maximum(x, 0), out=out)


def silu(x: Array, *, out: Array) -> None:
    sigmoid(x, out=out)
    np.multiply(out, np.maximum(x, _LOWEST), out=out)


def elu(x: Array, *, alpha: float, out: Array) -> None:
    np.expm1(x, out=out)
    np.multiply(out, alpha, out=out)
    np.copyto(out, x, where=x > 0)


def gelu(x: Array, *, approximate: bool, out: Array) -> None:
    x = np.maximum(x, _LOWEST)
    if approximate:
        gelu_tanh(x, out=out)
        return
    from scipy import special

    special.ndtr(x, out=out)
    np.multiply(out, x, out=out)


def gelu_tanh(x: Array, *, out: Array) -> None:
    # x * sigmoid(2 u) is x / 2 * (1 + tanh(u)) without the cancellation where tanh is near -1.
    np.square(x, out=out)
    np.multiply(out, 0.044715, out=out)
    np.add(out, 1, out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, 2 * math.sqrt(2 / math.pi), out=out)
    sigmoid(out, out=out)
    np.multiply(out, x, out=out)


def leaky_relu(x: Array, *, slope: float, out: Array) -> None:
    if slope == 0:  # not 0 * inf
        np.maximum(x, 0, out=out)
        return
    np.multiply(x, slope, out=out)
    (np.maximum if slope <= 1 else np.minimum)(x, out, out=out)


def leaky_relu_grad(x: Array, dout: Array, *, slope: float, out: Array) -> None:
    np.greater(x, 0, out=out, casting="unsafe")
    if 0 <= slope <= 1:  # the greater is 1 or slope, exactly
        np.maximum(out, slope, out=out)
    else:
        np.multiply(out, 1 - slope, out=out)
        np.add(out, slope, out=out)
    np.multiply(out, dout, out=out)


class ReLUKernel(Kernel):
    """The maximum with zeros of the trailing axes' shape: NumPy's maximum of two float32 arrays is
    three times as fast as that of an array and a number."""

    def prepare(self, node: KernelNode) -> None:
        zeros, shape = _ZEROS[node.inputs[0].dtype], node.inputs[0].shape
        while math.prod(shape) > zeros.size:
            shape = shape[1:]
        if shape != node.inputs[0].shape and math.prod(shape) < 64:  # too short to be repeated
            shape = ()
        zero = zeros[: math.prod(shape)].reshape(shape)
        self.call = lambda x, out: np.maximum(x, zero, out=out)


def relu_grad_of(zero: Array) -> Callable[..., None]:
    """ReLUGrad of one dtype: dout's bits times 0 or 1 as integers, so that 0 * inf stays 0.

    It costs two passes without a branch; np.where on random signs costs ten times as much.
    """
    bits = np.dtype(f"i{zero.itemsize}")

    def relu_grad(x: Array, dout: Array, *, out: Array) -> None:
        picked = out.view(bits)
        np.greater(x, zero, out=picked, casting="unsafe")
        np.multiply(picked, dout.view(bits), out=picked)

    return relu_grad


register("ReLU", ReLUKernel, *same(1, NUMBER), inplace=(0,))
for _code in FLOAT:
    register("ReLUGrad", relu_grad_of(np.zeros((), from_type_code(_code))), f"{_code * 2}->{_code}")
register_floats("Erf", erf)
register_floats("Erfc", erfc)
register_floats("ErfInv", erfinv)
register_floats("Sigmoid", sigmoid)
register_floats("Softplus", softplus)
register_floats("SiLU", silu)
register_floats("ELU", elu)
register_floats("GELU", gelu)
register_floats("LeakyReLU", leaky_relu)
register_floats("LeakyReLUGrad", leaky_relu_grad, "{}{}->{}")
