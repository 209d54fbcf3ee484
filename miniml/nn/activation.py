"""Layers without parameters that work element by element."""

from __future__ import annotations

from typing import Any

from .. import ops
from .cell import Cell


class ReLU(Cell):
    """max(x, 0)."""

    def construct(self, x: Any) -> Any:
        return ops.relu(x)


class LeakyReLU(Cell):
    """x where x > 0, slope * x elsewhere."""

    def __init__(self, slope: float = 0.01):
        self.slope = slope

    def construct(self, x: Any) -> Any:
        return ops.leaky_relu(x, self.slope)

    def describe(self) -> str:
        """LeakyReLU(slope)."""
        return f"LeakyReLU({self.slope})"


class GELU(Cell):
    """x times the normal distribution function of x: `ops.gelu`."""

    def construct(self, x: Any) -> Any:
        return ops.gelu(x)


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def construct(self, x: Any) -> Any:
        return ops.sigmoid(x)


class Tanh(Cell):
    """The hyperbolic tangent."""

    def construct(self, x: Any) -> Any:
        return ops.tanh(x)
