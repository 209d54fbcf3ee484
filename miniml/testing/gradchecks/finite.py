"""Non-finite values at the point: inputs, outputs, and the elements that only such outputs see."""

from __future__ import annotations

import numpy as np

from .report import UNKNOWN, Array, GradFinding
from .subject import Subject


def not_finite(subject: Subject) -> list[GradFinding]:
    """Findings for inputs and outputs that cannot be judged because they are not finite at the
    point."""
    bad = np.flatnonzero(~np.isfinite(subject.x))
    found = _by_leaf(subject, bad, "{} of its numbers are not finite")
    lost = int(np.sum(~np.isfinite(subject.y)))
    if lost:
        message = f"{lost} of {subject.y.size} are not finite at the point"
        found.append(GradFinding(UNKNOWN, subject.map.order, message, "outputs"))
    return found


def blind(subject: Subject) -> tuple[Array, Array]:
    """Positions whose gradient the finite outputs do not determine: NaN, and zero.

    The cotangent of every non-finite output is 0, but a rule multiplies that 0 by something that is
    not finite either: NaN is not a fault of an element on which such an output may depend. An
    element with gradient 0 may depend on nothing, or on these outputs alone. Both are empty where
    all outputs are finite.
    """
    finite = np.isfinite(subject.y)
    if finite.all():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    gradient = subject.pull(np.where(finite, subject.random(finite.size), 0.0))
    return np.flatnonzero(~np.isfinite(gradient)), np.flatnonzero(gradient == 0)


def unseen(subject: Subject, positions: Array) -> list[GradFinding]:
    """One finding for each argument with elements that no finite output can judge."""
    message = "{} of its elements: no finite output tells their gradient"
    return _by_leaf(subject, positions, message)


def _by_leaf(subject: Subject, positions: Array, message: str) -> list[GradFinding]:
    """A finding for each argument with some of these elements, at the first of them."""
    found = []
    for leaf in subject.leaves:
        mine = leaf.among(positions)
        if mine.size:
            found.append(subject.finding(UNKNOWN, message.format(mine.size), int(mine[0])))
    return found
