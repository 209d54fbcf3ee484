"""Gradients of pooling: the mean and its transpose, the maximum by the places it was found at."""

from __future__ import annotations

from typing import Any

from ... import ops
from .formulas import rule


@rule(ops.MaxPool2D)
def max_pool2d_bprop(
    self: ops.MaxPool2D, x: Any, out: tuple[Any, Any], dout: tuple[Any, Any]
) -> tuple[Any]:
    return (ops.MaxPool2DGrad(x.shape[2:])(dout[0], out[1]),)


@rule(ops.MaxPool2DGrad)
def max_pool2d_grad_bprop(
    self: ops.MaxPool2DGrad, dout: Any, indices: Any, out: Any, ddx: Any
) -> tuple[Any, None]:
    return ops.MaxPool2DGather()(ddx, indices), None


@rule(ops.MaxPool2DGather)
def max_pool2d_gather_bprop(
    self: ops.MaxPool2DGather, x: Any, indices: Any, out: Any, dout: Any
) -> tuple[Any, None]:
    return ops.MaxPool2DGrad(x.shape[2:])(dout, indices), None


@rule(ops.AvgPool2D)
def avg_pool2d_bprop(self: ops.AvgPool2D, x: Any, out: Any, dout: Any) -> tuple[Any]:
    size = self.kernel_size, self.stride, self.padding, x.shape[2:]
    return (ops.AvgPool2DGrad(*size, self.count_include_pad)(dout),)


@rule(ops.AvgPool2DGrad)
def avg_pool2d_grad_bprop(self: ops.AvgPool2DGrad, dout: Any, out: Any, ddx: Any) -> tuple[Any]:
    size = self.kernel_size, self.stride, self.padding
    return (ops.AvgPool2D(*size, self.count_include_pad)(ddx),)
