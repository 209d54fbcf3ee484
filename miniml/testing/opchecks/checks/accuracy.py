"""How far numbers are apart, and why: rounding, lost accuracy, or a wrong result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....dtype import float16, float64, is_float
from ...calls import Array, Arrays, Call
from ...tolerance import limits_of, mismatch, unit_roundoff

_ROUNDINGS = 8  # relative to inputs and outputs: not worth a finding
_BLUR = 64 * 2.0**-53  # relative error of the float64 side itself, to the largest number
_MOVES = 4
_LOSS = 256  # roundings up to which cancelling terms may explain an error


def where_too_large(out: Array, right: Array) -> Array:
    """The exact result, or `out` where that is not finite and the dtype has no number that
    large."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    limits = limits_of(out.dtype)
    numbers = out.astype(float64)
    beyond = (np.abs(right) > 0.98 * float(limits.max)) & ~np.isfinite(numbers)
    return np.where(beyond, numbers, right)


def alike_where_not_finite(out: Array, right: Array) -> Array:
    """`right`, with `out` where neither is finite: inf and NaN follow the order of sums."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    neither = ~np.isfinite(out.astype(float64)) & ~np.isfinite(right.astype(float64))
    return np.where(neither, out, right).astype(right.dtype)


def degree(call: Call, out: Array, right: Array) -> str:
    """The severity: a "rounding" of numbers of this size, "inaccurate" (terms cancel), "wrong"."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return "wrong"
    with np.errstate(all="ignore"):
        off = np.abs(out.astype(float64) - right)
    off = np.where(np.isnan(out.astype(float64)) & np.isnan(right), 0.0, off)
    if not np.isfinite(off).all():
        return "wrong"
    u = unit_roundoff(out.dtype)
    local = np.abs(np.where(np.isfinite(right), right, 0.0))
    for a in call.arrays:
        if is_float(a.dtype) and _spans(a, out):
            local = np.maximum(local, np.abs(a.astype(float64)))
    scale = scale_of(call, right) or 1.0  # all are zeros: that of constants in the formula
    if np.all(off <= np.maximum(_ROUNDINGS * u * local, _BLUR * scale)):
        return "rounding"
    loose = min(_LOSS * u, np.sqrt(u)) * scale
    return "inaccurate" if float(off.max()) <= loose else "wrong"


def at_an_end(call: Call, results: Arrays = ()) -> bool:
    """True where squares of inputs or results leave the range of their dtype, so that a plain sum
    of squares overflows, or underflows below the smallest normal number.

    Numbers above 256, whose squares float16 cannot represent, are ordinary and do not count.
    """
    return any(_square_leaves(a) for a in (*call.arrays, *results) if is_float(a.dtype))


def _square_leaves(a: Array) -> bool:
    """True for one number that is too large, or if all numbers are too small."""
    limits, largest = limits_of(a.dtype), largest_of(a)
    above = largest > np.sqrt(float(limits.max)) and a.dtype != float16
    return bool(above or 0 < largest < np.sqrt(float(limits.tiny)))


def moved_by_rounding(
    run: Callable[[Arrays], Arrays], arrays: Arrays, outs: Arrays
) -> tuple[Array, ...]:
    """How far each output moves when every float input moves by an eps of itself, up or down: the
    most of a few draws, 0 where it is not finite.

    Two orders of one sum give it with each of its n terms t off by some roundings, so they are
    apart by some u sqrt(sum t^2) to u sum|t|. Moved inputs move every term by u at least, at
    random, and so the sum by about u sqrt(sum t^2), which is u sum|t| / sqrt(n) or more; `allowed`
    multiplies by 16 + 6 sqrt(n). So what cancels in a sum, or between sums of sums as in x A x, is
    measured by its terms, which only the kernel knows.
    """
    rng = np.random.default_rng(0)
    moved = [np.zeros(o.shape) for o in outs]
    for _ in range(_MOVES):
        for i, out in enumerate(run(tuple(_moved(a, rng) for a in arrays))):
            if is_float(out.dtype) and out.shape == moved[i].shape:
                with np.errstate(all="ignore"):
                    apart = np.abs(out.astype(float64) - outs[i].astype(float64))
                moved[i] = np.fmax(moved[i], np.where(np.isfinite(apart), apart, 0.0))
    return tuple(moved)


def apart(
    call: Call, outs: Arrays, rights: Arrays, run: Callable[[Arrays], Arrays], arrays: Arrays
) -> tuple[int, str] | None:
    """The first output that differs from the right one by more than another order of sums explains,
    and how; None where all agree. At an end of the range nothing is reported: there a partial sum
    may overflow in one order and not in another.

    run: the function that gave the right outputs for `arrays`; it is called again only if something
    differs.
    """
    for i, (out, right) in enumerate(zip(outs, rights)):
        scale = scale_of(call, right) * unit_roundoff(out.dtype) if is_float(out.dtype) else 0.0
        expected = alike_where_not_finite(out, right)
        if mismatch(out, expected, call.terms, scale) is not None:
            moved = moved_by_rounding(run, arrays, rights)[i]
            wrong = mismatch(out, expected, call.terms, np.maximum(moved, scale))
            if wrong is not None and not at_an_end(call, rights):
                return i, wrong
    return None


def _moved(a: Array, rng: np.random.Generator) -> Array:
    if not is_float(a.dtype):
        return a
    signs = rng.choice([-1.0, 1.0], a.shape)
    return np.asarray(a.astype(float64) * (1 + 2 * unit_roundoff(a.dtype) * signs)).astype(a.dtype)


def _spans(a: Array, out: Array) -> bool:
    """True where each element of the output corresponds to one of the input, as in broadcasting."""
    try:
        return bool(np.broadcast_shapes(a.shape, out.shape) == out.shape)
    except ValueError:
        return False


def scale_of(call: Call, right: Array) -> float:
    """The largest finite number among inputs and outputs."""
    floats = [a for a in (*call.arrays, right) if is_float(a.dtype)]
    return max(map(largest_of, floats), default=0.0)


def largest_of(a: Array) -> float:
    """The largest finite magnitude in an array, 0 if there is none."""
    numbers = np.abs(a.astype(float64))
    return float(np.max(numbers, where=np.isfinite(numbers), initial=0.0))


def ulps(out: Array, right: Array) -> str:
    """The largest difference in units in the last place, and where, as the end of a sentence."""
    ulp, index = largest_ulp(out, right)
    return f"; largest difference {ulp:.3g} ulp at {index}" if ulp else ""


def largest_ulp(out: Array, right: Array) -> tuple[float, list[int]]:
    """The largest difference in units in the last place, and where; 0 for other outputs."""
    if not is_float(out.dtype) or out.shape != right.shape or not out.size:
        return 0.0, []
    with np.errstate(all="ignore"):
        rounded = np.abs(right.astype(float64))
        limits = limits_of(out.dtype)
        exponent = np.floor(np.log2(np.maximum(rounded, float(limits.tiny))))
        units = np.abs(out.astype(float64) - right.astype(float64)) / (
            2.0**exponent * float(limits.eps)
        )
    units = np.where(np.isfinite(units), units, 0.0)
    index = [int(n) for n in np.unravel_index(int(np.argmax(units)), units.shape)]
    return float(units.max()), index
