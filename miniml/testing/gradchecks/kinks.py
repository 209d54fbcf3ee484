"""Outputs without a derivative: the elements they depend on, and which of these are valid kinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .element import VALID
from .probe import Probe, probe
from .report import KINK, WRONG, Array, GradFinding, Numbers, Verdict
from .subject import Subject

MANY = 32  # kinks that a report lists: nobody would read more
ASIDE = 0.07, -0.07  # steps that show what an output depends on: nearly as large as a probe takes


def sources_of(subject: Subject, seen: Probe) -> Array | None:
    """For each output without a derivative, the one member it depends on; -1 for the others.

    None if one of them depends on several. Found bit by bit of the members' numbers: half of the
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
    """Of the elements with a kink, those whose gradient lies between the one-sided slopes."""
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
    derivative along that direction has to lie between its one-sided slopes.
    """
    kinks = [v for v in verdicts if v.kind == KINK]
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
