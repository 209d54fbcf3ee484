"""float64 inputs to a network of float32: correct, but slow, and seldom intended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..abstract import Abstract
from ..dtype import float32, float64
from ..errors import PerformanceWarning, warn_user
from ..tensor import Tensor
from ..trace import current_trace


def warn_widened(cell: Any, inputs: Sequence[Any], out: Any) -> bool:
    """Warn of a float64 input beside float32 parameters that made the result float64, too."""
    wide = [x for x in inputs if isinstance(x, (Tensor, np.ndarray)) and x.dtype == float64]
    if not wide or not isinstance(out, Tensor) or out.dtype != float64:
        return False
    stands = current_trace().stand_in  # gradcheck puts float64 values in their places
    if not any(stands(p).dtype == float32 for p in cell.trainable_params()):
        return False
    warn_user(
        PerformanceWarning(
            f"{type(cell).__name__} got {Abstract(wide[0].shape, float64)} beside float32 "
            "parameters, so it computes in float64, about half as fast; convert the data "
            "once, where it is loaded: x.astype(np.float32)"
        )
    )
    return True
