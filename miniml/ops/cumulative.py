"""Running sums, products and extrema: each element joined with those before it along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..attributes import freeze
from ..primitive import Primitive
from . import rules
from .compare import equal, logical_or, not_equal, select
from .create import arange
from .inference.devices import on_one_device
from .inference.shapes import normal_axis, shape_of
from .shape import reshape

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "CumMax", "CumMin", "CumProd", "CumSum", "cummax", "cummin", "cumprod", "cumsum",
]  # fmt: skip


class Running(Primitive, abstract=True):
    """A function of the elements up to each one along `axis`, from the end with `reverse`.

    With `exclusive` an element is not part of its own result. Integers and bools give 64 bits.
    """

    axis: int
    reverse: bool = False
    exclusive: bool = False
    infer_shape = rules.along("axis")
    infer_dtype = rules.sums


class CumSum(Running):
    """Sums of the elements up to each one along `axis`, from the end with `reverse`.

    With `exclusive` an element is not part of its own sum. Integers and bools give 64 bits.
    """


class CumProd(Running):
    """Products of the elements up to each one along `axis`, from the end with `reverse`.

    With `exclusive` an element is not part of its own product. Integers and bools give 64 bits.
    """


class RunningExtremum(Primitive, abstract=True):
    """The extremum of the elements up to each one along `axis`; NaN from the first NaN on."""

    axis: int
    infer_shape = rules.along("axis")


class CumMax(RunningExtremum):
    """The largest element up to each one along `axis`; NaN from the first NaN on.

    The gradient goes to the element that it is, the last one of equal ones.
    """


class CumMin(RunningExtremum):
    """The smallest element up to each one along `axis`; NaN from the first NaN on.

    The gradient goes to the element that it is, the last one of equal ones.
    """


def cumsum(x: Any, axis: int, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """out_i = x_0 + ... + x_i along `axis`, from the end with `reverse`; x_i is left out with
    `exclusive`."""
    return CumSum(freeze(axis, "CumSum", "axis"), reverse, exclusive)(x)


def cumprod(x: Any, axis: int, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """out_i = x_0 * ... * x_i along `axis`, from the end with `reverse`; x_i is left out with
    `exclusive`.

    Integers and bools are multiplied in 64 bits. The gradient divides by nothing, so it is right
    where elements are 0.

    >>> cumprod([2, 3, 4], 0).tolist(), cumprod([2, 3, 4], 0, exclusive=True).tolist()
    ([2, 6, 24], [1, 2, 6])
    """
    return CumProd(freeze(axis, "CumProd", "axis"), reverse, exclusive)(x)


@on_one_device
def cummax(x: Any, axis: int) -> tuple[Tensor, Tensor]:
    """(values, indices): max(x_0, ..., x_i) along `axis`, and the int64 index of each there.

    Of equal elements the last one so far counts, for the gradient too; from the first NaN on values
    are NaN, which the last NaN so far is.

    >>> [out.tolist() for out in cummax([1.0, 3.0, 2.0, 3.0], 0)]
    [[1.0, 3.0, 3.0, 3.0], [0, 1, 1, 3]]
    """
    values = CumMax(freeze(axis, "CumMax", "axis"))(x)
    return values, places(x, values, axis)


@on_one_device
def cummin(x: Any, axis: int) -> tuple[Tensor, Tensor]:
    """(values, indices): min(x_0, ..., x_i) along `axis`, and the int64 index of each there.

    Of equal elements the last one so far counts, for the gradient too; from the first NaN on values
    are NaN, which the last NaN so far is.
    """
    values = CumMin(freeze(axis, "CumMin", "axis"))(x)
    return values, places(x, values, axis)


def places(x: Any, extrema: Any, axis: int) -> Tensor:
    """For each running extremum of x the index along `axis` of the last element that it is."""
    shape = shape_of(x)
    axis = normal_axis("places", axis, len(shape))
    column = reshape(arange(shape[axis]), (-1, *(1 for _ in shape[axis + 1 :])))
    found = logical_or(equal(x, extrema), not_equal(x, x))
    return CumMax(axis)(select(found, column, 0))
