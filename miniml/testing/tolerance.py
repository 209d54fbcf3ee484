"""Tolerances: how far numbers may lie apart, from one theory of rounding errors.

The checkers compare what is computed in two ways. What may lie between the two:

1. **Roundings.** Each is off by at most u of its result (`unit_roundoff`), so to first order k of
   them, one after the other, are off by k u. A library function counts FUNCTION = 8: vectorised
   ones are within 4 ulp, and an ulp is up to 2u.
2. **Sums.** n terms t are off by at most (n - 1) u sum|t|, and, as roundings are nearly independent
   and of mean zero, by more than lambda sqrt(n) u sum|t| only with probability
   2 exp(-lambda**2 / 2), 3e-8 for lambda = 6 (Higham and Mary, A New Approach to Probabilistic
   Rounding Error Analysis, 2019). float16 and bfloat16 are summed in float32, with its u.
3. **Conditioning.** A good kernel gives the exact result of inputs that are off by u, so where
   terms cancel its error is relative not to the result but to how far this moves with the inputs.
   That is measured (`spread_of`, `moved_by_rounding`): inputs move by u of themselves, at random,
   and so each term t of a sum by u|t|, the sum by about u sqrt(sum t^2), which is
   u sum|t| / sqrt(n) or more. Times the 6 sqrt(n) of sums this covers sum|t|, and two orders of
   one sum, or of sums of sums as in x A x, although only the kernel knows the terms.
4. **Roundings inside** of a function move its result, too: that of exp(x) - 1 - x by far more than
   moved inputs do. A visible operation is perturbed itself (`Perturbation`, and `Rounding` in
   `gradchecks.derivative`); one in a kernel shows as noise at close points (`roughness`).
5. **Jumps** are choices, not roundings: what moves by more than JUMP roundings of the largest
   number has no derivative there, and explains nothing.
6. **Chance.** How far rounding moves a result is measured by few draws. Another normal draw z is c
   times larger than the largest of k with probability (0.8 / c)^k E|z|^k: of three, four times
   larger in 1 % of cases and 16 times in 2 of 10,000; of two, eight times in 1 %.

In order: the error that is allowed; how far results move; outputs that differ, and by how much; the
constants of gradcheck that no theory gives, each with what it is there for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from ..core.abstract import HALVES, DType, float16, float32, float64, is_float

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]

FUNCTION = 8  # roundings of one library function
STEPS = 2 * FUNCTION  # roundings one after the other: two functions
JUMP = 64.0  # roundings of the largest number: a larger change is a jump
LARGEST = 0.98  # part of the largest number: a rounding may take a result of this size to infinity
_LAMBDA = 6.0


def unit_roundoff(dtype: DType) -> float:
    """u, half the distance from 1 to the next number: rounding is off by at most u |value|.

    >>> unit_roundoff(float16) == 2.0**-11
    True
    """
    return float(limits_of(dtype).eps) / 2


@cache
def limits_of(dtype: DType) -> Any:
    """The finfo of a dtype: eps, max, the smallest normal number `tiny`, `smallest_subnormal`."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def tolerance(dtype: DType, terms: int = 1, steps: int = STEPS) -> float:
    """The relative error that rounding explains, for a result of `dtype`.

    steps: roundings one after the other. terms: the largest number of terms that are summed. The
    error is relative to the result, or to sum|t| where terms cancel: see `allowed`.

    >>> tolerance(float16) == 16 * 2.0**-11
    True
    """
    u = unit_roundoff(dtype)
    u_sum = unit_roundoff(float32) if dtype in HALVES else u
    return steps * u + min(terms - 1, _LAMBDA * sqrt(terms)) * u_sum


def allowed(expected: Array, dtype: DType, terms: int = 1, spread: Array | float = 0.0) -> Array:
    """The absolute error allowed in each element of a result of `dtype`.

    expected: the exact result, in float64. spread: how far the exact result moves when inputs
    move by u of themselves.
    """
    relative = tolerance(dtype, terms)
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    tiny = STEPS * float(limits_of(dtype).smallest_subnormal)
    return np.asarray(relative * (finite + np.asarray(spread) / unit_roundoff(dtype)) + tiny)


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
    edge = np.isinf(wide) & (np.sign(wide) == np.sign(expected)) & too_large(expected, dtype)
    return np.asarray(~(near | same | edge))


def too_large(exact: Array, dtype: DType) -> Array:
    """True where a rounding to the dtype may give infinity."""
    return np.asarray(np.abs(exact) > LARGEST * float(limits_of(dtype).max))


# --- How far results move with their inputs -------------------------------------------------------


_PROBES, _MOVES = 2, 4  # draws of moved inputs, at most cheap references, and of a kernel
_STEP, _NARROW_STEP = 2.0**-22, 2.0**-10  # in float64 four units of float32: it shows as noise
_SLOPE_STEP = 2.0**-46  # well above the rounding of float64, and as small as can be
_SLOPES = 8  # draws: the moves of two inputs may cancel
_POINTS = 13
_ROUGH = 2.0  # `allowed` multiplies by 16


class Perturbation(NamedTuple):
    """The amount by which a number is off: `relative` to itself, and `least` however small it is.

    own: results in a narrower dtype are off by two of that dtype's units.
    """

    relative: float
    least: float = 0.0
    own: bool = False

    @staticmethod
    def rounding_to(dtype: DType) -> Perturbation:
        """The perturbation of a rounding to the dtype, subnormal numbers included.

        Results too small for a normal float32 may get lost on the way: 1 / (1 + exp(90)) is 0.
        """
        least = max(limits_of(dtype).smallest_subnormal, limits_of(float32).tiny)
        return Perturbation(unit_roundoff(dtype), float(least))

    def of(self, a: Array, rng: np.random.Generator) -> Array:
        """Each number moved up or down; zeros stay, because they are exact."""
        a = np.asarray(a)
        signs = rng.choice([-1.0, 1.0], size=a.shape)
        relative = max(self.relative, 2 * unit_roundoff(a.dtype) if self.own else 0.0)
        moved = a.astype(float64) * (1 + relative * signs)
        if self.least:
            moved = moved + np.where(a == 0, 0.0, self.least * signs)
        return np.asarray(moved).astype(a.dtype)

    def jump(self, x: Array, *numbers: Array) -> float:
        """A change larger than this perturbation causes in products of three of these numbers, or
        of 1/x: the derivatives of 1/x and x/|x| have such terms, even where they cancel."""
        with np.errstate(divide="ignore", over="ignore"):
            largest = np.float64(max(map(largest_of, (1 / x, x, *numbers))))
            return float(JUMP * self.relative * largest * max(1.0, largest) ** 2)

    def without_jumps(self, change: Array, x: Array, *numbers: Array) -> Array:
        """The size of a change; 0 where results jump."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(np.abs(change) <= self.jump(x, *numbers), np.abs(change), 0.0)


def spread_of(
    function: Callable[..., Arrays],
    inputs: tuple[Any, ...],
    dtype: DType,
    rng: np.random.Generator,
    probes: int = _PROBES,
) -> Arrays:
    """The change of each output of `function` when its float64 inputs move by u, up or down.

    The largest of `probes` draws of signs; 0 where an output jumps (a rounding, a choice).
    """
    u, exact = unit_roundoff(dtype), function(*inputs)
    scale = max(map(largest_of, filter(_is_floats, (*inputs, *exact))), default=0.0)
    return _moved(lambda moved: function(*moved), inputs, exact, Perturbation(u), rng, probes,
        JUMP * u * scale)  # fmt: skip


def moved_by_rounding(run: Callable[[Arrays], Arrays], arrays: Arrays, outs: Arrays) -> Arrays:
    """The change of each output when every float input moves by an eps of itself, up or down: the
    largest of a few draws, 0 where it is not finite."""
    rng = np.random.default_rng(0)
    return _moved(run, arrays, outs, Perturbation(0.0, own=True), rng, _MOVES)


def moved_by_slope(run: Callable[[Arrays], Arrays], arrays: Arrays, outs: Arrays) -> Arrays:
    """The change of each output, for each u by which float64 inputs move, as its slope says: that
    of cos(1e10) by 1e10 u, which is more than the cosine itself. 0 where steps of a quarter do not
    move it less, which is a jump, or noise."""
    at = [
        _moved(run, arrays, outs, Perturbation(step), np.random.default_rng(0), _SLOPES)
        for step in (_SLOPE_STEP, _SLOPE_STEP / 4)
    ]
    return tuple(np.where(2 * near < far, far / _SLOPE_STEP, 0.0) for far, near in zip(*at))


def _moved(
    run: Callable[[Any], Arrays],
    inputs: tuple[Any, ...],
    outs: Arrays,
    by: Perturbation,
    rng: np.random.Generator,
    draws: int,
    most: float = float(np.finfo(np.float64).max),
) -> Arrays:
    largest = [np.zeros(np.shape(o)) for o in outs]
    for _ in range(draws):
        moved = run(tuple(by.of(a, rng) if _is_floats(a) else a for a in inputs))
        for i, (near, at) in enumerate(zip(moved, outs, strict=True)):
            if is_float(at.dtype) and near.shape == at.shape:  # how many differ may change, too
                with np.errstate(all="ignore"):
                    off = np.abs(near.astype(float64) - at.astype(float64))
                largest[i] = np.fmax(largest[i], np.where(off <= most, off, 0.0))
    return tuple(largest)


def of_one_size(rng: np.random.Generator, shape: int | tuple[int, ...]) -> Array:
    """Numbers of either sign and of size 0.5 to 1.5: none is small enough to hide a fault."""
    signs = rng.choice([-1.0, 1.0], size=shape)
    return np.asarray(signs * rng.uniform(0.5, 1.5, size=shape))


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_float(value.dtype)


def spread_inside(run: Callable[[Arrays], Arrays], arrays: Arrays, outs: Arrays, i: int) -> Array:
    """The spread of output i that rounding inside of `run` explains."""
    moved = moved_by_rounding(run, arrays, outs)[i]
    if outs[i].dtype not in (float32, float64):
        return moved
    return np.asarray(np.maximum(moved, _ROUGH * roughness(run, arrays)[i].max(axis=0)))


def roughness(run: Callable[[Arrays], Arrays], arrays: Arrays) -> Arrays:
    """The rounding error of each float output, as fourth differences at close points show it:
    several for each element, along a first axis. A jump shows in half of them.

    run: a function of the arrays. For a smooth function the differences are of the order of the
    step's fourth power, which is below the rounding of float64 and float32.
    """
    signs, narrow = np.random.default_rng(0), any(a.dtype == float32 for a in arrays)
    step = _NARROW_STEP if narrow else _STEP
    along = [step * signs.choice([-1.0, 1.0], a.shape) for a in arrays]
    runs = [
        run(tuple(_scaled(a, 1 + k * s) for a, s in zip(arrays, along))) for k in range(_POINTS)
    ]
    return tuple(map(_rough, zip(*runs)))


def _scaled(a: Array, by: Array) -> Array:
    return np.asarray(a * by).astype(a.dtype) if is_float(a.dtype) else a.copy()


def _rough(rows: Arrays) -> Array:
    if not is_float(rows[0].dtype) or len({row.shape for row in rows}) > 1:
        return np.zeros((1, *rows[0].shape))
    return np.nan_to_num(noise_among(np.array(rows)), nan=0.0, posinf=0.0)


def noise_among(rows: Array) -> Array:
    """The noise of values at equally spaced points, along the first axis: their fourth differences,
    in which noise grows by sqrt(1 + 16 + 36 + 16 + 1), and a smooth curve vanishes."""
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(np.diff(rows.astype(float64), 4, axis=0)) / sqrt(70.0))


# --- Outputs that differ --------------------------------------------------------------------------


_BLUR = 64 * 2.0**-53  # error of the float64 side itself, relative to the largest number
_NUMBERS = 8  # different ones, at least, of which most must share an error
_NEARLY_ALL, _DOUBTFUL, _WELL_ABOVE = 0.9, 2.0, 64.0
_DEVIATIONS = 5.0  # of the number of errors of one sign from half of them
_LOSS = 256  # roundings up to which cancelling terms may explain an error


def difference(got: Arrays, expected: Arrays, terms: int) -> str | None:
    """The difference, in words, if it is more than some roundings of the largest number."""
    for i, (a, b) in enumerate(zip(got, expected)):
        if a.dtype != b.dtype:
            return f"output {i} has dtype {a.dtype}, not {b.dtype}"
        scale = unit_roundoff(b.dtype) * largest_of(b) if is_float(b.dtype) else 0.0
        wrong = mismatch(a, _alike_where_not_finite(a, b), terms, scale)
        if wrong is not None:
            return f"output {i} {wrong}"
    return None


def apart(
    outs: Arrays, rights: Arrays, run: Callable[[Arrays], Arrays], arrays: Arrays
) -> str | None:
    """The first output that differs by more than another order of sums explains, in words; None
    where all agree. At an end of the range nothing is reported: there a partial sum may overflow in
    one order and not in another.

    run: the function that gave the right outputs for `arrays`; it is called again only if something
    differs.
    """
    terms = max([1, *(a.size for a in arrays)])
    for i, (out, right) in enumerate(zip(outs, rights)):
        scale = scale_of(arrays, right) * unit_roundoff(out.dtype) if is_float(out.dtype) else 0.0
        expected = _alike_where_not_finite(out, right)
        if mismatch(out, expected, terms, scale) is not None:
            spread = np.maximum(spread_inside(run, arrays, rights, i), scale)
            wrong = mismatch(out, expected, terms, spread)
            if wrong is not None and not at_an_end((*arrays, *rights)):
                return f"output {i} {wrong}"
    return None


def changed(one: Array, two: Array) -> str:
    """The difference between two arrays that differ in bits, in words."""
    if one.shape != two.shape:
        return f"has shape {two.shape}, at first {one.shape}"
    differs, by = unlike(one, two), ""
    index = tuple(int(n) for n in np.argwhere(differs)[0])
    if is_float(one.dtype):
        with np.errstate(all="ignore"):
            off = np.abs(one.astype(np.float64) - two.astype(np.float64))
        off = np.where(differs & ~np.isfinite(off), np.inf, np.nan_to_num(off, nan=0.0))
        index = tuple(int(n) for n in np.unravel_index(int(np.argmax(off)), off.shape))
        by = f", by at most {off.max():.3g}"
    return (
        f"differs in {int(differs.sum())} of {differs.size} elements{by}: at {list(index)} "
        f"{one[index]!s}, then {two[index]!s}"
    )


def unlike(one: Array, two: Array) -> Array:
    """True where two arrays of one shape differ in bits."""
    width = one.dtype.itemsize
    bits = [
        np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, width) for a in (one, two)
    ]
    return np.asarray((bits[0] != bits[1]).any(axis=1).reshape(one.shape))


def where_too_large(out: Array, right: Array) -> Array:
    """The exact result, with `out` where it is not finite because the dtype has no number that
    large."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    numbers = out.astype(float64)
    return np.where(too_large(right, out.dtype) & ~np.isfinite(numbers), numbers, right)


def _alike_where_not_finite(out: Array, right: Array) -> Array:
    """`right`, with `out` where neither is finite: inf and NaN follow the order of sums."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    neither = ~np.isfinite(out.astype(float64)) & ~np.isfinite(right.astype(float64))
    return np.where(neither, out, right).astype(right.dtype)


def degree(arrays: Arrays, out: Array, right: Array) -> str:
    """The severity: "rounding" of numbers of this size, "inaccurate" (terms cancel), or "wrong"."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return "wrong"
    wide = out.astype(float64)
    with np.errstate(all="ignore"):
        off = np.abs(wide - right)
    # inf - inf is NaN, although two infinities of one sign agree
    off = np.where((wide == right) | np.isnan(wide) & np.isnan(right), 0.0, off)
    if not np.isfinite(off).all():
        return "wrong"
    u = unit_roundoff(out.dtype)
    local = np.abs(np.where(np.isfinite(right), right, 0.0))
    for a in arrays:
        if is_float(a.dtype) and _spans(a, out):
            local = np.maximum(local, np.abs(a.astype(float64)))
    scale = scale_of(arrays, right) or 1.0  # all are zeros: that of constants in the formula
    if np.all(off <= np.maximum(FUNCTION * u * local, _BLUR * scale)):
        return "rounding"
    loose = min(_LOSS * u, np.sqrt(u)) * scale
    return "inaccurate" if float(off.max()) <= loose else "wrong"


def _spans(a: Array, out: Array) -> bool:
    """True where each element of the output corresponds to one of the input, as in broadcasting."""
    try:
        return bool(np.broadcast_shapes(a.shape, out.shape) == out.shape)
    except ValueError:
        return False


class Systematic(NamedTuple):
    """An error that most numbers share. by: the median of their errors, in units of rounding."""

    how: str
    by: float
    severity: Literal["fault", "warning"]


def systematic(out: Array, right: Array, moved: Array | float) -> Systematic | None:
    """The error that most numbers share, though rounding would explain each by itself; None where
    there is none, or too few numbers to tell.

    The errors are in units of the last place, plus what rounded inputs do: a kernel that rounds
    after each operation has errors of either sign, and few above one such unit. In float32 they may
    be above two units, as in powers of its libraries. moved: the spread of the exact result.
    """
    if not is_float(out.dtype) or out.shape != right.shape or out.dtype == float64:
        return None
    limits, size = limits_of(out.dtype), np.abs(right)
    with np.errstate(all="ignore"):
        normal = (size > _WELL_ABOVE * float(limits.tiny)) & (size < 0.5 * float(limits.max))
        normal &= np.isfinite(out.astype(float64))
        if len(np.unique(right[normal])) < _NUMBERS:
            return None
        last = 2.0 ** np.floor(np.log2(size)) * float(limits.eps)
        off = (np.sign(right) * (out.astype(float64) - right) / (last + moved))[normal]
    middle, by = float(np.median(off)), float(np.median(np.abs(off)))
    apart = abs(float(np.sum(np.sign(off)))) / np.sqrt(len(off))
    one_sign = by > _DOUBTFUL and abs(float(np.mean(np.sign(off)))) > _NEARLY_ALL
    if one_sign or (apart > _DEVIATIONS and abs(middle) > 1):
        return Systematic("too large" if middle > 0 else "too small", by, "fault")
    if by > _DOUBTFUL and out.dtype.itemsize == 2:
        return Systematic("off", by, "fault" if by > 2 * _DOUBTFUL else "warning")
    return None


def at_an_end(arrays: Arrays) -> bool:
    """True where squares of inputs or results leave the range of their dtype, so that a plain sum
    of squares overflows, or underflows below the smallest normal number.

    Numbers above 256, whose squares float16 cannot represent, are ordinary and do not count.
    """
    return any(_square_leaves(a) for a in arrays if is_float(a.dtype))


def _square_leaves(a: Array) -> bool:
    """True for one number that is too large, or if all numbers are too small."""
    limits, largest = limits_of(a.dtype), largest_of(a)
    above = largest > np.sqrt(float(limits.max)) and a.dtype != float16
    return bool(above or 0 < largest < np.sqrt(float(limits.tiny)))


def scale_of(arrays: Arrays, right: Array) -> float:
    """The largest finite number among inputs and outputs."""
    floats = [a for a in (*arrays, right) if is_float(a.dtype)]
    return max(map(largest_of, floats), default=0.0)


def largest_of(a: Array) -> float:
    """The largest finite magnitude in an array, 0 if there is none."""
    numbers = np.abs(np.asarray(a).astype(float64, copy=False))
    return float(np.max(numbers, where=np.isfinite(numbers), initial=0.0))


def ulps(out: Array, right: Array) -> str:
    """The largest difference in units in the last place, and where, as the end of a sentence; ""
    where not one digit is right, which has no such measure."""
    ulp, index = largest_ulp(out, right)
    measured = ulp and ulp < 1 / float(limits_of(out.dtype).eps)
    return f"; largest difference {ulp:.3g} ulp at {index}" if measured else ""


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


# --- Constants of gradcheck that no theory gives --------------------------------------------------


class Tuned:
    """The constants, each with the fault that is missed without it, or with what is right and would
    be called wrong. Those with a star are taken away in tests/unit/testing/test_tuned_constants.py.
    """

    # Fractions of the sixth step, some far smaller ones, three near one another, as noise differs
    # among them and structure does not: * a wave that is finer than the steps. Two between them
    # where a second measurement decides.
    SENTINELS, MORE_SENTINELS = (50.0, 1300.0, 2000.0, 3000.0), (700.0, 2500.0)
    # Of the first step, to where rounding leaves half the digits: * a slope that ends at 1e-6.
    DEEP = (3e-6, 1e-6, 4e-7, 1.4e-7, 5e-8, 2e-8, 7e-9, 2.6e-9)
    # Of the first step, below any that show a kink: * any slope between two, at 1e-9 from a kink.
    TINY = 1e-6, 1e-8, 1e-10, 1e-12
    # First steps where 0.1 is too large. Each climb reaches some five decades down, so that these
    # leave no gap, and the last ones reach where rounding hides all differences.
    FINER = 3e-3, 1e-5, 1e-8, 1e-11

    # Errors of differences.
    SHARP = 0.05  # of a derivative: a factor, a sign or a term passes a bar wider than this
    SMALL = 1e4  # roundings of y, as of a long sum: * those of a step function hide no slope
    TRUNCATION = 3.0  # the last change estimates what remains, and is seldom three times too small
    WITNESSES = 2  # smallest steps that only show noise: one may agree with larger ones by chance
    STILL = 4  # points that are constant, or multiples of one number: * the stairs of 1 - tanh(x)^2
    STEP_PARTS = 4  # stairs in the least change: * the same, where it is more than one stair high
    MARGIN = 3.0  # a bar is estimated from a few differences, and is seldom three times too narrow
    AS_SHARP = 2.0  # the bars of two probes of one kind differ as much
    UNSEEN = 1e-12  # of the outputs: float64 cannot tell a smaller derivative from 0

    # Rounding inside, that no difference shows.
    SMALLEST = 2.5e-9  # of a derivative: * solving with a matrix of condition 1e10, and transposed
    BLUNT = 0.01  # of a gradient: roundings do not move a meaningful backward further
    BELIEVED = 0.01  # of a gradient: its largest change across a jump that is not a fault
    GROSS = 1e-6  # of a gradient: a cotangent that is read in a wrong layout changes more than this
    NEAR = 4  # units: points that a dtype tells apart: * sin(3 x) where numbers 3 x round alike
    FURTHER = 2.0**-9, 2.0**-5  # of a point: * a saturated tanh in float32 begins to move there
    REPEATS = 1e4  # roundings by which sums of some 1e8 terms may differ in another order

    # What a pull-back may not keep, nor do to its cotangent; powers of 2 change no rounding.
    ELSEWHERE = 1.7, -0.6  # of the point; some functions refuse the second: * what a call has left
    SCALES = 2.0**10, 2.0**-10, -1.0  # * a clip at 100, * a floor at 0.01, * a size

    # Isolated values, ties and noise.
    CLEAR = 20.0  # times further off than its neighbours are apart: a root is steep, and no gap
    NEARER, NEAREST = (1e-6, 1e-9, 1e-12), (1e-30, 1e-100)  # * a peak 1e-11 wide, * one at 0
    SAME = 0.01  # of the gap: limits at all these steps are one
    APART = 1e-3, 5e-4  # of their size: how far tied elements are moved apart, then half of it
    WITHIN = 0.02  # of the gap between two of them: steps that no element takes past another
    COTANGENTS = 8  # a wrong gradient lies between right ones for one, seldom for all
    ROUNDS = 4  # over all ranks: chance leaves out one in a row with half of the equal elements
    NOISY = 1e-10  # of an output, between the roundings of float64 and float32: * float32 inside
    UNEXPLAINED = 1e3  # roundings of its own operations: more than even a long sum accumulates
    SPACINGS = 1e-7, 3e-8  # near a unit of float32, where its stairs show
