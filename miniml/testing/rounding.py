"""One rounding more: a function run with each of its operations off by a unit, up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import is_float
from ..graph.record import RecordTrace
from ..ops.elementwise import Add, Sub
from ..ops.linalg import Einsum, MatMul
from ..ops.reduce import CumSum, LogSumExp, Mean, Sum
from ..ops.shape import SumTo
from ..primitive import Primitive
from ..tensor import Tensor
from ..trace import current_trace
from .tolerance import unit_roundoff

Array = np.ndarray[Any, Any]

SUMS = Add, Sub, Sum, SumTo, Mean, CumSum, LogSumExp, MatMul, Einsum


class Rounding(RecordTrace):
    """The trace around it, in which every operation that rounds is off by `step` of its result.

    own: where the result has a narrower dtype, by two of that dtype's units. It records nothing.
    What a result then changes by is what roundings inside the function and its pull-back do to
    it: the 1 - out**2 of a tanh near 1 keeps few digits of `out`, which no change of the point
    shows. An operation that only moves or chooses numbers does not round; a sum does, also where
    it is one of its terms because the others are too small to count.
    """

    def __init__(self, step: float, rng: np.random.Generator, own: bool = False):
        super().__init__(current_trace())
        self.step, self.rng, self.own = step, rng, own

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
        least = 2 * unit_roundoff(out.dtype) if self.own else 0.0
        return Tensor(off(array, max(self.step, least), self.rng), device=out.device)


def off(a: Array, step: float, rng: np.random.Generator) -> Array:
    """Each number moved by `step` of itself, up or down."""
    signs = rng.choice([-1.0, 1.0], size=np.shape(a))
    return np.asarray(a * (1 + step * signs)).astype(np.asarray(a).dtype)


def _is_float(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and is_float(value.dtype)
