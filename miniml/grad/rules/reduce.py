"""Gradients of reductions."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from ... import ops
from ...ops.inference.shapes import normal_axes, reduced_shape
from .formulas import rule

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
    """dout / count; in two steps where 1 / count is no normal number of float16."""
    if count <= 1 << 14:
        return dout * (1.0 / max(count, 1))
    return dout * (1.0 / 1024) * (1024.0 / count)


@rule(ops.Max)
@rule(ops.Min)
def extremum_bprop(self: ops.Max | ops.Min, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """Elements equal to the extremum share dout equally."""
    extremum = expanded(out, x.shape, self.axis, self.keepdims)
    chosen = ops.cast(ops.equal(x, extremum), x.dtype)
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

    Neighbours are multiplied in pairs; what a pair needs from outside is the same problem with
    half the elements. A polynomial in x, so its own gradients are right at zeros too.
    """
    *lead, n = x.shape
    if n < 2:
        return ops.ones_like(x)
    if n == 2:
        return ops.flip(x, -1)
    even = ops.pad(x, (*[(0, 0)] * len(lead), (0, 1)), 1) if n % 2 else x
    pairs = ops.reshape(even, (*lead, (n + 1) // 2, 2))
    outside = ops.expand_dims(products_of_others(ops.prod(pairs, -1)), -1)
    each = ops.reshape(ops.flip(pairs, -1) * outside, even.shape)
    return ops.slice(each, (0,) * x.ndim, x.shape) if n % 2 else each


@rule(ops.LogSumExp)
def log_sum_exp_bprop(self: ops.LogSumExp, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """The softmax of x; zeros where all of x is -inf, whose softmax would be 0/0.

    The exponentials of x - out are divided by their sum, since out is rounded: to 32 near 60,000
    in float16. That takes out from the softmax altogether, so no gradient passes to it.
    """
    total = expanded(ops.stop_gradient(out), x.shape, self.axis, self.keepdims)
    nothing = ops.equal(total, -inf)
    shares = ops.exp(x - ops.select(nothing, 0, total))
    total = ops.select(nothing, 1, ops.sum(shares, self.axis, True))
    return (expanded(dout, x.shape, self.axis, self.keepdims) / total * shares,)


def expanded(dout: Any, shape: Shape, axis: Any, keepdims: bool) -> Any:
    """dout with the reduced axes back as extents 1, or a single number, as it broadcasts too."""
    if keepdims or not dout.shape:
        return dout
    kept = reduced_shape("gradient", shape, axis, True)
    return dout if dout.shape == kept else ops.reshape(dout, kept)


def inverse(axes: Shape) -> Shape:
    """The permutation that undoes `axes`."""
    return tuple(axes.index(i) for i in range(len(axes)))
