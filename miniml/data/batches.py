"""Minibatches: arrays of samples, cut into pieces of one size, in a new order every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..tensor import Array
from .loader import DataLoader


def minibatches(
    *arrays: Any, size: int, seed: int | None = None, epoch: int = 0, drop_last: bool = True
) -> Iterator[tuple[Array, ...]]:
    """One epoch of `DataLoader(*arrays, size=size, seed=seed, drop_last=drop_last)`, for loops
    written by hand."""
    sources = map(np.asarray, arrays)
    return DataLoader(*sources, size=size, seed=seed, drop_last=drop_last).batches(epoch)
