"""2-d convolution: every window of an image times every filter, and its two transposes."""

from __future__ import annotations

from ..abstract import Shape
from ..errors import ShapeError
from ..primitive import Primitive
from .inference.geometry import (
    NO_PADDING,
    TAPS,
    UNIT,
    Padding,
    Pair,
    fits,
    images,
    pair,
    windows,
)

__all__ = ["Conv2D", "Conv2DInputGrad", "Conv2DWeightGrad"]


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
        image, filters = images(self.name, "x", x), filter_shape(self.name, w, self.groups)
        takes(self.name, image, filters, self.groups)
        return (image[0], filters[0], *windows(self, image[2:], filters[2:], self.dilation))


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
        given = images(self.name, "dout", dout)
        filters = filter_shape(self.name, w, self.groups)
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
        image, slopes = images(self.name, "x", x), images(self.name, "dout", dout)
        if self.groups < 1 or image[1] % self.groups:
            raise ShapeError(
                f"{self.name} cannot split the {image[1]} channels of x of shape {x} into "
                f"groups={self.groups}; take a divisor of {image[1]}"
            )
        w = (slopes[1], image[1] // self.groups, rows, columns)
        fits(self.name, "dout", dout, self.convolved(x, w))
        return w


def filter_shape(name: str, w: Shape, groups: int, n: int = 2) -> Shape:
    """The filters' shape (O, C // groups, *taps), of n axes; ShapeError where it is none."""
    if len(w) != 2 + n or 0 in w[2:]:
        raise ShapeError(
            f"{name} needs w of shape (O, C // groups, {TAPS[n]}), each of {TAPS[n]} at least 1; "
            f"got {w}"
        )
    if groups < 1 or w[0] % groups:
        raise ShapeError(
            f"{name} cannot split {w[0]} filters into groups={groups}; take a divisor of {w[0]}"
        )
    return w


def takes(name: str, x: Shape, w: Shape, groups: int) -> None:
    """ShapeError unless the filters take as many channels as x has."""
    channels = w[1] * groups
    if x[1] != channels:
        raise ShapeError(
            f"{name} got x of shape {x} and w of shape {w} with groups={groups}: x has {x[1]} "
            f"channels and the filters take {channels}; w has shape (O, C // groups, "
            f"{TAPS[len(w) - 2]})"
        )
