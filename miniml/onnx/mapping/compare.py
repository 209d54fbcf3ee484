"""Comparisons, logic, kinds of floats, and selection."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ..operators import register_all, register_operator
from .arithmetic import register_broadcasting

register_broadcasting("Equal", 1, ops.equal)
register_broadcasting("Less", 1, ops.less)
register_broadcasting("Greater", 1, ops.greater)
register_broadcasting("And", 1, ops.logical_and)
register_broadcasting("Or", 1, ops.logical_or)
register_broadcasting("Xor", 1, ops.logical_xor)
register_all((1, None), {"Not": ops.logical_not})
register_all((9, None), {"IsNaN": ops.isnan, "Where": ops.where})
register_all((12, None), {"LessOrEqual": ops.less_equal, "GreaterOrEqual": ops.greater_equal})


@register_operator("", "IsInf", (10, None))
def isinf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    found = ops.isinf(x)
    if not detect_negative:
        found = ops.logical_and(found, ops.greater(x, 0))
    return found if detect_positive else ops.logical_and(found, ops.less(x, 0))


@register_operator("ai.onnx.ml", "Binarizer", (1, None))
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return ops.cast(ops.greater(x, np.array(threshold).astype(x.dtype)), x.dtype)
