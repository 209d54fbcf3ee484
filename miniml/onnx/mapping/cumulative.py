"""Running sums and products."""

from __future__ import annotations

from typing import Any

from ... import ops
from ..known import number
from ..operators import Constant, register_operator


@register_operator("", "CumSum", (11, None))
def cumsum(x: Any, axis: Constant, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return ops.cast(ops.cumsum(x, int(number(axis)), bool(reverse), bool(exclusive)), x.dtype)


@register_operator("", "CumProd", (26, None))
def cumprod(x: Any, axis: Constant, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return ops.cast(ops.cumprod(x, int(number(axis)), bool(reverse), bool(exclusive)), x.dtype)
