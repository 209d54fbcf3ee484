"""First values of parameters, drawn from the default generator."""

from __future__ import annotations

import math

from .. import ops
from ..abstract import Shape
from ..parameter import Parameter


def kaiming_uniform(shape: Shape, fan_in: int, gain: float = math.sqrt(2.0)) -> Parameter:
    """Uniform in +-gain * sqrt(3 / fan_in), which has variance gain^2 / fan_in.

    A layer with such weights and a relu after it (gain sqrt(2)) keeps the scale of its input.
    Source: He, Zhang, Ren, Sun 2015, "Delving deep into rectifiers".
    """
    return symmetric_uniform(shape, gain * math.sqrt(3.0 / fan_in))


def xavier_uniform(shape: Shape, fan_in: int, fan_out: int, gain: float = 1.0) -> Parameter:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)): for tanh and sigmoid.

    Source: Glorot, Bengio 2010, "Understanding the difficulty of training deep networks".
    """
    return symmetric_uniform(shape, gain * math.sqrt(6.0 / (fan_in + fan_out)))


def symmetric_uniform(shape: Shape, bound: float) -> Parameter:
    """A float32 parameter, uniform in [-bound, bound)."""
    return Parameter(ops.uniform(shape, -bound, bound))


def normal(shape: Shape, std: float) -> Parameter:
    """A float32 parameter, normal with mean 0 and standard deviation `std`."""
    return Parameter(ops.normal(shape, 0.0, std))


def constant(shape: Shape, value: float, requires_grad: bool = True) -> Parameter:
    """A float32 parameter, all elements equal."""
    return Parameter(ops.full(shape, value, float), requires_grad=requires_grad)
