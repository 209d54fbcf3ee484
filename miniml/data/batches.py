"""Minibatches: arrays of samples, cut into pieces of one size, in a new order every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..tensor import Array


def minibatches(
    *arrays: Any, size: int, seed: int | None = None, epoch: int = 0, drop_last: bool = True
) -> Iterator[tuple[Array, ...]]:
    """Tuples of `size` rows of every array, the same rows of each.

    seed: shuffles, in an order that (seed, epoch) fixes; None keeps the order. drop_last leaves
    out the rows that fill no whole batch, others of them in every epoch: a step is then
    compiled for one shape only.
    """
    parts = [np.asarray(a) for a in arrays]
    lengths = sorted({len(p) for p in parts})
    if len(lengths) != 1:
        raise ShapeError(f"minibatches got arrays of {lengths} rows; they need equally many")
    if not 1 <= size <= max(lengths[0], 1):
        raise ShapeError(
            f"minibatches got size={size} for {lengths[0]} rows; expected 1 to {lengths[0]}"
        )
    order = np.arange(lengths[0])
    if seed is not None:
        np.random.default_rng((seed, epoch)).shuffle(order)
    stop = len(order) - len(order) % size if drop_last else len(order)
    for start in range(0, stop, size):
        rows = order[start : start + size]
        yield tuple(p[rows] for p in parts)
