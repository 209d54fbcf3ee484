"""Activations of neurons, element by element, and the error function they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import DType
from ..errors import AttributeRefusedError
from .inference.bases import FloatBinary, FloatUnary, NumberUnary

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Erf", "Erfc", "Sigmoid", "Softplus", "SiLU", "ReLU", "ReLUGrad", "LeakyReLU",
    "LeakyReLUGrad", "ELU", "GELU",
    "erf", "erfc", "sigmoid", "softplus", "silu", "relu", "relu_grad", "leaky_relu", "elu", "gelu",
]  # fmt: skip


class Erf(FloatUnary):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) over [0, x]."""


class Erfc(FloatUnary):
    """1 - erf(x), accurate where erf(x) is near 1."""


class Sigmoid(FloatUnary):
    """1 / (1 + exp(-x)), accurate at both ends."""


class Softplus(FloatUnary):
    """log(1 + exp(x)), without overflow."""


class SiLU(FloatUnary):
    """x * sigmoid(x), also called swish (Elfwing, Uchibe, Doya 2017)."""


class ReLU(NumberUnary):
    """max(x, 0); NaN stays NaN. Its gradient at 0 is 0."""


class ReLUGrad(FloatBinary):
    """dout where x > 0 and 0 elsewhere, also where dout is infinite or NaN.

    The gradient of ReLU, as a primitive because training spends much of its time in it. x may be
    ReLU's input or its output. It is linear in dout; no gradient passes to x.
    """

    inputs = ("x", "dout")


class LeakyReLU(FloatUnary):
    """x where x > 0, slope * x elsewhere."""

    slope: float = 0.01


class LeakyReLUGrad(FloatBinary):
    """dout where x > 0, slope * dout elsewhere: the gradient of LeakyReLU, linear in dout."""

    slope: float = 0.01
    inputs = ("x", "dout")


class ELU(FloatUnary):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere (Clevert, Unterthiner, Hochreiter 2015)."""

    alpha: float = 1.0


class GELU(FloatUnary):
    """x * Phi(x) with the normal distribution's Phi (Hendrycks, Gimpel 2016).

    approximate=True: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
    """

    approximate: bool = False

    def infer_dtype(self, x: DType) -> DType:
        if not isinstance(self.approximate, bool):
            raise AttributeRefusedError(
                f"GELU got approximate={self.approximate!r}; the class takes True or False, "
                "ops.gelu also 'tanh' or 'none'"
            )
        return x


# fmt: off
erf, erfc, sigmoid, softplus, silu = Erf(), Erfc(), Sigmoid(), Softplus(), SiLU()
relu, relu_grad = ReLU(), ReLUGrad()
# fmt: on


def leaky_relu(x: Any, slope: float = 0.01) -> Tensor:
    """x where x > 0, slope * x elsewhere."""
    return LeakyReLU(slope)(x)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""
    return ELU(alpha)(x)


def gelu(x: Any, approximate: bool | str = False) -> Tensor:
    """x * Phi(x) by the error function, or by its tanh approximation with "tanh" or True.

    AttributeRefusedError for any other word than "tanh" and "none".
    """
    known = {"none": False, "tanh": True}
    word: Any = known.get(approximate, approximate) if isinstance(approximate, str) else approximate
    return GELU(word)(x)
