"""Values that a function takes at single points only: where both sides agree on another one.

Needs nothing of primitives: `isolated` takes a function of a step h, which is 0 at the point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....dtype import float64
from ...calls import Array

FAR, NEAR = 2.0**-12, 2.0**-24
_SHARE = 0.02  # of the gap: by how much its limit may still move between the two steps
_LEAST = 1e-6  # of the values: a smaller gap may be rounding


@dataclass(frozen=True, slots=True)
class Isolated:
    """Where an output is off its limit. flat: it is constant beside the point, as a count is."""

    index: tuple[int, ...]
    value: float
    limit: float
    flat: bool


def isolated(at: Callable[[float], Array]) -> Isolated | None:
    """The first element of at(0) that both sides, which agree on a limit, do not lead to.

    at(h): the outputs of a function at a distance h from a point. Continuous functions come nearer
    to at(0) as h falls, at kinks and roots too: |at(h) - at(0)| shrinks, by 64 for sqrt|h| and by a
    half for 1 / log|h|, from FAR to NEAR. At an isolated value it stays.
    """
    here, *rest = (at(h).astype(float64) for h in (0.0, NEAR, -NEAR, FAR, -FAR))
    if not all(np.isfinite(side).any() for side in rest):
        return None
    right, left, far_right, far_left = rest
    with np.errstate(all="ignore"):
        limit = right / 2 + left / 2
        moves = np.abs(right - left) + np.abs(limit - (far_right / 2 + far_left / 2))
        gap = np.where(np.isfinite(here), np.abs(here - limit), 1 + np.abs(limit))
        size = np.fmax(np.abs(limit), np.where(np.isfinite(here), np.abs(here), 0.0))
        off = (moves <= _SHARE * gap) & (gap > _LEAST * size)
    if not off.any():
        return None
    index = tuple(int(n) for n in np.argwhere(off)[0])
    flat = len({float(side[index]) for side in rest}) == 1
    return Isolated(index, float(here[index]), float(limit[index]), flat)
