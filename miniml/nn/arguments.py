"""The inputs of layers: their shapes and devices, and what is refused as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ..core.errors import (
    NONE,
    ArityError,
    DTypeError,
    ShapeError,
    point_at,
    user_location,
)
from ..core.tensor import Tensor
from ..ops.images import EXTENTS
from .cell import Cell


def shape_of(cell: Cell, x: Any) -> tuple[int, ...]:
    """The shape of a layer's input: a tensor, an array or nested lists."""
    if x is None:
        raise DTypeError(f"{cell.describe()} got None where it takes a tensor; {NONE}")
    if isinstance(x, (list, tuple)) and any(isinstance(part, Tensor) for part in x):
        raise ArityError(
            f"{cell.describe()} got a {type(x).__name__} of {len(x)} where it takes one tensor; "
            "pass them one by one, as in net(a, b) or step((a, b), labels), or put them together "
            "with ops.stack"
        )
    if isinstance(x, (Mapping, str, bytes)):
        keys = f" of {', '.join(map(repr, x))}" if isinstance(x, Mapping) else f" {x!r}"
        raise DTypeError(
            f"{cell.describe()} got a {type(x).__name__}{keys} where it takes one tensor; a Cell "
            "whose construct takes the tensors from it, as in self.body(batch['x']), does"
        )
    return x.shape if isinstance(x, Tensor) else np.shape(x)


def shape_of_images(cell: Cell, x: Any, channels: int | None, *ns: int) -> tuple[int, ...]:
    """The shape of x; ShapeError unless it is (N, channels) with n axes behind, for one of `ns`.

    channels: None for any number of them.
    """
    shape = shape_of(cell, x)
    if len(shape) - 2 not in ns or channels not in (None, shape[1]):
        behind = (f", {EXTENTS[n]}" if n else "" for n in ns)
        expected = (f"(N, {channels or 'C'}{axes})" for axes in behind)
        refuse_shape(cell, shape, " or ".join(expected))
    return shape


def on_one_device(cell: Cell, *inputs: Any) -> list[Any]:
    """The inputs, with arrays moved to the device of the first tensor; refused as by `shape_of`
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
