"""Checks of options: numbers, flags and words. Each gives the plain Python value, or refuses it.

A value of a wrong type is an AttributeRefusedError, which is a TypeError; one of the right type and
out of range a ValueRefusedError, which is a ValueError. Both read "<who> got <name>=<value>;
expected <what>". A bool is no number; NumPy's numbers are, and become Python's.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from .errors import AttributeRefusedError, ValueRefusedError

_MOST = 2**63 - 1  # what extents, axes and the like may be at all
_REALS = (int, float, np.integer, np.floating, ml_dtypes.bfloat16)
_PLAIN = {int}
_NUMERALS = "no", "one", "two", "three"


def integer(who: str, name: str, value: Any, low: float = -math.inf, high: float = _MOST) -> int:
    """The value as an int from `low` to `high`, by default the largest of 64 bits."""
    most = math.inf if high == _MOST else high
    if not _is_int(value):
        _refuse(AttributeRefusedError, who, name, value, "an int", low, most)
    if not low <= value <= high:
        what = "an int of 64 bits" if high == _MOST and value > high else "an int"
        _refuse(ValueRefusedError, who, name, value, what, low, most)
    return int(value)


def count(who: str, name: str, value: Any, least: int = 1) -> int:
    """The value as an int of at least `least`."""
    return integer(who, name, value, least)


def counts(who: str, **values: Any) -> list[int]:
    """The values as ints of at least 1."""
    return [integer(who, name, value, 1) for name, value in values.items()]


def integers(who: str, name: str, value: Any, n: int, low: int) -> tuple[int, ...]:
    """The value, a tuple of n ints of at least `low`."""
    known = isinstance(value, tuple) and _PLAIN.issuperset(map(type, value))
    if not known:
        known = isinstance(value, tuple) and all(map(_is_int, value))
        value = tuple(map(int, value)) if known else value
    if not known or len(value) != n or min(value) < low or max(value) > _MOST:
        kind = ValueRefusedError if known else AttributeRefusedError
        wide = " of 64 bits" * (known and max(value, default=0) > _MOST)
        _refuse(kind, who, name, value, f"{_NUMERALS[n]} int{'s' * (n > 1)}{wide}", low)
    return value  # type: ignore[no-any-return]


def _is_int(value: Any) -> bool:
    return type(value) is int or (isinstance(value, (int, np.integer)) and type(value) is not bool)


def number(
    who: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """The value as a finite float from `low` to `high`, and between `above` and `below`."""
    if isinstance(value, bool) or not isinstance(value, _REALS):
        _refuse(AttributeRefusedError, who, name, value, "a number", low, high, above, below)
    try:
        found = float(value)
    except OverflowError:  # an int of more than 308 digits
        found = math.inf
    if not (low <= found <= high and above < found < below):
        what = "a number" if math.isfinite(found) else "a finite number"
        _refuse(ValueRefusedError, who, name, value, what, low, high, above, below)
    return found


def probability(who: str, name: str, value: Any) -> float:
    """The value as a float from 0 to 1."""
    return number(who, name, value, 0, 1)


def flag(who: str, name: str, value: Any) -> bool:
    """The value as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        _refuse(AttributeRefusedError, who, name, value, "True or False")
    return bool(value)


def choice(who: str, name: str, value: Any, known: Sequence[str], hint: str = "") -> str:
    """The value, one of the words `known`."""
    if not isinstance(value, str) or value not in known:
        kind = ValueRefusedError if isinstance(value, str) else AttributeRefusedError
        _refuse(kind, who, name, value, f"one of {', '.join(map(repr, known))}{hint}")
    return value


class _Brief(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        digits = int(abs(x).bit_length() * 0.30103) + 1  # Python prints no more than 4,300
        return repr(x) if digits <= self.maxlong else f"an int of about {digits} digits"


brief = _Brief().repr  # a short text of any value, for errors


def _refuse(
    kind: type[AttributeRefusedError] | type[ValueRefusedError],
    who: str,
    name: str,
    value: Any,
    what: str,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> NoReturn:
    """Raise the error: `what` was expected, within those of the bounds that are finite."""
    if math.isfinite(low) and math.isfinite(high):
        what += f" from {_shown(low)} to {_shown(high)}"
        low = high = math.inf
    signs = (">=", low), ("<=", high), (">", above), ("<", below)
    bounds = " and".join(f" {sign} {_shown(b)}" for sign, b in signs if math.isfinite(b))
    raise kind(f"{who} got {name}={brief(value)}; expected {what}{bounds}")


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
