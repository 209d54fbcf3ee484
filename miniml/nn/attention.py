"""MultiHeadAttention, in which every position looks at others."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..dtype import bool_, is_float
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from . import init
from .arguments import flag, positive
from .cell import Cell
from .linear import Dense
from .norm import Dropout
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
    dropout: of the softmax, in training. bias=False: in_proj_bias is None and out_proj has none.
    rotary: a cell that turns the heads' queries and keys (N, heads, T, d / heads) by their
    positions, such as RotaryPositions. Long sequences are computed in blocks, whose memory does not
    grow with T S: `ops.scaled_dot_product_attention`.

    in_proj_weight starts Xavier uniform, out_proj as a Dense with bias 0, in_proj_bias with 0.
    Source: Vaswani et al. 2017, "Attention is all you need".
    """

    def __init__(
        self,
        d: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rotary: Cell | None = None,
    ):
        positive("MultiHeadAttention", d=d, heads=heads)
        if d % heads:
            raise ShapeError(
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

    def construct(self, q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
        queries, keys = self._checked(q, k, v)
        mask = self._mask(mask, (queries[0], self.heads, queries[1], keys[1]))
        causal = flag("MultiHeadAttention", "is_causal", is_causal)
        q, k, v = self._projected(q, k, v)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        dropout = self.dropout.p if self.dropout.training else 0.0
        out = ops.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        return self.out_proj(ops.reshape(ops.transpose(out, (0, 2, 1, 3)), queries))

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

    def _mask(self, mask: Any, full: tuple[int, ...]) -> Any:
        """The mask as a tensor, if it fits scores of shape `full`."""
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
        """Q, K and V, (N, heads, positions, features); one product for inputs that are one."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if inputs[0] is inputs[1] is inputs[2]:
            projected = _affine(inputs[0], weight, bias)
            return [self._by_head(part) for part in ops.split(projected, 3, axis=2)]
        biases = (None,) * 3 if bias is None else ops.split(bias, 3)
        blocks = zip(inputs, ops.split(weight, 3), biases, strict=True)
        return [self._by_head(_affine(*block)) for block in blocks]

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


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    product = ops.matmul(x, weight, transpose_y=True)
    return product if bias is None else product + bias
