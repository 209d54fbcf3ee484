"""Numbers of distributions, as every device draws from them: the normal one truncated to an
interval, and the remainders of Stirling's series for the Poisson one.
"""

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


# log k! less (k + 1/2) log k - k + log(2 pi) / 2, for k below 10, where its series is too short.
STIRLING = (
    0.0,
    *(
        math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi)
        for k in range(1, 10)
    ),
)
