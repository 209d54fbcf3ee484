"""A pull-back is linear in its cotangent, in any layout: checked without any differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..layouts import lay
from ..tolerance import STEPS, limits_of, unit_roundoff
from .maps import Leaf
from .report import WRONG, Array, GradFinding, Numbers
from .rounding import largest_in
from .subject import Subject, joined

ROUNDINGS = 256.0  # roundings one after the other in a long backward pass; faults are far above
GROSS = 1e-6  # a wrongly read layout changes more than this
INSIDE = 16.0  # another normal draw is more than 16 times the largest of three in 2 of 10,000 cases
BELIEVED = 0.01  # of the gradient: its largest change across a jump that is not a fault
SCALES = (
    2.0**10,
    2.0**-10,
    -1.0,
)  # powers of 2 change no rounding; a clip or a floor shows


def check_linearity(subject: Subject) -> tuple[Array, list[GradFinding]]:
    """The gradient for a random cotangent v, and findings where the pull-back is not linear.

    pull(2v + w) = 2 pull(v) + pull(w), pull(1024 v) = 1024 pull(v), pull(-v) = -pull(v), and
    pull(v) = pull(v) again, in whatever layout v is; pull(0) = 0 exactly. The others hold up to
    rounding: of the result, of the outputs (whose terms may cancel in it), and of every operation
    inside the pull-back.
    One finding per argument, at its worst element.
    """
    v = subject.random(subject.y.size)
    check = _Linearity(subject, v, subject.pull(v))
    comparisons = list(check.comparisons())
    judged = ((check.judged(leaf, c) for c in comparisons) for leaf in subject.leaves)
    return check.pv, [finding for found in judged if (finding := next(filter(None, found), None))]


def _everywhere(rank: int) -> str:
    return ", ".join(f"broadcast along axis {k}" for k in range(rank))


# Layouts of an array of a rank, in the words of `layouts`, and the name of a cotangent in it.
_LAYOUTS: dict[Callable[[int], str], str] = {
    lambda rank: "Fortran-ordered, sliced": "strided, not contiguous cotangent",
    lambda rank: "reversed": "reversed cotangent, of negative strides, not contiguous",
    _everywhere: "broadcast cotangent, of stride 0",
    lambda rank: "broadcast along axis 0" if rank > 1 else "": (
        "cotangent that is broadcast along its first axis, of stride 0"
    ),
    lambda rank: f"broadcast along axis {rank - 1}" if rank > 1 else "": (
        "cotangent that is broadcast along its last axis, of stride 0"
    ),
}


class _Equation(NamedTuple):
    """Two gradients that have to be equal up to a relative error, and the message if they are not.

    exact: they come from the same operations on the same digits, up to the order of sums. least:
    smaller numbers are not compared.
    """

    got: Array
    expected: Array
    relative: float
    message: str
    exact: bool = False
    least: float = 0.0


@dataclass(frozen=True)
class _Linearity:
    """The check of one pull-back: pv is what it gives for v."""

    subject: Subject
    v: Array
    pv: Array

    def comparisons(self) -> Iterator[_Equation]:
        """All pairs that have to be equal; the first failure of an argument is reported."""
        pull, v, pv, fine = self.subject.pull, self.v, self.pv, ROUNDINGS * self._unit
        same = STEPS * self._unit
        message = "not 0 for dout = 0: a term lacks its factor dout"
        yield _Equation(pull(np.zeros(v.size)), np.zeros(pv.size), 0.0, message)
        message = "not repeatable: two equal calls of the pull-back differ"
        yield _Equation(pull(v), pv, same, message, exact=True)
        yield from self._layouts()
        w = self.subject.random(v.size)
        pw, both = pull(w), pull(2 * v + w)
        message = "not linear in dout: pull(2v + w) is not 2 pull(v) + pull(w)"
        if np.array_equal(pv, pw) and np.array_equal(pv, both):
            message = "does not depend on dout: the factor dout is missing"
        with np.errstate(invalid="ignore", over="ignore"):
            yield _Equation(both, 2 * pv + pw, fine, message)
            for scale in SCALES:
                message = f"not linear in dout: pull({scale:g} v) is not {scale:g} pull(v)"
                least = STEPS * self._tiny / abs(scale)
                yield _Equation(pull(scale * v) / scale, pv, same, message, True, least)

    def _layouts(self) -> Iterator[_Equation]:
        """Cotangents in other layouts, against contiguous ones."""
        gross = max(GROSS, ROUNDINGS * self._unit)
        dense = self.subject.cut(self.v)
        for layout, what in _LAYOUTS.items():
            laid = [lay(d, layout(d.ndim)) for d in dense]
            if any(not a.flags.c_contiguous for a in laid):
                plain = joined(laid)
                same = np.array_equal(plain, joined(dense))
                expected = self.pv if same else self.subject.pull(plain)
                yield _Equation(self.subject.pull(laid), expected, gross, f"wrong for a {what}")

    def judged(self, leaf: Leaf, equation: _Equation) -> GradFinding | None:
        """The finding for one argument, None where rounding explains the difference."""
        got, expected, relative, message, exact, least = equation
        with np.errstate(invalid="ignore"):
            apart = np.abs(got - expected)[leaf.part]
        apart = np.where(np.isfinite(apart), apart, 0.0)
        if not apart.any():
            return None
        k = int(np.argmax(apart))
        position = leaf.start + k
        bar = relative * self._scale(leaf, position, got, expected) + least
        if apart[k] > bar > 0.0 and not exact:
            bar += self._inside(leaf, got)
        if not apart[k] > bar:
            return None
        numbers = Numbers(float(got[position]), float(expected[position]), float(bar))
        return self.subject.finding(WRONG, message, position, numbers)

    @property
    def _unit(self) -> float:
        """The roundoff of the widest step that is taken."""
        outputs = (unit_roundoff(dtype) for _, dtype in self.subject.shapes)
        return max(self.subject.roundoff, *outputs)

    @property
    def _tiny(self) -> float:
        """The smallest number that is normal in every dtype."""
        dtypes = (*(dtype for _, dtype in self.subject.shapes), *self.subject.dtypes)
        return max(float(limits_of(dtype).tiny) for dtype in dtypes)

    def _scale(self, leaf: Leaf, position: int, *gradients: Array) -> float:
        """The size of the rounded numbers: gradients of the argument, outputs that cancel in
        them."""
        largest = max(largest_in(g[leaf.part]) for g in (*gradients, self.pv))
        outputs = float(np.sum(np.abs(self.subject.y), where=np.isfinite(self.subject.y)))
        return largest + outputs / float(self.subject.sizes(uniform=False)[position])

    def _inside(self, leaf: Leaf, gradient: Array) -> float:
        """How far the argument's gradient moves when every computed number is off by a unit.

        At an ill-conditioned point it moves further than roundings of numbers of its size explain;
        that is allowed for only as far as it is small beside the gradient.
        """
        step, numbers = self.subject.step, (self.subject.x, self.v, self.pv)
        with np.errstate(invalid="ignore"):
            moved = [g - self.pv for g in self._moved]
        smooth = max(largest_in(step.without_jumps(m, *numbers)[leaf.part]) for m in moved)
        rough = max(largest_in(m[leaf.part]) for m in moved)
        most = BELIEVED * largest_in(gradient[leaf.part])
        return max(INSIDE * smooth, min(INSIDE * rough, most))

    @cached_property
    def _moved(self) -> list[Array]:
        step = self.subject.step._replace(own=True)
        return [self.subject.rounded(self.v, step) for _ in range(3)]
