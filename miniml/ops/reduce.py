"""Reductions: many elements to one, along axes."""

from __future__ import annotations

import builtins
from math import inf
from math import prod as product
from typing import TYPE_CHECKING
from typing import Any as Value  # Any is a primitive here

from ..abstract import Shape
from ..attributes import freeze
from ..dtype import bfloat16, bool_, float16, float32, int64
from ..errors import AttributeRefusedError, ShapeError
from ..primitive import Primitive
from . import arithmetic, exponential, rules
from .compare import equal, select
from .inference.shapes import Axes, dtype_of, normal_axes, reduced_shape, shape_of

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "All", "Any", "ArgMax", "ArgMin", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
    "all", "any", "argmax", "argmin", "count_nonzero", "logsumexp", "max", "mean", "min",
    "norm", "prod", "std", "sum", "var",
]  # fmt: skip


class Reduction(Primitive, abstract=True):
    """A reduction along `axis` (all axes for None), which stay as extents 1 with `keepdims`."""

    axis: Axes = None
    keepdims: bool = False
    infer_shape = rules.reduce("axis")


class Sum(Reduction):
    """The sum, 0 where there is nothing to sum. Integers and bools are summed in 64 bits."""

    infer_dtype = rules.sums


class Mean(Reduction):
    """The sum divided by the number of elements; integers are cast to float32 first."""

    promote = "float"


class Prod(Reduction):
    """The product, 1 where there is nothing to multiply. Integers and bools give 64 bits."""

    infer_dtype = rules.sums


class Extremum(Reduction, abstract=True):
    """A reduction that picks one of the elements, so there must be one."""

    def infer_shape(self, x: Shape) -> Shape:
        out = reduced_shape(self.name, x, self.axis, self.keepdims)
        refuse_nothing(self.name, x, normal_axes(self.name, self.axis, len(x)))
        return out


class Max(Extremum):
    """The largest element, NaN where there is one. Equal maxima share the gradient equally."""


class Min(Extremum):
    """The smallest element, NaN where there is one. Equal minima share the gradient equally."""


class ArgExtremum(Extremum, abstract=True):
    """Where an extremum stands along `axis`, or in the flattened tensor for None: int64."""

    axis: int | None = None
    differentiable = False
    infer_dtype = rules.always(int64)


class ArgMax(ArgExtremum):
    """The index of the first maximum; a NaN counts as the maximum."""


class ArgMin(ArgExtremum):
    """The index of the first minimum; a NaN counts as the minimum."""


class Truth(Reduction, abstract=True):
    """A reduction of truth values, for which anything but zero is true: bool."""

    differentiable = False
    infer_dtype = rules.always(bool_)


class Any(Truth):
    """True where some element is not zero."""


class All(Truth):
    """True where no element is zero."""


class LogSumExp(Reduction):
    """log(sum(exp(x))), computed as m + log(sum(exp(x - m))) with the maximum m, so that nothing
    overflows. Nothing at all, or only -inf, gives -inf; integers are cast to float32 first."""

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


def sum(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of x over `axis` (an int, a tuple, or None for all axes)."""
    if axis is None and not keepdims:
        return _sum(x)
    return Sum(freeze(axis, "Sum", "axis"), keepdims)(x)


def mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of x over `axis`; NaN where there is nothing to average."""
    return Mean(freeze(axis, "Mean", "axis"), keepdims)(x)


def prod(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product of x over `axis`."""
    return Prod(freeze(axis, "Prod", "axis"), keepdims)(x)


def max(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element of x over `axis`; ShapeError where there is none."""
    return Max(freeze(axis, "Max", "axis"), keepdims)(x)


def min(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element of x over `axis`; ShapeError where there is none."""
    return Min(freeze(axis, "Min", "axis"), keepdims)(x)


def argmax(x: Value, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (int64) of the first maximum along `axis`, of the flattened tensor for None."""
    return ArgMax(one_axis("ArgMax", axis), keepdims)(x)


def argmin(x: Value, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (int64) of the first minimum along `axis`, of the flattened tensor for None."""
    return ArgMin(one_axis("ArgMin", axis), keepdims)(x)


def any(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where some element of x over `axis` is not zero; False for none at all."""
    return Any(freeze(axis, "Any", "axis"), keepdims)(x)


def all(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where no element of x over `axis` is zero; True for none at all."""
    return All(freeze(axis, "All", "axis"), keepdims)(x)


def logsumexp(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow."""
    return LogSumExp(freeze(axis, "LogSumExp", "axis"), keepdims)(x)


def var(x: Value, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The variance of x over `axis`: the sum of (x - mean)^2, divided by n - `correction`.

    correction: 1 gives the unbiased estimate of a sample's population. Where n <= correction it is
    divided by 0: the result is infinite, or NaN where all elements are equal. float16 and bfloat16
    are computed in float32.
    """
    return _like(x, _var("var", _wide(x), axis, keepdims, correction))


def std(x: Value, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The square root of `var`; its gradient is NaN where all elements are equal."""
    return _like(x, exponential.sqrt(_var("std", _wide(x), axis, keepdims, correction)))


def _var(name: str, x: Value, axis: Axes, keepdims: bool, correction: float) -> Tensor:
    """The variance in x's own dtype."""
    shape = shape_of(x)
    axes = normal_axes(name, freeze(axis, name, "axis"), len(shape))
    count = product(shape[i] for i in axes)
    centred = arithmetic.sub(x, mean(x, axis, True))
    squares = sum(arithmetic.square(centred), axis, keepdims)
    return arithmetic.div(squares, float(builtins.max(count - correction, 0)))


def count_nonzero(x: Value, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements of x over `axis` are not 0, int64; NaN is not 0."""
    return sum(arithmetic.cast(x, bool_), axis, keepdims)


def norm(x: Value, ord: float = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """(sum |x|^ord)^(1 / ord) over `axis`, the length of vectors; of all elements for None.

    ord: any number; inf gives the largest |x| and -inf the smallest, 0 the number of elements that
    are not 0. Two axes are one vector: there are no matrix norms here. Integers are cast to
    float32; float16 and bfloat16 are computed in float32. The gradient of a vector of zeros is 0
    for ord >= 1; for smaller ones it is not finite where an element is 0.
    AttributeRefusedError for an `ord` that is no number.

    >>> norm([3.0, 4.0]).item(), norm([3.0, -4.0], float("inf")).item()
    (5.0, 4.0)
    """
    order = freeze(ord, "norm", "ord")
    if type(order) not in (int, float) or order != order:
        raise AttributeRefusedError(f"norm got ord={ord!r}; it takes a number, inf or -inf")
    return _like(x, _norm(arithmetic.as_float(_wide(x)), order, axis, keepdims))


def _norm(x: Value, order: float, axis: Axes, keepdims: bool) -> Tensor:
    """The norm in x's own dtype."""
    if order == 0:
        return arithmetic.cast(count_nonzero(x, axis, keepdims), dtype_of(x))
    if order == 2:
        return _root(sum(arithmetic.square(x), axis, keepdims), order)
    sizes = arithmetic.abs(x)
    if order in (inf, -inf):
        return (max if order > 0 else min)(sizes, axis, keepdims)
    if order == 1:
        return sum(sizes, axis, keepdims)
    return _root(sum(exponential.pow(sizes, float(order)), axis, keepdims), order)


def _root(x: Value, order: float) -> Tensor:
    """x^(1 / order); of 0, where its slope is infinite, without gradient."""
    if order < 0:
        return exponential.pow(x, 1 / order)
    zero = equal(x, 0)
    safe = select(zero, 1.0, x)
    root = exponential.sqrt(safe) if order == 2 else exponential.pow(safe, 1 / order)
    return select(zero, 0.0, root)


def _wide(x: Value) -> Value:
    return arithmetic.cast(x, float32) if dtype_of(x) in (float16, bfloat16) else x


def _like(x: Value, out: Tensor) -> Tensor:
    """What was computed from `_wide(x)`, in x's own dtype."""
    return arithmetic.cast(out, dtype_of(x)) if dtype_of(x) in (float16, bfloat16) else out


def one_axis(name: str, axis: object) -> int | None:
    """The attribute of a reduction that takes one axis or all; ShapeError for a tuple."""
    frozen = freeze(axis, name, "axis")
    if frozen is None or (isinstance(frozen, int) and not isinstance(frozen, bool)):
        return frozen
    raise ShapeError(f"{name} got axis {axis!r}; it takes one axis, or None for all elements")
