"""Probe of a gradient: its directional derivative by differences and by the pull-back.

In order: the comparison along one random direction, in which a group of elements moves; valid
subgradients where several elements tie; float64 functions that are noisier than float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..tolerance import FUNCTION, Array, Tuned, noise_among
from .derivative import EPS, FIRST, Line, Slopes, climb, converged, vague_in
from .problem import Subject

WIDENED = 8.0  # times the largest of two draws


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
    own = FUNCTION * subject.roundoff * float(np.sum(np.abs(finite)))
    bar = _bar(w, truncation, rounding) + own
    typical = _norm(finite)
    size = float(np.sum(np.abs(w) * subject.natural[used]))
    largest = max(typical, high - low, abs(low), abs(high))
    sharp = bar <= Tuned.SHARP * largest or bar == 0
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
        blurred=not (sharp or typical <= bar <= Tuned.UNSEEN * size),
        uniform=uniform,
        line=line,
    )


def _bar(w: Array, truncation: Array, rounding: Array) -> float:
    """The error of a sum of slopes with weights w."""
    independent = 1.5 * _norm(w * rounding)  # roundings are, so their squares add up
    return float(np.sum(np.abs(w) * truncation)) + independent


def _norm(a: Array) -> float:
    """The Euclidean norm, whose squares neither underflow nor overflow."""
    largest = float(np.abs(a).max(initial=0.0))
    if not 0 < largest < math.inf:
        return largest
    return largest * float(np.sqrt(np.sum((a / largest) ** 2)))


def _widened(subject: Subject, found: Probe) -> Probe:
    """The probe with a bar that includes the rounding of an ill-conditioned pull-back.

    That is the change of the gradient when everything moves by a unit in the last place: the point,
    the cotangent, and all numbers computed from them. If that takes other elements across a kink,
    only the members move; and nothing is added if they, too, are on an edge, since a gradient that
    differs at the point alone is no effect of rounding.
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
    most = max(Tuned.BLUNT * typical, smooth)
    moved = max(change(subject.rounded(found.v, subject.step)) for _ in range(2))
    if not moved <= most:
        moved = max(change(members_moved()) for _ in range(2))
        moved = moved if moved <= most else 0.0
    bar = found.bar + WIDENED * moved
    blunt = bar > Tuned.SHARP * max(typical, abs(found.numeric))
    return replace(found, bar=bar, blurred=found.blurred or blunt)


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
        """True if a derivative lies in the numeric interval, give or take that many bars."""
        return self.low - bars * self.bar <= analytic <= self.high + bars * self.bar

    @property
    def marginal(self) -> bool:
        """Outside the interval by so little that the bar, itself an estimate, may be too narrow."""
        return not self.agrees and self.holds(self.analytic, Tuned.MARGIN)

    @property
    def off(self) -> float:
        """The distance of the analytic derivative from the numeric interval."""
        return max(self.low - self.analytic, self.analytic - self.high)

    @property
    def relative(self) -> float:
        """`off` relative to the slopes that the cotangent adds up; infinite where all are 0."""
        central = self.slopes.central.value
        size = _norm(np.where(np.isfinite(central), self.v * central, 0.0))
        largest = max(size, abs(self.analytic), abs(self.numeric))
        return self.off / largest if largest else math.inf

    def overrules(self, other: Probe) -> bool:
        """True if this agreement refutes another probe's disagreement on the same element.

        Its slopes are read along the other's direction and cotangent: there it must agree, too.
        A blunt probe agrees with whatever is nearly right, so it must be sharp enough to see what
        the other is off by; or as sharp as the other, where chance explains that.
        """
        member, central = self.members[0], self.slopes.central
        value, truncation, rounding = (a[other.v != 0] for a in central[:3])
        w = other.v[other.v != 0] * float(other.u[member] / self.u[member])
        bar = _bar(w, truncation, rounding)
        if not abs(math.fsum(w * value) - other.analytic) <= bar:
            return False
        as_sharp = other.marginal and bar <= Tuned.AS_SHARP * other.bar
        return as_sharp or Tuned.MARGIN * bar <= other.off

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
        return Tuned.MARGIN * self.bar / float(np.median(sizes)) if sizes.size else 0.0

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


# --- Subgradients at ties -------------------------------------------------------------------------
# A gradient is right that is a limit of gradients next to the point. Where three elements are
# equal, a sort may take them in any order, and gives the gradient of that order. The one-sided
# slopes of an element alone show only two of them: it moves ahead of the others, or behind them.


LIMIT = "a valid subgradient: the gradient next to the point, where a tie is broken"
RANKS = 64  # ranks among equal elements that are tried, of more only these


def is_tied(subject: Subject, position: int) -> bool:
    """True if another element has the same value."""
    return int(np.sum(subject.x == subject.x[position])) > 1


def is_limit(subject: Subject, seen: Probe) -> bool:
    """True if the gradient of one element lies between gradients at points next to this one.

    It must do so for each of several cotangents, as does every limit of such gradients, and every
    mean of limits (the generalized gradient of Clarke); and they must differ, so that there is a
    kink. seen: a probe of the element. The gradients next to the point come from differences.
    """
    position, slopes = int(seen.members[0]), seen.slopes
    known = np.isfinite(slopes.central.error) | slopes.kink
    v = np.stack([subject.random(known.size) for _ in range(Tuned.COTANGENTS)]) * known
    given = np.array([subject.pull(w)[position] for w in v])
    low, high = np.full(Tuned.COTANGENTS, np.inf), np.full(Tuned.COTANGENTS, -np.inf)
    top, bottom = low, high  # the lowest upper end and the highest lower end: apart, if they differ
    for value, error in _slopes_nearby(subject, seen):
        middle, bar = v @ np.where(known, value, 0.0), np.abs(v) @ np.where(known, error, 0.0)
        low, high = np.fmin(low, middle - bar), np.fmax(high, middle + bar)
        top, bottom = np.fmin(top, middle + bar), np.fmax(bottom, middle - bar)
        if (top < bottom).any() and ((low <= given) & (given <= high)).all():
            return True
    return False


def _slopes_nearby(subject: Subject, seen: Probe) -> Iterator[tuple[Array, Array]]:
    """The derivatives of the outputs by one element, with errors: on both sides, and at points
    where ties are broken."""
    slopes, unit = seen.slopes, float(seen.u[seen.members[0]])
    for side in slopes.right, slopes.left:
        value, error = (
            np.where(slopes.kink, one, both) / unit
            for one, both in (
                (side.value, slopes.central.value),
                (side.error, slopes.central.error),
            )
        )
        yield value, np.abs(error)
    for order in _orders(subject, int(seen.members[0])):
        yield _slope(subject, int(seen.members[0]), order, slopes.noise)


def _orders(subject: Subject, position: int) -> Iterator[Array]:
    """Directions that break a tie: for each element how far it is moved, from -1 to 1.

    The first ones are those that the pull-back itself may have chosen: it takes elements to
    outputs, so the order of the outputs, pulled back, is theirs; what reaches no output comes
    before them, or behind them. Then the element takes each rank among those equal to it, several
    times, since only some of these may tie with it: those of its row.
    """
    size, count = subject.x.size, max(subject.x.size, subject.y.size)
    ramp = np.linspace(1, 2, subject.y.size)
    for outputs in ramp, ramp[::-1], -ramp, -ramp[::-1]:
        order = subject.pull(outputs)
        largest = float(np.abs(order).max(initial=0.0))
        if 0 < largest < np.inf:
            yield order / largest + subject.random(size) / (8 * count)
    equal = np.setdiff1d(np.flatnonzero(subject.x == subject.x[position]), [position])
    ranked = np.linspace(-1, 1, equal.size + 1)
    for rank in np.tile(np.arange(equal.size + 1)[:RANKS], Tuned.ROUNDS):
        order = subject.random(size) / 2
        order[position] = ranked[rank]
        order[equal] = subject.rng.permutation(np.delete(ranked, rank))
        yield order


def _slope(subject: Subject, position: int, order: Array, noise: Array) -> tuple[Array, Array]:
    """The derivative of each output by one element, with all elements moved apart, and its
    error."""
    size = float(subject.sizes(uniform=True)[position])
    step = Tuned.WITHIN * Tuned.APART[-1] * size / max(subject.x.size, subject.y.size)
    u = np.zeros(subject.x.size)
    u[position] = step

    def at(distance: float) -> Array:
        x = subject.x + distance * size * order
        return (subject(x + u) - subject(x - u)) / (2 * step)

    far, near = map(at, Tuned.APART)
    rounding = 4 * np.fmax(noise, subject.grain) / step
    return 2 * near - far, np.abs(near - far) + rounding


# --- Noise of the function ------------------------------------------------------------------------


POINTS = 7


def noise_of(subject: Subject, both: list[Probe]) -> float:
    """The largest relative deviation of an output from a smooth curve next to the point.

    It is 0, at the cost of no call, if nothing in the probes suggests more than NOISY; else it is
    measured at a few points on one side, so near that only noise can show in their fourth
    differences. Roundings of the function's own operations do not count.
    """
    noise = np.min([seen.slopes.noise for seen in both], axis=0)
    size = np.maximum(np.abs(subject.y), np.max([seen.slopes.reach for seen in both], axis=0))
    with np.errstate(invalid="ignore"):
        suspect = (noise > Tuned.NOISY * size) & np.isfinite(subject.y)
    if not suspect.any():
        return 0.0
    subject.settle()
    seen = np.min([_rough(subject, both[0].u, h) for h in Tuned.SPACINGS], axis=0)
    with np.errstate(invalid="ignore"):
        worst = np.where(suspect & (seen > Tuned.UNEXPLAINED * subject.grain), seen / size, 0.0)
    noise = float(worst.max())
    return noise if noise > Tuned.NOISY else 0.0


def _rough(subject: Subject, u: Array, spacing: float) -> Array:
    y = np.array([subject(subject.x + k * spacing * u) for k in range(1, POINTS + 1)])
    return np.asarray(noise_among(y).max(axis=0))


def note_on(noise: float) -> str:
    """The note on a noise above NOISY."""
    narrow = "float32" if noise < 1e-5 else "a narrower dtype"
    return (
        f"the function is noisy: next to the point its float64 values are off by about {noise:.0e} "
        f"of their size; something in it is computed in {narrow}, or is ill-conditioned"
    )
