"""Verdicts of a gradient check on single elements, from probes at several scales.

In order: one element; kinks, where an output has no derivative: the elements it depends on, and
those of them whose gradient is a valid subgradient; isolated values, where the function differs
from the limit on which both sides agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..report import CORRECT, KINK, NAN, NEAR_KINK, UNKNOWN, WRONG, GradFinding, Numbers, Verdict
from ..tolerance import JUMP, Array, Tuned
from .derivative import FIRST, Line
from .probe import LIMIT, Probe, is_limit, is_tied, probe
from .problem import Subject

TOO_SMALL = f"off by less than {Tuned.SMALLEST:g} of itself: a small mistake, or rounding inside"
KINKS = 16  # at most this many outputs of an element on a kink are checked one by one
VALID = "a valid subgradient"


def judge_element(subject: Subject, first: Probe) -> Verdict:
    """Correct as soon as one scale shows it; wrong if all sharp scales agree that it is.

    first: the first probe of the element.
    """
    tries, outside = [first], False
    for uniform, step in _scales(subject, first):
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


def _scales(subject: Subject, first: Probe) -> Iterator[tuple[bool, float]]:
    """The kinds and the first steps of further probes."""
    wide = wide_step(subject, first.members) if first.blurred else FIRST
    return iter(((True, wide), (True, FIRST), *((False, f) for f in Tuned.FINER), (False, FIRST)))


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
    if len(off) > 1 and _consistent(off) and not _doubted(off, agreed):
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


def _doubted(off: list[Probe], agreed: list[Probe]) -> bool:
    """True if a probe that agrees contradicts any that is off: at a kink each does."""
    return any(t.kinked or any(map(t.overrules, off)) for t in agreed)


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
    """The elements on a kink whose gradient lies between the one-sided slopes."""
    kinks = np.flatnonzero(seen.slopes.kink & (sources >= 0))
    v = np.zeros(sources.size)
    v[kinks] = subject.random(kinks.size)
    given = subject.pull(v) * seen.u
    right, left = seen.slopes.right, seen.slopes.left
    sides = np.sort(np.stack([v * right.value, v * left.value])[:, kinks], axis=0)
    error = (np.abs(v) * (right.error + left.error))[kinks]
    low, high = np.zeros(given.size), np.zeros(given.size)
    np.add.at(low, sources[kinks], sides[0] - error)
    np.add.at(high, sources[kinks], sides[1] + error)
    found = np.unique(sources[kinks])
    return np.asarray(found[(low[found] <= given[found]) & (given[found] <= high[found])])


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
