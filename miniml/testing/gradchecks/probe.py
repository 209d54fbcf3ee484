"""Probe of a gradient: its directional derivative by differences and by the pull-back.

In order: the comparison along one random direction, in which a group of elements moves; verdicts on
single elements, from probes at several scales: kinks, where an output has no derivative, and the
valid subgradients there; isolated values, where the function differs from the limit on both sides;
valid subgradients where several elements tie; float64 functions that are noisier than float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..report import CORRECT, KINK, NAN, NEAR_KINK, UNKNOWN, WRONG, GradFinding, Numbers, Verdict
from ..tolerance import FUNCTION, JUMP, Array, Tuned, noise_among
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


# --- Verdicts on single elements ------------------------------------------------------------------


TOO_SMALL = f"off by less than {Tuned.SMALLEST:g} of itself: a small mistake, or rounding inside"


KINKS = 16  # at most this many outputs of an element on a kink are checked one by one


VALID = "a valid subgradient"


def judge_element(subject: Subject, first: Probe) -> Verdict:
    """Correct as soon as one scale shows it; wrong if all sharp scales agree that it is.

    first: the first probe of the element.
    """
    tries, outside = [first], False
    wide = wide_step(subject, first.members) if first.blurred else FIRST
    finer = ((False, step) for step in Tuned.FINER)
    for uniform, step in ((True, wide), (True, FIRST), *finer, (False, FIRST)):
        if _shows_it_correct(tries[-1], tries):
            break
        if len(tries) == 2 and all(t.sharp and t.finite and t.kinked for t in tries):
            if all(t.agrees for t in tries) and _inside(subject, tries[-1]):
                return _verdict(subject, KINK, tries[-1], VALID)
            if is_limit(subject, tries[-1]):
                return _verdict(subject, KINK, tries[-1], LIMIT)
            outside = True
        tries.append(probe(subject, first.members, uniform, step))
    kind, seen, message = _concluded(subject, tries, outside)
    if kind == WRONG and seen.finite and not outside and is_tied(subject, int(first.members[0])):
        if is_limit(subject, seen):  # the median of three that tie is flat in each of them
            return _verdict(subject, KINK, seen, LIMIT)
    return _verdict(subject, kind, seen, message)


def wide_step(subject: Subject, members: Array) -> float:
    """The first step that moves members by FIRST in absolute terms, however small they are."""
    sizes = subject.sizes(uniform=True)[members]
    return FIRST * max(1.0, 1.0 / float(np.median(sizes)))


def _inside(subject: Subject, seen: Probe) -> bool:
    """True if the derivative of each single output lies between its one-sided slopes.

    The sum of many outputs lies in a wide interval, in which mistakes of some of them would hide.
    """
    kinks = np.flatnonzero(seen.slopes.kink)
    some = subject.rng.permutation(kinks)[:KINKS]
    right, left, unit = seen.slopes.right, seen.slopes.left, float(seen.u[seen.members[0]])
    given = np.array([subject.entry(k, int(seen.members[0])) for k in some]) * unit
    error = (right.error + left.error)[some] + 1e-6 * np.abs(given)
    low, high = np.sort([right.value[some], left.value[some]], axis=0)
    return bool(((low - error <= given) & (given <= high + error)).all())


def _shows_it_correct(seen: Probe, tries: list[Probe]) -> bool:
    """True if a probe is clean, and refutes every disagreement of another one."""
    return seen.clean and all(seen.overrules(t) for t in tries if t.sharp and not t.agrees)


def _concluded(subject: Subject, tries: list[Probe], outside: bool) -> tuple[str, Probe, str]:
    """The kind of verdict, the probe that shows it, and a comment.

    outside: where there is a kink, the gradient of some output is not a valid one.
    """
    sharp = [t for t in tries if t.sharp]
    if _shows_it_correct(tries[-1], tries):
        return CORRECT, tries[-1], ""
    off = [t for t in sharp if not t.agrees or (outside and t.kinked)]
    agreed = [t for t in sharp if t.agrees and not (outside and t.kinked)]
    doubted = any(t.kinked or any(map(t.overrules, off)) for t in agreed)  # at a kink each does
    if len(off) > 1 and _consistent(off) and not doubted:
        if float(np.sqrt(np.mean([t.relative**2 for t in off]))) < Tuned.SMALLEST:
            return UNKNOWN, off[0], TOO_SMALL
        return WRONG, off[0], "outside the one-sided slopes" if off[0].kinked else ""
    if not tries[0].finite and any(t.settled for t in tries):
        return WRONG, next(t for t in tries if t.settled), ""
    if agreed and sharp[0].kinked:
        return KINK, sharp[0], VALID
    if any(map(_broken, tries)):
        return NEAR_KINK, tries[-1], "slopes change within the smallest step"
    return UNKNOWN, tries[-1], why_unjudged(subject, tries[-1])


def _consistent(sharp: list[Probe]) -> bool:
    """True if all probes of one element found the same derivative of every output, within their
    errors."""
    for one, other in itertools.pairwise(sharp):
        if one.kinked or other.kinked:
            continue
        a, b = one.slopes.central, other.slopes.central
        ratio = float(other.u[other.members[0]] / one.u[one.members[0]])
        with np.errstate(invalid="ignore"):
            apart = np.abs(a.value * ratio - b.value) > 2 * (a.error * abs(ratio) + b.error)
        if (apart & ~one.without & ~other.without).any():
            return False
    return True


def _broken(seen: Probe) -> bool:
    """True if one-sided slopes differ, though not sharply."""
    right, left = seen.slopes.right, seen.slopes.left
    with np.errstate(invalid="ignore"):
        jump = np.abs(right.value - left.value)
        blur = 2 * (right.rounding + left.rounding) + 0.1 * np.abs(right.value)
        return bool((jump > blur).any())


def why_unjudged(subject: Subject, seen: Probe) -> str:
    """The reason why a probe is inconclusive."""
    slopes = seen.slopes
    if subject.raised and seen.lost:
        return f"the function raises nearby ({subject.raised})"
    if not seen.finite:
        return "the gradient is not finite"
    if (np.isfinite(slopes.right.value) ^ np.isfinite(slopes.left.value)).any():
        return "the edge of the domain: differences exist on one side only"
    if not np.isfinite(slopes.central.value[slopes.central.step > 0]).all():
        return "the function is not finite nearby"
    return "differences do not settle: noise, or rounding hides the derivative"


def _verdict(subject: Subject, kind: str, seen: Probe, message: str) -> Verdict:
    if kind == CORRECT:
        return Verdict(CORRECT, seen.members)
    numbers = _numbers_of(subject, seen)
    finding = subject.finding(kind, message, int(seen.members[0]), numbers)
    return Verdict(kind, seen.members, (finding,))


def _numbers_of(subject: Subject, seen: Probe) -> Numbers:
    """The numbers of a probe of one element, per unit of that element.

    They are those for a cotangent of ones if the disagreement shows there, else for another.
    """
    plain = np.isfinite(seen.slopes.central.error) | seen.slopes.kink
    for v in plain.astype(np.float64), plain * subject.random(plain.size):
        numbers = _numbers_for(subject, seen, v)
        if seen.agrees or abs(numbers.analytic - numbers.numeric) > numbers.error_bar:
            return numbers
    return _numbers_for(subject, seen, seen.v)


def _numbers_for(subject: Subject, seen: Probe, v: Array) -> Numbers:
    used, w = v != 0, v[v != 0] / float(seen.u[seen.members[0]])
    central, right, left = (
        (float(np.sum(w * e.value[used])), float(np.sum(np.abs(w) * e.error[used])))
        for e in (seen.slopes.central, seen.slopes.right, seen.slopes.left)
    )
    analytic = float(subject.pull(v)[seen.members[0]])
    if not seen.kinked:
        return Numbers(analytic, *central, NAN, NAN)
    above, below = (right, left) if seen.u[seen.members[0]] > 0 else (left, right)
    middle, half = (above[0] + below[0]) / 2, abs(above[0] - below[0]) / 2
    return Numbers(analytic, middle, half + above[1] + below[1], below[0], above[0])


# --- Kinks ----------------------------------------------------------------------------------------


MANY = 32  # kinks that a report lists


ASIDE = 0.07, -0.07  # steps that show what an output depends on: nearly as large as a probe takes


def sources_of(subject: Subject, seen: Probe) -> Array | None:
    """For each output without a derivative, the one member it depends on; -1 for the others.

    None if one of them depends on several. The member's number is found bit by bit: half of the
    members move at a time, and the outputs that change show one bit.
    """
    bad, count = seen.without, seen.members.size
    number = np.zeros(bad.size, np.int64)
    for bit in range(max(count - 1, 1).bit_length() if bad.any() else 0):
        ones = (np.arange(count) >> bit & 1).astype(bool)
        still, moved = (_moved(subject, seen, half) & bad for half in (~ones, ones))
        if (still & moved).any() or (bad & ~still & ~moved).any():
            return None
        number += moved.astype(np.int64) << bit
    return np.where(bad, seen.members[np.minimum(number, count - 1)], -1)


def _moved(subject: Subject, seen: Probe, which: Array) -> Array:
    """The outputs that change when some of a probe's members move."""
    u = np.zeros(subject.x.shape)
    u[seen.members[which]] = seen.u[seen.members[which]]
    sides = [subject(subject.x + t * u) != subject.y for t in ASIDE]
    return np.asarray(sides[0] | sides[1])


def valid_kinks(subject: Subject, seen: Probe, sources: Array) -> Array:
    """The elements on a kink of which the derivative of each single output lies between its
    one-sided slopes; of more than KINKS outputs of an element, that of the last ones together."""
    kinks = subject.rng.permutation(np.flatnonzero(seen.slopes.kink & (sources >= 0)))
    found, of = np.unique(sources[kinks], return_inverse=True)
    order = np.argsort(of, kind="stable")
    number = np.empty_like(of)  # of each kink among those of its element
    number[order] = np.arange(of.size) - np.searchsorted(of[order], of[order])
    number = np.minimum(number, KINKS - 1)
    valid = np.ones(found.size, np.bool_)
    for n in range(number.max(initial=-1) + 1):
        these = number == n
        valid &= _between(subject, seen, found, kinks[these], of[these])
    return np.asarray(found[valid])


def _between(subject: Subject, seen: Probe, members: Array, kinks: Array, of: Array) -> Array:
    """Of each member, if its derivatives of these outputs, added up at random, lie between their
    one-sided slopes. of: the place of the member of each output."""
    v = np.zeros(seen.slopes.kink.size)
    v[kinks] = subject.random(kinks.size)
    given = (subject.pull(v) * seen.u)[members]
    right, left = seen.slopes.right, seen.slopes.left
    sides = np.sort(np.stack([v * right.value, v * left.value])[:, kinks], axis=0)
    error = (np.abs(v) * (right.error + left.error))[kinks]
    low, high = np.zeros(members.size), np.zeros(members.size)
    np.add.at(low, of, sides[0] - error)
    np.add.at(high, of, sides[1] + error)
    none = np.bincount(of, minlength=members.size) == 0
    return np.asarray(none | (low <= given) & (given <= high))


def as_kinks(subject: Subject, seen: Probe, sources: Array, positions: Array) -> Verdict:
    """The verdict on elements with valid kinks, of which only the first are listed."""
    kinks = seen.slopes.kink & (sources >= 0)
    gradient = subject.pull(kinks.astype(np.float64))

    def found(i: int) -> GradFinding:
        mine, unit = kinks & (sources == i), float(seen.u[i])
        right, left = (
            float(np.sum(e.value[mine])) / unit for e in (seen.slopes.right, seen.slopes.left)
        )
        bar = float(np.sum(seen.slopes.right.error[mine])) / abs(unit)
        left, right = (left, right) if unit > 0 else (right, left)
        bar += abs(right - left) / 2
        numbers = Numbers(float(gradient[i]), (left + right) / 2, bar, left, right)
        return subject.finding(KINK, VALID, i, numbers)

    return Verdict(KINK, positions, tuple(found(int(i)) for i in positions[:MANY]))


def ties(subject: Subject, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """Judge the kinks together, too: elements that tie share one subgradient.

    All of them are moved alike, so that ties stay. Where every kink bends the same way, the
    derivative along that direction must lie between its one-sided slopes. This is not checked if
    some are limits: these tie with elements that alone are on no kink, and would not move.
    """
    kinks = [v for v in verdicts if v.kind == KINK]
    if any(f.diagnosis == LIMIT for v in kinks for f in v.findings):
        return
    members = np.unique(np.concatenate([np.zeros(0, np.int64), *(v.members for v in kinks)]))
    if members.size < 2 or len({f.right > f.left for v in kinks for f in v.findings}) != 1:
        return
    u = np.zeros(subject.x.shape)
    u[members] = float(np.median(subject.sizes(uniform=True)[members]))
    seen = probe(subject, members, along=(u, np.ones(subject.y.size)))
    if seen.sharp and not seen.agrees:
        first = int(members[0])
        message = f"{members.size} elements on kinks: one by one valid, not together (ties?)"
        numbers = Numbers(seen.analytic, seen.numeric, seen.bar)
        finding = subject.finding(WRONG, message, first, numbers)
        yield Verdict(WRONG, members[:1], (finding,))


# --- Isolated values ------------------------------------------------------------------------------


def isolated(
    subject: Subject, members: Array, u: Array, step: float, outputs: Array
) -> Verdict | None:
    """The one element that makes an output leave its limits: wrong, since there is no derivative.

    outputs: those with a `removable_jump` along u. The element is found by bisection; far smaller
    steps then tell a narrow peak, which is continuous, from a value that is no limit. None if
    there is no such element.
    """
    k = int(np.flatnonzero(outputs)[0])
    while members.size > 1:
        halves = np.array_split(members, 2)
        found = [half for half in halves if math.isfinite(_limit(subject, half, u, step, k))]
        if not found:
            return None  # several at once: a diagonal of the arguments, not a single element
        members = found[0]
    position, value = int(members[0]), float(subject.y[k])
    limits = [_limit(subject, members, u, h, k) for h in _nearer(subject, position, u, step)]
    if not limits or not abs(limits[-1] - limits[0]) <= Tuned.SAME * abs(value - limits[0]):
        return None
    order = subject.map.order
    what = "function" if order == 1 else f"gradient of order {order - 1}"
    message = (
        f"an isolated value: the {what} is {value:.6g} here and {limits[-1]:.6g} next to it on "
        "both sides, so it has no derivative"
    )
    numbers = Numbers(subject.entry(k, position))
    finding = subject.finding(WRONG, message, position, numbers)
    return Verdict(WRONG, members, (finding,))


def _nearer(subject: Subject, position: int, u: Array, step: float) -> list[float]:
    x = float(subject.x[position])
    steps = [step, *(h for h in Tuned.NEARER if h < step)] + ([] if x else list(Tuned.NEAREST))
    return [h for h in steps if x + h * u[position] != x != x - h * u[position]]


def _limit(subject: Subject, members: Array, u: Array, step: float, k: int) -> float:
    """The value of output k next to the point, on both sides; NaN unless that at the point
    differs."""
    only = np.zeros_like(u)
    only[members] = u[members]
    up, down = (float(subject(subject.x + h * only)[k]) for h in (step, -step))
    here = float(subject.y[k])
    away = min(abs(up - here), abs(down - here))
    alone = away > Tuned.CLEAR * abs(up - down) and away > JUMP * float(subject.grain[k])
    return (up + down) / 2 if alone else math.nan


def removable_jump(line: Line) -> Array:
    """True for components with a removable discontinuity at 0: the value there is far from all
    those at the smallest steps, which agree.

    A jump has different values on each side, and at a kink or a pole the values tend to the one at
    0, or to no limit.
    """
    nearest = np.argsort(line.steps)[:3]
    values = np.array([side[k] for k in nearest for side in (line.above, line.below)])
    with np.errstate(invalid="ignore"):
        among = values.max(axis=0) - values.min(axis=0)
        away = np.abs(values - line.origin).min(axis=0)
        far = (away > Tuned.CLEAR * among) & (away > JUMP * line.grain)
        return np.asarray(far & np.isfinite(away))


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
    steps = (h * both[0].u * np.arange(1, POINTS + 1)[:, None] for h in Tuned.SPACINGS)
    near = (np.array([subject(subject.x + step) for step in each]) for each in steps)
    seen = np.min([noise_among(y).max(axis=0) for y in near], axis=0)
    with np.errstate(invalid="ignore"):
        worst = np.where(suspect & (seen > Tuned.UNEXPLAINED * subject.grain), seen / size, 0.0)
    noise = float(worst.max())
    return noise if noise > Tuned.NOISY else 0.0


def note_on(noise: float) -> str:
    """The note on a noise above NOISY."""
    narrow = "float32" if noise < 1e-5 else "a narrower dtype"
    return (
        f"the function is noisy: next to the point its float64 values are off by about {noise:.0e} "
        f"of their size; something in it is computed in {narrow}, or is ill-conditioned"
    )
