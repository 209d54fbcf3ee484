"""The shape of a layer's input, and the refusal of one that does not fit."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..errors import NONE, ArityError, DTypeError, ShapeError
from ..location import point_at, user_location
from ..tensor import Tensor
from .cell import Cell


def shape_of(cell: Cell, x: Any) -> tuple[int, ...]:
    """The shape of what a layer was given: a tensor, an array or nested lists."""
    if x is None:
        raise DTypeError(f"{cell.describe()} got None where it takes a tensor; {NONE}")
    if isinstance(x, (list, tuple)) and any(isinstance(part, Tensor) for part in x):
        raise ArityError(
            f"{cell.describe()} got a {type(x).__name__} of {len(x)} where it takes one tensor; "
            "pass them one by one, as in net(a, b) or step((a, b), labels), or put them together "
            "with ops.stack"
        )
    return x.shape if isinstance(x, Tensor) else np.shape(x)


def together(cell: Cell, *inputs: Any) -> list[Any]:
    """The inputs, of which arrays go to the device of the first tensor; refused as by `shape_of`
    where one is no tensor."""
    for x in inputs:
        shape_of(cell, x)
    first = next((x for x in inputs if isinstance(x, Tensor)), None)
    if first is None:
        return list(inputs)
    return [beside(first, x) if isinstance(x, np.ndarray) else x for x in inputs]


def beside(parameter: Tensor, value: Any) -> Tensor:
    """The value as a tensor; an array goes to the parameter's device."""
    return value if isinstance(value, Tensor) else Tensor(value, device=parameter.device)


def refuse_shape(cell: Cell, got: tuple[int, ...], expected: str) -> NoReturn:
    """Raise the ShapeError of a layer whose input does not fit, with the user's line."""
    error = ShapeError(f"{cell.describe()} got input of shape {got}; expected {expected}")
    point_at(error, user_location(type(cell).__name__))
    raise error
