"""The verdict on one element, from probes at several scales."""

from __future__ import annotations

import itertools

import numpy as np

from .derivative import FIRST
from .probe import Probe, probe
from .report import CORRECT, KINK, NAN, NEAR_KINK, UNKNOWN, WRONG, Array, Numbers, Verdict
from .subject import Subject

# First steps where 0.1 is too large: each climb reaches some five decades down, so that these leave
# no gap, and the last ones reach steps where rounding hides all differences.
FINER = 3e-3, 1e-5, 1e-8, 1e-11
VALID = "a valid subgradient"


def judge_element(subject: Subject, first: Probe) -> Verdict:
    """Correct as soon as one scale shows it; wrong if all sharp scales agree that it is.

    first: the first probe of the element.
    """
    tries, position = _tries(subject, first), int(first.members[0])
    kind, seen, message = _concluded(subject, tries)
    if kind == CORRECT:
        return Verdict(CORRECT, seen.members)
    numbers = _numbers_of(subject, seen)
    finding = subject.finding(kind, message, position, numbers)
    return Verdict(kind, seen.members, (finding,))


def _tries(subject: Subject, first: Probe) -> list[Probe]:
    """Probes of one element with steps of several sizes, until one is clean or nothing changes."""
    tries, only = [first], first.members
    wide = wide_step(subject, only) if first.blurred else FIRST
    for uniform, step in (True, wide), (True, FIRST), *((False, f) for f in FINER), (False, FIRST):
        kinks = [t.sharp and t.kinked and t.agrees for t in tries]
        if tries[-1].clean or (len(kinks) > 1 and all(kinks)):
            break
        tries.append(probe(subject, only, uniform, step))
    return tries


def wide_step(subject: Subject, members: Array) -> float:
    """The first step that moves members by FIRST itself, however small they are."""
    sizes = subject.sizes(uniform=True)[members]
    return FIRST * max(1.0, 1.0 / float(np.median(sizes)))


def _concluded(subject: Subject, tries: list[Probe]) -> tuple[str, Probe, str]:
    """The kind of verdict, the probe that shows it, and a comment."""
    sharp = [t for t in tries if t.sharp]
    if tries[-1].clean:
        return CORRECT, tries[-1], ""
    if len(sharp) > 1 and _consistent(sharp) and not any(t.agrees for t in sharp):
        return WRONG, sharp[0], "outside the one-sided slopes" if sharp[0].kinked else ""
    if not tries[0].finite and any(t.settled for t in tries):
        return WRONG, next(t for t in tries if t.settled), ""
    if sharp and sharp[0].kinked and any(t.agrees for t in sharp):
        return KINK, sharp[0], VALID
    if any(map(_broken, tries)):
        return NEAR_KINK, tries[-1], "slopes change within the smallest step"
    return UNKNOWN, tries[-1], why_unjudged(subject, tries[-1])


def _consistent(sharp: list[Probe]) -> bool:
    """Whether probes of one element found the same derivative of every output, within their
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
    """Whether one-sided slopes were seen to differ, though not sharply."""
    right, left = seen.slopes.right, seen.slopes.left
    with np.errstate(invalid="ignore"):
        jump = np.abs(right.value - left.value)
        blur = 2 * (right.rounding + left.rounding) + 0.1 * np.abs(right.value)
        return bool((jump > blur).any())


def why_unjudged(subject: Subject, seen: Probe) -> str:
    """Why a probe is inconclusive."""
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


def _numbers_of(subject: Subject, seen: Probe) -> Numbers:
    """A probe of one element in readable units: per unit of the element.

    For a cotangent of ones if the disagreement shows there, else for another.
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
