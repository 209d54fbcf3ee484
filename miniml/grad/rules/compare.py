"""Gradients through selection; comparisons and logic have none."""

from __future__ import annotations

from typing import Any

from ... import ops
from .formulas import rule


@rule(ops.Select)
def select_bprop(
    self: ops.Select, cond: Any, x: Any, y: Any, out: Any, dout: Any
) -> tuple[None, Any, Any]:
    return None, ops.select(cond, dout, 0), ops.select(cond, 0, dout)
