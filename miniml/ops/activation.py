"""Activations of neurons, element by element, and the error function they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import DType, float16
from ..errors import AttributeRefusedError, ShapeError
from .arithmetic import abs, add, as_float, clip, div, minimum, mul, neg
from .compare import greater, select
from .inference.bases import FloatBinary, FloatUnary, NumberUnary
from .inference.devices import on_one_device
from .inference.shapes import dtype_of, shape_of
from .shape import broadcasts_to
from .trigonometric import tanh

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Erf", "Erfc", "ErfInv", "Sigmoid", "Softplus", "SiLU", "ReLU", "ReLUGrad", "LeakyReLU",
    "LeakyReLUGrad", "ELU", "GELU",
    "erf", "erfc", "erfinv", "sigmoid", "softplus", "silu", "relu", "relu_grad", "leaky_relu",
    "elu", "gelu", "celu", "hard_sigmoid", "hard_swish", "hard_tanh", "log_sigmoid", "mish",
    "prelu", "relu6", "selu", "softsign",
]  # fmt: skip


class Erf(FloatUnary):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) over [0, x]."""


class Erfc(FloatUnary):
    """1 - erf(x), accurate where erf(x) is near 1."""


class ErfInv(FloatUnary):
    """The y with erf(y) = x: infinite at -1 and 1, NaN beyond."""


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
erf, erfc, erfinv = Erf(), Erfc(), ErfInv()
sigmoid, softplus, silu = Sigmoid(), Softplus(), SiLU()
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


def log_sigmoid(x: Any) -> Tensor:
    """log(sigmoid(x)) = -log(1 + exp(-x)), accurate at both ends.

    >>> log_sigmoid([-1000.0, 1000.0]).tolist()
    [-1000.0, -0.0]
    """
    return neg(softplus(neg(as_float(x))))


def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6); the gradient is 0 at 0 and 1/2 at 6. Integers stay integers."""
    return minimum(relu(x), 6)


def hard_tanh(x: Any, min: Any = -1.0, max: Any = 1.0) -> Tensor:
    """x kept within [min, max], floats; the gradient is 1 at both ends of that range."""
    return clip(as_float(x), min, max)


def hard_sigmoid(x: Any, slope: float = 1 / 6, offset: float = 0.5) -> Tensor:
    """min(max(slope * x + offset, 0), 1); where it bends the gradient is `slope`.

    The defaults bend at -3 and 3, as in PyTorch; the ONNX operator's default slope is 0.2.
    """
    return clip(add(mul(as_float(x), slope), offset), 0.0, 1.0)


def hard_swish(x: Any) -> Tensor:
    """x * hard_sigmoid(x): 0 up to -3, x from 3 on (Howard et al. 2019, "MobileNetV3").

    The gradient is -1/2 at -3 and 3/2 at 3.
    """
    v = as_float(x)
    return mul(clip(v, -3.0), hard_sigmoid(v))  # -inf * 0 would be NaN


def mish(x: Any) -> Tensor:
    """x * tanh(log(1 + exp(x))) (Misra 2019); 0 at -inf."""
    v = as_float(x)
    return mul(clip(v, -1000.0), tanh(softplus(v)))  # where exp(x) is 0 in all dtypes


def softsign(x: Any) -> Tensor:
    """x / (1 + |x|), between -1 and 1, which it reaches at the infinities.

    >>> softsign([-float("inf"), 3.0]).tolist()
    [-1.0, 0.75]
    """
    v = as_float(x)
    top = 2.0**15 if dtype_of(v) == float16 else 2.0**64  # from where on it is 1 to rounding
    v = clip(v, -top, top)
    return div(v, add(abs(v), 1.0))


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017), with the gradient 1 at 0.

    AttributeRefusedError for an alpha that is not above 0.
    """
    if not alpha > 0:
        raise AttributeRefusedError(f"celu got alpha={alpha!r}; it divides by it: give one above 0")
    v = as_float(x)
    return select(greater(v, 0), v, mul(elu(div(v, alpha)), alpha))


def selu(x: Any) -> Tensor:
    """s * elu(x, a) with s = 1.0507009873554805 and a = 1.6732632423543772.

    Mean 0 and variance 1 are a fixed point of it; the gradient at 0 is s a.
    Source: Klambauer, Unterthiner, Mayr, Hochreiter 2017, "Self-normalizing neural networks".
    """
    return mul(elu(x, 1.6732632423543772), 1.0507009873554805)


@on_one_device
def prelu(x: Any, slope: Any) -> Tensor:
    """x where x > 0, slope * x elsewhere, with a learnt `slope`, which is the gradient at 0.

    slope broadcasts to x's shape, ShapeError if not: for one number per channel of images
    (N, C, H, W) it has shape (C, 1, 1).
    """
    if not broadcasts_to(shape_of(slope), shape_of(x)):
        raise ShapeError(
            f"prelu got x of shape {shape_of(x)} and slope of {shape_of(slope)}, which does not "
            "broadcast to it; one slope per channel of images has shape (C, 1, 1)"
        )
    return select(greater(x, 0), x, mul(slope, clip(x, None, 0)))  # of inf none: 0 * inf is NaN
