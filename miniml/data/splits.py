"""Which rows to learn from and which to hold out: arrays of row numbers, fixed by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import MinimlError, ShapeError
from ..tensor import Array


def split(rows: int, share: float, seed: int = 0) -> tuple[Array, Array]:
    """Two arrays of row numbers, both sorted: round(share * rows) of them drawn by `seed`, held
    out, come second."""
    _check_int("split", "rows", rows)
    order = np.random.default_rng(seed).permutation(rows)
    return _parts(order[: round(_checked(share) * rows)], rows, share)


def stratified_split(labels: Any, share: float, seed: int = 0) -> tuple[Array, Array]:
    """As `split`, with the share held out of each class alone, rounded: of a class of few rows
    that may be none, or all. labels: (N,)."""
    labels, draw = np.asarray(labels), np.random.default_rng(seed)
    if labels.ndim != 1:
        raise ShapeError(f"stratified_split got labels {labels.shape}; expected (N,)")
    classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    held_out = [draw.permutation(own)[: round(_checked(share) * len(own))] for own in classes]
    return _parts(np.concatenate([np.arange(0), *held_out]), len(labels), share)


def k_fold(rows: int, folds: int, seed: int = 0) -> Iterator[tuple[Array, Array]]:
    """`folds` pairs (to learn from, held out) of sorted row numbers; each row is held out once."""
    _check_int("k_fold", "rows", rows)
    _check_int("k_fold", "folds", folds)
    if not 2 <= folds <= rows:
        raise MinimlError(f"k_fold got folds={folds} for {rows} rows; expected 2 to {rows}")
    parts = np.array_split(np.random.default_rng(seed).permutation(rows), folds)
    return ((np.setdiff1d(np.arange(rows), part), np.sort(part)) for part in parts)


def _parts(held_out: Array, rows: int, share: float) -> tuple[Array, Array]:
    """The others and the held out ones; MinimlError unless both are some."""
    if not 0 < len(held_out) < rows:
        raise MinimlError(
            f"a split with share={share} holds out {len(held_out)} of {rows} rows; give a share "
            "that leaves rows on both sides"
        )
    return np.setdiff1d(np.arange(rows), held_out), np.sort(held_out)


def _checked(share: float) -> float:
    known = isinstance(share, (int, float, np.number))
    if not known or not 0.0 < share < 1.0:
        raise MinimlError(f"a split got share={share}; expected a number between 0 and 1")
    return share


def _check_int(owner: str, name: str, value: object) -> None:
    if not isinstance(value, (int, np.integer)):
        raise MinimlError(
            f"{owner} got {name} of type {type(value).__name__}; expected an int, as len(x)"
        )
