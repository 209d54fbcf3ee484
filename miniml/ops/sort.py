"""Order: sort, argsort and the k largest; the median, places in what is sorted, what differs."""

from __future__ import annotations

from math import nan, prod
from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..attributes import freeze
from ..dtype import DType, int64
from ..errors import AttributeRefusedError, ShapeError
from ..primitive import Primitive
from . import rules
from .compare import isnan, select
from .getitem import getitem
from .inference.shapes import Axes, normal_axes, normal_axis, reduced_shape, shape_of
from .reduce import mean, refuse_nothing
from .shape import reshape, transpose

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "SearchSorted", "Sort", "TopK", "Unique", "argsort", "median", "searchsorted", "sort", "topk",
    "unique", "unique_all",
]  # fmt: skip


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


class SearchSorted(Primitive):
    """How many elements of sorted rows are less than each value: before which it would stand.

    side="right": how many are not greater. x: (n,), or rows (..., n) with values (..., m). NaN
    counts as the largest. int64.
    """

    side: str = "left"
    promote = True
    differentiable = False
    infer_dtype = rules.always(int64)

    def infer_shape(self, x: Shape, values: Shape) -> Shape:
        if self.side not in ("left", "right"):
            raise AttributeRefusedError(
                f"SearchSorted got side={self.side!r}; it takes 'left' or 'right'"
            )
        if not x or (len(x) > 1 and x[:-1] != values[:-1]):
            raise ShapeError(
                f"SearchSorted got x of shape {x} and values of shape {values}; x is one row (n,),"
                " or has a row for each row of values, with the same leading extents"
            )
        return values


class Unique(Primitive):
    """The distinct elements of x, sorted; where each stands first in x flattened; which of them
    each element of x is, in the shape of x; how often each occurs. All NaN are one.

    It runs eagerly only, and no gradient passes.
    """

    dynamic_outputs = True
    differentiable = False
    outputs = ("values", "indices", "inverse", "counts")

    def infer_shape(self, x: Shape) -> tuple[Shape, ...]:
        return (prod(x),), (prod(x),), x, (prod(x),)  # at most

    def infer_dtype(self, x: DType) -> tuple[DType, ...]:
        return x, int64, int64, int64


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


def median(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle of the sorted elements of x over `axis`, or the mean of the two in the middle.

    NumPy's median; torch.median gives the lower of the two. NaN where there is one; integers give
    float32. The gradient goes to what is in the middle, of equal elements to the last of those that
    a stable sort puts there. ShapeError where there is no element.

    >>> median([3.0, 1.0, 10.0, 2.0]).item()
    2.5
    """
    shape = shape_of(x)
    axes = normal_axes("median", freeze(axis, "median", "axis"), len(shape))
    refuse_nothing("median", shape, axes)
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    n = prod(shape[a] for a in axes)
    rows = reshape(transpose(x, kept + axes), (*(shape[a] for a in kept), n))
    ordered = sort(rows)
    middle = mean(getitem(ordered, (..., slice((n - 1) // 2, n // 2 + 1))), -1)
    out = select(isnan(getitem(ordered, (..., n - 1))), nan, middle)  # NaN is sorted last
    return reshape(out, reduced_shape("median", shape, axes, keepdims))


def searchsorted(x: Any, values: Any, side: str = "left") -> Tensor:
    """How many elements of sorted x are < each of `values`; with side="right" how many are <=.

    x: (n,), ascending; or rows (..., n), of which each serves one row of values (..., m). The
    result, int64, has the shape of values: the places at which to insert them. Both are promoted to
    one dtype; NaN counts as the largest. What is not sorted gives any places.

    >>> searchsorted([1, 3, 3, 5], [3, 6]).tolist(), searchsorted([1, 3, 3, 5], 3, "right").item()
    ([1, 4], 3)
    """
    return SearchSorted(side)(x, values)


def unique(x: Any) -> Tensor:
    """The distinct elements of x, sorted; `unique_all` also gives their indices and counts.

    It runs eagerly only, since the shape depends on values, and no gradient passes. All NaN are
    one.

    >>> unique([3, 1, 3]).tolist()
    [1, 3]
    """
    return Unique()(x)[0]


def unique_all(x: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(values, indices, inverse, counts): the distinct elements of x, sorted, and int64 arrays.

    indices: where each first stands in x flattened. inverse, of the shape of x: which of them each
    element is, x = values[inverse]. counts: how often each occurs.
    It runs eagerly only, since shapes depend on values, and no gradient passes. All NaN are one.
    """
    values, indices, inverse, counts = Unique()(x)
    return values, indices, inverse, counts
