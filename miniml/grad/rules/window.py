"""Gradients of convolution: it is linear in images and in filters, so three primitives close."""

from __future__ import annotations

from typing import Any

from ... import ops
from .formulas import rule


@rule(ops.Conv2D)
def conv2d_bprop(self: ops.Conv2D, x: Any, w: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    return input_grad(self, x, dout, w), weight_grad(self, w, x, dout)


@rule(ops.Conv2DInputGrad)
def conv2d_input_grad_bprop(
    self: ops.Conv2DInputGrad, dout: Any, w: Any, out: Any, ddx: Any
) -> tuple[Any, Any]:
    return convolution(self, ddx, w), weight_grad(self, w, ddx, dout)


@rule(ops.Conv2DWeightGrad)
def conv2d_weight_grad_bprop(
    self: ops.Conv2DWeightGrad, x: Any, dout: Any, out: Any, ddw: Any
) -> tuple[Any, Any]:
    return input_grad(self, x, dout, ddw), convolution(self, x, ddw)


def convolution(like: Any, x: Any, w: Any) -> Any:
    """Conv2D with the attributes of `like`."""
    return ops.Conv2D(like.stride, like.padding, like.dilation, like.groups)(x, w)


def input_grad(like: Any, x: Any, dout: Any, w: Any) -> Any:
    """The gradient in x of the convolution with the attributes of `like`."""
    windows = like.stride, like.padding, like.dilation, like.groups
    return ops.Conv2DInputGrad(*windows, x.shape[2:])(dout, w)


def weight_grad(like: Any, w: Any, x: Any, dout: Any) -> Any:
    """The gradient in w of the convolution with the attributes of `like`."""
    windows = like.stride, like.padding, like.dilation, like.groups
    return ops.Conv2DWeightGrad(*windows, w.shape[2:])(x, dout)
