"""Layers that are linear maps: Dense, Embedding, EmbeddingBag."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..core.options import choice, counts, flag, integer
from ..ops.composed.sampling import BAG_MODES
from . import init
from .cell import Cell
from .layer import refuse_shape, shape_of

__all__ = ["Dense", "Embedding", "EmbeddingBag"]


class Dense(Cell):
    """x @ weight + bias, for x of shape (..., in_features).

    weight: (in_features, out_features), so that neither x @ weight nor its gradients copy a
    transpose. bias: (out_features,), or None with bias=False. Both start uniform in
    +-1 / sqrt(in_features).
    """

    _shown = "in_features", "out_features"

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        in_features, out_features = counts(
            "Dense", in_features=in_features, out_features=out_features
        )
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features)
        self.weight = init.symmetric_uniform((in_features, out_features), bound)
        learnt = flag("Dense", "bias", bias)
        self.bias = init.symmetric_uniform((out_features,), bound) if learnt else None

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if not shape or shape[-1] != self.in_features:
            refuse_shape(self, shape, f"(..., {self.in_features})")
        out = ops.matmul(x, self.weight)
        return out if self.bias is None else ops.add(out, self.bias)


class Embedding(Cell):
    """Row i of a learnt table for each integer i: indices (...) give (..., features).

    weight: (count, features), which starts normal with standard deviation 1. Indices are from 0
    to count - 1; negative ones count from the end.
    """

    _shown = "count", "features"

    def __init__(self, count: int, features: int):
        count, features = counts("Embedding", count=count, features=features)
        self.count, self.features = count, features
        self.weight = init.normal((count, features), 1.0)

    def construct(self, indices: Any) -> Any:
        shape_of(self, indices)
        return ops.gather(self.weight, indices)


class EmbeddingBag(Cell):
    """The sum, mean or largest elements of rows of a learnt table, for each bag of indices:
    `ops.embedding_bag`.

    Called as net(indices) with indices (B, L), a bag in each row, or net(indices, offsets) with
    indices (n,) and the beginnings (B,) of bags; out (B, features). mode: "sum", "mean" or "max".
    padding_index: a row that bags leave out. weight: (count, features), which starts normal with
    standard deviation 1. net(..., per_sample_weights=w), of the shape of indices, is for sums.
    """

    _shown = "count", "features"

    def __init__(
        self, count: int, features: int, mode: str = "mean", padding_index: int | None = None
    ):
        count, features = counts("EmbeddingBag", count=count, features=features)
        self.count, self.features = count, features
        self.mode = choice("EmbeddingBag", "mode", mode, BAG_MODES)
        self.padding_index = (
            None
            if padding_index is None
            else integer("EmbeddingBag", "padding_index", padding_index, -count, count - 1)
        )
        self.weight = init.normal((count, features), 1.0)

    def construct(self, indices: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        shape_of(self, indices)
        return ops.embedding_bag(
            self.weight, indices, offsets, self.mode, per_sample_weights, self.padding_index
        )


def affine(x: Any, weight: Any, bias: Any) -> Any:
    """x @ weight^T, plus bias if there is one, for a weight (outputs, inputs) as in PyTorch."""
    product = ops.matmul(x, weight, transpose_y=True)
    return product if bias is None else product + bias
