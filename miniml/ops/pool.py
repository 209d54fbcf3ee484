"""2-d pooling: the maximum or the mean of every window of an image."""

from __future__ import annotations

from ..abstract import Shape
from ..dtype import DType, int64
from ..errors import DTypeError, ShapeError
from ..primitive import Primitive
from . import rules
from .inference.geometry import (
    NO_PADDING,
    UNIT,
    Padding,
    Pair,
    fits,
    images,
    pair,
    windows,
)
from .inference.shapes import needs_float

__all__ = ["AvgPool2D", "AvgPool2DGrad", "MaxPool2D", "MaxPool2DGather", "MaxPool2DGrad"]


class Pooling(Primitive, abstract=True):
    """The attributes of 2-d pooling: kernel_size and stride are (rows, columns), padding is
    ((top, bottom), (left, right)), each less than the kernel, so that every window has a pixel."""

    kernel_size: Pair
    stride: Pair
    padding: Padding = NO_PADDING

    def pooled(self, x: Shape) -> Shape:
        """The shape (N, C, OH, OW) of one number per window of x (N, C, H, W)."""
        image = images(self.name, "x", x)
        size = pair(self, "kernel_size", self.kernel_size, 1)
        out = windows(self, image[2:], size, UNIT)
        if any(p >= k for pads, k in zip(self.padding, size, strict=True) for p in pads):
            raise ShapeError(
                f"{self.name} got padding {self.padding} for a kernel of {size}; pad by less than "
                "the kernel, so that no window lies in the padding alone"
            )
        if 0 in image[2:]:
            raise ShapeError(f"{self.name} got x of shape {x}, whose planes have no pixels")
        return (*image[:2], *out)


class MaxPool2D(Pooling):
    """The largest pixel of each window of x (N, C, H, W), and where it is.

    out (N, C, OH, OW); indices (N, C, OH, OW) int64 count the H*W pixels of a plane and name the
    first maximum in row-major order. Padding never wins. A NaN is larger than everything.
    """

    outputs = ("out", "indices")

    def infer_shape(self, x: Shape) -> tuple[Shape, Shape]:
        out = self.pooled(x)
        return out, out

    def infer_dtype(self, x: DType) -> tuple[DType, DType]:
        return needs_float(self.name, x), int64


class MaxPool2DGrad(Primitive):
    """dout (N, C, OH, OW) added up at `indices` (as MaxPool2D gives them) in zeros (N, C, H, W).

    input_shape: (H, W).
    """

    input_shape: Pair

    def infer_shape(self, dout: Shape, indices: Shape) -> Shape:
        images(self.name, "dout", dout)
        fits(self.name, "indices", indices, dout)
        return (*dout[:2], *pair(self, "input_shape", self.input_shape, 1))

    def infer_dtype(self, dout: DType, indices: DType) -> DType:
        return indexed(self.name, dout, indices)


class MaxPool2DGather(Primitive):
    """The pixels of x (N, C, H, W) at `indices` (as MaxPool2D gives them): (N, C, OH, OW)."""

    def infer_shape(self, x: Shape, indices: Shape) -> Shape:
        image, places = images(self.name, "x", x), images(self.name, "indices", indices)
        if image[:2] != places[:2] or 0 in image[2:]:
            raise ShapeError(
                f"{self.name} got x of shape {x} and indices of shape {indices}; both have shape "
                "(N, C, ...), and x has at least one pixel"
            )
        return indices

    def infer_dtype(self, x: DType, indices: DType) -> DType:
        return indexed(self.name, x, indices)


class AvgPool2D(Pooling):
    """The mean of each window of x (N, C, H, W): (N, C, OH, OW).

    count_include_pad: True divides by the kernel's size everywhere (padding counts as zeros),
    False by the number of pixels that lie in x.
    """

    count_include_pad: bool = True

    def infer_shape(self, x: Shape) -> Shape:
        return self.pooled(x)

    infer_dtype = rules.floats


class AvgPool2DGrad(Pooling):
    """The transpose of AvgPool2D: dout (N, C, OH, OW) to (N, C, H, W). input_shape: (H, W)."""

    input_shape: Pair  # type: ignore[misc]  # no default: behind others, it is given by name
    count_include_pad: bool = True

    def infer_shape(self, dout: Shape) -> Shape:
        images(self.name, "dout", dout)
        x = (*dout[:2], *pair(self, "input_shape", self.input_shape, 1))
        fits(self.name, "dout", dout, self.pooled(x))
        return x

    infer_dtype = rules.floats


def indexed(name: str, values: DType, indices: DType) -> DType:
    """The dtype of the values, floats; DTypeError unless the indices are int64."""
    if indices != int64:
        raise DTypeError(f"{name} got indices of {indices.name}; MaxPool2D gives them as int64")
    return needs_float(name, values)
