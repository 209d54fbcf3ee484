"""Gradients of pooling: the mean and its transpose, the maximum by the places it was found at."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.MaxPool2D)
def get_bprop_max_pool2d(self: ops.MaxPool2D) -> Bprop:
    def bprop(x: Any, out: tuple[Any, Any], dout: tuple[Any, Any]) -> tuple[Any]:
        return (ops.MaxPool2DGrad(x.shape[2:])(dout[0], out[1]),)

    return bprop


@bprop_getters.register(ops.MaxPool2DGrad)
def get_bprop_max_pool2d_grad(self: ops.MaxPool2DGrad) -> Bprop:
    def bprop(dout: Any, indices: Any, out: Any, ddx: Any) -> tuple[Any, None]:
        return ops.MaxPool2DGather()(ddx, indices), None

    return bprop


@bprop_getters.register(ops.MaxPool2DGather)
def get_bprop_max_pool2d_gather(self: ops.MaxPool2DGather) -> Bprop:
    def bprop(x: Any, indices: Any, out: Any, dout: Any) -> tuple[Any, None]:
        return ops.MaxPool2DGrad(x.shape[2:])(dout, indices), None

    return bprop


@bprop_getters.register(ops.AvgPool2D)
def get_bprop_avg_pool2d(self: ops.AvgPool2D) -> Bprop:
    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        size = self.kernel_size, self.stride, self.padding, x.shape[2:]
        return (ops.AvgPool2DGrad(*size, self.count_include_pad)(dout),)

    return bprop


@bprop_getters.register(ops.AvgPool2DGrad)
def get_bprop_avg_pool2d_grad(self: ops.AvgPool2DGrad) -> Bprop:
    def bprop(dout: Any, out: Any, ddx: Any) -> tuple[Any]:
        size = self.kernel_size, self.stride, self.padding
        return (ops.AvgPool2D(*size, self.count_include_pad)(ddx),)

    return bprop
