"""Isolated values: where a function is not the limit of its neighbours, though both sides agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .derivative import Line
from .report import WRONG, Finding
from .subject import Subject

Array = np.ndarray[Any, Any]

CLEAR = 20.0
NEARER = 1e-6, 1e-9, 1e-12
NEAREST = 1e-30, 1e-100  # of a 0 there are smaller steps than of other numbers


@dataclass(frozen=True, slots=True)
class Isolated:
    """An element, by its position, and an output's value next to the point, on either side."""

    position: int
    output: int
    limit: float

    def finding(self, subject: Subject, order: int) -> Finding:
        """Wrong, for there is no derivative; the gradient that is given is of this output."""
        one = np.zeros(subject.y.size)
        one[self.output] = 1.0
        what = "function" if order == 1 else f"gradient of order {order - 1}"
        said = (
            f"an isolated value: the {what} is {subject.y[self.output]:.6g} here and "
            f"{self.limit:.6g} next to it on both sides, so it has no derivative"
        )
        leaf, nan = next(f for f in subject.leaves if f.has(self.position)), math.nan
        return Finding(
            WRONG, order, leaf.argnum, leaf.path, leaf.index(self.position),
            float(subject.pull(one)[self.position]), nan, nan, said, leaf.argument,
        )  # fmt: skip


def lonely(line: Line) -> Array:
    """Components whose value at 0 is far from all the values at the smallest steps, which agree.

    A jump has other values on each side, and at a kink or a pole the values go to the one at 0,
    or nowhere.
    """
    nearest = np.argsort(line.steps)[:3]
    values = np.array([side[k] for k in nearest for side in (line.above, line.below)])
    with np.errstate(invalid="ignore"):
        among = values.max(axis=0) - values.min(axis=0)
        away = np.abs(values - line.origin).min(axis=0)
        return np.asarray((away > CLEAR * among) & (away > 64 * line.grain) & np.isfinite(away))


def isolated(
    subject: Subject, members: Array, u: Array, step: float, which: Array
) -> Isolated | None:
    """The element that alone makes an output leave its limits; None if none does.

    which: outputs found to be lonely along u. The element is found by bisection; steps far
    smaller then tell a function that bends in a narrow space from one that has no limit there.
    """
    k = int(np.flatnonzero(which)[0])
    while members.size > 1:
        halves = np.array_split(members, 2)
        found = [half for half in halves if math.isfinite(_limit(subject, half, u, step, k))]
        if not found:
            return None  # several at once: a diagonal of the arguments, no point of one
        members = found[0]
    position = int(members[0])
    limits = [_limit(subject, members, u, h, k) for h in _nearer(subject, position, u, step)]
    same = len(limits) and abs(limits[-1] - limits[0]) <= 0.01 * abs(subject.y[k] - limits[0])
    return Isolated(position, k, limits[-1]) if same else None


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
    alone = away > CLEAR * abs(up - down) and away > 64 * float(subject.grain[k])
    return (up + down) / 2 if alone else math.nan
