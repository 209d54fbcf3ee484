"""Perturbed runs: a function run with each of its operations off by a unit, up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtype import DType, float32, is_float
from ...graph.forwarding import ForwardingTrace
from ...ops.arithmetic import Add, Sub
from ...ops.cumulative import CumSum
from ...ops.linalg import Einsum, MatMul
from ...ops.reduce import LogSumExp, Mean, Sum
from ...ops.shape import SumTo
from ...primitive import Primitive
from ...tensor import Tensor
from ...trace import current_trace
from ..tolerance import limits_of, unit_roundoff
from .report import Array

# These round even if the result equals one of the inputs, because the others are too small to
# count.
SUMS = Add, Sub, Sum, SumTo, Mean, CumSum, LogSumExp, MatMul, Einsum
JUMP = 64.0  # roundings that a change may add up, and not be a jump: as in tolerance.spread_of


class Perturbation(NamedTuple):
    """How far a number is off: `relative` to itself, and `least` however small it is.

    own: results in a narrower dtype are off by two of that dtype's units.
    """

    relative: float
    least: float = 0.0
    own: bool = False

    @staticmethod
    def rounding_to(dtype: DType) -> Perturbation:
        """The perturbation of a rounding to the dtype, subnormal numbers included.

        Results too small for a normal float32 may get lost on the way: 1 / (1 + exp(90)) is 0.
        """
        least = max(limits_of(dtype).smallest_subnormal, limits_of(float32).tiny)
        return Perturbation(unit_roundoff(dtype), float(least))

    def of(self, a: Array, rng: np.random.Generator) -> Array:
        """Each number moved up or down; zeros stay, because they are exact."""
        a = np.asarray(a)
        signs = rng.choice([-1.0, 1.0], size=a.shape)
        relative = max(self.relative, 2 * unit_roundoff(a.dtype) if self.own else 0.0)
        moved = a * (1 + relative * signs) + np.where(a == 0, 0.0, self.least * signs)
        return np.asarray(moved).astype(a.dtype)

    def jump(self, x: Array, *numbers: Array) -> float:
        """A change larger than this perturbation makes in products of three of these numbers, or of
        1/x: the derivatives of 1/x and x/|x| have such terms, even where they cancel."""
        with np.errstate(divide="ignore", over="ignore"):
            largest = np.float64(max(map(largest_in, (1 / x, x, *numbers))))
            return float(JUMP * self.relative * largest * max(1.0, largest) ** 2)

    def without_jumps(self, change: Array, x: Array, *numbers: Array) -> Array:
        """How far results change; 0 where they jump, since a jump is a choice, not a rounding."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(np.abs(change) <= self.jump(x, *numbers), np.abs(change), 0.0)


class Rounding(ForwardingTrace):
    """The enclosing trace, but with the result of every operation that rounds perturbed.

    The change of a result is then the effect of roundings inside the function and its pull-back:
    the 1 - out**2 of a tanh near 1 keeps few digits of `out`, which no change of the point shows.
    An operation that only moves or chooses numbers does not round.
    """

    def __init__(self, by: Perturbation, rng: np.random.Generator):
        super().__init__(current_trace())
        self.by, self.rng = by, rng

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        outs = self.parent.bind(primitive, args)
        if primitive.effect != "pure":
            return outs
        given = [np.abs(np.asarray(a)).reshape(-1) for a in args if _is_float(a)]
        known = np.concatenate(given) if given else np.zeros(0)
        sums = isinstance(primitive, SUMS)
        return tuple(self._rounded(o, known, sums) if _is_float(o) else o for o in outs)

    def _rounded(self, out: Tensor, known: Array, sums: bool) -> Tensor:
        array = np.asarray(out)
        if not known.size or (not sums and np.isin(np.abs(array), known).all()):
            return out
        return Tensor(self.by.of(array, self.rng), device=out.device)


def largest_in(a: Array) -> float:
    """The size of the largest finite number, 0 if there is none."""
    return float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))


def _is_float(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and is_float(value.dtype)
