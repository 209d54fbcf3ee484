"""Directions to move in: how far each element, and random numbers for cotangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from .subject import Subject

Array = np.ndarray[Any, Any]


def sizes_of(subject: Subject, uniform: bool) -> Array:
    """How far each element is moved for a step of 1.

    Its own size (so that a step never crosses 0), or with `uniform` the typical size in its
    array; of numbers above 1 the square root, or a thousandth; 1 in an array of
    zeros.
    """
    sizes = np.ones(subject.x.shape)
    for leaf in subject.leaves:
        part = np.abs(subject.x[leaf.part])
        known = part[np.isfinite(part) & (part > 0)]
        typical = (
            float(np.sqrt(np.mean((known / known.max()) ** 2)) * known.max()) if known.size else 1.0
        )
        sizes[leaf.part] = typical if uniform else np.where(part > 0, part, typical)
    return np.minimum(sizes, np.maximum(np.sqrt(sizes), 1e-3 * sizes))


def random_signs(rng: np.random.Generator, n: int) -> Array:
    """Numbers of either sign and of size 0.5 to 1.5: none is small enough to hide a fault."""
    return np.asarray(rng.choice([-1.0, 1.0], size=n) * rng.uniform(0.5, 1.5, size=n))
