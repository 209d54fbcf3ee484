"""Truncation of the normal distribution to an interval, as every device draws from it."""

from __future__ import annotations

import math


def truncation(mean: float, std: float, low: float, high: float) -> tuple[float, float, float]:
    """(cdf(a), cdf(b) - cdf(a), std) for the bounds a and b in units of std.

    Where both are above 0, where cdf has lost its digits, all three signs are changed.
    """
    a, b = (low - mean) / std, (high - mean) / std
    if a > 0:
        a, b, std = -b, -a, -std
    start, end = (math.erfc(-x * math.sqrt(0.5)) / 2 for x in (a, b))
    return start, end - start, std
