"""How far numbers are apart, and what that tells: rounding, lost accuracy, or a wrong result."""

from __future__ import annotations

import numpy as np

from ...dtype import float64, is_float
from ..calls import Array, Call
from ..tolerance import limits_of, unit_roundoff

_ROUNDINGS = 8  # of the size of inputs and outputs: not worth a finding
_BLUR = 64 * 2.0**-53  # what the float64 side itself may be off, of the largest number
_LOSS = 256  # roundings up to which an error may come from terms that cancel


def where_too_large(out: Array, right: Array) -> Array:
    """The exact result; where no number of the dtype is as large, whatever non-finite came."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    limits = limits_of(out.dtype)
    numbers = out.astype(float64)
    beyond = (np.abs(right) > 0.98 * float(limits.max)) & ~np.isfinite(numbers)
    return np.where(beyond, numbers, right)


def alike_where_not_finite(out: Array, right: Array) -> Array:
    """`right`, with what came where neither is finite: inf and NaN follow the order of sums."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    neither = ~np.isfinite(out.astype(float64)) & ~np.isfinite(right.astype(float64))
    return np.where(neither, out, right).astype(right.dtype)


def degree(call: Call, out: Array, right: Array) -> str:
    """How wrong: by a "rounding" of numbers of this size, "inaccurate" (terms cancel), "wrong"."""
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
    scale = scale_of(call, right)
    if np.all(off <= np.maximum(_ROUNDINGS * u * local, _BLUR * scale)):
        return "rounding"
    loose = min(_LOSS * u, np.sqrt(u)) * scale
    return "inaccurate" if float(off.max()) <= loose else "wrong"


def _spans(a: Array, out: Array) -> bool:
    """True where each element of the output belongs to one of the input, as in broadcasting."""
    try:
        return bool(np.broadcast_shapes(a.shape, out.shape) == out.shape)
    except ValueError:
        return False


def scale_of(call: Call, right: Array) -> float:
    """The largest finite number among inputs and outputs."""
    largest = 0.0
    for a in (*call.arrays, right):
        if is_float(a.dtype):
            numbers = np.abs(a.astype(float64))
            largest = max(largest, float(np.max(numbers, where=np.isfinite(numbers), initial=0.0)))
    return largest


def ulps(out: Array, right: Array) -> str:
    """The largest difference in units in the last place, and where, as the end of a sentence."""
    ulp, index = largest_ulp(out, right)
    return f"; largest difference {ulp:.3g} ulp at {index}" if ulp else ""


def largest_ulp(out: Array, right: Array) -> tuple[float, list[int]]:
    """The largest difference in units in the last place, and where; 0 for what are no floats."""
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
