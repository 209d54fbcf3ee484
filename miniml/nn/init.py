"""Initialisers: each fills a Parameter with new values, or makes one of a given shape.

`init.xavier_uniform(net[0].weight)` overwrites the weight, which keeps its dtype and device, and
returns it; `init.xavier_uniform((3, 4))` gives a new float32 Parameter. Draws are the default
generator's. For all layers of a kind: `net.apply(lambda cell: ...)`.

fan_in and fan_out, the numbers that each output sums and that each input reaches, are those of the
library's weights: of (in, out), as in a Dense, in and out; of (out, in, *window), as in a
convolution, in * prod(window) and out * prod(window). Weights of other layouts, as the (out, in) of
an LSTM, need them as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from ..core import hints
from ..core.abstract import Shape
from ..core.errors import AttributeRefusedError, ShapeError
from ..core.parameter import Parameter
from ..core.tensor import Array

Target = Parameter | Shape


def constant(target: Target, value: float, requires_grad: bool = True) -> Parameter:
    """All elements equal `value`. requires_grad: of a new Parameter."""
    return _filled(target, lambda shape: ops.full(shape, value, float), requires_grad)


def zeros(target: Target) -> Parameter:
    """All elements 0."""
    return constant(target, 0.0)


def ones(target: Target) -> Parameter:
    """All elements 1."""
    return constant(target, 1.0)


def uniform(target: Target, low: float = 0.0, high: float = 1.0) -> Parameter:
    """Numbers uniform in [low, high)."""
    return _filled(target, lambda shape: ops.uniform(shape, low, high))


def symmetric_uniform(target: Target, bound: float) -> Parameter:
    """Numbers uniform in [-bound, bound)."""
    return uniform(target, -bound, bound)


def normal(target: Target, std: float = 1.0, *, mean: float = 0.0) -> Parameter:
    """Numbers, normal with this mean and standard deviation."""
    return _filled(target, lambda shape: ops.normal(shape, mean, std))


def truncated_normal(target: Target, std: float = 1.0, *, mean: float = 0.0) -> Parameter:
    """mean + std * z, for z standard normal given that |z| <= 2; its own deviation is 0.88 std.

    Source: the bounds are those of Keras's TruncatedNormal."""

    def draw(shape: Shape) -> Array:
        z = ops.normal(shape).asnumpy()
        while (outside := np.abs(z) > 2.0).any():
            z = np.where(outside, ops.normal(shape).asnumpy(), z)
        return mean + std * z

    return _filled(target, draw)


def xavier_uniform(
    target: Target, fan_in: int | None = None, fan_out: int | None = None, gain: float = 1.0
) -> Parameter:
    """Numbers uniform in +-gain * sqrt(6 / (fan_in + fan_out)): for tanh and sigmoid.

    Source: Glorot, Bengio 2010, "Understanding the difficulty of training deep networks".
    """
    return symmetric_uniform(target, math.sqrt(3.0) * _xavier(target, fan_in, fan_out, gain))


def xavier_normal(
    target: Target, fan_in: int | None = None, fan_out: int | None = None, gain: float = 1.0
) -> Parameter:
    """Numbers, normal with variance gain^2 * 2 / (fan_in + fan_out), as `xavier_uniform` has."""
    return normal(target, _xavier(target, fan_in, fan_out, gain))


def kaiming_uniform(
    target: Target, fan_in: int | None = None, gain: float = math.sqrt(2.0)
) -> Parameter:
    """Numbers uniform in +-gain * sqrt(3 / fan_in), which has variance gain^2 / fan_in.

    A layer with such weights and a relu after it (gain sqrt(2)) keeps the scale of its input; with
    the fan out in place of the fan in, that of its gradient. For leaky_relu with slope a the gain
    is sqrt(2 / (1 + a^2)). Source: He, Zhang, Ren, Sun 2015, "Delving deep into rectifiers".
    """
    return symmetric_uniform(target, math.sqrt(3.0) * _kaiming(target, fan_in, gain))


def kaiming_normal(
    target: Target, fan_in: int | None = None, gain: float = math.sqrt(2.0)
) -> Parameter:
    """Numbers, normal with variance gain^2 / fan_in, as `kaiming_uniform` has."""
    return normal(target, _kaiming(target, fan_in, gain))


def lecun_uniform(target: Target, fan_in: int | None = None) -> Parameter:
    """Numbers uniform in +-sqrt(3 / fan_in), which has variance 1 / fan_in: for selu.

    Source: LeCun, Bottou, Orr, Müller 1998, "Efficient backprop".
    """
    return kaiming_uniform(target, fan_in, 1.0)


def lecun_normal(target: Target, fan_in: int | None = None) -> Parameter:
    """Numbers, normal with variance 1 / fan_in, as `lecun_uniform` has."""
    return kaiming_normal(target, fan_in, 1.0)


def orthogonal(target: Target, gain: float = 1.0) -> Parameter:
    """gain * Q, a random matrix whose rows are orthonormal, or its columns where there are more
    rows: the first axis of the shape by all others.

    Q is the factor of the QR decomposition of a matrix of normal draws, with the signs that make
    it uniform among all. ShapeError for fewer than two axes.
    Source: Saxe, McClelland, Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning".
    """

    def draw(shape: Shape) -> Array:
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = ops.normal((max(rows, columns), min(rows, columns))).asnumpy()
        q, r = np.linalg.qr(drawn.astype(np.float64))
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        return gain * (q if rows >= columns else q.T).reshape(shape)

    _axes(target)
    return _filled(target, draw)


def _filled(target: Target, draw: Callable[[Shape], Any], requires_grad: bool = True) -> Parameter:
    """The Parameter with values drawn for its shape; a new one for a shape."""
    if isinstance(target, Parameter):
        target.set_data(np.asarray(draw(target.shape)).astype(target.dtype))
        return target
    if not isinstance(target, (tuple, list)):
        raise AttributeRefusedError(
            f"an initialiser got {type(target).__name__}; expected a Parameter, such as "
            "net[0].weight, or a shape"
        )
    drawn = draw(tuple(target))
    value = drawn.astype(np.float32) if isinstance(drawn, np.ndarray) else drawn
    return Parameter(value, requires_grad=requires_grad)


def _xavier(target: Target, fan_in: int | None, fan_out: int | None, gain: float) -> float:
    """The standard deviation."""
    if fan_in is None or fan_out is None:
        known = _fans(target)
        fan_in, fan_out = fan_in or known[0], fan_out or known[1]
    return gain * math.sqrt(2.0 / max(fan_in + fan_out, 1))


def _kaiming(target: Target, fan_in: int | None, gain: float) -> float:
    """The standard deviation."""
    return gain / math.sqrt(max(_fans(target)[0] if fan_in is None else fan_in, 1))


def _fans(target: Target) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight of the library."""
    first, second, *window = _axes(target)
    fans = (first, second) if not window else (second, first)
    return fans[0] * math.prod(window), fans[1] * math.prod(window)


def _axes(target: Target) -> Shape:
    """The shape; ShapeError unless it has two axes or more."""
    shape = target.shape if isinstance(target, Parameter) else tuple(target)
    if len(shape) < 2:
        raise ShapeError(
            f"nn.init got shape {shape} for a weight that needs two axes or more; a bias takes "
            "nn.init.zeros"
        )
    return shape


__all__, __dir__, __getattr__ = hints.names(
    {n: v for n, v in list(globals().items()) if getattr(v, "__module__", "") == __name__}
    | {"__name__": __name__}
)
