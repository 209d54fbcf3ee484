"""Powers, roots, exponentials and logarithms."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...dtype import float64, is_float
from ..operators import register_all
from .arithmetic import register_broadcasting


def power(x: Any, y: Any) -> Any:
    """x to the power y, in the dtype of x."""
    if x.dtype == y.dtype:
        return ops.pow(x, y)
    wide = x if is_float(x.dtype) else ops.cast(x, float64)
    return ops.cast(ops.pow(wide, ops.cast(y, wide.dtype)), x.dtype)


register_broadcasting("Pow", 1, power)
register_all((6, None), {"Exp": ops.exp, "Log": ops.log, "Sqrt": ops.sqrt})
