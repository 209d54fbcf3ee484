"""The layers of a transformer: TransformerEncoderLayer, TransformerDecoderLayer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from .arguments import choice, flag, positive
from .attention import MultiHeadAttention
from .cell import Cell
from .linear import Dense
from .norm import Dropout, LayerNorm
from .shapes import beside, refuse_shape, shape_of

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": ops.relu, "gelu": ops.gelu}


class TransformerLayer(Cell):
    """Base of layers of residual parts."""

    self_attn: MultiHeadAttention
    linear1: Dense
    linear2: Dense

    def _parts(
        self,
        attentions: tuple[str, ...],
        d: int,
        heads: int,
        hidden: int,
        dropout: float,
        norm_first: bool,
        activation: str | Callable[[Any], Any],
        bias: bool,
    ) -> None:
        """Make the parts: attentions by these names, dense layers, and a norm for each part."""
        layer = type(self).__name__
        positive(layer, hidden=hidden)
        if not callable(activation):
            choice(layer, "activation", activation, tuple(_ACTIVATIONS))
        self.norm_first = flag(layer, "norm_first", norm_first)
        for name in attentions:
            setattr(self, name, MultiHeadAttention(d, heads, dropout, bias))
        self.linear1, self.linear2 = Dense(d, hidden, bias), Dense(hidden, d, bias)
        for i in range(len(attentions) + 1):
            setattr(self, f"norm{i + 1}", LayerNorm(d, bias=bias))
        self.dropout = Dropout(dropout)
        self.activation = activation

    def _residual(self, x: Any, norm: Cell, part: Callable[[Any], Any]) -> Any:
        if self.norm_first:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))

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
        own = f"{self.self_attn.d}, {self.self_attn.heads}, {self.linear1.out_features}"
        tail = ", norm_first=True" if self.norm_first else ""
        if self.activation != "relu":
            chosen = self.activation
            tail += f", activation={chosen if isinstance(chosen, Cell) else repr(chosen)}"
        tail += "" if self.linear1.bias is not None else ", bias=False"
        return f"{type(self).__name__}({own}, dropout={self.dropout.p}{tail})"


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then a layer of hidden units, for x (N, T, d): residual parts f, each
    norm(x + f(x)), or, with norm_first, x + f(norm(x)).

    Called as `layer(x, mask=None, is_causal=False)`, as in MultiHeadAttention. Its parts: self_attn
    and norm1; linear1, linear2 and norm2. The last part is linear2(activation(linear1(x))) with
    `hidden` units. activation: "relu", "gelu", or any function or cell of a tensor. dropout acts in
    PyTorch's places: on the softmax of attention, after the activation and on what each part gives.
    bias=False: none of the parts' linear maps and norms has one. Weights have PyTorch's names and
    shapes (of a dense layer transposed): nn.load_torch_state.
    Source: Vaswani et al. 2017, "Attention is all you need"; norm_first: Xiong et al. 2020, "On
    layer normalization in the transformer architecture".
    """

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
        self._parts(("self_attn",), d, heads, hidden, dropout, norm_first, activation, bias)

    def construct(self, x: Any, mask: Any = None, is_causal: bool = False) -> Any:
        x = self._input(x)
        x = self._residual(x, self.norm1, lambda x: self.self_attn(x, x, x, mask, is_causal))
        return self._residual(x, self.norm2, self._mlp)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to a memory, then a layer of hidden units, for x (N, T, d) and
    memory (N, S, d), as for `TransformerEncoderLayer`.

    Called as `layer(x, memory, mask=None, memory_mask=None, is_causal=False,
    memory_is_causal=False)`; mask and is_causal are those of the self-attention, as in
    MultiHeadAttention. Its parts: self_attn and norm1; multihead_attn, which takes keys and values
    from the memory, and norm2; linear1, linear2 and norm3.
    """

    multihead_attn: MultiHeadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm

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
        attentions = "self_attn", "multihead_attn"
        self._parts(attentions, d, heads, hidden, dropout, norm_first, activation, bias)

    def construct(
        self,
        x: Any,
        memory: Any,
        mask: Any = None,
        memory_mask: Any = None,
        is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        x, memory = self._input(x), self._input(memory, "N, S")
        x = self._residual(x, self.norm1, lambda x: self.self_attn(x, x, x, mask, is_causal))
        x = self._residual(
            x,
            self.norm2,
            lambda x: self.multihead_attn(x, memory, memory, memory_mask, memory_is_causal),
        )
        return self._residual(x, self.norm3, self._mlp)
