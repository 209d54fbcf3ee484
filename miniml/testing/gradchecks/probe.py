"""One direction through a point: the derivative by differences against the one by the pull-back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .derivative import FIRST, SHARP, Line, Slopes, climb, converged, vague_in
from .extrapolation import EPS
from .report import Array
from .subject import Subject

ANALYTIC = 8.0  # roundings in each element of a gradient: as many as one library function has
MARGIN = 3.0  # a bar is estimated from a few differences, and is seldom three times too narrow
WIDENED = 8.0  # another normal draw is more than 8 times the largest of two in 1 % of cases
UNSEEN = 1e-12  # relative to the outputs: float64 cannot tell a smaller derivative from 0
BLUNT = 0.01  # of the gradient: roundings do not move a meaningful backward further


@dataclass(frozen=True, slots=True)
class Probe:
    """The evidence of one direction `u` on the gradient of <v, f>.

    analytic: <g, u> with g = pull(v). The numeric side is the interval from `low` to `high`,
    a point unless an output has a kink, give or take `bar`. parts: g * u, element by element.
    without: the outputs that have no derivative there, kinks included. blurred: the bar is too
    wide to judge anything. uniform: the kind of steps. line: all values along u.
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
    without: Array
    blurred: bool
    uniform: bool
    line: Line

    @property
    def numeric(self) -> float:
        """The middle of the numeric interval."""
        return (self.low + self.high) / 2

    @property
    def lost(self) -> int:
        """The number of outputs with neither a derivative there nor a kink."""
        return int(np.sum(self.without & ~self.slopes.kink))

    @property
    def kinked(self) -> bool:
        """An output has a kink at the point, in this direction."""
        return bool((self.slopes.kink & self.without).any())

    @property
    def agrees(self) -> bool:
        """The analytic derivative lies in the numeric interval."""
        return self.holds(self.analytic, 1.0)

    def holds(self, analytic: float, bars: float) -> bool:
        """Whether a derivative lies in the numeric interval, give or take that many bars."""
        return self.low - bars * self.bar <= analytic <= self.high + bars * self.bar

    @property
    def marginal(self) -> bool:
        """Outside the interval by so little that the bar, itself an estimate, may be too narrow."""
        return not self.agrees and self.holds(self.analytic, MARGIN)

    @property
    def sharp(self) -> bool:
        """Every output has a derivative, or one on each side, and the bar is narrow."""
        return not self.lost and not self.blurred

    @property
    def settled(self) -> bool:
        """Differences found the derivative of every output, if only as 0 beside others."""
        right, left = self.slopes.right, self.slopes.left
        with np.errstate(invalid="ignore"):
            apart = right.error + left.error + np.abs(right.value - left.value)
            found = (apart <= 0.01 * self.slopes.reach) | (self.slopes.central.step == 0)
        return bool(found.all())

    @property
    def finite(self) -> bool:
        """The gradient of every member is a number."""
        return bool(np.isfinite(self.parts).all())

    @property
    def hopeless(self) -> bool:
        """Not sharp for a reason that splitting is unlikely to cure: a quarter of the outputs is
        lost."""
        return self.blurred or 4 * self.lost > max(3, int(np.sum(self.slopes.noise > 0)))

    @property
    def clean(self) -> bool:
        """Correct, smooth and sharp: all members are judged."""
        return self.agrees and self.sharp and not self.kinked

    @property
    def smoothly_wrong(self) -> bool:
        """Sharp and smooth, and different from the pull-back's derivative."""
        return self.sharp and self.finite and not self.kinked and not self.agrees

    @property
    def resolution(self) -> float:
        """The relative error of one typical element that would have been detected."""
        sizes = np.abs(self.parts[self.parts != 0])
        return MARGIN * self.bar / float(np.median(sizes)) if sizes.size else 0.0

    def joined(self, other: Probe) -> Probe:
        """The combined evidence on the same members: an output need be sharp in only one of the
        probes.

        The derivative of every output is then compared in one random direction at least.
        """
        if not (self.agrees and other.agrees):
            return other if self.agrees else self
        if self.blurred or other.blurred:
            return other if self.blurred else self
        return replace(self, without=self.without & other.without)

    def rest(self, part: Probe) -> Probe:
        """The evidence on the other members: this probe less that of the first ones along the same
        u."""
        first = part.members.size
        return replace(
            self,
            members=self.members[first:],
            parts=self.parts[first:],
            analytic=self.analytic - part.analytic,
            low=self.low - part.high,
            high=self.high - part.low,
            bar=self.bar + part.bar,
        )


def probe(
    subject: Subject,
    members: Array,
    uniform: bool = False,
    first: float = FIRST,
    along: tuple[Array, Array] | None = None,
) -> Probe:
    """Compare in a random direction in which only `members` (positions in x) move.

    The cotangent weighs each output by the inverse of its own numeric error, so that no output
    is hidden by the rounding of a larger one. along: a direction, of which the members' part is
    used, and a cotangent to use instead.
    """
    u = np.zeros(subject.x.shape)
    if along is None:
        u[members] = subject.random(members.size) * subject.sizes(uniform)[members]
    else:
        u[members] = along[0][members]
    line = Line(lambda t: subject(subject.x + t * u), subject.y, subject.unit, subject.inside)
    slopes = climb(line, first * subject.rng.uniform(0.7, 1.0), converged(subject.natural))
    if along is None:
        v = subject.random(subject.y.size) * _weights(subject, slopes)
    else:
        v = np.where(np.isfinite(slopes.central.error), along[1], 0.0)
    found = _compared(subject, members, u, v, line, slopes, uniform)
    if not found.clean and subject.settle():
        return probe(subject, members, uniform, first, along)
    if found.agrees or found.kinked or along is not None:
        return found
    return _widened(subject, found)


def _weights(subject: Subject, slopes: Slopes) -> Array:
    """The inverse of each output's error, the largest being 1; 0 for outputs without a slope."""
    error = np.where(slopes.kink, slopes.right.error + slopes.left.error, slopes.central.error)
    size = np.where(np.isfinite(slopes.central.value), np.abs(slopes.central.value), 0.0)
    floor = np.maximum(16 * EPS * size, 40 * subject.grain)  # smaller ones are guesses
    usable = np.isfinite(error)
    width = np.where(usable, np.maximum(error, floor), 0.0)
    positive = width[width > 0]
    if not positive.size:
        return usable.astype(np.float64)
    width = np.where(usable & (width == 0), float(np.median(positive)), width)
    with np.errstate(divide="ignore", under="ignore"):
        return np.where(usable, np.maximum(float(positive.min()) / width, 1e-100), 0.0)


def _compared(
    subject: Subject, members: Array, u: Array, v: Array, line: Line, slopes: Slopes, uniform: bool
) -> Probe:
    given, vague = v != 0, vague_in(line, slopes)
    used = given & ~vague if (given & ~vague).any() else given
    v = np.where(used, v, 0.0)
    w, kink = v[used], slopes.kink[used]
    central, right, left = (
        type(e)(*(a[used] for a in e)) for e in (slopes.central, slopes.right, slopes.left)
    )
    sides = np.sort(np.stack([w * right.value, w * left.value]), axis=0)
    low = math.fsum(np.where(kink, sides[0], w * central.value))
    high = math.fsum(np.where(kink, sides[1], w * central.value))
    truncation = np.where(kink, right.truncation + left.truncation, central.truncation)
    rounding = np.where(kink, right.rounding + left.rounding, central.rounding)
    parts = subject.pull(v)[members] * u[members]
    finite = np.where(np.isfinite(parts), parts, 0.0)
    bar = (
        float(np.sum(np.abs(w) * truncation))
        + 1.5 * _norm(w * rounding)  # roundings are independent, so their squares add up
        + ANALYTIC * subject.roundoff * float(np.sum(np.abs(finite)))
    )
    typical = _norm(finite)
    size = float(np.sum(np.abs(w) * subject.natural[used]))
    largest = max(typical, high - low, abs(low), abs(high))
    return Probe(
        members=members,
        u=u,
        v=v,
        slopes=slopes,
        analytic=math.fsum(parts) if np.isfinite(parts).all() else math.nan,
        low=low,
        high=high,
        bar=bar,
        parts=parts,
        without=vague | slopes.kink,
        blurred=not (bar <= SHARP * largest or typical <= bar <= UNSEEN * size or bar == 0),
        uniform=uniform,
        line=line,
    )


def _norm(a: Array) -> float:
    """The Euclidean norm; no square under- or overflows."""
    largest = float(np.abs(a).max(initial=0.0))
    if not 0 < largest < math.inf:
        return largest
    return largest * float(np.sqrt(np.sum((a / largest) ** 2)))


def _widened(subject: Subject, found: Probe) -> Probe:
    """The probe with a bar that also holds the rounding of an ill-conditioned pull-back.

    That is the change of the gradient when everything moves by a unit in the last place: the point,
    the cotangent, and all numbers computed from them. If that takes other elements across a kink,
    only the members move; and nothing is added if they, too, are on an edge, since a gradient that
    differs at the point alone is not a rounding.
    """

    def change(gradient: Array) -> float:
        along = float(np.sum(gradient[found.members] * found.u[found.members])) - found.analytic
        return abs(along) if math.isfinite(along) else 0.0

    def members_moved() -> Array:
        x = subject.x.copy()
        x[found.members] = subject.step.of(x[found.members], subject.rng)
        return subject.linearized(x)(found.v)

    typical = _norm(found.parts)
    smooth = subject.step.jump(subject.x, found.v, found.parts) * float(np.abs(found.u).max())
    most = max(BLUNT * typical, smooth)
    moved = max(change(subject.rounded(found.v, subject.step)) for _ in range(2))
    if not moved <= most:
        moved = max(change(members_moved()) for _ in range(2))
        moved = moved if moved <= most else 0.0
    bar = found.bar + WIDENED * moved
    return replace(
        found, bar=bar, blurred=found.blurred or bar > SHARP * max(typical, abs(found.numeric))
    )
