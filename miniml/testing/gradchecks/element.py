"""What probes say of single elements: which ones to look at, and the numbers to print."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .directions import random_signs
from .probe import Probe
from .report import Finding
from .subject import Subject

Array = np.ndarray[Any, Any]


def by(f: Finding) -> str:
    """How far one element is off, where the argument as a whole shows no pattern."""
    if not np.isfinite(f.analytic):
        return "not finite, where differences give a number"
    if f.analytic == 0:
        return "zero, but the function depends on this element"
    if np.isfinite(f.left):
        return ""
    if abs(f.numeric) <= f.error_bar:
        return "should be zero"
    return f"{f.analytic / f.numeric:.6g} times what it should be"


def sources_of(subject: Subject, seen: Probe) -> Array | None:
    """For each output without a derivative, the one member it depends on; -1 for the others.

    None if one of them depends on several. Bit by bit of the members' numbers: half of them moves
    at a time, and shows in the outputs.
    """
    bad = seen.without
    moved = [np.zeros(bad.size, bool), np.zeros(bad.size, bool)]
    number = np.zeros(bad.size, np.int64)
    count = seen.members.size
    for bit in range(max(count - 1, 1).bit_length()):
        ones = (np.arange(count) >> bit & 1).astype(bool)
        for value, half in ((0, seen.members[~ones]), (1, seen.members[ones])):
            u = np.zeros(subject.x.shape)
            u[half] = seen.u[half]
            sides = [subject(subject.x + t * u) for t in (0.07, -0.07)]
            moved[value] = ((sides[0] != subject.y) | (sides[1] != subject.y)) & bad
        if (moved[0] & moved[1]).any() or (bad & ~moved[0] & ~moved[1]).any():
            return None
        number += moved[1].astype(np.int64) << bit
    return np.where(bad, seen.members[np.minimum(number, count - 1)], -1)


def valid_kinks(subject: Subject, seen: Probe, sources: Array, rng: np.random.Generator) -> Array:
    """Of the elements with a kink, those whose gradient lies between the one-sided slopes."""
    kinks = np.flatnonzero(seen.slopes.kink & (sources >= 0))
    v = np.zeros(sources.size)
    v[kinks] = random_signs(rng, kinks.size)
    given = subject.pull(v) * seen.u
    right, left = seen.slopes.right, seen.slopes.left
    sides = np.sort(np.stack([v * right.value, v * left.value])[:, kinks], axis=0)
    error = (np.abs(v) * (right.error + left.error))[kinks]
    low, high = np.zeros(given.size), np.zeros(given.size)
    np.add.at(low, sources[kinks], sides[0] - error)
    np.add.at(high, sources[kinks], sides[1] + error)
    found = np.unique(sources[kinks])
    valid = (low[found] <= given[found]) & (given[found] <= high[found])
    return np.asarray(found[valid])


def consistent(sharp: list[Probe]) -> bool:
    """Whether probes of one element found the same derivative of every output, to their errors."""
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


def broken(tries: list[Probe]) -> bool:
    """Whether one-sided slopes were seen to differ, though not sharply."""
    with np.errstate(invalid="ignore"):
        for seen in tries:
            right, left = seen.slopes.right, seen.slopes.left
            jump = np.abs(right.value - left.value)
            if (jump > 2 * (right.rounding + left.rounding) + 0.1 * np.abs(right.value)).any():
                return True
    return False


@dataclass(frozen=True, slots=True)
class Numbers:
    """A probe's result as a person reads it: per unit of the element, for a plain cotangent."""

    analytic: float
    numeric: float
    bar: float
    left: float
    right: float

    @staticmethod
    def of(subject: Subject, seen: Probe, rng: np.random.Generator) -> Numbers:
        """For a cotangent of ones if the disagreement shows there, else for another."""
        plain = np.isfinite(seen.slopes.central.error) | seen.slopes.kink
        tries = [plain.astype(np.float64), plain * random_signs(rng, plain.size)]
        found = [Numbers._for(subject, seen, v) for v in tries]
        for numbers in found:
            if seen.agrees or abs(numbers.analytic - numbers.numeric) > numbers.bar:
                return numbers
        return Numbers._for(subject, seen, seen.v)

    @staticmethod
    def _for(subject: Subject, seen: Probe, v: Array) -> Numbers:
        unit = float(seen.u[seen.members[0]]) if seen.members.size == 1 else 1.0
        slopes = seen.slopes

        def along(values: Array) -> float:
            used = v != 0
            return float(np.sum(v[used] * values[used])) / unit

        direction = seen.u[seen.members] / unit
        analytic = float(np.sum(subject.pull(v)[seen.members] * direction))
        right, left = along(slopes.right.value), along(slopes.left.value)
        if unit < 0:
            right, left = left, right
        if seen.kinked:
            middle, half = (right + left) / 2, abs(right - left) / 2
        else:
            middle, half = along(slopes.central.value), 0.0
        error = slopes.right.error + slopes.left.error if seen.kinked else slopes.central.error
        used = v != 0
        bar = float(np.sum(np.abs(v[used]) * error[used])) / abs(unit)
        if not seen.kinked:
            right = left = float("nan")
        return Numbers(analytic, middle, bar + half, left, right)
