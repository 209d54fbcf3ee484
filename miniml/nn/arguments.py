"""Checks of the arguments of layers: each returns the value, or refuses it by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import AttributeRefusedError, ShapeError
from ..ops.inference.numbers import fraction as fraction
from ..ops.inference.numbers import integer as integer
from ..ops.inference.numbers import number as number


def positive(layer: str, **extents: object) -> None:
    """ShapeError for an extent of a layer that is not a positive int."""
    for name, value in extents.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ShapeError(f"{layer} got {name}={value!r}; expected a positive int")


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
