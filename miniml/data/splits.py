"""Which rows to learn from and which to hold out: arrays of row numbers, fixed by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import MinimlError
from ..tensor import Array


def split(rows: int, share: float, seed: int = 0) -> tuple[Array, Array]:
    """Two arrays of row numbers, both sorted: round(share * rows) of them drawn by `seed`, held
    out, come second."""
    held_out = _count(rows, share)
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def stratified_split(labels: Any, share: float, seed: int = 0) -> tuple[Array, Array]:
    """As `split`, with the share held out of each class alone, rounded; labels: (N,)."""
    labels, draw = np.asarray(labels), np.random.default_rng(seed)
    _count(len(labels), share)
    held_out = [
        draw.permutation(np.flatnonzero(labels == c))[: round(share * np.sum(labels == c))]
        for c in np.unique(labels)
    ]
    second = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(labels)), second), second


def k_fold(rows: int, folds: int, seed: int = 0) -> Iterator[tuple[Array, Array]]:
    """`folds` pairs (to learn from, held out) of sorted row numbers; each row is held out once."""
    if not 2 <= folds <= rows:
        raise MinimlError(f"k_fold got folds={folds} for {rows} rows; expected 2 to {rows}")
    parts = np.array_split(np.random.default_rng(seed).permutation(rows), folds)
    return ((np.setdiff1d(np.arange(rows), part), np.sort(part)) for part in parts)


def _count(rows: int, share: float) -> int:
    """How many rows to hold out; MinimlError unless both parts get some."""
    known = isinstance(share, (int, float, np.number))
    held_out = round(share * rows) if known and 0.0 < share < 1.0 else 0
    if not 0 < held_out < rows:
        raise MinimlError(
            f"a split got share={share} of {rows} rows; expected a share between 0 and 1 that "
            "leaves rows on both sides"
        )
    return held_out
