"""Layers in which every position looks at others: MultiHeadAttention, TransformerEncoderLayer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ops
from ..dtype import bool_, float16, is_float
from ..errors import DTypeError, ShapeError
from . import init
from .arguments import flag, positive
from .cell import Cell
from .linear import Dense
from .norm import Dropout, LayerNorm
from .shapes import beside, refuse_shape, shape_of


class MultiHeadAttention(Cell):
    """softmax(Q K^T / sqrt(d / heads)) V for each head; side by side, these go through out_proj.

    q: (N, T, d); k and v: (N, S, d); the output: (N, T, d), batch first. Q, K and V are the
    products of q, k and v with the three (d, d) blocks of in_proj_weight (3 d, d), each plus its
    third of in_proj_bias (3 d,), cut into heads of d / heads features.

    mask: says which keys a query sees, of a shape that broadcasts to (N, heads, T, S), such as
    (T, S). True means that it does, as in ops.where and unlike in PyTorch's MultiheadAttention; a
    query that sees none gets 0 from every head. A mask of floats is added to the products, with
    -inf for what is not seen. is_causal: query i sees keys 0 to i, and of these what mask says.
    dropout: of the softmax, in training.

    in_proj_weight starts Xavier uniform, out_proj as a Dense with bias 0, in_proj_bias with 0.
    Source: Vaswani et al. 2017, "Attention is all you need".
    """

    def __init__(self, d: int, heads: int, dropout: float = 0.0):
        positive("MultiHeadAttention", d=d, heads=heads)
        if d % heads:
            raise ShapeError(
                f"MultiHeadAttention got heads={heads} for d={d}; expected a divisor of d"
            )
        self.d, self.heads = d, heads
        self.in_proj_weight = init.xavier_uniform((3 * d, d), d, 3 * d)
        self.in_proj_bias = init.constant((3 * d,), 0.0)
        self.out_proj = Dense(d, d)
        self.out_proj.bias = init.constant((d,), 0.0)
        self.dropout = Dropout(dropout)

    def construct(self, q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
        queries, keys = self._checked(q, k, v)
        visible, added = self._masks(mask, (queries[0], self.heads, queries[1], keys[1]))
        if flag("MultiHeadAttention", "is_causal", is_causal):
            earlier = np.tril(np.ones((queries[1], keys[1]), np.bool_))
            visible = earlier if visible is None else ops.logical_and(visible, earlier)
        q, k, v = self._projected(q, k, v)
        scores = ops.matmul(q, k, transpose_y=True) * (1.0 / math.sqrt(self.d // self.heads))
        weights = _softmax(scores if added is None else scores + added, visible)
        out = ops.transpose(ops.matmul(self.dropout(weights), v), (0, 2, 1, 3))
        return self.out_proj(ops.reshape(out, queries))

    def _checked(self, q: Any, k: Any, v: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of q and k, if those of all three fit."""
        queries, keys = shape_of(self, q), shape_of(self, k)
        if len(queries) != 3 or queries[2] != self.d:
            refuse_shape(self, queries, f"q of shape (N, T, {self.d})")
        if len(keys) != 3 or (keys[0], keys[2]) != (queries[0], self.d):
            refuse_shape(self, keys, f"k of shape ({queries[0]}, S, {self.d})")
        if shape_of(self, v) != keys:
            refuse_shape(self, shape_of(self, v), f"v of k's shape, {keys}")
        return queries, keys

    def _masks(self, mask: Any, full: tuple[int, ...]) -> tuple[Any, Any]:
        """(mask, None) for bools, (None, mask) for numbers."""
        if mask is None:
            return None, None
        shape = shape_of(self, mask)
        if len(shape) > 4 or any(
            a not in (1, b) for a, b in zip(shape[::-1], full[::-1], strict=False)
        ):
            refuse_shape(self, shape, f"a mask that broadcasts to (N, heads, T, S) = {full}")
        mask = beside(self.in_proj_bias, mask)
        if mask.dtype != bool_ and not is_float(mask.dtype):
            raise DTypeError(
                f"{self.describe()} got a mask of {mask.dtype}; expected bool or float"
            )
        return (mask, None) if mask.dtype == bool_ else (None, mask)

    def _projected(self, *inputs: Any) -> list[Any]:
        """Q, K and V, (N, heads, positions, features); one product for inputs that are one."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if inputs[0] is inputs[1] is inputs[2]:
            projected = ops.matmul(inputs[0], weight, transpose_y=True) + bias
            return [self._by_head(part) for part in ops.split(projected, 3, axis=2)]
        blocks = zip(inputs, ops.split(weight, 3), ops.split(bias, 3), strict=True)
        return [self._by_head(ops.matmul(x, w, transpose_y=True) + b) for x, w, b in blocks]

    def _by_head(self, x: Any) -> Any:
        batch, positions, d = x.shape
        cut = ops.reshape(x, (batch, positions, self.heads, d // self.heads))
        return ops.transpose(cut, (0, 2, 1, 3))

    def describe(self) -> str:
        """MultiHeadAttention(d, heads)."""
        tail = f", dropout={self.dropout.p}" if self.dropout.p else ""
        return f"MultiHeadAttention({self.d}, {self.heads}{tail})"


def _softmax(scores: Any, visible: Any) -> Any:
    """softmax(scores) over what is visible; 0 where nothing is."""
    if visible is None:
        return ops.softmax(scores)
    low = -6e4 if scores.dtype == float16 else -1e38  # -inf in a whole row would give NaN
    return ops.where(visible, ops.softmax(ops.where(visible, scores, low)), 0.0)


class TransformerEncoderLayer(Cell):
    """norm2(y + mlp(y)) of y = norm1(x + attention(x)), for x (N, T, d): self-attention, then a
    layer of `hidden` ReLU units, both with dropout.

    norm_first: y + mlp(norm2(y)) of y = x + attention(norm1(x)) instead. Called as
    `layer(x, mask=None, is_causal=False)`, as in MultiHeadAttention. Its parts have PyTorch's
    names: self_attn, linear1, linear2, norm1, norm2; dropout acts in PyTorch's four places.
    Source: Vaswani et al. 2017, "Attention is all you need".
    """

    def __init__(
        self, d: int, heads: int, hidden: int, dropout: float = 0.1, norm_first: bool = False
    ):
        positive("TransformerEncoderLayer", hidden=hidden)
        self.norm_first = flag("TransformerEncoderLayer", "norm_first", norm_first)
        self.self_attn = MultiHeadAttention(d, heads, dropout)
        self.linear1, self.linear2 = Dense(d, hidden), Dense(hidden, d)
        self.norm1, self.norm2 = LayerNorm(d), LayerNorm(d)
        self.dropout = Dropout(dropout)

    def construct(self, x: Any, mask: Any = None, is_causal: bool = False) -> Any:
        d = self.self_attn.d
        if len(shape_of(self, x)) != 3 or shape_of(self, x)[2] != d:
            refuse_shape(self, shape_of(self, x), f"(N, T, {d})")
        x = beside(self.linear1.weight, x)
        if self.norm_first:
            x = x + self._attended(self.norm1(x), mask, is_causal)
            return x + self._mlp(self.norm2(x))
        x = self.norm1(x + self._attended(x, mask, is_causal))
        return self.norm2(x + self._mlp(x))

    def _attended(self, x: Any, mask: Any, is_causal: bool) -> Any:
        return self.dropout(self.self_attn(x, x, x, mask, is_causal))

    def _mlp(self, x: Any) -> Any:
        hidden = self.dropout(ops.relu(self.linear1(x)))
        return self.dropout(self.linear2(hidden))

    def describe(self) -> str:
        """TransformerEncoderLayer(d, heads, hidden, ...)."""
        tail = ", norm_first=True" if self.norm_first else ""
        own = f"{self.self_attn.d}, {self.self_attn.heads}, {self.linear1.out_features}"
        return f"TransformerEncoderLayer({own}, dropout={self.dropout.p}{tail})"
