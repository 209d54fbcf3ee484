"""Numbers for samples: small arrays of any dtype, away from where rounding decides."""

import numpy as np

from miniml import bool_
from miniml.core.abstract import is_float

ROWS = ()

# 0-d, of size 0, of size 1, and two ranks whose extents all differ.
SHAPES = ((), (0, 3), (1,), (4,), (2, 3, 5))


def numbers(rng, shape, dtype, low=-2.0, high=2.0):
    """Uniform in [low, high); whole numbers where dtype is an integer, never negative where
    it is unsigned; fair coins for bool. What is drawn for a narrow float is representable there.
    """
    if dtype == bool_:
        return rng.integers(0, 2, size=shape).astype(bool)
    if is_float(dtype):
        return np.asarray(rng.uniform(low, high, size=shape)).astype(dtype)
    bottom = max(int(low), 0) if dtype.kind == "u" else int(low)
    return np.asarray(rng.integers(bottom, max(int(high), bottom + 1) + 1, size=shape)).astype(
        dtype
    )


def apart(rng, shape, dtype, gap=0.25):
    """Distinct numbers of either sign, at least `gap` from each other and gap / 2 from 0."""
    size = int(np.prod(shape))
    ladder = (np.arange(size) - size // 2 + 0.5) * gap
    return rng.permutation(ladder).reshape(shape).astype(dtype)
