"""Gradients through selection; comparisons and logic have none."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.Select)
def get_bprop_select(self: ops.Select) -> Bprop:
    def bprop(cond: Any, x: Any, y: Any, out: Any, dout: Any) -> tuple[None, Any, Any]:
        return None, ops.select(cond, dout, 0), ops.select(cond, 0, dout)

    return bprop
