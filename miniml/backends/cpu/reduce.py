"""NumPy kernels of reductions, of running sums, products and extrema, and of sorting and searching.

Sums and means of wide floats and complex numbers are planned per shape, as products with vectors of
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import gcd
from math import prod as product
from typing import Any

import numpy as np

from ...core.abstract import DType, bfloat16, complex64, complex128, float32, float64
from ...core.signature import ANY, BF16, COMPLEX, INT, WHOLE, WIDE, same
from ..kernel import Array, opened, scalars, skips
from ..registry import in_float32, register, register_floats, register_planned
from . import linalg
from .index import along

Axes = int | tuple[int, ...] | None
Shape = tuple[int, ...]


def sum_whole(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    if x.dtype == bool and out.size == 1:
        out[...] = np.count_nonzero(x)  # by vectors
    else:
        np.add.reduce(x, axis=axis, keepdims=keepdims, out=out, dtype=out.dtype)


def sum_whole_to(x: Array, *, shape: Shape, out: Array) -> None:
    axes = summed_axes(x.shape, shape)
    np.add.reduce(x, axis=axes, out=out.reshape(without(x.shape, axes)), dtype=out.dtype)


def prod(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    wide = float64 if out.dtype == float32 else out.dtype
    np.multiply.reduce(x, axis=axis, keepdims=keepdims, out=out, dtype=wide)


def reducing(fn: Any) -> Any:
    """The kernel of a reduction of NumPy, such as np.maximum.reduce."""

    def reduce(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
        fn(x, axis=axis, keepdims=keepdims, out=out)

    return reduce


def locating(name: str) -> Any:
    """The kernel of a method of arrays that gives indices."""
    return lambda x, *, axis, keepdims, out: getattr(opened(x), name)(axis, out, keepdims=keepdims)


def logsumexp(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    peak = np.asarray(np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf))
    np.copyto(peak, 0, where=np.isinf(peak))
    terms = np.empty(x.shape, x.dtype)
    np.exp(np.subtract(x, peak, terms), terms)
    planned(x.shape, _normalized(axis, x.ndim), out.shape, x.dtype)(terms, out=out)
    np.add(np.log(out, out), peak.reshape(out.shape), out)


register("Sum", sum_whole, *WHOLE)
register("SumTo", sum_whole_to, *same(1, INT))
register_floats("Prod", prod)
register("Prod", prod, *WHOLE)
register("Max", reducing(np.maximum.reduce), *same(1, ANY))
register("Min", reducing(np.minimum.reduce), *same(1, ANY))
for _name in ("ArgMax", "ArgMin"):
    register(_name, locating(_name.lower()), *same(1, ANY, "l"))
register("Any", reducing(partial(np.logical_or.reduce, dtype=bool)), *same(1, ANY, "?"))
register("All", reducing(partial(np.logical_and.reduce, dtype=bool)), *same(1, ANY, "?"))
register_floats("LogSumExp", logsumexp)


# --- Plans of sums, as products with vectors of ones ----------------------------------------------

Plan = Callable[..., Any]  # plan(x, out=out)

_ROWS = 1024  # numbers summed by one BLAS call: more would lose accuracy
_ONES = {d: np.ones(_ROWS, d) for d in (float32, float64, complex64, complex128)}


@lru_cache(maxsize=4096)
def planned(shape: Shape, axes: tuple[int, ...], out_shape: Shape, dtype: DType) -> Plan:
    """The plan of a sum of arrays of `shape` over `axes`, in float32, float64 or complex numbers.

    Sums over the leading axes, the trailing ones or both are products with vectors of ones: BLAS
    is 2 to 6 times as fast there as np.add.reduce, and over leading axes more accurate. Of complex
    numbers, infinity times 1 + 0i is NaN, so what is not finite is added again.
    """
    split, added = blocks(shape, axes), folded(np.add, shape, axes, out_shape)
    if split is None:
        return added
    by_ones = products(*split, shape, out_shape, dtype)
    if dtype.kind != "c":
        return by_ones

    def finite(x: Array, out: Array) -> None:
        by_ones(x, out=out)
        if not np.isfinite(out).all():
            added(x, out=out)

    return finite


def products(
    lead: int, kept: int, trail: int, shape: Shape, out_shape: Shape, dtype: DType
) -> Plan:
    """The plan of a sum as products with vectors of ones."""
    ones = _ONES[dtype]
    head, tail = ones[:lead], ones[:trail]
    dot = np.dot if lead * kept * trail <= linalg.VECTORS else linalg.dot
    if lead == kept == 1:  # of vectors
        return lambda x, out: x.reshape(-1).dot(tail, out.reshape(()))
    if trail == 1 and lead <= _ROWS:
        if (shape, out_shape) == ((lead, kept), (kept,)):
            return partial(dot, head)
        return lambda x, out: dot(head, x.reshape(lead, kept), out=out.reshape(kept))
    if lead == 1:
        return lambda x, out: dot(x.reshape(kept, trail), tail, out=out.reshape(kept))

    def both(x: Array, out: Array) -> None:
        rows = x if trail == 1 else dot(x.reshape(lead * kept, trail), tail)
        add_rows(rows.reshape(lead, kept), ones, out.reshape(kept))

    return both


@lru_cache(maxsize=4096)
def averaged(shape: Shape, axes: tuple[int, ...], out_shape: Shape, dtype: DType) -> Plan:
    """The plan of a mean of arrays of `shape` over `axes`."""
    add_up = planned(shape, axes, out_shape, dtype)
    count = np.array(product(shape[a] for a in axes), dtype)

    def average(x: Array, out: Array) -> None:
        add_up(x, out=out)
        if out_shape:
            np.true_divide(out, count, out)
        else:
            out[()] /= count[()]  # in a tenth of a ufunc's time

    return average


def folded(ufunc: np.ufunc, shape: Shape, axes: tuple[int, ...], out_shape: Shape) -> Plan:
    """The plan of a reduction of arrays of `shape` over `axes` with a ufunc."""
    left = without(shape, axes)
    if out_shape == left:
        return partial(ufunc.reduce, axis=axes if left else None)  # None takes less time
    return lambda x, out: ufunc.reduce(x, axis=axes, out=out.reshape(left))


def blocks(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The shape (lead, kept, trail) of a view whose outer axes are those reduced, or None.

    None also where np.add.reduce, which sums contiguous numbers pairwise, is at least as good.
    """
    long, size = [i for i in range(len(shape)) if i not in axes and shape[i] != 1], product(shape)
    if not long and size > _ROWS:  # rows, and then their sums
        trail = shape[-1] if shape[-1] <= _ROWS else gcd(size, _ROWS)
        return (size // trail, 1, trail) if trail >= 64 else None
    if not size:
        return None
    first, last = (long[0], long[-1]) if long else (0, -1)
    if any(i in axes and shape[i] != 1 for i in range(first, last)):
        return None
    trail = product(shape[last + 1 :])
    if trail > _ROWS:
        return None
    return product(shape[:first]), product(shape[first : last + 1]), trail


def add_rows(x: Array, ones: Array, out: Array) -> None:
    """Sum a matrix over its rows, _ROWS of them at a time."""
    while len(x) > _ROWS:
        parts = np.empty((-(-len(x) // _ROWS), x.shape[1]), x.dtype)
        for i, part in enumerate(parts):
            block = x[i * _ROWS : (i + 1) * _ROWS]
            linalg.dot(ones[: len(block)], block, out=part)
        x = parts
    linalg.dot(ones[: len(x)], x, out=out)


def _normalized(axis: Axes, ndim: int) -> tuple[int, ...]:
    """The axes, counted from 0."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


@lru_cache(maxsize=1024)
def summed_axes(shape: Shape, target: Shape) -> tuple[int, ...]:
    """The axes over which an array of `shape` is summed to have the shape `target`."""
    lead = len(shape) - len(target)
    ones = (lead + i for i, n in enumerate(target) if n == 1 and shape[lead + i] != 1)
    return (*range(lead), *ones)


def without(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape without `axes`."""
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def over_axes(plan: Any, shape: Shape, out: Shape, dtype: DType, /, **attrs: Any) -> Any:
    """The plan of a reduction over the axes that attributes name."""
    axes = _normalized(attrs["axis"], len(shape)) if "axis" in attrs else summed_axes(shape, out)
    return plan(shape, axes, out, dtype)


for _name, _plan in (("Sum", planned), ("SumTo", planned), ("Mean", averaged)):
    register_planned(_name, partial(over_axes, _plan), WIDE + COMPLEX)


# --- Running sums and extrema, sorting and searching ----------------------------------------------


def running(
    ufunc: np.ufunc, x: Array, *, axis: int, reverse: bool, exclusive: bool = False, out: Array
) -> None:
    results = out
    if reverse:
        x, results = np.flip(x, axis), np.flip(results, axis)
    if exclusive:
        x, results = np.moveaxis(x, axis, 0), np.moveaxis(results, axis, 0)
        results[:1] = ufunc.identity
        x, results, axis = x[:-1], results[1:], 0
    wide = ufunc is np.multiply and results.dtype == float32
    ufunc.accumulate(x, axis=axis, out=results, dtype=float64 if wide else results.dtype)


for _name, _body in (
    ("CumSum", partial(running, np.add)), ("CumProd", partial(running, np.multiply)),
):  # fmt: skip
    register_floats(_name, _body)
    register(_name, _body, *WHOLE)
register_floats("LogCumSumExp", partial(running, np.logaddexp))
register("CumMax", np.maximum.accumulate, *same(1, ANY))
register("CumMin", np.minimum.accumulate, *same(1, ANY))


Pair = tuple[Any, Array]


@skips(0)
def sort(x: Array, *, axis: int, descending: bool, out: Pair) -> None:
    values, indices = out
    order(x, axis % x.ndim, descending, indices)
    if values is not None:
        values[...] = along(x, indices, axis % x.ndim)


def topk(x: Array, *, k: int, axis: int, largest: bool, out: Pair) -> None:
    sort(x, axis=axis, descending=largest, out=out)


def order(x: Array, axis: int, descending: bool, out: Array) -> None:
    """Fill `out` with the first indices of a stable sort of x along axis, NaN as the largest."""
    before, count = (slice(None),) * axis, out.shape[axis]
    if not descending:
        places = x.argsort(axis=axis, kind="stable")
        out[...] = places if places.shape == out.shape else places[(*before, slice(count))]
        return
    # Sorted back to front and read back to front: equal elements keep their order.
    (last,) = scalars(out.dtype, x.shape[axis] - 1)
    places = x[(*before, slice(None, None, -1))].argsort(axis=axis, kind="stable")
    np.subtract(last, places[(*before, slice(-1, -1 - count, -1))], out)


def searchsorted(x: Array, values: Array, *, side: Any, out: Array) -> None:
    if x.ndim == 1:
        out[...] = np.searchsorted(x, values, side)
        return
    for row in np.ndindex(*x.shape[:-1]):
        out[row] = np.searchsorted(x[row], values[row], side)


def unique(x: Array) -> tuple[Array, ...]:
    wide = x.astype(float32) if x.dtype == bfloat16 else x
    _, first, inverse, counts = np.unique(wide, True, True, True)
    return x.reshape(-1)[first], first, inverse.reshape(x.shape), counts


register("SearchSorted", searchsorted, *[f"{c}{c}->l" for c in ANY if c != BF16])
register("SearchSorted", in_float32(searchsorted), f"{BF16}{BF16}->l")
register("Unique", unique, *[f"{c}->{c}lll" for c in ANY])
for name, fn in (("Sort", sort), ("TopK", topk)):
    register(name, fn, *[f"{c}->{c}l" for c in ANY if c != BF16])
    register(name, in_float32(fn), f"{BF16}->{BF16}l")
