"""Layers without parameters that work element by element."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..graph.tracer import as_tensor
from .arguments import choice, number
from .cell import Cell, differing


class Identity(Cell):
    """x itself, where a layer is needed and nothing is to be done."""

    def construct(self, x: Any) -> Any:
        return as_tensor(x)


class ReLU(Cell):
    """max(x, 0)."""

    def construct(self, x: Any) -> Any:
        return ops.relu(x)


class LeakyReLU(Cell):
    """x where x > 0, slope * x elsewhere."""

    _shown = "{0.slope}"

    def __init__(self, slope: float = 0.01):
        self.slope = number("LeakyReLU", "slope", slope)

    def construct(self, x: Any) -> Any:
        return ops.leaky_relu(x, self.slope)


class GELU(Cell):
    """x Phi(x), where Phi is the standard normal distribution function: `ops.gelu`.

    approximate: "none", or "tanh" for x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    Source: Hendrycks, Gimpel 2016, "Gaussian error linear units".
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = choice("GELU", "approximate", approximate, ("none", "tanh"))

    def construct(self, x: Any) -> Any:
        return ops.gelu(x, self.approximate)

    def describe(self) -> str:
        """The constructor call, without defaults."""
        return differing(self, {"approximate": "none"})


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def construct(self, x: Any) -> Any:
        return ops.sigmoid(x)


class Tanh(Cell):
    """The hyperbolic tangent."""

    def construct(self, x: Any) -> Any:
        return ops.tanh(x)
