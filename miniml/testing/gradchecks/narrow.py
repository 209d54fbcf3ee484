"""A backward pass in a narrow dtype against the one in float64, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...dtype import DType, float64
from ..tolerance import STEPS, allowed, limits_of, unit_roundoff
from .linearity import check_linearity
from .maps import Leaf, WrongGradientForm
from .report import WRONG, Agreement, Array, GradReport, Numbers
from .rounding import Perturbation
from .subject import Subject, at_point, joined

# Draws of roundings, and of nearby points; few arguments need them. Two roundings of
# one size cancel in half of the draws, and so in all three for every eighth element.
DRAWS, POINTS = 3, 6
OTHER_DRAWS = 4  # another normal draw is more than four times the largest of three in 1 % of cases
NEAR = 4  # units: points that the dtype tells apart
FURTHER = 2.0**-9, 2.0**-5  # relative distances at which a saturated function begins to move
LARGEST = 0.98  # part of the largest number: a rounding may take a result of this size to infinity


def check_narrow(wide: Subject, own: tuple[DType, ...], report: GradReport) -> None:
    """Run the pull-back in the function's own dtypes: is it linear, and equal to the float64 one?

    An element may be off by as much as roundings of its dtype explain: some units of itself, and
    the change of the float64 backward when the inputs, dout, and every visible operation of the
    function and its backward are off by a unit of that dtype. So 1 - out**2 of a tanh near 1 may be
    off by a unit of `out`, however small it is itself, and a mistake of 1 % shows wherever the
    dtype holds the gradient to 1 %.
    """
    if all(d == float64 for d in own):
        return
    where = f"in {', '.join(sorted({d.name for d in own}))}: "
    try:
        narrow = at_point(wide.map, wide.point, own, wide.rng)
        if [s for s, _ in narrow.shapes] != [s for s, _ in wide.shapes]:
            return
        _, faults = check_linearity(narrow)
        both = _Both(narrow, wide, joined(narrow.cut(wide.random(wide.y.size))))
        got, expected = narrow.pull(both.v), wide.pull(both.v)
        bars = both.bars(got, expected)
    except WrongGradientForm as error:
        report.findings.append(error.finding(wide.map.order, where))
        return
    report.forward_calls += narrow.forward_calls
    report.findings += [replace(f, diagnosis=where + f.diagnosis) for f in faults]
    named = {f.argument for f in faults}
    for leaf in narrow.leaves:
        if leaf.size and leaf.argument not in named:
            part = leaf.part
            _compare(leaf, got[part], expected[part], bars[part], wide.map.order, report)


@dataclass(frozen=True)
class _Both:
    """A function in its own dtypes and in float64. v: a cotangent that both can represent."""

    narrow: Subject
    wide: Subject
    v: Array

    def bars(self, got: Array, expected: Array) -> Array:
        """How far each element may be off. Only elements beyond their own rounding need the costly
        bars."""
        bars = self._rounding(expected)
        with np.errstate(invalid="ignore"):
            gap = got - expected
        for more in (self._near, self._far):
            with np.errstate(invalid="ignore"):
                outside = np.isfinite(gap) & (np.abs(gap) > bars)
            if outside.any():
                bars = bars + OTHER_DRAWS * more(gap)
        return bars

    def _rounding(self, expected: Array) -> Array:
        """The error that roundings of its dtype explain."""
        wide, bars = self.wide, np.zeros(expected.size)
        unit = Perturbation.rounding_to(max(self.narrow.dtypes, key=unit_roundoff))
        moved = [wide.rounded(self.v, unit) - expected for _ in range(DRAWS)]
        numbers = wide.x, self.v, expected
        spread = np.max([unit.without_jumps(m, *numbers) for m in moved], axis=0)
        terms = wide.y.size + wide.x.size
        for leaf in self.narrow.leaves:
            part = leaf.part
            bars[part] = allowed(expected[part], leaf.dtype, terms, spread[part])
        return bars

    def _near(self, gap: Array) -> Array:
        """How much the error changes from the point to others next to it.

        Where terms inside the backward cancel, only the rounding of these terms is left, and it
        differs from point to point; a mistake stays the same.
        """
        return self._change(gap, NEAR * self.narrow.roundoff)

    def _far(self, gap: Array) -> Array:
        """The same for points further away, which show it where a saturated function hides it.

        There a mistake changes, too, so at most some roundings of the outputs are allowed for, over
        the size of the input.
        """
        far = np.fmax(*(self._change(gap, step) for step in FURTHER))
        outputs = np.abs(self.v * np.where(np.isfinite(self.wide.y), self.wide.y, 0.0))
        most = STEPS * self.narrow.roundoff * float(outputs.max(initial=0.0))
        return np.asarray(np.fmin(far, most / self.wide.sizes(uniform=True)))

    def _change(self, gap: Array, step: float) -> Array:
        with np.errstate(invalid="ignore"):
            changes = [np.abs(there - gap) for there in self._gaps(step)]
        return np.asarray(np.fmax.reduce([np.zeros(gap.size), *changes]))

    def _gaps(self, step: float) -> Iterator[Array]:
        for _ in range(POINTS):
            # At different distances: the rounding of 3 x is the same at every fourth number.
            moved = self.wide.x * (1 + self.wide.rng.uniform(-step, step, self.wide.x.shape))
            x = joined(self.narrow.arrays(moved))
            yield self.narrow.linearized(x)(self.v) - self.wide.linearized(x)(self.v)


def _compare(
    leaf: Leaf, got: Array, expected: Array, bar: Array, order: int, report: GradReport
) -> None:
    """Add a finding on one argument to the report, or the comparison if it passed."""
    with np.errstate(invalid="ignore"):
        off = np.abs(got - expected)
        too_large = np.abs(expected) > LARGEST * float(limits_of(leaf.dtype).max)
        wrong = ~(off <= bar) & np.isfinite(expected) & ~too_large
    bars = np.nan_to_num(off / (bar + 1e-300), nan=np.inf if wrong.any() else 0.0)
    k = int(np.argmax(np.where(wrong, bars, -1.0) if wrong.any() else bars))
    numbers = Numbers(float(got[k]), float(expected[k]), float(bar[k]))
    if wrong.any():
        message = _message(leaf, got[wrong], expected[wrong])
        report.findings.append(leaf.finding(WRONG, order, message, leaf.start + k, numbers))
        return
    some = expected != 0
    resolution = float(np.median(bar[some] / np.abs(expected[some]))) if some.any() else 0.0
    what = f"{leaf.argument}, {leaf.dtype.name} backward against float64, worst of {leaf.size}"
    report.checks.append(Agreement(order, what, *numbers[:3], resolution))


def _message(leaf: Leaf, got: Array, expected: Array) -> str:
    """The message, given the wrong elements."""
    message = f"wrong in {leaf.dtype.name} only, in {got.size} of {leaf.size} elements"
    ratio = got / np.where(expected == 0, np.nan, expected)
    if got.size > 1 and np.isfinite(ratio).any():
        typical = float(np.nanmedian(ratio))
        if np.nanmax(ratio) - np.nanmin(ratio) < 0.05 * abs(typical):
            message += f"; a constant factor {typical:.4g}"
    return message
