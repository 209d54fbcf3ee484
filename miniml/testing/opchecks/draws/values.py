"""Numbers for drawn inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....abstract import Shape
from ....dtype import DType, bool_, float16, is_float
from ...calls import Array
from ...tolerance import limits_of

# Kinds of numbers. The first three suit gradients: no two are equal, none is at a kink. At the
# others in `BENT` a gradient is checked, too, with kinks allowed.
SMOOTH = ("ordinary", "positive", "unit")
BENT = ("ties", "zeros", "large")
EXTREME = ("tiny", "huge")  # for one input of a call only: with two, little would be finite
SPREAD = ("outlier", "offset")
APART = 50_000  # the beginnings of the ladders of two inputs
_INPUTS = 4
_STRIDE, _PERIOD, _QUARTER = 200_003, 2**19, 2**17
KINDS = (*SMOOTH, *BENT, *EXTREME, *SPREAD)
LONGEST = "longest"  # of numbers as `ladder` gives them
NEGATIVE = "negative"  # ordinary floats, and negative integers of the same shape beside them


def draw(kind: str, shape: Shape, dtype: DType, seed: int, beside_floats: bool) -> Array:
    """An array of numbers of one kind.

    beside_floats: integers beside float inputs are small and non-negative, like indices and counts.
    """
    rng = np.random.default_rng(seed)
    if dtype == bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if is_float(dtype):
        return np.asarray(_FLOATS[kind](rng, shape, dtype)).astype(dtype)
    if kind == "huge" and not beside_floats:
        half = 2 ** (4 * dtype.itemsize - 1)  # products still fit
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -half, half, shape)).astype(
            dtype
        )
    if kind == NEGATIVE and dtype.kind == "i":
        return np.asarray(rng.integers(-3, 0, shape)).astype(dtype)
    top = 2 if beside_floats else 4
    low = 0 if beside_floats or dtype.kind == "u" else 1 if kind == "positive" else -3
    return np.asarray(rng.integers(low, top, shape)).astype(dtype)


def _ordinary(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    size = int(np.prod(shape))
    ladder = (np.arange(size) + rng.uniform(0.25, 0.75, size)) / max(
        size, 1
    )  # apart by half a step
    return np.asarray(rng.permutation(4.0 * ladder - 2.0)).reshape(shape)


def _tiny(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    """Subnormal numbers, the smallest normal one, the smallest of all, and 0."""
    limits = limits_of(dtype)
    below = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.05, 0.9, shape) * float(limits.tiny)
    few = [float(limits.tiny), float(limits.smallest_subnormal), 0.0]
    return np.asarray(np.where(rng.random(shape) < 0.7, below, rng.choice(few, shape)))


def _outlier(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    """Ordinary numbers and one far larger: 512, whose square float16 does not hold, or 1e5, of
    which the others hold the seventh power."""
    numbers = _ordinary(rng, shape, dtype)
    if numbers.size:
        numbers.reshape(-1)[rng.integers(numbers.size)] = 512.0 if dtype == float16 else 1e5
    return numbers


def ladder(start: int, stop: int) -> Array:
    """Numbers from -2 to 2, all distinct and unordered, from a sequence with a short formula."""
    return np.arange(start, stop) * _STRIDE % _PERIOD / _QUARTER - 2.0


def ladder_text(a: Array) -> str | None:
    """An expression for an array of float64 that begins where a `ladder` of an input does."""
    for start in range(0, _INPUTS * APART, APART) if a.ndim == 1 else ():
        if np.array_equal(a, ladder(start, start + a.size).astype(a.dtype)):
            row = f"np.arange({start}, {start + a.size})"
            return f"({row} * {_STRIDE} % {_PERIOD} / {_QUARTER} - 2.0).astype({a.dtype.name!r})"
    return None


# "huge" are numbers that the dtype holds, though not their squares; the mean of "offset" is so far
# above the spread that squares of the two cancel.
_FLOATS: dict[str, Callable[[np.random.Generator, Shape, DType], Any]] = {
    "ordinary": _ordinary,
    "positive": lambda *of: 1.6 + 0.7 * _ordinary(*of),
    "unit": lambda *of: 0.45 * _ordinary(*of),
    "ties": lambda rng, shape, _: rng.integers(-1, 3, shape),
    "zeros": lambda rng, shape, _: rng.choice([0.0, -0.0, 1.0, -1.0], size=shape),
    "tiny": _tiny,
    "large": lambda *of: 20.0 * _ordinary(*of),
    "huge": lambda rng, shape, dtype: (
        float(limits_of(dtype).max) ** 0.7 * _ordinary(rng, shape, dtype)
    ),
    "outlier": _outlier,
    "offset": lambda rng, shape, dtype: (
        (64.0 if dtype.itemsize == 2 else 1e3) + _ordinary(rng, shape, dtype)
    ),
    NEGATIVE: _ordinary,
}
