"""Attention layers: MultiHeadAttention, transformer layers and position encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from .. import ops
from ..core.abstract import bool_, int64, is_float
from ..core.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from ..core.options import choice, count, counts, flag, integer, number
from ..graph.tracing import as_tensor
from ..ops.checks import is_one_integer, on_device_of
from ..ops.composed.losses import checked
from . import init
from .cell import Cell
from .container import CellList, listed
from .layer import beside, refuse_shape, shape_of
from .linear import Dense, affine
from .norm import Dropout, LayerNorm

__all__ = [
    "LearnedPositions", "MultiHeadAttention", "RotaryPositions", "SinusoidalPositions",
    "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


class MultiHeadAttention(Cell):
    """softmax(Q K^T / sqrt(d / heads)) V for each head; side by side, these go through out_proj.

    q: (N, T, d); k and v: (N, S, d); the output: (N, T, d), batch first. Q, K and V are the
    products of q, k and v with the three (d, d) blocks of in_proj_weight (3 d, d), each plus its
    third of in_proj_bias (3 d,), cut into heads of d / heads features.

    mask: the keys that each query sees, of a shape that broadcasts to (N, heads, T, S), such as
    (T, S). True means that it does, as in ops.where and unlike in PyTorch's MultiheadAttention; a
    query that sees none gets 0 from every head. A mask of floats is added to the products, with
    -inf for what is not seen. is_causal: query i sees keys 0 to i, of those in the mask.
    dropout: of the softmax, in training. bias=False: in_proj_bias is None and out_proj has none.
    rotary: a cell that turns the heads' queries and keys (N, heads, T, d / heads) by their
    positions, such as RotaryPositions. cache: keys and values of earlier positions, as `cache(n,
    length)` makes them empty, for q, k and v of the T positions from `start` on, an int or an
    integer Tensor of shape (), so that one compiled step serves all: each query sees what is cached
    up to its own position, of it what mask (N, heads, T, length) says, and the result is a pair,
    the output and the cache with these positions. Long sequences are computed in blocks, whose
    memory does not grow with T S: `ops.scaled_dot_product_attention`.

    in_proj_weight starts Xavier uniform, out_proj as a Dense with bias 0, in_proj_bias with 0.
    ValueRefusedError for heads that do not divide d, AttributeRefusedError for a rotary that is no
    cell. Source: Vaswani et al. 2017, "Attention is all you need".
    """

    def __init__(
        self,
        d: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rotary: Cell | None = None,
    ):
        d, heads = counts("MultiHeadAttention", d=d, heads=heads)
        if d % heads:
            raise ValueRefusedError(
                f"MultiHeadAttention got heads={heads} for d={d}; expected a divisor of d"
            )
        if not isinstance(rotary, Cell | None):
            raise AttributeRefusedError(
                f"MultiHeadAttention got rotary={rotary!r}; expected a cell, such as "
                f"nn.RotaryPositions({d // heads})"
            )
        self.d, self.heads = d, heads
        self.in_proj_weight = init.xavier_uniform((3 * d, d), d, 3 * d)
        self.out_proj = Dense(d, d, bias)
        self.in_proj_bias = init.constant((3 * d,), 0.0) if bias else None
        if bias:
            self.out_proj.bias = init.constant((d,), 0.0)
        self.dropout = Dropout(dropout)
        self.rotary = rotary

    def construct(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        is_causal: bool = False,
        cache: Any = None,
        start: Any = 0,
    ) -> Any:
        queries, keys = self._checked(q, k, v)
        causal = flag("MultiHeadAttention", "is_causal", is_causal) and cache is None
        at = None if cache is None else self._positions(queries, keys, cache, start)
        seen = keys[1] if cache is None else shape_of(self, cache[0])[2]
        mask = self._mask(mask, (queries[0], self.heads, queries[1], seen))
        q, k, v = self._projected(q, k, v)
        if self.rotary is not None:
            q, k = (self.rotary(x) if at is None else self.rotary(x, at) for x in (q, k))
        if at is not None:
            k, v = cache = tuple(
                ops.scatter(old, (slice(None), slice(None), at), ops.cast(new, old.dtype))
                for old, new in zip(cache, (k, v), strict=True)
            )
            mask = _within(mask, ops.less_equal(np.arange(seen), ops.expand_dims(at, 1)))
        dropout = self.dropout.p if self.dropout.training else 0.0
        out = ops.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        out = self.out_proj(ops.reshape(ops.transpose(out, (0, 2, 1, 3)), queries))
        return out if at is None else (out, cache)

    def cache(self, n: int, length: int) -> tuple[Any, Any]:
        """An empty cache of keys and values, (n, heads, length, d / heads) each, for so many
        sequences of at most that length."""
        n, length = counts("MultiHeadAttention", n=n, length=length)
        zero = ops.zeros_like(self.in_proj_weight[0, 0])  # on the device of the weights
        empty = ops.broadcast_to(zero, (n, self.heads, length, self.d // self.heads))
        return empty, empty

    def _positions(
        self, queries: tuple[int, ...], keys: tuple[int, ...], cache: Any, start: Any
    ) -> Any:
        """The positions (T,) from start on; refused unless they fit the cache."""
        if not isinstance(cache, (tuple, list)) or len(cache) != 2:
            raise DTypeError(
                f"{self.describe()} got {type(cache).__name__} for a cache; expected the pair that "
                "cache(n, length) makes, or a call returned"
            )
        expected = (queries[0], self.heads, "length", self.d // self.heads)
        for part in cache:
            shape = shape_of(self, part)
            if len(shape) != 4 or (*shape[:2], "length", shape[3]) != expected:
                refuse_shape(self, shape, f"a cache of shape {expected}")
        if keys[1] != queries[1] or shape[2] < keys[1]:
            refuse_shape(self, keys, f"k of q's {queries[1]} positions, and at most {shape[2]}")
        first = as_tensor(start)
        if not is_one_integer(first):
            first = as_tensor(integer("MultiHeadAttention", "start", start))
        first = checked(self.describe(), "start", first, shape[2] - keys[1] + 1)
        return ops.add(ops.cast(first, int64), np.arange(keys[1]))

    def _checked(self, q: Any, k: Any, v: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of q and k; ShapeError unless those of all three fit."""
        queries, keys = shape_of(self, q), shape_of(self, k)
        if len(queries) != 3 or queries[2] != self.d:
            refuse_shape(self, queries, f"q of shape (N, T, {self.d})")
        if len(keys) != 3 or (keys[0], keys[2]) != (queries[0], self.d):
            refuse_shape(self, keys, f"k of shape ({queries[0]}, S, {self.d})")
        if shape_of(self, v) != keys:
            refuse_shape(self, shape_of(self, v), f"v of k's shape, {keys}")
        return queries, keys

    def _mask(self, mask: Any, full: tuple[int, ...]) -> Any:
        """The mask as a tensor; ShapeError unless it broadcasts to scores of shape `full`."""
        if mask is None:
            return None
        shape = shape_of(self, mask)
        if len(shape) > 4 or any(
            a not in (1, b) for a, b in zip(shape[::-1], full[::-1], strict=False)
        ):
            refuse_shape(self, shape, f"a mask that broadcasts to (N, heads, T, S) = {full}")
        mask = beside(self.in_proj_weight, mask)
        if mask.dtype != bool_ and not is_float(mask.dtype):
            raise DTypeError(
                f"{self.describe()} got a mask of {mask.dtype}; expected bool or float"
            )
        return mask

    def _projected(self, *inputs: Any) -> list[Any]:
        """Q, K and V, (N, heads, positions, features); one product if the inputs are one tensor."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if inputs[0] is inputs[1] is inputs[2]:
            projected = affine(inputs[0], weight, bias)
            return [self._by_head(part) for part in ops.split(projected, 3, axis=2)]
        biases = (None,) * 3 if bias is None else ops.split(bias, 3)
        blocks = zip(inputs, ops.split(weight, 3), biases, strict=True)
        return [self._by_head(affine(*block)) for block in blocks]

    def _by_head(self, x: Any) -> Any:
        batch, positions, d = x.shape
        cut = ops.reshape(x, (batch, positions, self.heads, d // self.heads))
        return ops.transpose(cut, (0, 2, 1, 3))

    def describe(self) -> str:
        """MultiHeadAttention(d, heads), and the arguments that are not defaults."""
        tail = f", dropout={self.dropout.p}" if self.dropout.p else ""
        tail += "" if self.in_proj_bias is not None else ", bias=False"
        tail += "" if self.rotary is None else f", rotary={self.rotary.describe()}"
        return f"MultiHeadAttention({self.d}, {self.heads}{tail})"


def _within(mask: Any, seen: Any) -> Any:
    """The mask, of bools or floats, with what is not seen left out."""
    if mask is None or mask.dtype == bool_:
        return seen if mask is None else ops.logical_and(mask, seen)
    return ops.where(seen, mask, -float("inf"))


# --- Transformer layers ---------------------------------------------------------------------------


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": ops.relu, "gelu": ops.gelu}


class TransformerLayer(Cell):
    """Base of layers of residual parts: attentions, then two dense layers; each has a norm."""

    _attentions: ClassVar[tuple[str, ...]] = ("self_attn",)
    self_attn: MultiHeadAttention
    norm1: LayerNorm
    norm2: LayerNorm

    def __init__(
        self,
        d: int,
        heads: int,
        hidden: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: str | Callable[[Any], Any] = "relu",
        bias: bool = True,
    ):
        layer = type(self).__name__
        hidden = count(layer, "hidden", hidden)
        if not callable(activation):
            choice(layer, "activation", activation, tuple(_ACTIVATIONS))
        self.norm_first = flag(layer, "norm_first", norm_first)
        for name in self._attentions:
            setattr(self, name, MultiHeadAttention(d, heads, dropout, bias))
        self.linear1, self.linear2 = Dense(d, hidden, bias), Dense(hidden, d, bias)
        for i in range(len(self._attentions) + 1):
            setattr(self, f"norm{i + 1}", LayerNorm(d, bias=bias))
        self.dropout = Dropout(dropout)
        self.activation = activation

    def _residual(self, x: Any, norm: Cell, part: Callable[[Any], Any]) -> Any:
        if self.norm_first:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))

    def _attended(self, x: Any, mask: Any, causal: bool, cache: Any, start: Any) -> tuple[Any, Any]:
        """The part of self-attention, and its cache."""
        kept: list[Any] = [None]

        def part(x: Any) -> Any:
            if cache is None:
                return self.self_attn(x, x, x, mask, causal)
            out, kept[0] = self.self_attn(x, x, x, mask, causal, cache, start)
            return out

        return self._residual(x, self.norm1, part), kept[0]

    def cache(self, n: int, length: int) -> tuple[Any, Any]:
        """An empty cache of its self-attention: `MultiHeadAttention.cache`."""
        return self.self_attn.cache(n, length)

    def _mlp(self, x: Any) -> Any:
        chosen = self.activation
        function = _ACTIVATIONS[chosen] if isinstance(chosen, str) else chosen
        return self.linear2(self.dropout(function(self.linear1(x))))

    def _input(self, x: Any, axes: str = "N, T") -> Any:
        """The sequence as a tensor; ShapeError unless it has d features."""
        shape, d = shape_of(self, x), self.self_attn.d
        if len(shape) != 3 or shape[2] != d:
            refuse_shape(self, shape, f"({axes}, {d})")
        return beside(self.linear1.weight, x)

    def describe(self) -> str:
        """TransformerEncoderLayer(d, heads, hidden, ...)."""
        first, hidden = self.self_attn, self.linear1.out_features
        tail = ", norm_first=True" * self.norm_first
        tail += "" if self.activation == "relu" else f", activation={self.activation!r}"
        tail += "" if self.linear1.bias is not None else ", bias=False"
        whole = f"{first.d}, {first.heads}, {hidden}, dropout={self.dropout.p}{tail}"
        return f"{type(self).__name__}({whole})"


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then a layer of hidden units, for x (N, T, d): residual parts f, each
    norm(x + f(x)), or, with norm_first, x + f(norm(x)).

    Called as `layer(x, mask=None, is_causal=False, cache=None, start=0)`, as MultiHeadAttention is;
    with a cache the result is the pair of the output and the new cache. Its parts: self_attn
    and norm1; linear1, linear2 and norm2. The last part is linear2(activation(linear1(x))) with
    `hidden` units. activation: "relu", "gelu", or any function or cell of a tensor. dropout acts
    where it does in PyTorch: on the softmax of attention, after the activation and on the output of
    each part.
    bias=False: no linear map and no norm in it has one. Weights have PyTorch's names and
    shapes (of a dense layer transposed): nn.load_torch_state.
    Source: Vaswani et al. 2017, "Attention is all you need"; norm_first: Xiong et al. 2020, "On
    layer normalization in the transformer architecture".
    """

    def construct(
        self, x: Any, mask: Any = None, is_causal: bool = False, cache: Any = None, start: Any = 0
    ) -> Any:
        x, kept = self._attended(self._input(x), mask, is_causal, cache, start)
        out = self._residual(x, self.norm2, self._mlp)
        return out if cache is None else (out, kept)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to a memory, then a layer of hidden units, for x (N, T, d) and
    memory (N, S, d), as for `TransformerEncoderLayer`.

    Called as `layer(x, memory, mask=None, memory_mask=None, is_causal=False,
    memory_is_causal=False, cache=None, start=0)`; mask, is_causal, cache and start are those of the
    self-attention, as in TransformerEncoderLayer. Its parts: self_attn and norm1; multihead_attn,
    which takes keys and values from the memory, and norm2; linear1, linear2 and norm3.
    """

    _attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiHeadAttention
    norm3: LayerNorm

    def construct(
        self,
        x: Any,
        memory: Any,
        mask: Any = None,
        memory_mask: Any = None,
        is_causal: bool = False,
        memory_is_causal: bool = False,
        cache: Any = None,
        start: Any = 0,
    ) -> Any:
        x, memory = self._input(x), self._input(memory, "N, S")
        x, kept = self._attended(x, mask, is_causal, cache, start)
        x = self._residual(
            x,
            self.norm2,
            lambda x: self.multihead_attn(x, memory, memory, memory_mask, memory_is_causal),
        )
        out = self._residual(x, self.norm3, self._mlp)
        return out if cache is None else (out, kept)


class TransformerStack(Cell):
    """Base of stacks of layers of one kind, one after the other, and a norm at the end."""

    _kind: ClassVar[type[TransformerLayer]]

    def __init__(self, layers: Iterable[TransformerLayer], norm: Cell | None = None):
        who = type(self).__name__
        given = listed(who, layers, f"nn.{self._kind.__name__}")
        if not given or not all(isinstance(layer, self._kind) for layer in given):
            raise AttributeRefusedError(
                f"{who} got {given!r}; expected a list of nn.{self._kind.__name__}"
            )
        self.layers, self.norm = CellList(given), norm

    def _passed(self, x: Any, before: tuple[Any, ...], caches: Any, start: Any) -> Any:
        """x through the layers, which take the other arguments, and the new caches if there are."""
        if caches is not None and len(caches) != len(self.layers):
            raise DTypeError(
                f"{type(self).__name__} got {len(caches)} caches for {len(self.layers)} layers; "
                "expected those that cache(n, length) makes, or a call returned"
            )
        kept = []
        for i, layer in enumerate(self.layers):
            x = layer(x, *before, None if caches is None else caches[i], start)
            if caches is not None:
                x, cache = x
                kept.append(cache)
        x = x if self.norm is None else self.norm(x)
        return x if caches is None else (x, tuple(kept))

    def cache(self, n: int, length: int) -> tuple[Any, ...]:
        """Empty caches, one for each layer: `MultiHeadAttention.cache`."""
        layers: list[Any] = list(self.layers)
        return tuple(layer.cache(n, length) for layer in layers)


class TransformerEncoder(TransformerStack):
    """TransformerEncoderLayers in a row, and `norm` at the end if it is given: the layers are
    called as `encoder(x, mask=None, is_causal=False, cache=None, start=0)`, cache a tuple with that
    of each. Weights have PyTorch's names."""

    _kind = TransformerEncoderLayer

    def construct(
        self, x: Any, mask: Any = None, is_causal: bool = False, cache: Any = None, start: Any = 0
    ) -> Any:
        return self._passed(x, (mask, is_causal), cache, start)


class TransformerDecoder(TransformerStack):
    """TransformerDecoderLayers in a row, and `norm` at the end if it is given: the layers are
    called as one of them is, cache a tuple with that of each. Weights have PyTorch's names."""

    _kind = TransformerDecoderLayer

    def construct(
        self,
        x: Any,
        memory: Any,
        mask: Any = None,
        memory_mask: Any = None,
        is_causal: bool = False,
        memory_is_causal: bool = False,
        cache: Any = None,
        start: Any = 0,
    ) -> Any:
        others = memory, mask, memory_mask, is_causal, memory_is_causal
        return self._passed(x, others, cache, start)


# --- Position encodings ---------------------------------------------------------------------------


class SinusoidalPositions(Cell):
    """x + `ops.sinusoidal_positions`, for x (..., T, d): sine waves, nothing learnt.

    Called as `layer(x, start=0)`; start: the position of the first member, an int, or an integer
    Tensor of shape (): one compiled step then serves all positions.
    Source: Vaswani et al. 2017, "Attention is all you need", section 3.5.
    """

    _shown = "d", "base="

    def __init__(self, d: int, base: float = 10000.0):
        self.d = count("SinusoidalPositions", "d", d)
        self.base = number("SinusoidalPositions", "base", base, 1)

    def construct(self, x: Any, start: Any = 0) -> Any:
        shape = _sequence(self, x, self.d)
        first = start if is_one_integer(start) else integer("SinusoidalPositions", "start", start)
        x = as_tensor(x)
        dtype = x.dtype if is_float(x.dtype) else float
        with on_device_of(x):
            return x + ops.sinusoidal_positions(shape[-2], self.d, first, self.base, dtype)


class LearnedPositions(Cell):
    """x + weight[start : start + T], for x (..., T, d): a learnt row for each position.

    weight: (length, d), which starts normal with standard deviation 0.02. Called as
    `layer(x, start=0)`, start as for SinusoidalPositions; ShapeError for positions from `length` on
    (not those of a Tensor on a GPU, where a check would wait for the device).
    Source: Gehring et al. 2017, "Convolutional sequence to sequence learning"; the deviation is
    that of Radford et al. 2019, "Language models are unsupervised multitask learners".
    """

    _shown = "length", "d"

    def __init__(self, length: int, d: int):
        length, d = counts("LearnedPositions", length=length, d=d)
        self.length, self.d = length, d
        self.weight = init.normal((length, d), 0.02)

    def construct(self, x: Any, start: Any = 0) -> Any:
        shape = _sequence(self, x, self.d)
        if is_one_integer(start) and shape[-2] <= self.length:
            first = checked(self.describe(), "start", start, self.length - shape[-2] + 1)
            positions = ops.add(ops.cast(first, int64), np.arange(shape[-2]))
            return beside(self.weight, x) + ops.gather(self.weight, positions)
        first = 0 if is_one_integer(start) else integer("LearnedPositions", "start", start)
        last = first + shape[-2]
        if first < 0 or last > self.length:
            raise ShapeError(
                f"{self.describe()} got positions {first} to {last - 1}; it has rows for 0 to "
                f"{self.length - 1}"
            )
        return beside(self.weight, x) + self.weight[first:last]


class RotaryPositions(Cell):
    """x (..., T, d) with its pairs of features turned by their positions: `ops.rotary_embedding`.

    It is for queries and keys alike, after they are cut into heads of d features, as
    MultiHeadAttention(..., rotary=RotaryPositions(d)) does. Called as `layer(x, positions=None)`.
    ValueRefusedError for an odd d.
    Source: Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding".
    """

    _shown = "d", "base=", "interleaved="

    def __init__(self, d: int, base: float = 10000.0, interleaved: bool = False):
        if count("RotaryPositions", "d", d) % 2:
            raise ValueRefusedError(f"RotaryPositions got d={d}; expected an even number")
        self.d, self.base = int(d), number("RotaryPositions", "base", base, 1)
        self.interleaved = flag("RotaryPositions", "interleaved", interleaved)

    def construct(self, x: Any, positions: Any = None) -> Any:
        _sequence(self, x, self.d)
        return ops.rotary_embedding(as_tensor(x), positions, self.base, self.interleaved)


def _sequence(cell: Cell, x: Any, d: int) -> tuple[int, ...]:
    """The shape of x; ShapeError unless it is a sequence of d features."""
    shape = shape_of(cell, x)
    if len(shape) < 2 or shape[-1] != d:
        refuse_shape(cell, shape, f"(..., T, {d})")
    return shape
