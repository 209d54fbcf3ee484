"""Gradient rules of attention: the first order is blockwise, the second holds all scores."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...core.abstract import bool_
from ...core.bprop import rule
from ..batching import Batched, all_in_front, batches, in_front, looped, padded
from ..reverse import needed, used


@rule(ops.ScaledDotProductAttention)
def attention_bprop(
    self: ops.ScaledDotProductAttention,
    q: Any, k: Any, v: Any, mask: Any, state: Any, out: Any, dout: Any,
) -> tuple[Any, ...]:  # fmt: skip
    values, lse = out
    # delta: the mean of each row of dS's first factor under its weights, which the gradient of
    # softmax subtracts; the derivative of lse is the weights themselves.
    delta = ops.sum(ops.cast(values, lse.dtype) * ops.cast(dout[0], lse.dtype), -1)
    if used(dout, 1):
        delta = delta - dout[1]
    given = q, k, v, mask, state, lse, delta, dout[0]
    dmask = None
    if mask.dtype != bool_ and needed(dout, 3):
        dmask = ops.ScaledDotProductAttentionMaskGrad(**self.attributes)(*given)
    return (*ops.ScaledDotProductAttentionGrad(**self.attributes)(*given), dmask, None)


@rule(ops.ScaledDotProductAttentionGrad)
def attention_grad_bprop(
    self: ops.ScaledDotProductAttentionGrad,
    q: Any, k: Any, v: Any, mask: Any, state: Any, lse: Any, delta: Any, dout: Any,
    out: Any, dslopes: Any,
) -> tuple[Any, ...]:  # fmt: skip
    return _pulled(self, (q, k, v, mask, state, lse, delta, dout), dslopes, None)


@rule(ops.ScaledDotProductAttentionMaskGrad)
def attention_mask_grad_bprop(
    self: ops.ScaledDotProductAttentionMaskGrad,
    q: Any, k: Any, v: Any, mask: Any, state: Any, lse: Any, delta: Any, dout: Any,
    out: Any, dslope: Any,
) -> tuple[Any, ...]:  # fmt: skip
    return _pulled(self, (q, k, v, mask, state, lse, delta, dout), None, dslope)


def _pulled(self: Any, given: tuple[Any, ...], heads: Any, dmask: Any) -> tuple[Any, ...]:
    """The gradients of dq, dk and dv (cotangents `heads`) or of dmask, in all their inputs.

    With the letters of `Pulled`, and a, b, c for the cotangents of dq, dk, dv:
    P = exp(s - lse), D = Z (dout v^T), dS = P (D - delta), and their cotangents are
    [dS] = scale (a k^T + q b^T), [D] = [dS] P, [s] = P ([dS] (D - delta) + Z (dout c^T)).
    """
    dtype, sums = given[0].dtype, given[5].dtype
    q, k, v, mask, state, lse, delta, dout = (
        x if x.dtype.kind in "bu" else ops.cast(x, sums) for x in given
    )
    scores, factors = _scores(self, q, k, mask), _factors(self, q, k, state)
    lse, delta = ops.expand_dims(lse, -1), ops.expand_dims(delta, -1)
    weights = ops.exp(scores - lse)
    pulls = ops.matmul(dout, v, transpose_y=True) * factors - delta
    slopes = weights * pulls
    a, b, c = (None,) * 3 if heads is None else (ops.cast(h, sums) for h in heads)
    if heads is None:
        by_slopes = ops.broadcast_to(ops.cast(dmask, sums), weights.shape)
        by_weights = by_slopes * pulls
    else:
        by_slopes = _product(a, k) * self.scale + _product(q, b) * self.scale
        by_weights = by_slopes * pulls + factors * _product(dout, c)
    by_scores, by_products = by_weights * weights, by_slopes * weights * factors
    dq, dk = ops.matmul(by_scores, k), _turned(by_scores, q)
    dv, ddout = _turned(by_products, dout), ops.matmul(by_products, v)
    if heads is not None:
        dq, dk = dq + ops.matmul(slopes, b), dk + _turned(slopes, a)
        ddout = ddout + ops.matmul(weights * factors, c)
    floats = dq * self.scale, dk * self.scale, dv, ddout
    dq, dk, dv, ddout = (ops.cast(x, dtype) for x in floats)
    to_mask = None
    if given[3].dtype != bool_:
        to_mask = ops.cast(ops.sum_to(by_scores, given[3].shape), dtype)
    to_lse, to_delta = -ops.sum(by_scores, -1), -ops.sum(by_slopes * weights, -1)
    return dq, dk, dv, to_mask, None, to_lse, to_delta, ddout


def _product(x: Any, y: Any) -> Any:
    """x y^T."""
    return ops.matmul(x, y, transpose_y=True)


def _turned(x: Any, y: Any) -> Any:
    """x^T y."""
    return ops.matmul(x, y, transpose_x=True)


def _scores(self: Any, q: Any, k: Any, mask: Any) -> Any:
    """q k^T scale + mask; -inf for keys that are not seen."""
    scores = _product(q, k) * self.scale
    scores = ops.where(mask, scores, -math.inf) if mask.dtype == bool_ else scores + mask
    if not self.causal:
        return scores
    rows, columns = (ops.arange(n) for n in scores.shape[-2:])
    return ops.where(columns <= ops.expand_dims(rows, 1), scores, -math.inf)


def _factors(self: Any, q: Any, k: Any, state: Any) -> Any:
    """Z: 1 / (1 - dropout) for the weights that are kept, 0 for those dropped."""
    if not self.dropout:
        return 1.0
    shape = (*q.shape[:-1], k.shape[-2])
    kept = ops.Bernoulli(shape, q.dtype, 1.0 - self.dropout, self.skip)(state)
    return kept * (1.0 / (1.0 - self.dropout)) if self.dropout < 1.0 else kept


# --- Batching -------------------------------------------------------------------------------------

_ALIKE = (
    "attention drops the same weights in every example, with a stream of its own for each; "
    'randomness="different", or dropout of 0, makes it one call'
)


@batches(
    ops.ScaledDotProductAttention, ops.ScaledDotProductAttentionGrad,
    ops.ScaledDotProductAttentionMaskGrad,
)  # fmt: skip
def batch_attention(
    self: Any, batched: Batched, q: Any, k: Any, v: Any, mask: Any, state: Any, *rest: Any
) -> Any:
    """The axis of the examples is one more leading axis of attention."""
    values = q, k, v, mask, state, *rest
    alike = self.dropout > 0 and batched.mapped.randomness == "same"
    if alike or batched[4] or batched.size == 0:
        return looped(self, batched, values, _ALIKE)
    others = all_in_front(Batched([*batched[:3], *batched[5:]], batched.mapped), (q, k, v, *rest))
    rank = len(others[0].shape) - 1
    shape = mask.shape[1:] if batched[3] else mask.shape
    summed = isinstance(self, ops.ScaledDotProductAttentionMaskGrad)
    if batched[3] or summed:
        mask = padded(mask if batched[3] else in_front(mask, batched.size), rank)
    out = self(*others[:3], mask, state, *others[3:])
    return ops.reshape(out, (batched.size, *shape)) if summed else out
