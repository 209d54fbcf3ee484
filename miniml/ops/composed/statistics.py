"""Quantiles along axes, and reductions that leave NaN out: compositions of reductions and sorting.

Quantiles are elements of the sorted rows, or points between two neighbours; `_POSITIONS` has the
place of each, by method.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from math import prod as product
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.abstract import Shape
from ...core.dtype import is_float
from ...core.options import choice, flag, number
from ...core.primitive import freeze
from ..checks import (
    Axes,
    as_array,
    composition,
    dtype_of,
    normal_axes,
    reduced_shape,
    shape_of,
)
from ..elementwise import add, cast, div, maximum, mul, square, sub
from ..index import gather, getitem
from ..logic import isfinite, isnan, logical_not, select
from ..reduce import all, max, mean, min, refuse_nothing, root_of, sort, std, sum, var
from ..shape import reshape, transpose
from .elementwise import as_float, lerp, narrowed, widened

if TYPE_CHECKING:
    from ...core.tensor import Tensor

__all__ = [
    "median", "percentile", "quantile",
    "nanmax", "nanmean", "nanmin", "nanstd", "nansum", "nanvar",
]  # fmt: skip


@composition
def median(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle of the sorted elements of x over `axis`, or the mean of the two in the middle.

    NumPy's median; torch.median gives the lower of the two. NaN where there is one; integers give
    float32. The gradient goes to the elements in the middle, as a stable sort puts them there.
    ShapeError where there is no element.

    >>> median([3.0, 1.0, 10.0, 2.0]).item()
    2.5
    """
    ordered = _sorted_rows("median", x, axis)
    n = shape_of(ordered)[-1]
    middle = mean(getitem(ordered, (..., slice((n - 1) // 2, n // 2 + 1))), -1)
    out = select(isnan(getitem(ordered, (..., n - 1))), nan, middle)  # NaN is sorted last
    return reshape(out, _reduced("median", x, axis, keepdims))


@composition
def quantile(
    x: Any, q: Any, axis: Axes = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """The smallest values that a fraction q of the elements of x over `axis` does not exceed.

    q: a number from 0 to 1, or an array of them, whose axes come first in the result: its shape is
    q.shape + the reduced one. method: where the quantile stands among the n sorted elements. Those
    of NumPy are known: "linear", at (n - 1) q, between two neighbours in proportion; "lower",
    "higher", "nearest" and "midpoint" of these two; "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased" and
    "normal_unbiased", which are definitions 1 to 9 of Hyndman and Fan 1996, "Sample quantiles in
    statistical packages", but for the 7th, which is "linear".

    NaN where there is one. Methods that select an element keep the dtype; for the others integers
    give float32. The gradient goes to the elements at both sides, as a stable sort puts them there,
    also among equal ones, in proportion to their weights. The values of q must be known, so they
    cannot be traced. ShapeError where there is no element, ValueRefusedError for a q out of range.

    >>> quantile([3.0, 1.0, 10.0, 2.0], [0.0, 0.5]).tolist()
    [1.0, 2.5]
    >>> quantile([3, 1, 10, 2], 0.5, method="lower").item()
    2
    """
    return _quantiles("quantile", x, _fractions("quantile", q, 1), axis, keepdims, method)


@composition
def percentile(
    x: Any, q: Any, axis: Axes = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """`quantile(x, q / 100, axis, keepdims, method)`, for q from 0 to 100.

    >>> percentile([3.0, 1.0, 10.0, 2.0], 75).item()
    4.75
    """
    share = _fractions("percentile", q, 100) / 100
    return _quantiles("percentile", x, share, axis, keepdims, method)


Position = Callable[[int, Any], Any]  # of n sorted elements and q: the index, whole or between two


def _at(alpha: float, beta: float) -> Position:
    """The index at which q (n + 1 - alpha - beta) + alpha elements are below or at the quantile."""
    return lambda n, q: q * (n + 1 - alpha - beta) + (alpha - 1)


def _averaged(n: int, q: Any) -> Any:
    last = n * q - 1
    return np.where(last == np.floor(last), last + 0.5, np.ceil(last))


def _closest(n: int, q: Any) -> Any:
    last = n * q - 1.5
    below = np.floor(last)
    return np.where((last == below) & (below % 2 == 1), below, below + 1)


_SELECTING: dict[str, Position] = {
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.rint((n - 1) * q),
    "inverted_cdf": lambda n, q: np.ceil(n * q - 1),
    "closest_observation": _closest,
}
_POSITIONS: dict[str, Position] = {
    "linear": _at(1, 1),
    "midpoint": lambda n, q: (np.floor((n - 1) * q) + np.ceil((n - 1) * q)) / 2,
    "averaged_inverted_cdf": _averaged,
    "interpolated_inverted_cdf": _at(0, 1),
    "hazen": _at(1 / 2, 1 / 2),
    "weibull": _at(0, 0),
    "median_unbiased": _at(1 / 3, 1 / 3),
    "normal_unbiased": _at(3 / 8, 3 / 8),
    **_SELECTING,
}


def _fractions(name: str, q: Any, top: float) -> Any:
    """The values of q as a NumPy array; ValueRefusedError for one that is not from 0 to `top`."""
    given = as_array(q)
    values = [number(name, "q", v, 0, top) for v in given.ravel().tolist()]
    return np.array(values, np.float64).reshape(given.shape)


def _quantiles(name: str, x: Any, q: Any, axis: Axes, keepdims: bool, method: str) -> Tensor:
    """The quantiles of fractions q, a NumPy array."""
    choice(name, "method", method, tuple(_POSITIONS))
    ordered = _sorted_rows(name, x, axis)
    *kept, n = shape_of(ordered)
    position = np.clip(_POSITIONS[method](n, q), 0, n - 1)
    below, above = (np.asarray(f(position), np.int64) for f in (np.floor, np.ceil))
    out: Any = gather(ordered, below, -1)
    if method not in _SELECTING:
        out = as_float(out)
        if (below < above).any():
            high = as_float(gather(ordered, above, -1))
            out = narrowed(out, _between(widened(out), widened(high), position - below))
    if is_float(dtype_of(x)):
        last = reshape(getitem(ordered, (..., n - 1)), (*kept, *[1] * q.ndim))
        out = select(isnan(last), nan, out)  # NaN is sorted last
    rank = len(kept)
    front = transpose(out, (*range(rank, rank + q.ndim), *range(rank)))
    return reshape(front, (*q.shape, *_reduced(name, x, axis, keepdims)))


def _between(low: Any, high: Any, weight: Any) -> Tensor:
    """lerp(low, high, weight), where high is low for a weight of 0; also of infinities, and where
    the difference overflows."""
    dtype = dtype_of(low)
    inside = np.where(weight == 0, 0.5, weight)
    parts = mul(low, np.asarray(1 - inside, dtype)), mul(high, np.asarray(inside, dtype))
    near = isfinite(sub(high, low))
    return select(near, lerp(low, high, np.asarray(weight, dtype)), add(*parts))


def _sorted_rows(name: str, x: Any, axis: Axes) -> Tensor:
    """x with the axes that are reduced last, as one, along which it is sorted; ShapeError where
    there is nothing along them."""
    shape = shape_of(x)
    axes = normal_axes(name, freeze(axis, name, "axis"), len(shape))
    refuse_nothing(name, shape, axes)
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    n = product(shape[a] for a in axes)
    return sort(reshape(transpose(x, kept + axes), (*(shape[a] for a in kept), n)))


def _reduced(name: str, x: Any, axis: Axes, keepdims: bool) -> Shape:
    """The shape of x without the axes that are reduced."""
    axes = freeze(axis, name, "axis")
    return reduced_shape(name, shape_of(x), axes, flag(name, "keepdims", keepdims))


# --- Reductions without NaN -----------------------------------------------------------------------


@composition
def nansum(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements of x over `axis` that are not NaN; 0 where there is none.

    Integers and bools are summed in 64 bits. The gradient is 0 where x is NaN.

    >>> nansum([1.0, float("nan"), 2.0]).item()
    3.0
    """
    return sum(_without_nan(x, 0), axis, keepdims)


@composition
def nanmean(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of the elements of x over `axis` that are not NaN; NaN where there is none.

    Integers are cast to float32; float16 and bfloat16 are computed in float32. The gradient is 0
    where x is NaN.

    >>> nanmean([1.0, float("nan"), 2.0]).item()
    1.5
    """
    if not is_float(dtype_of(x)):
        return mean(x, axis, keepdims)
    wide = widened(x)
    return narrowed(x, div(nansum(wide, axis, keepdims), _count(wide, axis, keepdims)))


@composition
def nanvar(x: Any, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The variance of the elements of x over `axis` that are not NaN, as `var` has it.

    correction: subtracted from their number, which the sum of squares is divided by; 0 is the least
    divisor, which gives infinity or NaN. NaN where all are NaN.
    """
    if not is_float(dtype_of(x)):
        return var(x, axis, keepdims, correction)
    return narrowed(x, _nanvar("nanvar", widened(x), axis, keepdims, correction))


@composition
def nanstd(x: Any, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The square root of `nanvar`; its gradient is 0 where all elements are equal."""
    if not is_float(dtype_of(x)):
        return std(x, axis, keepdims, correction)
    return narrowed(x, root_of(_nanvar("nanstd", widened(x), axis, keepdims, correction), 2))


def _nanvar(name: str, x: Any, axis: Axes, keepdims: bool, correction: float) -> Tensor:
    less = number(name, "correction", correction)
    centred = sub(x, nanmean(x, axis, True))
    # Not x's NaN alone: the mean of a row of NaN is NaN too.
    squares = sum(square(_without_nan(centred, 0)), axis, keepdims)
    return div(squares, maximum(sub(_count(x, axis, keepdims), less), 0.0))


@composition
def nanmax(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element of x over `axis` that is not NaN; NaN where all are.

    Equal maxima share the gradient equally. ShapeError where there is no element.

    >>> nanmax([1.0, float("nan"), 2.0]).item()
    2.0
    """
    return _nan_extremum("nanmax", x, axis, keepdims)


@composition
def nanmin(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element of x over `axis` that is not NaN; NaN where all are.

    Equal minima share the gradient equally. ShapeError where there is no element.
    """
    return _nan_extremum("nanmin", x, axis, keepdims)


def _nan_extremum(name: str, x: Any, axis: Axes, keepdims: bool) -> Tensor:
    shape = shape_of(x)
    refuse_nothing(name, shape, normal_axes(name, freeze(axis, name, "axis"), len(shape)))
    reduce, end = (max, -inf) if name == "nanmax" else (min, inf)
    if not is_float(dtype_of(x)):
        return reduce(x, axis, keepdims)
    found = reduce(_without_nan(x, end), axis, keepdims)
    return select(all(isnan(x), axis, keepdims), nan, found)


def _without_nan(x: Any, value: float) -> Any:
    """x with `value` for NaN."""
    return select(isnan(x), value, x) if is_float(dtype_of(x)) else x


def _count(x: Any, axis: Axes, keepdims: bool) -> Tensor:
    """The number of elements that are not NaN, in x's dtype."""
    return cast(sum(logical_not(isnan(x)), axis, keepdims), dtype_of(x))
