"""Gradients of running sums, products and extrema."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...dtype import float32
from ...ops.cumulative import places
from .formulas import rule


@rule(ops.CumSum)
def cum_sum_bprop(self: ops.CumSum, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.cumsum(dout, self.axis, not self.reverse, self.exclusive),)


@rule(ops.CumProd)
def cum_prod_bprop(self: ops.CumProd, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """The product before each element times s_i = dout_i + x_(i+1) s_(i+1), which is what comes
    behind. Never out / x: that fails where an element is 0."""
    n = x.shape[self.axis]
    if n == 0:
        return (dout,)
    wide = x if x.dtype.itemsize > 2 else ops.cast(x, float32)
    rows, given = (ops.moveaxis(v, self.axis, -1) for v in (wide, ops.cast(dout, wide.dtype)))
    if self.reverse:
        rows, given = ops.flip(rows, -1), ops.flip(given, -1)
    if self.exclusive:
        given = ops.concat((given[..., 1:], ops.zeros_like(given[..., :1])), -1)
    behind = recurrence(ops.roll(rows, -1, -1), given)
    slope = ops.cumprod(rows, -1, exclusive=True) * behind
    slope = ops.flip(slope, -1) if self.reverse else slope
    return (ops.cast(ops.moveaxis(slope, -1, self.axis), x.dtype),)


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


@rule(ops.CumMax)
@rule(ops.CumMin)
def cum_extremum_bprop(self: ops.CumMax | ops.CumMin, x: Any, out: Any, dout: Any) -> tuple[Any]:
    axis = self.axis % x.ndim
    return (ops.PutAlongAxisAdd(axis, x.shape[axis])(dout, places(x, out, axis)),)
