"""Comparison of outputs: rounding, lost accuracy or a wrong result; and relations of calls.

In order: the size of differences, and what explains them; relations, where a variant of a call must
give the same outputs as the call, up to a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ....core.dtype import float16, float32, float64, is_float
from ....core.errors import MinimlError
from ...budget import go_on
from ...calls import Array, Arrays, Call
from ...tolerance import limits_of, mismatch, unit_roundoff
from ..session import Issue, first_line

_ROUNDINGS = 8  # of inputs and outputs: not worth a finding
_BLUR = 64 * 2.0**-53  # error of the float64 side itself, relative to the largest number
_MOVES = 4  # draws of moved inputs
_STEP, _NARROW_STEP = 2.0**-22, 2.0**-10  # in float64 four units of float32: it shows as noise
_POINTS, _DIFFERENCE = 13, (1.0, -4.0, 6.0, -4.0, 1.0)
_ROUGH = 2.0  # `allowed` multiplies by 16
_NUMBERS = 8  # different ones, at least, of which most must share an error
_NEARLY_ALL, _DOUBTFUL, _WELL_ABOVE = 0.9, 2.0, 64.0
_DEVIATIONS = 5.0  # of the number of errors of one sign from half of them
_LOSS = 256  # roundings up to which cancelling terms may explain an error


def where_too_large(out: Array, right: Array) -> Array:
    """The exact result, with `out` where it is not finite because the dtype has no number that
    large."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    limits = limits_of(out.dtype)
    numbers = out.astype(float64)
    beyond = (np.abs(right) > 0.98 * float(limits.max)) & ~np.isfinite(numbers)
    return np.where(beyond, numbers, right)


def _alike_where_not_finite(out: Array, right: Array) -> Array:
    """`right`, with `out` where neither is finite: inf and NaN follow the order of sums."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return right
    neither = ~np.isfinite(out.astype(float64)) & ~np.isfinite(right.astype(float64))
    return np.where(neither, out, right).astype(right.dtype)


def degree(call: Call, out: Array, right: Array) -> str:
    """The severity: "rounding" of numbers of this size, "inaccurate" (terms cancel), or "wrong"."""
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


def _spans(a: Array, out: Array) -> bool:
    """True where each element of the output corresponds to one of the input, as in broadcasting."""
    try:
        return bool(np.broadcast_shapes(a.shape, out.shape) == out.shape)
    except ValueError:
        return False


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


class Systematic(NamedTuple):
    """An error that most numbers share. by: the median of their errors, in units of rounding."""

    how: str
    by: float
    severity: Literal["fault", "warning"]


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


def apart(
    call: Call, outs: Arrays, rights: Arrays, run: Callable[[Arrays], Arrays], arrays: Arrays
) -> tuple[int, str] | None:
    """The number of the first output that differs by more than another order of sums explains, and
    the difference in words; None where all agree. At an end of the range nothing is reported: there
    a partial sum may overflow in one order and not in another.

    run: the function that gave the right outputs for `arrays`; it is called again only if something
    differs.
    """
    for i, (out, right) in enumerate(zip(outs, rights)):
        scale = scale_of(call, right) * unit_roundoff(out.dtype) if is_float(out.dtype) else 0.0
        expected = _alike_where_not_finite(out, right)
        if mismatch(out, expected, call.terms, scale) is not None:
            spread = np.maximum(spread_inside(run, arrays, rights, i), scale)
            wrong = mismatch(out, expected, call.terms, spread)
            if wrong is not None and not at_an_end(call, rights):
                return i, wrong
    return None


def spread_inside(run: Callable[[Arrays], Arrays], arrays: Arrays, outs: Arrays, i: int) -> Array:
    """The spread of output i that rounding inside of `run` explains.

    Where terms cancel, as those of exp(x) - 1 - x, a vectorised exp that rounds otherwise changes
    the result by far more than moved inputs do, and by as much as its own values are rough.
    """
    moved = moved_by_rounding(run, arrays, outs)[i]
    if outs[i].dtype not in (float32, float64):
        return moved
    return np.asarray(np.maximum(moved, _ROUGH * roughness(run, arrays)[i].max(axis=0)))


def moved_by_rounding(
    run: Callable[[Arrays], Arrays], arrays: Arrays, outs: Arrays
) -> tuple[Array, ...]:
    """The change of each output when every float input moves by an eps of itself, up or down: the
    largest of a few draws, 0 where it is not finite.

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


def _moved(a: Array, rng: np.random.Generator) -> Array:
    if not is_float(a.dtype):
        return a
    signs = rng.choice([-1.0, 1.0], a.shape)
    return np.asarray(a.astype(float64) * (1 + 2 * unit_roundoff(a.dtype) * signs)).astype(a.dtype)


def roughness(run: Callable[[Arrays], Arrays], arrays: Arrays) -> tuple[Array, ...]:
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


def _rough(rows: tuple[Array, ...]) -> Array:
    if not is_float(rows[0].dtype) or len({row.shape for row in rows}) > 1:
        return np.zeros((1, *rows[0].shape))
    with np.errstate(all="ignore"):
        windows = [
            np.abs(sum(c * rows[k + j].astype(float64) for j, c in enumerate(_DIFFERENCE)))
            for k in range(_POINTS - len(_DIFFERENCE) + 1)
        ]
        size = np.sqrt(np.sum(np.square(_DIFFERENCE)))
        return np.asarray(np.nan_to_num(np.asarray(windows) / size, nan=0.0, posinf=0.0))


def scale_of(call: Call, right: Array) -> float:
    """The largest finite number among inputs and outputs."""
    floats = [a for a in (*call.arrays, right) if is_float(a.dtype)]
    return max(map(largest_of, floats), default=0.0)


def largest_of(a: Array) -> float:
    """The largest finite magnitude in an array, 0 if there is none."""
    numbers = np.abs(a.astype(float64))
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


# --- Relations between variants of a call ---------------------------------------------------------


Compute = Callable[[Arrays], Arrays]


class Variant(NamedTuple):
    """Another way to compute something.

    words: the message if it differs. got: the variant's outputs. run: computes the expected ones
    from `arrays`, and may be called on others. call: one that shows this variant alone.
    """

    words: str
    got: Callable[[], Arrays]
    run: Compute
    arrays: Arrays = ()
    call: Call | None = None


def fixed(outs: Arrays) -> Compute:
    """A `run` for a variant whose expected outputs are known."""
    return lambda arrays: outs


Tolerance = Callable[[Call, Variant, Arrays, Arrays], str | None]


@dataclass(frozen=True, slots=True)
class Relation:
    """A row of the table. tolerance: gives the difference in words if it is more than allowed, else
    None. advice: what to do about it."""

    name: str
    variants: Callable[[Call], Iterator[Variant]]
    tolerance: Tolerance
    advice: str


def broken(call: Call, relation: Relation) -> Iterator[Issue]:
    """The first variant that differs by more than the tolerance, if there is one."""
    for variant in relation.variants(call):
        go_on()
        wrong = _wrong(call, relation, variant)
        if wrong is not None:
            text = f"{call}: {variant.words}: {wrong}"
            yield Issue(relation.name, text, relation.advice, call=variant.call)
            return


def _wrong(call: Call, relation: Relation, variant: Variant) -> str | None:
    try:
        expected = variant.run(variant.arrays)
    except (np.linalg.LinAlgError, MinimlError):
        return None  # broadcast rows make a matrix singular, equal inputs an exponent negative
    except Exception as error:
        return f"it raises {first_line(error)}"
    try:
        got = variant.got()
    except np.linalg.LinAlgError:
        return None
    except Exception as error:
        return f"it raises {first_line(error)}"
    if len(got) != len(expected):
        return f"{len(got)} outputs instead of {len(expected)}"
    return relation.tolerance(call, variant, got, expected)


def same_bits(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance that allows no difference at all."""
    for i, (one, two) in enumerate(zip(expected, got)):
        if one.tobytes() != two.tobytes():
            return f"output {i} {changed(one, two)}"
    return None


def same_numbers(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance that allows some roundings of the largest number."""
    return difference(call, got, expected)


def any_order(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance that allows differences that another order of the same sums explains."""
    arrays = variant.arrays
    wrong = apart(call.on(arrays), got, expected, variant.run, arrays)
    return None if wrong is None else f"output {wrong[0]} {wrong[1]}"


def difference(call: Call, got: Arrays, expected: Arrays) -> str | None:
    """The difference, in words, if it is more than some roundings of the largest number."""
    for i, (a, b) in enumerate(zip(got, expected)):
        if a.dtype != b.dtype:
            return f"output {i} has dtype {a.dtype}, not {b.dtype}"
        scale = unit_roundoff(b.dtype) * largest_of(b) if is_float(b.dtype) else 0.0
        wrong = mismatch(a, _alike_where_not_finite(a, b), call.terms, scale)
        if wrong is not None:
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
