"""NumPy kernels of the reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod as product
from typing import Any

import numpy as np

from ...dtype import float32, float64
from ..kernel import Array, KernelNode
from .filing import ANY, BF16, FLOAT, INT, LOW, WIDE, file, file_floats, in_float32, same

Axes = int | tuple[int, ...] | None

_ROWS = 1024  # as many numbers are summed by one BLAS call: more would lose accuracy
_ONES = {d: np.ones(_ROWS, d) for d in (float32, float64)}
for _ones in _ONES.values():
    _ones.setflags(write=False)


def add_up(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Fill `out`, of the reduced shape with or without extents 1, with sums of float32 or float64.

    Sums over the leading axes, the trailing ones or both are products with vectors of ones: BLAS
    is 2 to 6 times as fast there as np.add.reduce, and over leading axes more accurate.
    """
    split = blocks(x.shape, axes) if x.flags.c_contiguous else None
    if split is None:
        kept = [n for i, n in enumerate(x.shape) if i not in axes]
        np.add.reduce(x, axis=axes, out=out.reshape(kept))
        return
    lead, kept, trail = split
    ones = _ONES[x.dtype]
    flat = out.reshape(kept)
    if trail > 1:
        rows = flat if lead == 1 else np.empty(lead * kept, x.dtype)
        np.dot(x.reshape(lead * kept, trail), ones[:trail], out=rows)
        x = rows
    if lead > 1 or trail == 1:
        _add_rows(x.reshape(lead, kept), ones, flat)


def _add_rows(x: Array, ones: Array, out: Array) -> None:
    while len(x) > _ROWS:
        parts = np.empty((-(-len(x) // _ROWS), x.shape[1]), x.dtype)
        for i, part in enumerate(parts):
            block = x[i * _ROWS : (i + 1) * _ROWS]
            np.dot(ones[: len(block)], block, out=part)
        x = parts
    np.dot(ones[: len(x)], x, out=out)


@lru_cache(maxsize=1024)
def blocks(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(lead, kept, trail) where reducing `axes` leaves the middle of that view, else None.

    None also where np.add.reduce, which sums contiguous numbers pairwise, is as good or better.
    """
    ndim = len(shape)
    left = [i for i in range(ndim) if i not in axes and shape[i] != 1]
    if not left or 0 in shape:
        return None
    first, last = left[0], left[-1]
    if any(i in axes and shape[i] != 1 for i in range(first, last)):
        return None
    trail = product(shape[last + 1 :])
    return (
        None if trail > _ROWS else (product(shape[:first]), product(shape[first : last + 1]), trail)
    )


@lru_cache(maxsize=1024)
def numbered(axis: Axes, ndim: int) -> tuple[int, ...]:
    """The axes as numbers >= 0."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


@lru_cache(maxsize=1024)
def summed_axes(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """The axes over which an array of `shape` is summed to have the shape `target`."""
    lead = len(shape) - len(target)
    ones = (lead + i for i, n in enumerate(target) if n == 1 and shape[lead + i] != 1)
    return (*range(lead), *ones)


def sum(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    add_up(x, numbered(axis, x.ndim), out)


def sum_exactly(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    np.add.reduce(x, axis=axis, keepdims=keepdims, out=out, dtype=out.dtype)


def sum_to_for(node: KernelNode) -> Callable[..., Any]:
    """SumTo for these shapes: one BLAS call where a short matrix is summed over its rows."""
    shape, target = node.inputs[0].shape, node.outputs[0].shape
    if len(shape) == 2 and shape[1:] == target and 0 < shape[0] <= _ROWS and shape[1] > 1:
        return partial(np.dot, _ONES[node.inputs[0].dtype][: shape[0]])
    return partial(sum_to, **node.attrs)


def sum_to(x: Array, *, shape: tuple[int, ...], out: Array) -> None:
    axes = summed_axes(x.shape, shape)
    if axes:
        add_up(x, axes, out)
    else:
        np.copyto(out, x)


def sum_exactly_to(x: Array, *, shape: tuple[int, ...], out: Array) -> None:
    axes = summed_axes(x.shape, shape)
    kept = [n for i, n in enumerate(x.shape) if i not in axes]
    np.add.reduce(x, axis=axes, out=out.reshape(kept), dtype=out.dtype)


def mean(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    axes = numbered(axis, x.ndim)
    add_up(x, axes, out)
    np.true_divide(out, product(x.shape[a] for a in axes), out=out)


def prod(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    np.multiply.reduce(x, axis=axis, keepdims=keepdims, out=out, dtype=out.dtype)


def reducing(fn: Any) -> Any:
    """The kernel that is NumPy's reduction `fn`, such as np.argmax or np.maximum.reduce."""

    def reduce(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
        fn(x, axis=axis, keepdims=keepdims, out=out)

    return reduce


def logsumexp(x: Array, *, axis: Axes, keepdims: bool, out: Array) -> None:
    peak = np.asarray(np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf))
    np.copyto(peak, 0, where=np.isinf(peak))
    terms = np.empty(x.shape, x.dtype)
    np.subtract(x, peak, out=terms)
    np.exp(terms, out=terms)
    np.add.reduce(terms, axis=axis, keepdims=keepdims, out=out)
    np.log(out, out=out)
    np.add(out, peak.reshape(out.shape), out=out)


def cumsum(x: Array, *, axis: int, reverse: bool, exclusive: bool, out: Array) -> None:
    if reverse:
        x, out = np.flip(x, axis), np.flip(out, axis)
    if exclusive:
        x, out = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
        out[:1] = 0
        x, out, axis = x[:-1], out[1:], 0
    np.add.accumulate(x, axis=axis, out=out, dtype=out.dtype)


# Sums of integers and bools are given in 64 bits.
_WHOLE = [f"{c}->{'L' if c.isupper() else 'l'}" for c in "?" + INT]

file_floats("Sum", sum)
file("Sum", sum_exactly, *_WHOLE)
file("SumTo", sum_to, *same(1, WIDE), specialize=sum_to_for)
file("SumTo", in_float32(sum_to), *same(1, LOW))
file("SumTo", sum_exactly_to, *same(1, INT))
file_floats("Mean", mean)
file_floats("Prod", prod)
file("Prod", prod, *_WHOLE)
file("Max", reducing(np.maximum.reduce), *same(1, ANY))
file("Min", reducing(np.minimum.reduce), *same(1, ANY))
file("ArgMax", reducing(np.argmax), *same(1, ANY, "l"))
file("ArgMin", reducing(np.argmin), *same(1, ANY, "l"))
file("Any", reducing(np.any), *same(1, ANY, "?"))
file("All", reducing(np.all), *same(1, ANY, "?"))
file_floats("LogSumExp", logsumexp)
file_floats("CumSum", cumsum)
file("CumSum", cumsum, *_WHOLE)
