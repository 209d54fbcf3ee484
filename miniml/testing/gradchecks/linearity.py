"""Checks of a pull-back without differences: linearity, narrow dtypes, non-finite values.

In order: what holds for a pull-back, as it is linear in its cotangent, asked by opcheck of a bprop
and here at a point; in a narrow dtype the pull-back equals the one in float64, element by element;
findings for inputs and outputs that are not finite, and for elements that only such outputs see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np

from ...core.abstract import DType, float64
from ..calls import lay
from ..report import UNKNOWN, WRONG, Agreement, GradFinding, GradReport, Numbers
from ..tolerance import (
    STEPS,
    Array,
    Perturbation,
    Tuned,
    allowed,
    largest_of,
    limits_of,
    too_large,
    unit_roundoff,
)
from .problem import Leaf, Subject, WrongGradientForm, at_point, joined

ROUNDINGS = 256.0  # roundings one after the other in a long backward pass; faults are far above
INSIDE = 16.0  # times the largest of three draws


class Equation(NamedTuple):
    """pull(given) / scale equals the sum of factor * pull(v) over the terms (factor, v).

    All but those of the kind "sum" and "layout" take the same operations on the same digits, up to
    the order of sums. before: what is done before pull(given).
    """

    kind: Literal["zero", "same", "later", "layout", "sum", "scale"]
    message: str
    given: Sequence[Array]
    terms: tuple[tuple[float, Sequence[Array]], ...]
    scale: float = 1.0
    before: Callable[[], object] = tuple


def equations(
    v: Sequence[Array],
    w: Sequence[Array],
    elsewhere: Callable[[float], object],
    layouts: Iterable[tuple[Sequence[Array], str]] = (),
) -> Iterator[Equation]:
    """Equations of a pull-back, as it is linear: pull(0) = 0 exactly; pull(v) = pull(v) again,
    after a call at another point, and in whatever layout v is; pull(2v + w) = 2 pull(v) + pull(w);
    pull(1024 v) = 1024 pull(v), pull(-v) = -pull(v).

    v, w: cotangents, an array for each output. elsewhere: calls the function at a multiple of its
    point. layouts: cotangents in other layouts, each with a name.
    """
    once = ((1.0, v),)
    message = "not 0 for dout = 0: a term lacks its factor dout"
    yield Equation("zero", message, list(map(np.zeros_like, v)), ())
    yield Equation("same", "not repeatable: two equal calls of the pull-back differ", v, once)
    message = (
        "depends on later calls: after a call of the function at other numbers, the pull-back "
        "gives something else; what it needs belongs to its own call, not to the function"
    )
    for factor in Tuned.ELSEWHERE:
        yield Equation("later", message, v, once, before=partial(elsewhere, factor))
    for laid, what in layouts:
        dense = [np.array(a, order="C") for a in laid]
        yield Equation("layout", f"wrong for a {what}", laid, ((1.0, dense),))
    message = "not linear in dout: pull(2v + w) is not 2 pull(v) + pull(w)"
    both = [np.asarray(a + b) for a, b in zip(_times(2.0, v), w, strict=True)]
    yield Equation("sum", message, both, ((2.0, v), (1.0, w)))
    for scale in Tuned.SCALES:
        message = f"not linear in dout: pull({scale:g} v) is not {scale:g} pull(v)"
        yield Equation("scale", message, _times(scale, v), once, scale)


def _times(factor: float, arrays: Sequence[Array]) -> list[Array]:
    return [np.asarray(a * a.dtype.type(factor)) for a in arrays]


def check_linearity(subject: Subject) -> tuple[Array, list[GradFinding]]:
    """The gradient for a random cotangent v, and findings where the pull-back is not linear.

    `equations` hold up to rounding: of the result, of the outputs (whose terms may cancel in it),
    and of every operation inside the pull-back. One finding per argument, at its worst element.
    """
    v = subject.random(subject.y.size)
    check = _Linearity(subject, v, subject.pull(v))
    compared = list(check.compared())
    judged = ((check.judged(leaf, *c) for c in compared) for leaf in subject.leaves)
    return check.pv, [finding for found in judged if (finding := next(filter(None, found), None))]


@dataclass(frozen=True)
class _Linearity:
    """The check of one pull-back: pv is what it gives for v."""

    subject: Subject
    v: Array
    pv: Array

    def compared(self) -> Iterator[tuple[Equation, Array, Array]]:
        """The equations, each with its sides; the first failure of an argument is reported."""
        subject = self.subject
        v, w = subject.cut(self.v), subject.cut(subject.random(self.v.size))
        known = {joined(v).tobytes(): self.pv}
        for equation in equations(v, w, subject.elsewhere, _in_layouts(v)):
            equation.before()
            with np.errstate(invalid="ignore", over="ignore"):
                got = subject.pull(equation.given) / equation.scale
                expected = np.zeros(self.pv.size)
                for factor, term in equation.terms:
                    key = joined(term).tobytes()
                    if key not in known:
                        known[key] = subject.pull(term)
                    expected = expected + factor * known[key]
            if equation.kind == "sum" and np.array_equal(got, self.pv):
                if np.array_equal(expected, 3 * got):
                    message = "does not depend on dout: the factor dout is missing"
                    equation = equation._replace(message=message)
            yield equation, got, expected

    def judged(
        self, leaf: Leaf, equation: Equation, got: Array, expected: Array
    ) -> GradFinding | None:
        """The finding for one argument, None where rounding explains the difference."""
        with np.errstate(invalid="ignore"):
            apart = np.abs(got - expected)[leaf.part]
        apart = np.where(np.isfinite(apart), apart, 0.0)
        if not apart.any():
            return None
        k = int(np.argmax(apart))
        position = leaf.start + k
        kind, u = equation.kind, self._unit
        relative = {"zero": 0.0, "sum": ROUNDINGS * u, "layout": max(Tuned.GROSS, ROUNDINGS * u)}
        bar = relative.get(kind, STEPS * u) * self._scale(leaf, position, got, expected)
        if kind == "scale":  # smaller numbers are not compared
            bar += STEPS * self._tiny / abs(equation.scale)
        if apart[k] > bar > 0.0 and kind in relative:
            bar += self._inside(leaf, got)
        if not apart[k] > bar:
            return None
        numbers = Numbers(float(got[position]), float(expected[position]), float(bar))
        return self.subject.finding(WRONG, equation.message, position, numbers)

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
        largest = max(largest_of(g[leaf.part]) for g in (*gradients, self.pv))
        outputs = float(np.sum(np.abs(self.subject.y), where=np.isfinite(self.subject.y)))
        return largest + outputs / float(self.subject.sizes(uniform=False)[position])

    def _inside(self, leaf: Leaf, gradient: Array) -> float:
        """The change of the argument's gradient when every computed number is off by a unit.

        At an ill-conditioned point it is more than roundings of numbers of its size explain, which
        is allowed for only as far as it is small beside the gradient.
        """
        step, numbers = self.subject.step, (self.subject.x, self.v, self.pv)
        with np.errstate(invalid="ignore"):
            moved = [g - self.pv for g in self._moved]
        smooth = max(largest_of(step.without_jumps(m, *numbers)[leaf.part]) for m in moved)
        rough = max(largest_of(m[leaf.part]) for m in moved)
        most = Tuned.BELIEVED * largest_of(gradient[leaf.part])
        return max(INSIDE * smooth, min(INSIDE * rough, most))

    @cached_property
    def _moved(self) -> list[Array]:
        step = self.subject.step._replace(own=True)
        return [self.subject.rounded(self.v, step) for _ in range(3)]


def _everywhere(rank: int) -> str:
    return ", ".join(f"broadcast along axis {k}" for k in range(rank))


# Layouts of an array of a rank, in the words of `layouts`, and the name of a cotangent in it.
_LAYOUTS: dict[Callable[[int], str], str] = {
    lambda rank: "Fortran-ordered": "Fortran-ordered cotangent",
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


def _in_layouts(dense: Sequence[Array]) -> Iterator[tuple[list[Array], str]]:
    for layout, what in _LAYOUTS.items():
        laid = [lay(d, layout(d.ndim)) for d in dense]
        if any(not a.flags.c_contiguous for a in laid):
            yield laid, what


# --- Backward passes in narrow dtypes -------------------------------------------------------------


# Draws of roundings, and of nearby points; few arguments need them. Two roundings of one size
# cancel in half of the draws, and so in all three for every eighth element.
DRAWS, POINTS = 3, 6
OTHER_DRAWS = 4  # times the largest of three draws


def check_narrow(wide: Subject, own: tuple[DType, ...], report: GradReport) -> None:
    """Check that the pull-back in the function's own dtypes is linear, and equals the float64 one.

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
        """The error allowed in each element; only those beyond their own rounding need the costly
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
        """The change of the error from the point to others next to it.

        Where terms inside the backward cancel, only the rounding of these terms is left, and it
        differs from point to point; a mistake stays the same.
        """
        return self._change(gap, Tuned.NEAR * self.narrow.roundoff)

    def _far(self, gap: Array) -> Array:
        """The change of the error to points further away, where a function is no longer saturated.

        There a mistake changes, too, so at most some roundings of the outputs are allowed for, over
        the size of the input.
        """
        far = np.fmax(*(self._change(gap, step) for step in Tuned.FURTHER))
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
        wrong = ~(off <= bar) & np.isfinite(expected) & ~too_large(expected, leaf.dtype)
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
    """The message on these wrong elements."""
    message = f"wrong in {leaf.dtype.name} only, in {got.size} of {leaf.size} elements"
    ratio = got / np.where(expected == 0, np.nan, expected)
    if got.size > 1 and np.isfinite(ratio).any():
        typical = float(np.nanmedian(ratio))
        if np.nanmax(ratio) - np.nanmin(ratio) < 0.05 * abs(typical):
            message += f"; a constant factor {typical:.4g}"
    return message


# --- Values that are not finite -------------------------------------------------------------------


def not_finite(subject: Subject) -> list[GradFinding]:
    """Findings for inputs and outputs that cannot be judged because they are not finite at the
    point."""
    bad = np.flatnonzero(~np.isfinite(subject.x))
    found = _by_leaf(subject, bad, "{} of its numbers are not finite")
    lost = int(np.sum(~np.isfinite(subject.y)))
    if lost:
        message = f"{lost} of {subject.y.size} are not finite at the point"
        found.append(GradFinding(UNKNOWN, subject.map.order, message, "outputs"))
    return found


def blind(subject: Subject) -> tuple[Array, Array]:
    """Positions whose gradient the finite outputs do not determine: where it is NaN, and zero.

    The cotangent of every non-finite output is 0, but a rule multiplies that 0 by something that is
    not finite either: NaN is no fault where such an output may depend on the element. Where the
    gradient is 0, no output may depend on the element, or only these. Both are empty if all outputs
    are finite.
    """
    finite = np.isfinite(subject.y)
    if finite.all():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    gradient = subject.pull(np.where(finite, subject.random(finite.size), 0.0))
    return np.flatnonzero(~np.isfinite(gradient)), np.flatnonzero(gradient == 0)


def unseen(subject: Subject, positions: Array) -> list[GradFinding]:
    """One finding for each argument with elements whose gradient no finite output shows."""
    message = "{} of its elements: no finite output tells their gradient"
    return _by_leaf(subject, positions, message)


def _by_leaf(subject: Subject, positions: Array, message: str) -> list[GradFinding]:
    """A finding for each argument with some of these elements, at the first of them."""
    found = []
    for leaf in subject.leaves:
        mine = leaf.among(positions)
        if mine.size:
            found.append(subject.finding(UNKNOWN, message.format(mine.size), int(mine[0])))
    return found
