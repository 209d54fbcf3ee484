"""Gradients of reductions."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters
from ...ops.bases import reduced_shape


@bprop_getters.register(ops.Sum)
def get_bprop_sum(self: ops.Sum) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        return (ops.broadcast_to(expanded(dout, x.shape, self.axis, self.keepdims), x.shape),)

    return bprop


def expanded(dout: Any, shape: tuple[int, ...], axis: Any, keepdims: bool) -> Any:
    """dout with the reduced axes back as extents 1."""
    kept = reduced_shape("gradient", shape, axis, True)
    return dout if keepdims or dout.shape == kept else ops.reshape(dout, kept)
