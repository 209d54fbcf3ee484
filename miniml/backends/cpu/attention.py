"""NumPy kernels of attention, in blocks of queries with all the keys that they attend to.

A block holds the scores of some rows, or of some whole matrices, so no sum runs over blocks and
softmax needs no second pass. Source: Rabe, Staats 2021, "Self-attention does not need O(n^2)
memory".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...core.signature import ATTENTION, ATTENTION_GRAD, ATTENTION_MASK_GRAD, LOW, WIDE, with_sums
from ..kernel import Array
from ..registry import in_float32, register
from . import linalg, random

Outs = tuple[Array, ...]
Index = tuple[Any, ...]  # ints, then three slices

# Scores of a block: 256 KB in float32, which the second-level cache holds.
BLOCK = 2**16


class Block(NamedTuple):
    """Some rows of some matrices of scores; start: the index of the first one among all scores.

    rows: the slices of queries, keys: those of the keys that any of these may see.
    """

    rows: Index
    keys: Index
    start: int
    shape: tuple[int, int, int]  # matrices, rows, all keys

    @property
    def both(self) -> Index:
        """The slices of the scores."""
        return (*self.rows, self.keys[-1])


def blocks(shape: tuple[int, ...], causal: bool) -> Iterator[Block]:
    """The blocks of scores (..., matrices, T, S), in order."""
    *outer, matrices, rows, keys = shape
    size = max(rows * keys, 1)
    some = max(BLOCK // size, 1)
    few = max(rows if size <= BLOCK else BLOCK // keys, 1)
    for number, index in enumerate(np.ndindex(*outer)):
        for m in range(0, matrices, some):
            these = (*index, slice(m, min(m + some, matrices)))
            for i in range(0, rows, few):
                end = min(i + few, rows)
                start = ((number * matrices + m) * rows + i) * keys
                seen = slice(0, min(end, keys) if causal else keys)
                count = min(some, matrices - m)
                yield Block((*these, slice(i, end)), (*these, seen), start, (count, end - i, keys))


class Settings(NamedTuple):
    """The attributes of a call."""

    scale: float
    causal: bool
    dropout: float
    skip: int


class Attention:
    """The scores and weights of one call, block by block; its arrays have a leading axis."""

    def __init__(self, inputs: tuple[Array, ...], settings: Settings):
        *qkv, mask, self.state = inputs
        self.q, self.k, self.v = (x if x.ndim > 2 else x[None] for x in qkv)
        self.shape = (*self.q.shape[:-1], self.k.shape[-2])
        all_seen = mask.dtype == np.bool_ and mask.size == 1 and bool(mask.all())
        self.mask = None if all_seen else np.broadcast_to(mask, self.shape)
        self.settings = settings

    def blocks(self) -> Iterator[Block]:
        return blocks(self.shape, self.settings.causal)

    def scores(self, at: Block) -> Array:
        """q k^T scale + mask; -inf where masked."""
        scores = product(self.q[at.rows] * self.settings.scale, self.k[at.keys].swapaxes(-1, -2))
        if self.mask is not None:
            mask = self.mask[at.both]
            if mask.dtype == np.bool_:
                np.copyto(scores, -np.inf, where=~mask)
            else:
                scores += mask
        if self.settings.causal:
            first = at.rows[-1].start
            keys, queries = np.arange(first, scores.shape[-1]), np.arange(first, at.rows[-1].stop)
            np.copyto(scores[..., first:], -np.inf, where=keys > queries[:, None])
        return scores

    def kept(self, at: Block) -> Array:
        """1 / (1 - dropout) for the weights that dropout keeps, else 0: a part of the draw of
        Bernoulli in the shape of all scores."""
        first, count = at.start // 4, math.prod(at.shape)
        last = -(-(at.start + count) // 4)
        (key, offset), p = self.state, 1.0 - self.settings.dropout
        offset = int(offset) + self.settings.skip + first
        words = random.numbers(int(key), offset, 4 * (last - first))[at.start - 4 * first :]
        stays = (words[:count] >> np.uint32(8)) < math.ceil(p * 2.0**24)
        factor = self.q.dtype.type(1.0 / p if p else 0.0)
        kept: Array = stays.reshape(at.shape)[..., at.keys[-1]] * factor
        return kept


def product(x: Array, y: Array) -> Array:
    """The product of two stacks of matrices, in new memory."""
    out = np.empty((*x.shape[:-1], y.shape[-1]), x.dtype)
    linalg.matmul(x, y, out)
    return out


def attention(
    q: Array, k: Array, v: Array, mask: Array, state: Array,
    *, scale: float, causal: bool, dropout: float, skip: int, out: Outs,
) -> None:  # fmt: skip
    self = Attention((q, k, v, mask, state), Settings(scale, causal, dropout, skip))
    values, lse = (x.reshape(self.shape[:-1] + x.shape[q.ndim - 1 :]) for x in out)
    for at in self.blocks():
        weights = self.scores(at)
        peak = weights.max(-1, keepdims=True, initial=-np.inf)
        np.copyto(peak, 0, where=peak == -np.inf)
        np.exp(np.subtract(weights, peak, out=weights), out=weights)
        total = weights.sum(-1, keepdims=True)
        empty = total == 0
        lse[at.rows] = np.where(empty, np.inf, np.log(total) + peak)[..., 0]
        if dropout:
            weights *= self.kept(at)
        np.divide(product(weights, self.v[at.keys]), total + empty, out=values[at.rows])


class AttentionGradient(Attention):
    """The gradients of the scores of one call, block by block."""

    def __init__(self, inputs: tuple[Array, ...], settings: Settings):
        super().__init__(inputs[:5], settings)
        lse, delta, dout = inputs[5:]
        self.lse, self.delta = (x.reshape(self.shape[:-1])[..., None] for x in (lse, delta))
        self.dout = dout if dout.ndim > 2 else dout[None]

    def slopes(self, at: Block) -> tuple[Array, Array]:
        """P Z and dS of a block."""
        weights = self.scores(at)
        np.exp(np.subtract(weights, self.lse[at.rows], out=weights), out=weights)
        slopes = product(self.dout[at.rows], self.v[at.keys].swapaxes(-1, -2))
        if not self.settings.dropout:
            slopes -= self.delta[at.rows]
            return weights, np.multiply(slopes, weights, out=slopes)
        kept = self.kept(at)
        slopes *= kept
        slopes -= self.delta[at.rows]
        slopes *= weights
        return np.multiply(weights, kept, out=weights), slopes


def attention_grad(
    *inputs: Array, scale: float, causal: bool, dropout: float, skip: int, out: Outs
) -> None:
    self = AttentionGradient(inputs, Settings(scale, causal, dropout, skip))
    dq, dk, dv = (x if x.ndim > 2 else x[None] for x in out)
    dk[...], dv[...] = 0, 0
    for at in self.blocks():
        kept, slopes = self.slopes(at)
        dv[at.keys] += product(kept.swapaxes(-1, -2), self.dout[at.rows])
        slopes *= scale
        dk[at.keys] += product(slopes.swapaxes(-1, -2), self.q[at.rows])
        linalg.matmul(slopes, self.k[at.keys], dq[at.rows])


def attention_mask_grad(
    *inputs: Array, scale: float, causal: bool, dropout: float, skip: int, out: Array
) -> None:
    self = AttentionGradient(inputs, Settings(scale, causal, dropout, skip))
    out[...] = 0
    whole = out.reshape((1,) * (len(self.shape) - out.ndim) + out.shape)
    for at in self.blocks():
        _, slopes = self.slopes(at)
        here = whole[tuple(_within(s, n) for s, n in zip(at.both, whole.shape, strict=True))]
        axes = tuple(i for i, n in enumerate(here.shape[-3:]) if n == 1 != slopes.shape[i])
        here += slopes.sum(axes, keepdims=True).reshape(here.shape)


def _within(part: int | slice, extent: int) -> int | slice:
    """A part of an axis in an array that has that axis, or an extent of 1 in its place."""
    return part if extent > 1 else slice(None) if isinstance(part, slice) else 0


NAME = "ScaledDotProductAttention"
for name, fn, patterns in (
    (NAME, attention, ATTENTION),
    (f"{NAME}Grad", attention_grad, ATTENTION_GRAD),
    (f"{NAME}MaskGrad", attention_mask_grad, ATTENTION_MASK_GRAD),
):
    register(name, fn, *with_sums(WIDE, *patterns))
    register(name, in_float32(fn), *with_sums(LOW, *patterns))
