"""Order: the k largest, and elements without repetitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ..known import number
from ..operators import Constant, register_operator


@register_operator("", "TopK", (1, 9))
def topk_attribute(x: Any, *, k: int, axis: int = -1) -> Any:
    return ops.topk(x, k, axis)


@register_operator("", "TopK", (10, None))
def topk(x: Any, k: Constant, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return ops.topk(x, int(number(k)), axis, bool(largest))


@register_operator("", "Unique", (11, None))
def unique(x: Constant, *, axis: int | None = None, sorted: int = 1) -> Any:
    """Sorted, or in the order of their first places."""
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    order = np.arange(len(first)) if sorted else np.argsort(first, kind="stable")
    rank = np.argsort(order, kind="stable")
    values = np.take(values, order, axis or 0)
    return values, first[order], rank[inverse.reshape(-1)], counts[order]
