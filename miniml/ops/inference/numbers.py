"""Options that are numbers: each check returns the value, or refuses it by name."""

from __future__ import annotations

import math

import numpy as np

from ...errors import AttributeRefusedError


def integer(owner: str, name: str, value: object) -> int:
    """The value as an int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise AttributeRefusedError(f"{owner} got {name}={value!r}; expected an int")
    return int(value)


def number(owner: str, name: str, value: object, least: float = -math.inf) -> float:
    """The value as a float, finite and at least `least`."""
    real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value < least:  # type: ignore[arg-type,operator]
        bound = "" if least == -math.inf else f" >= {least:g}"
        raise AttributeRefusedError(f"{owner} got {name}={value!r}; expected a number{bound}")
    return float(value)  # type: ignore[arg-type]


def above_zero(owner: str, name: str, value: object) -> float:
    """The value as a float, finite and above 0."""
    found = number(owner, name, value)
    if not found > 0:
        raise AttributeRefusedError(f"{owner} got {name}={value!r}; expected a number > 0")
    return found


def fraction(owner: str, name: str, value: object) -> float:
    """The value as a float from 0 to 1."""
    found = number(owner, name, value, 0.0)
    if found > 1.0:
        raise AttributeRefusedError(f"{owner} got {name}={value!r}; expected 0 <= {name} <= 1")
    return found
