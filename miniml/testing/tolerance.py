"""Tolerances: the error of a computed number that its dtype and its sums explain."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from ..core.dtype import DType, bfloat16, float16, float32, is_float

Array = np.ndarray[Any, Any]

STEPS = 16  # roundings one after the other
_LAMBDA = 6.0  # see `tolerance`
_JUMP = 64.0  # roundings of the largest number: a larger change is a jump


def unit_roundoff(dtype: DType) -> float:
    """u, half the distance from 1 to the next number: rounding is off by at most u |value|.

    >>> unit_roundoff(float16) == 2.0**-11
    True
    """
    return float(limits_of(dtype).eps) / 2


def limits_of(dtype: DType) -> Any:
    """The finfo of a dtype: eps, max, the smallest normal number `tiny`, `smallest_subnormal`."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def tolerance(dtype: DType, terms: int = 1, steps: int = STEPS) -> float:
    """The relative error that rounding explains, for a result of `dtype`.

    steps: roundings one after the other. Each is off by at most u, so to first order `steps` of
    them are off by steps * u. One library function counts 8: vectorised ones are within 4 ulp,
    and an ulp is up to 2u. The default allows two of them.

    terms: the largest number of terms that are summed. A sum of n terms is off by at most
    (n - 1) u sum|t|, and, as roundings are nearly independent and of mean zero, by more than
    lambda sqrt(n) u sum|t| only with probability 2 exp(-lambda**2 / 2) (Higham and Mary, A New
    Approach to Probabilistic Rounding Error Analysis, 2019), which is 3e-8 for the lambda = 6
    used here. float16 and bfloat16 are summed in float32, so that is the u of their sums.

    The error is relative to the result, or to sum|t| where terms cancel: see `allowed`.

    >>> tolerance(float16) == 16 * 2.0**-11
    True
    """
    u = unit_roundoff(dtype)
    u_sum = unit_roundoff(float32) if dtype in (float16, bfloat16) else u
    return steps * u + min(terms - 1, _LAMBDA * sqrt(terms)) * u_sum


def allowed(expected: Array, dtype: DType, terms: int = 1, spread: Array | float = 0.0) -> Array:
    """The absolute error allowed in each element of a result of `dtype`.

    expected: the exact result, in float64. spread: how far the exact result moves when inputs
    move by u of themselves, as `spread_of` measures it: a good kernel gives the exact result of
    slightly wrong inputs, so where terms cancel its error is relative to this, not to the result.
    """
    relative = tolerance(dtype, terms)
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    tiny = STEPS * float(limits_of(dtype).smallest_subnormal)
    return np.asarray(relative * (finite + np.asarray(spread) / unit_roundoff(dtype)) + tiny)


def spread_of(
    function: Callable[..., tuple[Array, ...]],
    inputs: tuple[Any, ...],
    dtype: DType,
    rng: np.random.Generator,
    probes: int = 2,
) -> tuple[Array, ...]:
    """The change of each output of `function` when its float64 inputs move by u, up or down.

    The largest of `probes` draws of signs. Where an output jumps (a rounding, a choice) its spread
    is 0, since there is no derivative.
    """
    u = unit_roundoff(dtype)
    exact = function(*inputs)
    largest = [np.zeros(np.shape(e)) for e in exact]
    numbers = [a for a in (*inputs, *exact) if _is_float64(a) and a.size]
    scale = max(
        (float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0)) for a in numbers), default=0.0
    )
    for _ in range(probes):
        moved = function(*[_nudged(a, u, rng) for a in inputs])
        for i, (near, at) in enumerate(zip(moved, exact, strict=True)):
            if not _is_float64(at) or near.shape != at.shape:  # how many differ may change, too
                continue
            with np.errstate(all="ignore"):
                distance = np.abs(near - at)
            smooth = np.isfinite(distance) & (distance <= _JUMP * u * scale)
            largest[i] = np.maximum(largest[i], np.where(smooth, distance, 0.0))
    return tuple(largest)


def _nudged(value: Any, u: float, rng: np.random.Generator) -> Any:
    if not _is_float64(value):
        return value
    return value * (1.0 + u * rng.choice([-1.0, 1.0], size=value.shape))


def _is_float64(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def mismatch(
    actual: Array, expected: Array, terms: int = 1, spread: Array | float = 0.0
) -> str | None:
    """The mismatch in a sentence; None if `actual` is `expected` up to rounding.

    Shapes must be equal. Integers and bools must be equal; floats may differ by `allowed`, in
    actual's dtype; NaN equals NaN; beyond the largest number of the dtype, infinity is right.
    """
    if actual.shape != expected.shape:
        return f"has shape {actual.shape}, should have {expected.shape}"
    if not is_float(actual.dtype):
        wrong = actual != expected.astype(actual.dtype)
    else:
        wrong = _wrong_floats(actual, expected.astype(np.float64), terms, spread)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"differs in {int(wrong.sum())} of {wrong.size} elements; at {list(index)} it is "
        f"{actual[index]!s}, should be {expected[index]!s}"
    )


def _wrong_floats(actual: Array, expected: Array, terms: int, spread: Array | float) -> Array:
    dtype = actual.dtype
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype).astype(np.float64)
        wide = actual.astype(np.float64)
        near = np.abs(wide - expected) <= allowed(expected, dtype, terms, spread)
    same = (wide == rounded) | (np.isnan(wide) & np.isnan(expected))
    largest = float(limits_of(dtype).max)
    edge = (
        np.isinf(wide) & (np.sign(wide) == np.sign(expected)) & (np.abs(expected) > 0.98 * largest)
    )
    return np.asarray(~(near | same | edge))
