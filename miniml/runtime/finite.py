"""The check of `check_nan`: every number that a call makes is finite."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..backends.device import Array
from ..errors import NonFiniteError


def check_finite(name: str, inputs: Iterable[Array], outputs: Iterable[Array]) -> None:
    """NonFiniteError, with the inputs' ranges, where an output holds a NaN or an infinity.

    inputs, outputs: on the host; inputs are looked at only where there is an error.
    """
    for array in outputs:
        if array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).all():
            ranges = ", ".join(map(_range, inputs)) or "none"
            kind = "NaN" if np.isnan(array.astype(np.float64)).any() else "an infinity"
            raise NonFiniteError(f"{name} made {kind}; its inputs were {ranges}")


def _range(array: Array) -> str:
    shown = f"{array.dtype.name}{list(array.shape)}"
    if not array.size:
        return f"{shown} empty"
    wide = array.astype(np.float64)
    return f"{shown} in [{wide.min():.4g}, {wide.max():.4g}]"
