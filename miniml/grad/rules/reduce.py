"""Gradient rules of reductions, of cumulative sums, products and extrema, and of sorting."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from ... import ops
from ...core.abstract import float32
from ...core.bprop import rule
from ...ops.checks import normal_axes, normal_axis, reduced_shape
from ...ops.reduce import extremum_indices
from ..batching import Batched, all_in_front, batch_rules, batches, behind, shifted
from ..forward import moves_along

Shape = tuple[int, ...]


@rule(ops.Sum)
def sum_bprop(self: ops.Sum, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.broadcast_to(expanded(dout, x.shape, self.axis, self.keepdims), x.shape),)


@rule(ops.Mean)
def mean_bprop(self: ops.Mean, x: Any, out: Any, dout: Any) -> tuple[Any]:
    count = prod(x.shape[a] for a in normal_axes("Mean", self.axis, x.ndim))
    share = divided(expanded(dout, x.shape, self.axis, self.keepdims), count)
    return (ops.broadcast_to(share, x.shape),)


def divided(dout: Any, count: int) -> Any:
    """dout / count; in two steps where 1 / count would be subnormal in float16."""
    if count <= 1 << 14:
        return dout * (1.0 / max(count, 1))
    return dout * (1.0 / 1024) * (1024.0 / count)


@rule(ops.Max, ops.Min)
def extremum_bprop(self: ops.Max | ops.Min, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """Elements equal to the extremum share dout equally."""
    chosen = ops.cast(ops.equal(x, expanded(out, x.shape, self.axis, self.keepdims)), x.dtype)
    share = expanded(dout, x.shape, self.axis, self.keepdims)
    return (chosen * (share / ops.sum(chosen, self.axis, True)),)


@rule(ops.Prod)
def prod_bprop(self: ops.Prod, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """The product of all other elements. Never out / x: that fails where an element is 0."""
    axes = normal_axes("Prod", self.axis, x.ndim)
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    apart = ops.transpose(x, kept + axes)
    rows = ops.reshape(apart, (*(x.shape[a] for a in kept), prod(x.shape[a] for a in axes)))
    others = ops.reshape(products_of_others(rows), apart.shape)
    back = ops.transpose(others, inverse(kept + axes))
    return (expanded(dout, x.shape, self.axis, self.keepdims) * back,)


def products_of_others(x: Any) -> Any:
    """For each element the product of the others along the last axis, in O(n) multiplications.

    The two halves are multiplied in pairs; the product outside of each pair is the same problem
    with half the elements. A polynomial in x, so its own gradients are right at zeros too.
    """
    *lead, n = x.shape
    if n < 2:
        return ops.ones_like(x)
    if n == 2:
        return ops.flip(x, -1)
    even = ops.pad(x, (*[(0, 0)] * len(lead), (0, 1)), 1) if n % 2 else x
    pairs = ops.reshape(even, (*lead, 2, (n + 1) // 2))
    outside = ops.expand_dims(products_of_others(ops.prod(pairs, -2)), -2)
    each = ops.reshape(ops.flip(pairs, -2) * outside, even.shape)
    return ops.slice(each, (0,) * x.ndim, x.shape) if n % 2 else each


@rule(ops.LogSumExp)
def log_sum_exp_bprop(self: ops.LogSumExp, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """The softmax of x; zeros where all of x is -inf, whose softmax would be 0/0.

    Of x alone, not as exp(x - out), since out is rounded: to 32 near 60,000 in float16. A number
    subtracted from all of x changes no softmax, so no gradient passes to the greatest.
    """
    if not x.size:
        return (ops.zeros_like(x),)
    peak = ops.stop_gradient(ops.max(x, self.axis, True))
    shares = ops.exp(x - ops.select(ops.isinf(peak), 0, peak))
    total = ops.select(ops.equal(peak, -inf), 1, ops.sum(shares, self.axis, True))
    return (expanded(dout, x.shape, self.axis, self.keepdims) / total * shares,)


def expanded(dout: Any, shape: Shape, axis: Any, keepdims: bool) -> Any:
    """dout with the reduced axes as extents 1; a single number as it is, as it broadcasts."""
    if keepdims or not dout.shape:
        return dout
    kept = reduced_shape("gradient", shape, axis, True)
    return dout if dout.shape == kept else ops.reshape(dout, kept)


def inverse(axes: Shape) -> Shape:
    """The permutation that undoes `axes`."""
    return tuple(axes.index(i) for i in range(len(axes)))


# --- Cumulative functions and sorting -------------------------------------------------------------


@rule(ops.CumSum)
def cum_sum_bprop(self: ops.CumSum, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.cumsum(dout, self.axis, not self.reverse, self.exclusive),)


@rule(ops.CumProd)
def cum_prod_bprop(self: ops.CumProd, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """The product of the elements before each one times s_i = dout_i + x_(i+1) s_(i+1), the share
    of the elements behind it. Never out / x: that fails where an element is 0."""
    if x.shape[self.axis] == 0:
        return (dout,)
    rows, given = _ordered(self, x, dout)
    if self.exclusive:
        given = ops.concat((given[..., 1:], ops.zeros_like(given[..., :1])), -1)
    behind = recurrence(ops.roll(rows, -1, -1), given)
    return (_restored(self, x, ops.cumprod(rows, -1, exclusive=True) * behind),)


@rule(ops.LogCumSumExp)
def log_cum_sum_exp_bprop(self: ops.LogCumSumExp, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """exp(x_i - out_i) times s_i = dout_i + exp(out_i - out_(i+1)) s_(i+1), the share of the
    elements behind: no factor is above 1. Where all so far is -inf, both are 0."""
    if x.shape[self.axis] == 0:
        return (dout,)
    rows, given = _ordered(self, x, dout)
    sums = ops.logcumsumexp(rows, -1)
    finite = ops.select(ops.equal(sums, -inf), 0, sums)
    # Of the last one nothing is behind; a factor there could overflow.
    factors = ops.exp(sums[..., :-1] - finite[..., 1:])
    factors = ops.concat((factors, ops.zeros_like(finite[..., :1])), -1)
    return (_restored(self, x, ops.exp(rows - finite) * recurrence(factors, given)),)


def _ordered(self: Any, x: Any, dout: Any) -> list[Any]:
    """x and dout in float32 at least, along the last axis, in the order of accumulation."""
    wide = x if x.dtype.itemsize > 2 else ops.cast(x, float32)
    rows = [ops.moveaxis(v, self.axis, -1) for v in (wide, ops.cast(dout, wide.dtype))]
    return [ops.flip(v, -1) for v in rows] if self.reverse else rows


def _restored(self: Any, x: Any, slope: Any) -> Any:
    """The slope as x is: what `_ordered` did, undone."""
    slope = ops.flip(slope, -1) if self.reverse else slope
    return ops.cast(ops.moveaxis(slope, -1, self.axis), x.dtype)


def recurrence(factors: Any, terms: Any) -> Any:
    """s_i = terms_i + factors_i s_(i + 1) along the last axis, beginning with its last term.

    In log2(n) rounds, each of which doubles the number of terms that an s_i has: polynomials, so
    that their own gradients are right at zeros too.
    """
    n, step = terms.shape[-1], 1
    while step < n:
        head = n - step
        near = factors[..., :head]
        terms = ops.concat((terms[..., :head] + near * terms[..., step:], terms[..., head:]), -1)
        factors = ops.concat((near * factors[..., step:], factors[..., head:]), -1)
        step *= 2
    return terms


@rule(ops.CumMax, ops.CumMin)
def cum_extremum_bprop(self: ops.CumMax | ops.CumMin, x: Any, out: Any, dout: Any) -> tuple[Any]:
    axis = self.axis % x.ndim
    return (ops.PutAlongAxisAdd(axis, x.shape[axis])(dout, extremum_indices(x, out, axis)),)


@rule(ops.Sort, ops.TopK)
def sort_bprop(self: ops.Sort | ops.TopK, x: Any, out: Any, dout: Any) -> tuple[Any]:
    axis = normal_axis(self.name, self.axis, len(x.shape))
    return (ops.PutAlongAxisAdd(axis, x.shape[axis])(dout[0], out[1]),)


# --- Batching -------------------------------------------------------------------------------------

_REDUCTIONS = (ops.Sum, ops.Mean, ops.Prod, ops.Max, ops.Min, ops.Any, ops.All, ops.LogSumExp)
_ALONG = (
    ops.CumSum, ops.CumProd, ops.LogCumSumExp, ops.CumMax, ops.CumMin, ops.Sort, ops.TopK,
)  # fmt: skip
for _cls in (*_REDUCTIONS, *_ALONG):
    batch_rules.register(_cls)(shifted("axis"))


@batches(ops.ArgMax, ops.ArgMin)
def batch_arg_extremum(self: ops.ArgMax, batched: Batched, x: Any) -> Any:
    rank = len(x.shape) - 1
    if self.axis is not None:
        return self.with_attributes({**self.attributes, "axis": behind(self.axis, rank)})(x)
    flat = ops.reshape(x, (batched.size, prod(x.shape[1:])))
    found = self.with_attributes({"axis": 1, "keepdims": False})(flat)
    return ops.reshape(found, (batched.size, *[1] * (rank * self.keepdims)))


@batches(ops.SearchSorted)
def batch_search_sorted(self: ops.SearchSorted, batched: Batched, x: Any, values: Any) -> Any:
    if not batched[0] and len(x.shape) == 1:
        return self(x, values)
    x, values = all_in_front(batched, (x, values))
    if len(x.shape) > 2:
        return self(x, values)
    rows = ops.reshape(values, (batched.size, prod(values.shape[1:])))
    return ops.reshape(self(x, rows), values.shape)


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Sort, ops.TopK)
def jvp_sort(self: Any, primals: Any, tangents: Any, out: Any) -> tuple[Any, None]:
    return ops.take_along_axis(tangents[0], out[1], self.axis), None
