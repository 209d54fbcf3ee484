"""2-d convolution: every window of an image times every filter, and its two transposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape
from ..errors import ShapeError
from ..primitive import Primitive
from .arithmetic import add
from .inference.geometry import (
    NO_PADDING,
    UNIT,
    Lengths,
    Padding,
    PaddingSpec,
    Pair,
    fits,
    lengths,
    paddings,
    pair,
    planes,
    same_padding,
    windows,
)
from .shape import reshape

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Conv2D", "Conv2DInputGrad", "Conv2DWeightGrad", "conv2d"]


class Convolution(Primitive, abstract=True):
    """The attributes of 2-d convolution, and the relation between the shapes of its three parts.

    stride, dilation: (rows, columns), at least 1. padding: ((top, bottom), (left, right)) zeros.
    groups: channels are split into that many equal parts that do not see each other.
    """

    promote = "float"
    stride: Pair = UNIT
    padding: Padding = NO_PADDING
    dilation: Pair = UNIT
    groups: int = 1

    def convolved(self, x: Shape, w: Shape) -> Shape:
        """The shape (N, O, OH, OW) of the convolution of x (N, C, H, W) with w."""
        image, filters = planes(self.name, "x", x), filter_shape(self, w)
        channels = filters[1] * self.groups
        if image[1] != channels:
            raise ShapeError(
                f"{self.name} got x of shape {x} and w of shape {w} with groups={self.groups}: x "
                f"has {image[1]} channels and the filters take {channels}; w has shape "
                "(O, C // groups, KH, KW)"
            )
        out = windows(self, image[2:], filters[2:], self.dilation)
        return (image[0], filters[0], *out)


class Conv2D(Convolution):
    """The cross-correlation of images x (N, C, H, W) with filters w (O, C/groups, KH, KW).

    out[n, o, r, q] = sum over c, i, j of
    w[o, c, i, j] * x[n, c, r*stride + i*dilation - top, q*stride + j*dilation - left],
    with zeros outside of x; out has shape (N, O, OH, OW), where
    OH = (H + top + bottom - dilation * (KH - 1) - 1) // stride + 1.
    """

    def infer_shape(self, x: Shape, w: Shape) -> Shape:
        return self.convolved(x, w)


class Conv2DInputGrad(Convolution):
    """The transpose of Conv2D in x: dout (N, O, OH, OW) and w to (N, C, H, W).

    input_shape: (H, W), which stride and padding alone do not determine.
    """

    input_shape: Pair  # type: ignore[misc]  # no default: behind others, it is given by name

    def infer_shape(self, dout: Shape, w: Shape) -> Shape:
        height, width = pair(self, "input_shape", self.input_shape, 0)
        given = planes(self.name, "dout", dout)
        filters = filter_shape(self, w)
        x = (given[0], filters[1] * self.groups, height, width)
        fits(self.name, "dout", dout, self.convolved(x, w))
        return x


class Conv2DWeightGrad(Convolution):
    """The transpose of Conv2D in w: x (N, C, H, W) and dout (N, O, OH, OW) to w's shape.

    kernel_shape: (KH, KW), which stride and padding alone do not determine.
    """

    kernel_shape: Pair  # type: ignore[misc]  # same

    def infer_shape(self, x: Shape, dout: Shape) -> Shape:
        rows, columns = pair(self, "kernel_shape", self.kernel_shape, 1)
        image, slopes = planes(self.name, "x", x), planes(self.name, "dout", dout)
        if self.groups < 1 or image[1] % self.groups:
            raise ShapeError(
                f"{self.name} cannot split the {image[1]} channels of x of shape {x} into "
                f"groups={self.groups}; take a divisor of {image[1]}"
            )
        w = (slopes[1], image[1] // self.groups, rows, columns)
        fits(self.name, "dout", dout, self.convolved(x, w))
        return w


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Lengths = 1,
    padding: PaddingSpec = 0,
    dilation: Lengths = 1,
    groups: int = 1,
) -> Tensor:
    """The 2-d convolution (cross-correlation) of images x (N, C, H, W) with filters
    w (O, C/groups, KH, KW), plus bias (O,) if there is one: (N, O, OH, OW).

    stride, dilation: an int, or (rows, columns). padding: an int; (rows, columns);
    ((top, bottom), (left, right)); "valid", none; or "same", which gives
    OH = ceil(H / stride) and puts an odd zero below and to the right.
    Raises ShapeError where channels, groups or extents do not fit.
    """
    strides, dilations = (
        lengths("Conv2D", "stride", stride),
        lengths("Conv2D", "dilation", dilation),
    )
    if padding == "same":
        pads = same_padding(np.shape(x)[2:], np.shape(w)[2:], strides, dilations)
    else:
        pads = paddings("Conv2D", padding)
    out = Conv2D(strides, pads, dilations, groups)(x, w)
    if bias is None:
        return out
    if np.shape(bias) != (out.shape[1],):
        raise ShapeError(
            f"Conv2D got a bias of shape {np.shape(bias)} for {out.shape[1]} output channels; "
            f"it has shape ({out.shape[1]},)"
        )
    return add(out, reshape(bias, (-1, 1, 1)))


def filter_shape(op: Convolution, w: Shape) -> Shape:
    """The filters' shape, checked against the groups."""
    if len(w) != 4 or 0 in w[2:]:
        raise ShapeError(
            f"{op.name} needs w of shape (O, C // groups, KH, KW), KH and KW at least 1; got {w}"
        )
    if op.groups < 1 or w[0] % op.groups:
        raise ShapeError(
            f"{op.name} cannot split {w[0]} filters into groups={op.groups}; "
            f"take a divisor of {w[0]}"
        )
    return w
