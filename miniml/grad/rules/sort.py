"""Gradients of sorting: what a value was taken from gets its gradient."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...ops.inference.shapes import normal_axis
from .formulas import rule


@rule(ops.Sort)
@rule(ops.TopK)
def sort_bprop(self: ops.Sort | ops.TopK, x: Any, out: Any, dout: Any) -> tuple[Any]:
    axis = normal_axis(self.name, self.axis, len(x.shape))
    return (ops.PutAlongAxisAdd(axis, x.shape[axis])(dout[0], out[1]),)
