"""What is no number at the point: inputs, outputs, and the elements that only such outputs see."""

from __future__ import annotations

from typing import Any

import numpy as np

from .directions import random_signs
from .maps import Leaf
from .report import UNKNOWN, Finding
from .subject import Subject

Array = np.ndarray[Any, Any]

_NAN = float("nan")


def not_finite(subject: Subject, order: int) -> list[Finding]:
    """What cannot be judged because it is no number: inputs, and outputs at the point."""
    found = [
        _unjudged(leaf, order, bad, f"{bad.size} of its numbers are not finite")
        for leaf in subject.leaves
        if (bad := np.flatnonzero(~np.isfinite(subject.x[leaf.part]))).size
    ]
    lost = int(np.sum(~np.isfinite(subject.y)))
    if lost:
        said = f"{lost} of {subject.y.size} are not finite at the point"
        found.append(Finding(UNKNOWN, order, None, "", None, _NAN, _NAN, _NAN, said, "outputs"))
    return found


def blind(subject: Subject, rng: np.random.Generator) -> tuple[Array, Array]:
    """Positions whose gradient the finite outputs do not tell: NaN, and zero.

    The cotangent of every output that is no number is 0, but a rule multiplies that 0 by what is
    no number either: of an element that such an output may depend on, NaN is no fault. An element
    with gradient 0 may depend on nothing, or on these outputs alone. Both are empty where all
    outputs are finite.
    """
    finite = np.isfinite(subject.y)
    if finite.all():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    gradient = subject.pull(np.where(finite, random_signs(rng, finite.size), 0.0))
    return np.flatnonzero(~np.isfinite(gradient)), np.flatnonzero(gradient == 0)


def unseen(subject: Subject, order: int, positions: set[int]) -> list[Finding]:
    """One finding for each argument that has elements which no finite output judges."""
    found = []
    for leaf in subject.leaves:
        mine = np.array(sorted(i - leaf.start for i in positions if leaf.has(i)), np.int64)
        if mine.size:
            said = f"{mine.size} of its elements: no finite output tells their gradient"
            found.append(_unjudged(leaf, order, mine, said))
    return found


def _unjudged(leaf: Leaf, order: int, places: Array, said: str) -> Finding:
    """A finding on an argument that names the first of some places in it."""
    index = leaf.index(leaf.start + int(places[0]))
    return Finding(
        UNKNOWN, order, leaf.argnum, leaf.path, index, _NAN, _NAN, _NAN, said, leaf.argument
    )
