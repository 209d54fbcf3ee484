"""Checks of the arguments of layers: each returns the value, or refuses it by name."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import AttributeRefusedError, ShapeError


def positive(layer: str, **extents: object) -> None:
    """ShapeError for an extent of a layer that is not a positive int."""
    for name, value in extents.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ShapeError(f"{layer} got {name}={value!r}; expected a positive int")


def integer(layer: str, name: str, value: object) -> int:
    """The value as an int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise AttributeRefusedError(f"{layer} got {name}={value!r}; expected an int")
    return int(value)


def number(layer: str, name: str, value: object, least: float = -math.inf) -> float:
    """The value as a float, finite and at least `least`."""
    real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value < least:  # type: ignore[arg-type,operator]
        bound = "" if least == -math.inf else f" >= {least:g}"
        raise AttributeRefusedError(f"{layer} got {name}={value!r}; expected a number{bound}")
    return float(value)  # type: ignore[arg-type]


def fraction(layer: str, name: str, value: object) -> float:
    """The value as a float from 0 to 1."""
    if number(layer, name, value, 0.0) > 1.0:
        raise AttributeRefusedError(f"{layer} got {name}={value!r}; expected 0 <= {name} <= 1")
    return float(value)  # type: ignore[arg-type]


def flag(layer: str, name: str, value: object) -> bool:
    """The value as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise AttributeRefusedError(f"{layer} got {name}={value!r}; expected True or False")
    return bool(value)


def choice(layer: str, name: str, value: object, known: Sequence[str]) -> str:
    """The value, one of the words `known`."""
    if not isinstance(value, str) or value not in known:
        raise AttributeRefusedError(
            f"{layer} got {name}={value!r}; expected one of {', '.join(map(repr, known))}"
        )
    return value
