"""Gradient rules of convolution and pooling.

Convolution is linear in images and in filters: the gradients of `Conv2D` and its two transposes are
made of these three primitives alone. Average pooling has its transpose; the maximum's gradient goes
to the indices at which it was found.
"""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core.bprop import rule
from ..batching import Batched, all_in_front, batches


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


# --- Batching -------------------------------------------------------------------------------------


@batches(
    ops.AvgPool2D, ops.AvgPool2DGrad, ops.MaxPool2D, ops.MaxPool2DGrad, ops.MaxPool2DGather,
    ops.Convert,
)  # fmt: skip
def batch_pooling(self: Any, batched: Batched, *images: Any) -> Any:
    """The images of all examples are images of one batch."""
    out = self(*map(_one_batch, all_in_front(batched, images)))
    if isinstance(out, tuple):
        return tuple([_apart(part, batched.size) for part in out])
    return _apart(out, batched.size)


def _one_batch(x: Any) -> Any:
    size, n, *rest = x.shape
    return ops.reshape(x, (size * n, *rest))


def _apart(x: Any, size: int) -> Any:
    return ops.reshape(x, (size, x.shape[0] // size if size else 0, *x.shape[1:]))


@batches(ops.Conv2D, ops.Conv2DInputGrad)
def batch_convolution(self: Any, batched: Batched, x: Any, w: Any) -> Any:
    """Images alone are one batch; with filters of their own, examples are groups of channels."""
    if not batched[1]:
        return _apart(self(_one_batch(x), w), batched.size)
    x, w = all_in_front(batched, (x, w))
    return _channels_apart(self.with_attributes(_grouped(self, batched.size))(
        _channels(x), _one_batch(w)), batched.size)  # fmt: skip


@batches(ops.Conv2DWeightGrad)
def batch_weight_grad(self: Any, batched: Batched, x: Any, dout: Any) -> Any:
    x, dout = all_in_front(batched, (x, dout))
    grouped = self.with_attributes(_grouped(self, batched.size))
    return _apart(grouped(_channels(x), _channels(dout)), batched.size)


def _grouped(self: Any, size: int) -> dict[str, Any]:
    """The attributes with as many groups for each example."""
    return {**self.attributes, "groups": self.groups * size}


def _channels(x: Any) -> Any:
    """Images (B, N, C, ...) as (N, B C, ...)."""
    size, n, channels, *rest = x.shape
    return ops.reshape(ops.moveaxis(x, 0, 1), (n, size * channels, *rest))


def _channels_apart(x: Any, size: int) -> Any:
    """Images (N, B C, ...) as (B, N, C, ...)."""
    n, channels, *rest = x.shape
    return ops.moveaxis(ops.reshape(x, (n, size, channels // size, *rest)), 1, 0)
