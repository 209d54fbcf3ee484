"""Reductions along axes, cumulative sums, products and extrema, and sorting.

In order: sums, means, extrema, norms and variance; functions of the elements up to each one along
an axis; sort, top-k, search and unique. `statistics.py` has quantiles, and reductions without NaN.
"""

from __future__ import annotations

import builtins
from math import inf
from math import prod as product
from sys import float_info
from typing import Any as Value  # Any is a primitive here

from ..core.abstract import DType, Shape, bool_, float64, int64, is_complex
from ..core.errors import AttributeRefusedError, ShapeError
from ..core.options import choice, number
from ..core.primitive import Primitive, freeze
from ..core.signature import FLOAT, INT
from . import elementwise, rules
from .checks import Axes, Tensor, composition, dtype_of, normal_axes, normal_axis, shape_of
from .composed.elementwise import as_float, isclose, narrowed, widened
from .create import arange
from .logic import equal, logical_or, not_equal, select
from .rules import per_input
from .shape import reshape

__all__ = [
    "All", "Any", "ArgMax", "ArgMin", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
    "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "logsumexp",
    "max", "mean", "min", "norm", "prod", "std", "sum", "var",
    "CumMax", "CumMin", "CumProd", "CumSum", "LogCumSumExp", "cummax", "cummin", "cumprod",
    "cumsum", "logcumsumexp",
    "SearchSorted", "Sort", "TopK", "Unique", "argsort", "searchsorted", "sort", "topk", "unique",
    "unique_all",
]  # fmt: skip


class Reduction(Primitive, abstract=True):
    """A reduction along `axis` (all axes for None), which stay as extents 1 with `keepdims`."""

    axis: Axes = None
    keepdims: bool = False
    infer_shape = rules.reduce("axis")


class Sum(Reduction):
    """The sum, 0 where there is nothing to sum. Integers and bools are summed in 64 bits."""

    takes_complex = True
    autocast = "wide"
    reduces = "sum"
    linear = ("x",)
    images = ("x",)
    rounds = True
    infer_dtype = rules.sums


class Mean(Reduction):
    """The sum divided by the number of elements; integers are cast to float32 first."""

    takes_complex = True
    autocast = "wide"
    reduces = "mean"
    linear = ("x",)
    images = ("x",)
    rounds = True
    promote = "float"


class Prod(Reduction):
    """The product, 1 where there is nothing to multiply. Integers and bools give 64 bits."""

    autocast = "wide"
    reduces = "prod"
    infer_dtype = rules.sums


class Extremum(Reduction, abstract=True):
    """A reduction that selects one of the elements, so there must be one."""

    def infer_shape(self, x: Shape) -> Shape:
        out: Shape = super().infer_shape(x)
        refuse_nothing(self.name, x, normal_axes(self.name, self.axis, len(x)))
        return out


class Max(Extremum):
    """The largest element, NaN where there is one. Equal maxima share the gradient equally."""

    reduces = "max"
    images = ("x",)


class Min(Extremum):
    """The smallest element, NaN where there is one. Equal minima share the gradient equally."""

    reduces = "min"
    images = ("x",)


class ArgExtremum(Extremum, abstract=True):
    """The index of an extremum along `axis`, or in the flattened tensor for None: int64."""

    axis: int | None = None
    differentiable = False
    infer_dtype = rules.always(int64)
    flops = per_input(1)


class ArgMax(ArgExtremum):
    """The index of the first maximum; a NaN counts as the maximum."""


class ArgMin(ArgExtremum):
    """The index of the first minimum; a NaN counts as the minimum."""


class Truth(Reduction, abstract=True):
    """A reduction of truth values, where anything but zero is true: bool."""

    differentiable = False
    infer_dtype = rules.always(bool_)


class Any(Truth):
    """True where some element is not zero."""

    reduces = "any"


class All(Truth):
    """True where no element is zero."""

    reduces = "all"


class LogSumExp(Reduction):
    """log(sum(exp(x))), computed as m + log(sum(exp(x - m))) with the maximum m, so that nothing
    overflows. Nothing at all, or only -inf, gives -inf; integers are cast to float32 first."""

    autocast = "wide"
    flops = per_input(4)
    rounds = True
    promote = "float"


def refuse_nothing(name: str, shape: Shape, axes: tuple[int, ...]) -> None:
    """ShapeError when one of the axes to reduce has extent 0."""
    for axis in axes:
        if shape[axis] == 0:
            raise ShapeError(
                f"{name} cannot reduce axis {axis} of shape {shape}, which has no elements to "
                "choose from; reduce a tensor that is not empty there"
            )


_sum = Sum()


@composition
def sum(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of x over `axis` (an int, a tuple, or None for all axes)."""
    if axis is None and keepdims is False:
        return _sum(x)
    return Sum(freeze(axis, "Sum", "axis"), keepdims)(x)


@composition
def mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of x over `axis`; NaN where there is nothing to average."""
    return Mean(freeze(axis, "Mean", "axis"), keepdims)(x)


@composition
def prod(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product of x over `axis`."""
    return Prod(freeze(axis, "Prod", "axis"), keepdims)(x)


@composition
def max(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element of x over `axis`; ShapeError where there is none."""
    return Max(freeze(axis, "Max", "axis"), keepdims)(x)


@composition
def min(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element of x over `axis`; ShapeError where there is none."""
    return Min(freeze(axis, "Min", "axis"), keepdims)(x)


amax, amin = max, min  # names that are no builtins, as in NumPy and PyTorch


@composition
def argmax(x: Value, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (int64) of the first maximum along `axis`, of the flattened tensor for None."""
    return ArgMax(one_axis("ArgMax", axis), keepdims)(x)


@composition
def argmin(x: Value, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (int64) of the first minimum along `axis`, of the flattened tensor for None."""
    return ArgMin(one_axis("ArgMin", axis), keepdims)(x)


@composition
def any(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where some element of x over `axis` is not zero; False for none at all."""
    return Any(freeze(axis, "Any", "axis"), keepdims)(x)


@composition
def all(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where no element of x over `axis` is zero; True for none at all."""
    return All(freeze(axis, "All", "axis"), keepdims)(x)


@composition
def allclose(
    x: Value, y: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """True where `isclose(x, y, ...)` is for all elements: a bool of shape ().

    >>> allclose([1.0, 2.0], [1.0, 2.000001]).item()
    True
    """
    return all(isclose(x, y, rtol, atol, equal_nan))


def one_axis(name: str, axis: object) -> int | None:
    """The attribute of a reduction that takes one axis or all; ShapeError for a tuple."""
    frozen = freeze(axis, name, "axis")
    if frozen is None or (isinstance(frozen, int) and not isinstance(frozen, bool)):
        return frozen
    raise ShapeError(f"{name} got axis {axis!r}; it takes one axis, or None for all elements")


@composition
def logsumexp(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow."""
    return LogSumExp(freeze(axis, "LogSumExp", "axis"), keepdims)(x)


@composition
def var(x: Value, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The variance of x over `axis`: the sum of |x - mean|^2, divided by n - `correction`.

    correction: 1 gives the unbiased estimate of a sample's population. Where n <= correction it is
    divided by 0: the result is infinite, or NaN where all elements are equal. float16 and bfloat16
    are computed in float32.
    """
    return narrowed(x, _var("var", widened(x), axis, keepdims, correction))


@composition
def std(x: Value, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The square root of `var`; its gradient is 0 where all elements are equal."""
    return narrowed(x, root_of(_var("std", widened(x), axis, keepdims, correction), 2))


def _var(name: str, x: Value, axis: Axes, keepdims: bool, correction: float) -> Tensor:
    """The variance in x's own dtype."""
    shape, less = shape_of(x), number(name, "correction", correction)
    axes = normal_axes(name, freeze(axis, name, "axis"), len(shape))
    count = product(shape[i] for i in axes)
    squares = sum(square_of_size(elementwise.sub(x, mean(x, axis, True))), axis, keepdims)
    return elementwise.div(squares, float(builtins.max(count - less, 0)))


def square_of_size(x: Value) -> Tensor:
    """|x|^2, which is real for complex numbers too."""
    return elementwise.square(elementwise.abs(x) if is_complex(dtype_of(x)) else x)


@composition
def count_nonzero(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The number of elements of x over `axis` that are not 0, int64; NaN is not 0."""
    return sum(not_equal(x, 0), axis, keepdims)


@composition
def norm(x: Value, ord: float = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """(sum |x|^ord)^(1 / ord) over `axis`, the length of vectors; of all elements for None.

    ord: any number; inf gives the largest |x| and -inf the smallest, 0 the number of elements that
    are not 0. Two axes are one vector: there are no matrix norms here. Integers are cast to
    float32; powers are summed in float64, whose range |x|^ord must not leave: for order 2 that
    is any float32, and float64 from 1e-146 to 1e154. The gradient of a vector of zeros is 0 for
    ord >= 1; for smaller ones it is not finite where an element is 0.
    AttributeRefusedError for an `ord` that is not a number.

    >>> norm([3.0, 4.0]).item(), norm([3.0, -4.0], float("inf")).item()
    (5.0, 4.0)
    """
    order = freeze(ord, "norm", "ord")
    if type(order) not in (int, float) or order != order:
        raise AttributeRefusedError(f"norm got ord={ord!r}; it takes a number, inf or -inf")
    return narrowed(x, _norm(as_float(widened(x)), order, axis, keepdims))


def _norm(x: Value, order: float, axis: Axes, keepdims: bool) -> Tensor:
    """The norm in x's own dtype."""
    if order == 0:
        return elementwise.cast(count_nonzero(x, axis, keepdims), dtype_of(x))
    if order in (inf, -inf):
        return (max if order > 0 else min)(elementwise.abs(x), axis, keepdims)
    if order == 1:
        return sum(elementwise.abs(x), axis, keepdims)
    wide = elementwise.cast(x, float64)
    powers = (
        elementwise.square(wide) if order == 2 else elementwise.pow(elementwise.abs(wide), order)
    )
    total, narrow = sum(powers, axis, keepdims), order == 2 and dtype_of(x) != float64
    if narrow:  # at 0 the bound, whose root is 0 in x's dtype, takes the gradient
        root = elementwise.sqrt(elementwise.maximum(total, float_info.min))
    return elementwise.cast(root if narrow else root_of(total, order), dtype_of(x))


def root_of(x: Value, order: float) -> Tensor:
    """x^(1 / order) of x >= 0; at 0, where the slope is infinite, without gradient."""
    if order < 0:
        return elementwise.pow(x, 1 / order)
    counts = elementwise.sign(x)  # 0 where x is 0, else 1
    safe = elementwise.add(x, elementwise.sub(1.0, counts))
    root = elementwise.sqrt(safe) if order == 2 else elementwise.pow(safe, 1 / order)
    return elementwise.mul(root, counts)


# --- Cumulative sums, products and extrema --------------------------------------------------------


class Running(Primitive, abstract=True):
    """A function of the elements up to each one along `axis`."""

    axis: int
    reverse: bool = False
    exclusive: bool = False
    by_element = FLOAT + INT
    infer_shape = rules.along("axis")
    infer_dtype = rules.sums


class CumSum(Running):
    """Sums of the elements up to each one along `axis`, from the end with `reverse`.

    With `exclusive` an element is not part of its own sum. Integers and bools give 64 bits.
    """

    autocast = "wide"
    rounds = True
    linear = ("x",)


class CumProd(Running):
    """Products of the elements up to each one along `axis`, from the end with `reverse`.

    With `exclusive` an element is not part of its own product. Integers and bools give 64 bits.
    """

    autocast = "wide"


class LogCumSumExp(Primitive):
    """log(sum(exp(x))) of the elements up to each one along `axis`, from the end with `reverse`.

    Nothing overflows: of two terms the larger one is taken out. Only -inf so far gives -inf;
    integers are cast to float32 first.
    """

    axis: int
    reverse: bool = False
    infer_shape = rules.along("axis")
    autocast, by_element = "wide", FLOAT
    flops = per_input(4)
    rounds = True
    promote = "float"


class RunningExtremum(Primitive, abstract=True):
    """The extremum of the elements up to each one along `axis`; NaN from the first NaN on."""

    axis: int
    by_element = FLOAT + INT
    infer_shape = rules.along("axis")


class CumMax(RunningExtremum):
    """The largest element up to each one along `axis`; NaN from the first NaN on.

    The gradient goes to that element, the last of equal ones.
    """


class CumMin(RunningExtremum):
    """The smallest element up to each one along `axis`; NaN from the first NaN on.

    The gradient goes to that element, the last of equal ones.
    """


@composition
def cumsum(x: Value, axis: int, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """out_i = x_0 + ... + x_i along `axis`, from the end with `reverse`; x_i is left out with
    `exclusive`."""
    return CumSum(freeze(axis, "CumSum", "axis"), reverse, exclusive)(x)


@composition
def cumprod(x: Value, axis: int, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """out_i = x_0 * ... * x_i along `axis`, from the end with `reverse`; x_i is left out with
    `exclusive`.

    Integers and bools are multiplied in 64 bits. The gradient divides by nothing, so it is right
    where elements are 0.

    >>> cumprod([2, 3, 4], 0).tolist(), cumprod([2, 3, 4], 0, exclusive=True).tolist()
    ([2, 6, 24], [1, 2, 6])
    """
    return CumProd(freeze(axis, "CumProd", "axis"), reverse, exclusive)(x)


def logcumsumexp(x: Value, axis: int, reverse: bool = False) -> Tensor:
    """out_i = log(exp(x_0) + ... + exp(x_i)) along `axis`, without overflow; from the end with
    `reverse`.

    Integers are cast to float32. The gradient is stable, and 0 where all elements so far are -inf.

    >>> logcumsumexp([1000.0, 1000.0], 0).tolist()
    [1000.0, 1000.6931762695312]
    """
    return LogCumSumExp(freeze(axis, "LogCumSumExp", "axis"), reverse)(x)


@composition
def cummax(x: Value, axis: int) -> tuple[Tensor, Tensor]:
    """(values, indices): max(x_0, ..., x_i) along `axis`, and the int64 index of each there.

    Of equal elements the last one so far counts, for the gradient too; from the first NaN on values
    are NaN, with the index of the last NaN so far.

    >>> [out.tolist() for out in cummax([1.0, 3.0, 2.0, 3.0], 0)]
    [[1.0, 3.0, 3.0, 3.0], [0, 1, 1, 3]]
    """
    values = CumMax(freeze(axis, "CumMax", "axis"))(x)
    return values, extremum_indices(x, values, axis)


@composition
def cummin(x: Value, axis: int) -> tuple[Tensor, Tensor]:
    """(values, indices): min(x_0, ..., x_i) along `axis`, and the int64 index of each there.

    Of equal elements the last one so far counts, for the gradient too; from the first NaN on values
    are NaN, with the index of the last NaN so far.
    """
    values = CumMin(freeze(axis, "CumMin", "axis"))(x)
    return values, extremum_indices(x, values, axis)


def extremum_indices(x: Value, extrema: Value, axis: int) -> Tensor:
    """For each running extremum of x the index along `axis` of the last element equal to it."""
    shape = shape_of(x)
    axis = normal_axis("places", axis, len(shape))
    column = reshape(arange(shape[axis]), (-1, *(1 for _ in shape[axis + 1 :])))
    return CumMax(axis)(select(logical_or(equal(x, extrema), not_equal(x, x)), column, 0))


# --- Sorting --------------------------------------------------------------------------------------


class Sort(Primitive):
    """x sorted along `axis`, and the int64 indices it was taken from.

    Equal elements keep their order. NaN counts as the largest: last ascending, first descending.
    """

    axis: int = -1
    descending: bool = False
    outputs, by_element = ("values", "indices"), FLOAT + INT

    infer_shape = rules.along("axis")

    def infer_dtype(self, x: DType) -> tuple[DType, DType]:
        return x, int64


class TopK(Primitive):
    """The k largest elements along `axis`, in descending order, and their int64 indices.

    largest=False: the k smallest, ascending. Of equal elements the one with the lowest index comes
    first. NaN counts as the largest. ShapeError for a k that is not in 0 .. extent.
    """

    k: int
    axis: int = -1
    largest: bool = True
    outputs, by_element = ("values", "indices"), FLOAT + INT

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
    """The number of elements of sorted rows that are less than each value: its insertion index.

    side="right": the number of those that are not greater. x: (n,), or rows (..., n) with values
    (..., m). NaN counts as the largest. int64. ShapeError where the leading extents differ.
    """

    side: str = "left"
    promote = True
    differentiable = False
    ordered = ("x",)
    infer_dtype = rules.always(int64)

    def infer_shape(self, x: Shape, values: Shape) -> Shape:
        choice(self.name, "side", self.side, ("left", "right"))
        if not x or (len(x) > 1 and x[:-1] != values[:-1]):
            raise ShapeError(
                f"SearchSorted got x of shape {x} and values of shape {values}; x is one row (n,),"
                " or has a row for each row of values, with the same leading extents"
            )
        return values


class Unique(Primitive):
    """The distinct elements of x, sorted; the index of each one's first occurrence in x flattened;
    for each element of x the index of its value, in the shape of x; counts. All NaN are one.

    It runs eagerly only, and no gradient passes.
    """

    dynamic_outputs = True
    differentiable = False
    outputs = ("values", "indices", "inverse", "counts")

    def infer_shape(self, x: Shape) -> tuple[Shape, ...]:
        return (product(x),), (product(x),), x, (product(x),)  # at most

    def infer_dtype(self, x: DType) -> tuple[DType, ...]:
        return x, int64, int64, int64


@composition
def sort(x: Value, axis: int = -1, descending: bool = False) -> Tensor:
    """x sorted along `axis`; Sort(axis, descending)(x) gives the indices as well.

    Equal elements keep their order; NaN counts as the largest.
    """
    return Sort(axis, descending)(x)[0]


@composition
def argsort(x: Value, axis: int = -1, descending: bool = False) -> Tensor:
    """The int64 indices along `axis` that would sort x; equal elements keep their order."""
    return Sort(axis, descending)(x)[1]


@composition
def topk(x: Value, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k largest elements along `axis`, in descending order.

    largest=False: the k smallest, ascending. Of equal elements the lowest index comes first; NaN
    counts as the largest. indices are int64. ShapeError unless 0 <= k <= the extent of the axis.
    """
    values, indices = TopK(k, axis, largest)(x)
    return values, indices


@composition
def searchsorted(x: Value, values: Value, side: str = "left") -> Tensor:
    """The number of elements of sorted x that are < each of `values`; with side="right" <=.

    x: (n,), ascending; or rows (..., n), each for one row of values (..., m). The result, int64,
    has the shape of values: the indices at which to insert them. Both are promoted to one dtype;
    NaN counts as the largest. Where x is not sorted, the indices are unspecified.

    >>> searchsorted([1, 3, 3, 5], [3, 6]).tolist(), searchsorted([1, 3, 3, 5], 3, "right").item()
    ([1, 4], 3)
    """
    return SearchSorted(side)(x, values)


_unique = Unique()


def unique(x: Value) -> Tensor:
    """The distinct elements of x, sorted; `unique_all` also gives their indices and counts.

    It runs eagerly only, since the shape depends on values, and no gradient passes. All NaN are
    one.

    >>> unique([3, 1, 3]).tolist()
    [1, 3]
    """
    return _unique(x)[0]


def unique_all(x: Value) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(values, indices, inverse, counts): the distinct elements of x, sorted, and int64 arrays.

    indices: of each one's first occurrence in x flattened. inverse, of the shape of x: the index of
    each element's value, x = values[inverse]. counts: of the occurrences of each.
    It runs eagerly only, since shapes depend on values, and no gradient passes. All NaN are one.
    """
    values, indices, inverse, counts = _unique(x)
    return values, indices, inverse, counts
