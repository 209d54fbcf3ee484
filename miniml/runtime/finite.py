"""The check of `check_nan`: every number that a call makes is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..abstract import typed
from ..backends.device import Array
from ..errors import NonFiniteError


def check_finite(
    name: str, inputs: Iterable[Any], outputs: Iterable[Any], on_host: Callable[[Any], Array]
) -> None:
    """NonFiniteError, with the inputs' ranges, where an output holds a NaN or an infinity.

    on_host: gives the NumPy array of an input or output.
    """
    for array in map(on_host, outputs):
        if array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).all():
            ranges = ", ".join(_range(on_host(x)) for x in inputs) or "none"
            kind = "NaN" if np.isnan(array.astype(np.float64)).any() else "an infinity"
            raise NonFiniteError(f"{name} made {kind}; its inputs were {ranges}")


def finding_nan(on_host: Callable[[Any], Array]) -> Callable[[Any, Any, Any], None]:
    """The check, of the inputs and outputs of a node."""
    return lambda node, inputs, outputs: check_finite(node.primitive.name, inputs, outputs, on_host)


def _range(array: Array) -> str:
    shown = typed(array)
    if not array.size:
        return f"{shown} empty"
    wide = array.astype(np.float64)
    return f"{shown} in [{wide.min():.4g}, {wide.max():.4g}]"
