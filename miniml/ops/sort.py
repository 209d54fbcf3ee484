"""Order: sort, argsort and the k largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..dtype import DType, int64
from ..errors import ShapeError
from ..primitive import Primitive
from . import rules
from .inference.shapes import normal_axis

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Sort", "TopK", "argsort", "sort", "topk"]  # fmt: skip


class Sort(Primitive):
    """x sorted along `axis`, and the int64 indices it was taken from.

    Equal elements keep their order. NaN counts as the largest: last ascending, first descending.
    """

    axis: int = -1
    descending: bool = False
    outputs = ("values", "indices")

    infer_shape = rules.along("axis")

    def infer_dtype(self, x: DType) -> tuple[DType, DType]:
        return x, int64


class TopK(Primitive):
    """The k largest elements along `axis`, in descending order, and their int64 indices.

    largest=False: the k smallest, ascending. Of equal elements the one with the lowest index comes
    first. NaN counts as the largest.
    """

    k: int
    axis: int = -1
    largest: bool = True
    outputs = ("values", "indices")

    def infer_shape(self, x: Shape) -> tuple[Shape, Shape]:
        axis = normal_axis("TopK", self.axis, len(x))
        if not 0 <= self.k <= x[axis]:
            raise ShapeError(
                f"TopK cannot take k={self.k} elements along axis {axis} of shape {x}; k is 0 to "
                f"{x[axis]}"
            )
        shape = (*x[:axis], self.k, *x[axis + 1 :])
        return shape, shape

    def infer_dtype(self, x: DType) -> tuple[DType, DType]:
        return x, int64


def sort(x: Any, axis: int = -1, descending: bool = False) -> Tensor:
    """x sorted along `axis`; Sort(axis, descending)(x) gives the indices as well.

    Equal elements keep their order; NaN counts as the largest.
    """
    return Sort(axis, descending)(x)[0]


def argsort(x: Any, axis: int = -1, descending: bool = False) -> Tensor:
    """The int64 indices along `axis` that would sort x; equal elements keep their order."""
    return Sort(axis, descending)(x)[1]


def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k largest elements along `axis`, in descending order.

    largest=False: the k smallest, ascending. Of equal elements the lowest index comes first; NaN
    counts as the largest. indices are int64. ShapeError unless 0 <= k <= the extent of the axis.
    """
    values, indices = TopK(k, axis, largest)(x)
    return values, indices
