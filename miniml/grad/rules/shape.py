"""Gradients of shape operations: each one's transpose."""

from __future__ import annotations

from ... import ops
from ...bprop import Bprop, bprop_getters
from ...formats import PLAIN
from .formulas import formulas
from .reduce import inverse

formulas(
    {
        ops.Reshape: lambda x, out, dout: (ops.reshape(dout, x.shape),),
        ops.ExpandDims: lambda x, out, dout: (ops.reshape(dout, x.shape),),
        ops.Squeeze: lambda x, out, dout: (ops.reshape(dout, x.shape),),
        ops.Convert: lambda x, out, dout: (ops.Convert(PLAIN)(dout),),
        ops.BroadcastTo: lambda x, out, dout: (ops.sum_to(dout, x.shape),),
        ops.SumTo: lambda x, out, dout: (ops.broadcast_to(dout, x.shape),),
    }
)


@bprop_getters.register(ops.Transpose)
def get_bprop_transpose(self: ops.Transpose) -> Bprop:
    axes = tuple(a % len(self.axes) for a in self.axes)
    return lambda x, out, dout: (ops.transpose(dout, inverse(axes)),)


@bprop_getters.register(ops.Flip)
def get_bprop_flip(self: ops.Flip) -> Bprop:
    return lambda x, out, dout: (ops.flip(dout, self.axis),)
