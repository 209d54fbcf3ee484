"""Rows of attention and its gradients, by the formulas with all scores at once."""

import numpy as np

from miniml import ops
from miniml.errors import DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers
from .random import bernoulli

STATE = np.array([7, 5], np.uint64)
SEEN = np.array([[True, False, True], [False, True, False]])  # no empty row: lse is infinite there


def scores(q, k, mask, scale, causal):
    found = q @ np.swapaxes(k, -1, -2) * scale
    found = np.where(mask, found, -np.inf) if mask.dtype == bool else found + mask
    return np.where(np.tri(*found.shape[-2:], dtype=bool), found, -np.inf) if causal else found


def factors(shape, state, dropout, skip):
    if not dropout:
        return np.ones(shape)
    return bernoulli(state, shape, float, 1 - dropout, skip) / (1 - dropout)


def attention(q, k, v, mask, state, scale=1.0, causal=False, dropout=0.0, skip=0):
    found = scores(q, k, mask, scale, causal)
    peak = found.max(-1, keepdims=True, initial=-np.inf)
    peak = np.where(peak == -np.inf, 0, peak)
    weights = np.exp(found - peak)
    total = weights.sum(-1, keepdims=True)
    kept = weights * factors(found.shape, state, dropout, skip)
    lse = np.where(total == 0, np.inf, peak + np.log(total))[..., 0]
    return kept / np.where(total == 0, 1, total) @ v, lse


def slopes(q, k, v, mask, state, lse, delta, dout, scale, causal, dropout, skip):
    weights = np.exp(scores(q, k, mask, scale, causal) - lse[..., None])
    kept = factors(weights.shape, state, dropout, skip)
    return weights * kept, weights * (kept * (dout @ np.swapaxes(v, -1, -2)) - delta[..., None])


def attention_grad(q, k, v, mask, state, lse, delta, dout, scale=1.0, causal=False, dropout=0.0,
                   skip=0):  # fmt: skip
    given = (q, k, v, mask, state, lse, delta, dout, scale, causal, dropout, skip)
    kept, slope = (np.swapaxes(x, -1, -2) for x in slopes(*given))
    return scale * np.swapaxes(slope, -1, -2) @ k, scale * slope @ q, kept @ dout


def attention_mask_grad(q, k, v, mask, state, lse, delta, dout, scale=1.0, causal=False,
                        dropout=0.0, skip=0):  # fmt: skip
    _, slope = slopes(q, k, v, mask, state, lse, delta, dout, scale, causal, dropout, skip)
    slope = slope.sum(tuple(range(slope.ndim - mask.ndim)))
    axes = tuple(i for i, n in enumerate(mask.shape) if n == 1)
    return slope.sum(axes, keepdims=True)


def given(rng, dtype, lead, t, s, e, f, mask):
    q, k, v = (numbers(rng, (*lead, *n), dtype, -1, 1) for n in ((t, e), (s, e), (s, f)))
    return q, k, v, numbers(rng, mask, dtype) if isinstance(mask, tuple) else mask, STATE


def samples(rng, dtype):
    yield Sample(given(rng, dtype, (2,), 2, 3, 2, 1, SEEN), {"scale": 0.5})
    yield Sample(given(rng, dtype, (), 3, 2, 1, 2, (2,)), {"causal": True, "scale": 2.0})
    yield Sample(given(rng, dtype, (2, 1), 2, 3, 1, 2, (2, 1, 1, 1)), {"dropout": 0.4, "skip": 1})


def pulled(masks):
    def drawn(rng, dtype):
        for sample in samples(rng, dtype):
            q, _, v, mask, _ = sample.inputs
            if (mask.dtype == bool) not in masks:
                continue
            sums = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
            lse, delta = (numbers(rng, q.shape[:-1], sums, *ends) for ends in ((1, 2), (-1, 1)))
            dout = numbers(rng, (*q.shape[:-1], v.shape[-1]), dtype)
            yield Sample((*sample.inputs, lse, delta, dout), sample.attrs)

    return drawn


X, ALL = np.ones((2, 3), np.float32), np.ones((), bool)
ADDED = np.zeros((), np.float32)
ROW = X[:, 0]


def refusals(mask, *more):
    def call(match, error, q=X, k=X, v=X, mask=mask, state=STATE, **attrs):
        return Refusal((q, k, v, mask, state, *more), match, attrs, error)

    return (
        call(r"q of shape \(2, 2\).*expected", ShapeError, q=X[:, :2]),
        call("equal leading axes", ShapeError, v=X[None]),
        call("a mask of shape", ShapeError, mask=np.zeros((3, 3), mask.dtype)),
        call(r"state of shape \(2,\)", ShapeError, state=STATE[:1]),
        call("dropout=1.5", ValueRefusedError, dropout=1.5),
        call("k of float64", DTypeError, k=X.astype(float)),
        call("mask of int64", DTypeError, mask=np.zeros((), int)),
    )


PAST = Refusal((X, X, X, ALL, STATE, ROW, ROW[:1], X), r"delta of \(1,\)", {}, ShapeError)
WIDE = Refusal((X, X, X, ALL, STATE, ROW, ROW, X.astype(float)), "dout of float64", {}, DTypeError)
BOOL = Refusal((X, X, X, ALL, STATE, ROW, ROW, X), "mask of bool", {}, DTypeError)

ROWS = (
    OpInfo(ops.ScaledDotProductAttention, samples, reference=attention, nan="handled",
           refused=refusals(ALL)),
    OpInfo(ops.ScaledDotProductAttentionGrad, pulled((True, False)), reference=attention_grad,
           nan="handled", refused=(*refusals(ALL, ROW, ROW, X), PAST, WIDE)),
    OpInfo(ops.ScaledDotProductAttentionMaskGrad, pulled((False,)), reference=attention_mask_grad,
           nan="handled", refused=(*refusals(ADDED, ROW, ROW, X), BOOL)),
)  # fmt: skip
