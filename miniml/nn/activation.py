"""Activations as layers: each applies the function of `ops` named beside it."""

from __future__ import annotations

from typing import Any, Literal

from .. import ops
from ..core.options import counts, number
from ..graph.tracing import as_tensor
from . import init
from .cell import Cell
from .layer import FunctionCell, beside, refuse_shape, shape_of

__all__ = [
    "CELU", "ELU", "GELU", "HardSigmoid", "HardSwish", "HardTanh", "Identity", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid",
    "Softmax", "Softplus", "Softsign", "Tanh",
]  # fmt: skip


class Identity(Cell):
    """x itself, of any shape: a layer that does nothing."""

    def construct(self, x: Any) -> Any:
        return as_tensor(x)


class Activation(FunctionCell):
    """Base of layers that are a function of one tensor."""

    def construct(self, x: Any) -> Any:
        return self.function(x)


class ReLU(Activation, of=ops.relu):
    """max(x, 0)."""


class ReLU6(Activation, of=ops.relu6):
    """min(max(x, 0), 6)."""


class LeakyReLU(Activation, of=ops.leaky_relu):
    """x where x > 0, slope * x elsewhere."""

    slope: float = 0.01


class ELU(Activation, of=ops.elu):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""

    alpha: float = 1.0


class CELU(Activation, of=ops.celu):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0


class SELU(Activation, of=ops.selu):
    """s * elu(x, a), of which mean 0 and variance 1 are a fixed point."""


class GELU(Activation, of=ops.gelu):
    """x Phi(x), where Phi is the standard normal distribution function: `ops.gelu`.

    approximate: "none", or "tanh" for x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    Source: Hendrycks, Gimpel 2016, "Gaussian error linear units".
    """

    approximate: Literal["none", "tanh"] = "none"


class SiLU(Activation, of=ops.silu):
    """x * sigmoid(x), also called swish."""


class Mish(Activation, of=ops.mish):
    """x * tanh(log(1 + exp(x)))."""


class Sigmoid(Activation, of=ops.sigmoid):
    """1 / (1 + exp(-x))."""


class LogSigmoid(Activation, of=ops.log_sigmoid):
    """-log(1 + exp(-x))."""


class HardSigmoid(Activation, of=ops.hard_sigmoid):
    """min(max(slope * x + offset, 0), 1)."""

    slope: float = 1 / 6
    offset: float = 0.5


class HardSwish(Activation, of=ops.hard_swish):
    """x * hard_sigmoid(x)."""


class Tanh(Activation, of=ops.tanh):
    """The hyperbolic tangent."""


class HardTanh(Activation, of=ops.hard_tanh):
    """x kept within [min, max]."""

    min: float = -1.0
    max: float = 1.0


class Softplus(Activation, of=ops.softplus):
    """log(1 + exp(x))."""


class Softsign(Activation, of=ops.softsign):
    """x / (1 + |x|)."""


class Softmax(Activation, of=ops.softmax):
    """exp(x) / sum(exp(x)) along `axis`."""

    axis: int = -1


class LogSoftmax(Activation, of=ops.log_softmax):
    """x - log(sum(exp(x))) along `axis`."""

    axis: int = -1


class PReLU(Cell):
    """x where x > 0, weight * x elsewhere, with a learnt weight of shape (num_parameters,).

    One weight serves all; or there is one for each channel of x (N, num_parameters, ...). They
    start with `slope`. Source: He, Zhang, Ren, Sun 2015, "Delving deep into rectifiers".
    """

    _shown = ()

    def __init__(self, num_parameters: int = 1, slope: float = 0.25):
        (num_parameters,) = counts("PReLU", num_parameters=num_parameters)
        self.num_parameters = num_parameters
        self.weight = init.constant((num_parameters,), number("PReLU", "slope", slope))

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        x = beside(self.weight, x)
        if self.num_parameters == 1:
            return ops.prelu(x, ops.reshape(self.weight, ()))
        if len(shape) < 2 or shape[1] != self.num_parameters:
            refuse_shape(self, shape, f"(N, {self.num_parameters}, ...)")
        return ops.prelu(x, ops.reshape(self.weight, (-1, *(1,) * (len(shape) - 2))))
