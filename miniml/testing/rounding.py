"""One rounding more: a function run with each of its operations off by a unit, up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import is_float
from ..graph.record import RecordTrace
from ..primitive import Primitive
from ..tensor import Tensor
from ..trace import current_trace

Array = np.ndarray[Any, Any]


class Rounding(RecordTrace):
    """The trace around it, in which every operation that rounds is off by `step` of its result.

    It records nothing. What a result then changes by is what roundings inside the function and
    its pull-back do to it: the 1 - out**2 of a tanh near 1 keeps few digits of `out`, which no
    change of the point shows. An operation that only moves or chooses numbers does not round.
    """

    def __init__(self, step: float, rng: np.random.Generator):
        super().__init__(current_trace())
        self.step, self.rng = step, rng

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        outs = self.parent.bind(primitive, args)
        if primitive.effect != "pure":
            return outs
        given = [np.abs(np.asarray(a)).reshape(-1) for a in args if _is_float(a)]
        known = np.concatenate(given) if given else np.zeros(0)
        return tuple(self._rounded(o, known) if _is_float(o) else o for o in outs)

    def _rounded(self, out: Tensor, known: Array) -> Tensor:
        array = np.asarray(out)
        if not known.size or np.isin(np.abs(array), known).all():
            return out
        return Tensor(off(array, self.step, self.rng), device=out.device)


def off(a: Array, step: float, rng: np.random.Generator) -> Array:
    """Each number moved by `step` of itself, up or down."""
    signs = rng.choice([-1.0, 1.0], size=np.shape(a))
    return np.asarray(a * (1 + step * signs)).astype(np.asarray(a).dtype)


def _is_float(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and is_float(value.dtype)
