"""Gradients of sorting: what a value was taken from gets its gradient."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters
from ...ops.inference.bases import normal_axis


@bprop_getters.register(ops.Sort)
@bprop_getters.register(ops.TopK)
def get_bprop_sort(self: ops.Sort | ops.TopK) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        axis = normal_axis(self.name, self.axis, len(x.shape))
        return (ops.PutAlongAxisAdd(axis, x.shape[axis])(dout[0], out[1]),)

    return bprop
