"""One rounding more: a function run with each of its operations off by a unit, up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtype import DType, float32, is_float
from ...graph.forwarding import ForwardingTrace
from ...ops.arithmetic import Add, Sub
from ...ops.linalg import Einsum, MatMul
from ...ops.reduce import CumSum, LogSumExp, Mean, Sum
from ...ops.shape import SumTo
from ...primitive import Primitive
from ...tensor import Tensor
from ...trace import current_trace
from ..tolerance import limits_of, unit_roundoff

Array = np.ndarray[Any, Any]

SUMS = Add, Sub, Sum, SumTo, Mean, CumSum, LogSumExp, MatMul, Einsum


class Step(NamedTuple):
    """How far a number is off: `relative` to itself, and `least` however small it is.

    own: what is computed in a narrower dtype is off by two of that dtype's units.
    """

    relative: float
    least: float = 0.0
    own: bool = False

    @staticmethod
    def rounding_to(dtype: DType) -> Step:
        """By a rounding to the dtype, subnormal numbers included.

        What is too small for a normal float32 may get lost on the way: 1 / (1 + exp(90)) is 0.
        """
        least = max(limits_of(dtype).smallest_subnormal, limits_of(float32).tiny)
        return Step(unit_roundoff(dtype), float(least))

    def of(self, dtype: DType) -> Step:
        """The step for a result of the dtype."""
        least = 2 * unit_roundoff(dtype) if self.own else 0.0
        return self._replace(relative=max(self.relative, least))


class Rounding(ForwardingTrace):
    """The trace around it, in which every operation that rounds is off by `step` of its result.

    What a result then changes by is what roundings inside the function and
    its pull-back do to it: the 1 - out**2 of a tanh near 1 keeps few digits of `out`, which no
    change of the point shows. An operation that only moves or chooses numbers does not round; a
    sum does, also where it is one of its terms because the others are too small to count.
    """

    def __init__(self, step: Step, rng: np.random.Generator):
        super().__init__(current_trace())
        self.step, self.rng = step, rng

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        outs = self.parent.bind(primitive, args)
        if primitive.effect != "pure":
            return outs
        sums = isinstance(primitive, SUMS)
        given = [np.abs(np.asarray(a)).reshape(-1) for a in args if _is_float(a)]
        known = np.concatenate(given) if given else np.zeros(0)
        return tuple(self._rounded(o, known, sums) if _is_float(o) else o for o in outs)

    def _rounded(self, out: Tensor, known: Array, sums: bool) -> Tensor:
        array = np.asarray(out)
        if not known.size or (not sums and np.isin(np.abs(array), known).all()):
            return out
        return Tensor(off(array, self.step.of(out.dtype), self.rng), device=out.device)


def off(a: Array, step: Step, rng: np.random.Generator) -> Array:
    """Each number moved by a step, up or down; zeros stay, for they are exact."""
    a = np.asarray(a)
    signs = rng.choice([-1.0, 1.0], size=a.shape)
    moved = a * (1 + step.relative * signs) + np.where(a == 0, 0.0, step.least * signs)
    return np.asarray(moved).astype(a.dtype)


def _is_float(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and is_float(value.dtype)
