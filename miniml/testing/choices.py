"""Reproducible random choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Choices:
    """The choices for one numbered call and a seed, equal on every machine."""

    def __init__(self, seed: int, number: int):
        self._rng = np.random.default_rng([seed, number])

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._rng.integers(n))

    def of(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]
