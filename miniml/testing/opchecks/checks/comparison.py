"""Relations: a variant of a call must give the same outputs as the call, up to a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....dtype import is_float
from ....errors import MinimlError
from ...calls import Array, Arrays, Call
from ...tolerance import mismatch, unit_roundoff
from ..session import Issue, first_line
from .accuracy import alike_where_not_finite, apart, largest_of

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
    """A row of the table. tolerance: how outputs differ by more than allowed, in words, or None.
    advice: what to do about it."""

    name: str
    variants: Callable[[Call], Iterator[Variant]]
    tolerance: Tolerance
    advice: str


def broken(call: Call, relation: Relation) -> Iterator[Issue]:
    """The first variant that differs by more than the tolerance, if there is one."""
    for variant in relation.variants(call):
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
    """No difference at all."""
    for i, (one, two) in enumerate(zip(expected, got)):
        if one.tobytes() != two.tobytes():
            return f"output {i} {changed(one, two)}"
    return None


def same_numbers(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """Some roundings of the largest number."""
    return difference(call, got, expected)


def any_order(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """Differences that another order of the same sums explains."""
    arrays = variant.arrays
    wrong = apart(call.on(arrays), got, expected, variant.run, arrays)
    return None if wrong is None else f"output {wrong[0]} {wrong[1]}"


def difference(call: Call, got: Arrays, expected: Arrays) -> str | None:
    """The difference, in words, if it is more than some roundings of the largest number."""
    for i, (a, b) in enumerate(zip(got, expected)):
        if a.dtype != b.dtype:
            return f"output {i} has dtype {a.dtype}, not {b.dtype}"
        scale = unit_roundoff(b.dtype) * largest_of(b) if is_float(b.dtype) else 0.0
        wrong = mismatch(a, alike_where_not_finite(a, b), call.terms, scale)
        if wrong is not None:
            return f"output {i} {wrong}"
    return None


def changed(one: Array, two: Array) -> str:
    """Where and how far two arrays differ in bits, in words."""
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
    """Where two arrays of one shape differ in bits."""
    width = one.dtype.itemsize
    bits = [
        np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, width) for a in (one, two)
    ]
    return np.asarray((bits[0] != bits[1]).any(axis=1).reshape(one.shape))
