"""Gradients of convolution: it is linear in images and in filters, so three primitives close."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters


@bprop_getters.register(ops.Conv2D)
def get_bprop_conv2d(self: ops.Conv2D) -> Bprop:
    def bprop(x: Any, w: Any, out: Any, dout: Any) -> tuple[Any, Any]:
        return input_grad(self, x, dout, w), weight_grad(self, w, x, dout)

    return bprop


@bprop_getters.register(ops.Conv2DInputGrad)
def get_bprop_conv2d_input_grad(self: ops.Conv2DInputGrad) -> Bprop:
    def bprop(dout: Any, w: Any, out: Any, ddx: Any) -> tuple[Any, Any]:
        return convolution(self, ddx, w), weight_grad(self, w, ddx, dout)

    return bprop


@bprop_getters.register(ops.Conv2DWeightGrad)
def get_bprop_conv2d_weight_grad(self: ops.Conv2DWeightGrad) -> Bprop:
    def bprop(x: Any, dout: Any, out: Any, ddw: Any) -> tuple[Any, Any]:
        return input_grad(self, x, dout, ddw), convolution(self, x, ddw)

    return bprop


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
