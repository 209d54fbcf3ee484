"""One direction through a point: the derivative by differences against the one by the pull-back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..tolerance import unit_roundoff
from .derivative import FIRST, Line, Slopes, climb, converged
from .directions import random_signs, sizes_of
from .extrapolation import EPS
from .isolated import lonely
from .rounding import off
from .subject import Subject, jump

Array = np.ndarray[Any, Any]

SHARP = 0.05
ANALYTIC = 8.0
MARGIN = 3.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What one direction `u` says of the gradient of <v, f>.

    analytic: <g, u> with g = pull(v). The numeric side is the interval from `low` to `high`,
    a point unless an output has a kink, give or take `bar`. parts: g * u, element by element.
    without: the outputs that have no derivative there, kinks included; lost: how many, without
    kinks. lonely: those that look like isolated values; nearest: the smallest step. blurred: the
    bar is too wide to judge anything.
    """

    members: Array
    u: Array
    v: Array
    slopes: Slopes
    analytic: float
    low: float
    high: float
    bar: float
    parts: Array
    lost: int
    blurred: bool
    uniform: bool
    without: Array
    lonely: Array
    nearest: float

    @property
    def numeric(self) -> float:
        """The middle of the numeric interval."""
        return (self.low + self.high) / 2

    @property
    def kinked(self) -> bool:
        """An output has a kink at the point, in this direction."""
        return bool((self.slopes.kink & self.without).any())

    @property
    def agrees(self) -> bool:
        """The analytic derivative lies in the numeric interval."""
        return self.low - self.bar <= self.analytic <= self.high + self.bar

    @property
    def marginal(self) -> bool:
        """Outside the interval by so little that the bar, itself an estimate, may be too narrow."""
        reach = MARGIN * self.bar
        return not self.agrees and self.low - reach <= self.analytic <= self.high + reach

    @property
    def sharp(self) -> bool:
        """Every output has a derivative, or one on each side, and the bar is narrow."""
        return not self.lost and not self.blurred

    @property
    def settled(self) -> bool:
        """Differences found the derivative of every output, if only to be 0 next to others."""
        right, left = self.slopes.right, self.slopes.left
        with np.errstate(invalid="ignore"):
            off = right.error + left.error + np.abs(right.value - left.value)
            found = (off <= 0.01 * self.slopes.reach) | (self.slopes.central.step == 0)
        return bool(found.all())

    @property
    def finite(self) -> bool:
        """The gradient of every member is a number."""
        return bool(np.isfinite(self.parts).all())

    @property
    def hopeless(self) -> bool:
        """Not sharp for a reason that smaller parts are unlikely to cure."""
        return self.blurred or 4 * self.lost > max(3, int(np.sum(self.slopes.noise > 0)))

    @property
    def clean(self) -> bool:
        """Correct, smooth and sharp: all members are judged."""
        return self.agrees and self.sharp and not self.kinked

    def joined(self, other: Probe) -> Probe:
        """What both say of the same members: an output need be sharp in one of them only.

        The derivative of every output is then compared in one random direction at least.
        """
        if not (self.agrees and other.agrees):
            return other if self.agrees else self
        if self.blurred or other.blurred:
            return other if self.blurred else self
        without = self.without & other.without
        lost = int(np.sum(without & ~self.slopes.kink))
        return replace(self, without=without, lost=lost)

    @property
    def resolution(self) -> float:
        """The relative error of one typical element that would have shown."""
        sizes = np.abs(self.parts[self.parts != 0])
        return MARGIN * self.bar / float(np.median(sizes)) if sizes.size else 0.0


def probe(
    subject: Subject,
    members: Array,
    rng: np.random.Generator,
    uniform: bool = False,
    first: float = FIRST,
    along: tuple[Array, Array] | None = None,
) -> Probe:
    """Compare in a random direction in which only `members` (positions in x) move.

    The cotangent weighs each output by the inverse of its own numeric error, so that no output
    is hidden by the rounding of a larger one. along: a direction and a cotangent to use instead;
    of the direction the members' part.
    """
    u = np.zeros(subject.x.shape)
    if along is None:
        u[members] = random_signs(rng, members.size) * sizes_of(subject, uniform)[members]
    else:
        u[members] = along[0][members]
    line = Line(lambda t: subject(subject.x + t * u), subject.y, subject.unit, subject.inside)
    slopes = climb(line, first * rng.uniform(0.7, 1.0), converged(subject.natural))
    if along is None:
        v = random_signs(rng, subject.y.size) * _weights(subject, slopes)
    else:
        v = np.where(np.isfinite(slopes.central.error), along[1], 0.0)
    found = _compare(subject, members, u, v, slopes, uniform)
    found = replace(found, lonely=lonely(line), nearest=min(line.steps))
    if not found.clean and subject.settle(rng):
        return probe(subject, members, rng, uniform, first, along)
    if found.agrees or found.kinked or along is not None:
        return found
    return _widened(subject, found, rng)


def _weights(subject: Subject, slopes: Slopes) -> Array:
    error = np.where(slopes.kink, slopes.right.error + slopes.left.error, slopes.central.error)
    size = np.where(np.isfinite(slopes.central.value), np.abs(slopes.central.value), 0.0)
    floor = np.maximum(16 * EPS * size, 40 * subject.grain)
    usable = np.isfinite(error)
    width = np.where(usable, np.maximum(error, floor), 0.0)
    positive = width[width > 0]
    if not positive.size:
        return usable.astype(np.float64)
    width = np.where(usable & (width == 0), float(np.median(positive)), width)
    least = float(positive.min())
    with np.errstate(divide="ignore", under="ignore"):
        return np.where(usable, np.maximum(least / width, 1e-100), 0.0)


def _compare(
    subject: Subject, members: Array, u: Array, v: Array, slopes: Slopes, uniform: bool
) -> Probe:
    given = v != 0
    vague = (~given & _meant(subject, slopes)) | _unresolved(subject, slopes, given)
    used = given & ~vague if (given & ~vague).any() else given
    v = np.where(used, v, 0.0)
    w = v[used]
    central, right, left = (
        (e.value[used], e.truncation[used], e.rounding[used])
        for e in (slopes.central, slopes.right, slopes.left)
    )
    kink = slopes.kink[used]
    sides = np.sort(np.stack([w * right[0], w * left[0]]), axis=0)
    low = math.fsum(np.where(kink, sides[0], w * central[0]))
    high = math.fsum(np.where(kink, sides[1], w * central[0]))
    truncation = np.where(kink, right[1] + left[1], central[1])
    rounding = np.where(kink, right[2] + left[2], central[2])
    parts = subject.pull(v)[members] * u[members]
    finite = np.where(np.isfinite(parts), parts, 0.0)
    unit = max(unit_roundoff(f.dtype) for f in subject.leaves)
    bar = (
        float(np.sum(np.abs(w) * truncation))
        + 1.5 * _norm(w * rounding)
        + ANALYTIC * unit * float(np.sum(np.abs(finite)))
    )
    analytic = math.fsum(parts) if finite.all() or np.isfinite(parts).all() else math.nan
    typical = _norm(finite)
    size = float(np.sum(np.abs(w) * subject.natural[used]))
    unseen = typical <= bar <= 1e-12 * size
    largest = max(typical, high - low, abs(low), abs(high))
    blurred = not (bar <= SHARP * largest or unseen or bar == 0)
    lost = int(np.sum(vague))
    without = vague | slopes.kink
    return Probe(
        members,
        u,
        v,
        slopes,
        analytic,
        low,
        high,
        bar,
        parts,
        lost,
        blurred,
        uniform,
        without,
        np.zeros(0, bool),
        0.0,
    )


def _norm(a: Array) -> float:
    """The Euclidean norm; no square under- or overflows."""
    largest = float(np.abs(a).max(initial=0.0))
    if not 0 < largest < math.inf:
        return largest
    return largest * float(np.sqrt(np.sum((a / largest) ** 2)))


def _meant(subject: Subject, slopes: Slopes) -> Array:
    """Outputs that have a value at the point but no derivative that differences could find."""
    return np.asarray(np.isfinite(subject.y) & ~np.isfinite(slopes.central.error))


def _unresolved(subject: Subject, slopes: Slopes, used: Array) -> Array:
    error, value = slopes.central.error, np.abs(slopes.central.value)
    with np.errstate(invalid="ignore"):
        vague = (error > SHARP * value) & (error > 1e4 * subject.grain)
        typical = float(np.median(value[used])) if used.any() else 0.0
        vague &= (error > 1e-6 * typical) & ~slopes.kink & used
    return np.asarray(vague)


def _widened(subject: Subject, found: Probe, rng: np.random.Generator) -> Probe:
    """The probe with a bar that also holds the rounding of an ill-conditioned pull-back.

    It is what the gradient changes by when everything moves by a unit in the last place: the
    point, the cotangent, and what is computed of them. Where that takes the rest across a kink,
    it is what it changes by when the members move; and nothing if they, too, are on an edge, for
    a gradient that is another one at the point alone is what it is.
    """
    typical = _norm(found.parts)
    moved = max(_along(found, subject.rounded(found.v, subject.step, rng)) for _ in range(2))
    most = max(0.01 * typical, _without_a_jump(subject, found))
    if not moved <= most:
        moved = max(_along(found, _moved(subject, found, rng)) for _ in range(2))
        moved = moved if moved <= most else 0.0
    bar = found.bar + 8 * moved
    return replace(
        found, bar=bar, blurred=found.blurred or bar > SHARP * max(typical, abs(found.numeric))
    )


def _along(found: Probe, gradient: Array) -> float:
    """How far another gradient is off from the probe's, along its direction; 0 if no number."""
    change = float(np.sum(gradient[found.members] * found.u[found.members])) - found.analytic
    return abs(change) if math.isfinite(change) else 0.0


def _without_a_jump(subject: Subject, found: Probe) -> float:
    """The largest change of the probe's result that roundings explain, kinks left out."""
    most = jump(subject.step, subject.x, found.v, found.parts)
    return most * float(np.abs(found.u).max())


def _moved(subject: Subject, found: Probe, rng: np.random.Generator) -> Array:
    """The gradient where only the members of a probe move."""
    x = subject.x.copy()
    x[found.members] = off(x[found.members], subject.step, rng)
    return subject.pulled(subject.linearize_at(x), found.v)
