"""Isolated values: where a function is not the limit of its neighbours, though both sides agree."""

from __future__ import annotations

import math

import numpy as np

from .derivative import Line
from .report import WRONG, Array, Numbers, Verdict
from .subject import Subject

CLEAR = 20.0  # an isolated value is this many times further off than its neighbours are apart
ROUNDINGS = 64.0  # and this many roundings away from them: more than a short sum explains
# Steps, far below those of a probe, at which a narrow peak would be seen to be continuous.
NEARER = 1e-6, 1e-9, 1e-12
NEAREST = 1e-30, 1e-100  # from 0 smaller steps are possible than from other numbers
SAME = 0.01  # limits that differ by a smaller part of the gap at all these steps are one limit


def lonely(line: Line) -> Array:
    """Components whose value at 0 is far from all the values at the smallest steps, which agree.

    A jump has different values on each side, and at a kink or a pole the values tend to the one at
    0, or to no limit.
    """
    nearest = np.argsort(line.steps)[:3]
    values = np.array([side[k] for k in nearest for side in (line.above, line.below)])
    with np.errstate(invalid="ignore"):
        among = values.max(axis=0) - values.min(axis=0)
        away = np.abs(values - line.origin).min(axis=0)
        far = (away > CLEAR * among) & (away > ROUNDINGS * line.grain)
        return np.asarray(far & np.isfinite(away))


def isolated(
    subject: Subject, members: Array, u: Array, step: float, outputs: Array
) -> Verdict | None:
    """The one element that makes an output leave its limits: wrong, since there is no derivative.

    outputs: those found to be lonely along u. The element is found by bisection; steps far
    smaller then tell a function that bends in a narrow space from one that has no limit there.
    None if there is no such element.
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
    if not limits or not abs(limits[-1] - limits[0]) <= SAME * abs(value - limits[0]):
        return None
    order = subject.map.order
    what = "function" if order == 1 else f"gradient of order {order - 1}"
    message = (
        f"an isolated value: the {what} is {value:.6g} here and {limits[-1]:.6g} next to it on "
        "both sides, so it has no derivative"
    )
    one = np.zeros(subject.y.size)
    one[k] = 1.0
    numbers = Numbers(float(subject.pull(one)[position]))
    finding = subject.finding(WRONG, message, position, numbers)
    return Verdict(WRONG, members, (finding,))


def _nearer(subject: Subject, position: int, u: Array, step: float) -> list[float]:
    x = float(subject.x[position])
    steps = [step, *(h for h in NEARER if h < step)] + ([] if x else list(NEAREST))
    return [h for h in steps if x + h * u[position] != x != x - h * u[position]]


def _limit(subject: Subject, members: Array, u: Array, step: float, k: int) -> float:
    """The value of output k next to the point on both sides; NaN unless the point's is another."""
    only = np.zeros_like(u)
    only[members] = u[members]
    up, down = (float(subject(subject.x + h * only)[k]) for h in (step, -step))
    here = float(subject.y[k])
    away = min(abs(up - here), abs(down - here))
    alone = away > CLEAR * abs(up - down) and away > ROUNDINGS * float(subject.grain[k])
    return (up + down) / 2 if alone else math.nan
