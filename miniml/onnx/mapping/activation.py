"""Activations of neurons."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...dtype import float32
from ..operators import register_all, register_operator

register_all((1, None), {"Softplus": ops.softplus, "Softsign": ops.softsign})
register_all((6, None), {"Relu": ops.relu, "Sigmoid": ops.sigmoid})
register_all((9, None), {"Erf": ops.erf, "PRelu": ops.prelu})
register_all((14, None), {"HardSwish": ops.hard_swish})
register_all((18, None), {"Mish": ops.mish})


@register_operator("", "LeakyRelu", (6, None))
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return ops.leaky_relu(x, alpha)


@register_operator("", "PRelu", (6, 8))
def prelu_by_channel(x: Any, slope: Any) -> Any:
    """slope has one number, or one for each channel, axis 1."""
    behind = (1,) * (len(x.shape) - 2)
    return ops.prelu(x, ops.reshape(slope, (-1, *behind)) if len(slope.shape) == 1 else slope)


@register_operator("", "Elu", (6, None))
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.elu(x, alpha)


@register_operator("", "Celu", (12, None))
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.celu(x, alpha)


@register_operator("", "Selu", (6, None))
def selu(x: Any, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Any:
    return ops.mul(ops.elu(x, alpha), gamma)


@register_operator("", "HardSigmoid", (6, None))
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return ops.hard_sigmoid(x, alpha, beta)


@register_operator("", "Gelu", (20, None))
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return ops.gelu(x, approximate)


@register_operator("", "Swish", (24, None))
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.mul(x, ops.sigmoid(ops.mul(x, alpha)))


@register_operator("", "SwiGLU", (28, None))
def swiglu(x: Any, gate: Any, *, alpha: float = 1.0) -> Any:
    wide = [ops.cast(v, float32) for v in (x, gate)]
    return ops.cast(ops.mul(swish(wide[0], alpha=alpha), wide[1]), x.dtype)


@register_operator("", "ThresholdedRelu", (10, None))
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.where(ops.greater(x, alpha), x, ops.zeros_like(x))


@register_operator("", "Shrink", (9, None))
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    below = ops.where(ops.less(x, -lambd), ops.add(x, bias), ops.zeros_like(x))
    return ops.where(ops.greater(x, lambd), ops.sub(x, bias), below)
