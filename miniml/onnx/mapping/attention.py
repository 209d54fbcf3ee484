"""ONNX's attention and rotary embeddings."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core.abstract import bool_, float32, int64
from ...core.errors import OnnxError
from ..operators import register_composition, register_operator
from ..tensors import counted, dtype_of, extent


@register_operator("", "Attention", (23, None))
def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, past_key: Any = None, past_value: Any = None,
    nonpad_kv_seqlen: Any = None, *, is_causal: int = 0, kv_num_heads: int | None = None,
    q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, scale: float | None = None,
    softcap: float = 0.0, softmax_precision: int | None = None, left_window_size: int = -1,
    right_window_size: int = -1,
) -> Any:  # fmt: skip
    """softmax(q k^T scale + bias) v for each head, with the cached keys and values in front.

    The output is 0 for a query with no key to attend to.
    """
    flat = len(q.shape) == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise OnnxError("needs q_num_heads and kv_num_heads for inputs of three axes")
        q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    before: Any = 0 if past_key is None else extent(past_key, 2)
    k = k if past_key is None else ops.concat([past_key, k], 2)
    v = v if past_value is None else ops.concat([past_value, v], 2)
    present = k, v
    rows, columns = extent(q, 2), extent(k, 2)
    if nonpad_kv_seqlen is not None:
        lengths = ops.reshape(ops.cast(nonpad_kv_seqlen, int64), (-1, 1, 1, 1))
        before = ops.sub(lengths, rows)
    allowed = _allowed(rows, columns, before, is_causal, left_window_size, right_window_size)
    if nonpad_kv_seqlen is not None:
        allowed = _both(allowed, ops.less(counted(columns), lengths))
    bias = None
    if attn_mask is not None:
        bias, allowed = _masked(attn_mask, columns, allowed)
    half = ((1 / extent(q, 3) ** 0.5) if scale is None else scale) ** 0.5
    repeats = extent(q, 1) // extent(k, 1)
    k, v = (_repeated(x, repeats) for x in (k, v))
    scores = ops.matmul(ops.mul(q, half), ops.mul(k, half), transpose_y=True)
    shown = [scores]
    if softcap > 0:
        scores = ops.mul(ops.tanh(ops.div(scores, softcap)), softcap)
    shown.append(scores)
    if bias is not None:
        scores = ops.add(scores, ops.cast(bias, scores.dtype))
    wide = (
        scores if softmax_precision is None else ops.cast(scores, dtype_of(softmax_precision, ""))
    )
    shares, masked = _shares(wide, allowed)
    shown += [masked, shares]
    out = ops.matmul(ops.cast(shares, q.dtype), v)
    if flat:
        out = ops.reshape(ops.transpose(out, (0, 2, 1, 3)), (out.shape[0], rows, -1))
    return out, *present, ops.cast(shown[qk_matmul_output_mode], q.dtype)


def _heads(x: Any, count: int) -> Any:
    """(N, T, heads * d) as (N, heads, T, d)."""
    n, time, _ = x.shape
    return ops.transpose(ops.reshape(x, (n, time, count, -1)), (0, 2, 1, 3))


def _repeated(x: Any, count: int) -> Any:
    """Each head `count` times in a row."""
    if count == 1:
        return x
    n, heads, time, d = x.shape
    spread = ops.broadcast_to(ops.expand_dims(x, 2), (n, heads, count, time, d))
    return ops.reshape(spread, (n, heads * count, time, d))


def _both(a: Any, b: Any) -> Any:
    return b if a is None else ops.logical_and(a, b)


def _allowed(rows: int, columns: int, before: Any, causal: int, left: int, right: int) -> Any:
    """The mask of the keys to which each query may attend, None for all: not later ones, and not
    those further away than the window."""
    position = ops.add(counted(rows)[:, None], before)
    ahead = ops.sub(counted(columns), position)
    allowed = ops.less_equal(ahead, 0) if causal else None
    if left >= 0:
        allowed = _both(allowed, ops.greater_equal(ahead, -left))
    return _both(allowed, ops.less_equal(ahead, right)) if right >= 0 else allowed


def _masked(mask: Any, columns: int, allowed: Any) -> tuple[Any, Any]:
    """The bias that a mask adds to the scores, and the keys that it leaves; none past its end."""
    missing = columns - extent(mask, -1)
    if mask.dtype == bool_:
        pads = (*((0, 0),) * (len(mask.shape) - 1), (0, missing))
        return None, _both(allowed, ops.pad(mask, pads, False) if missing else mask)
    if missing:
        mask = ops.pad(mask, (*((0, 0),) * (len(mask.shape) - 1), (0, missing)), float("-inf"))
    return mask, _both(allowed, ops.greater(mask, float("-inf")))


def _shares(scores: Any, allowed: Any) -> tuple[Any, Any]:
    """The softmax over the allowed keys, 0 where there is none; and the masked scores."""
    if allowed is None:
        return ops.softmax(scores), scores
    masked = ops.where(allowed, scores, float("-inf"))
    some = ops.any(allowed, -1, True)
    return ops.where(some, ops.softmax(ops.where(some, masked, 0.0)), 0.0), masked


@register_operator("", "RotaryEmbedding", (23, None))
def rotary_embedding(
    x: Any, cos_cache: Any, sin_cache: Any, position_ids: Any = None, *, interleaved: int = 0,
    num_heads: int | None = None, rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    """Pairs of features turned by angles that grow with the position."""
    heads = _heads(x, num_heads or 1) if len(x.shape) == 3 else x
    d = rotary_embedding_dim or extent(heads, 3)
    if position_ids is not None:
        cos_cache, sin_cache = (ops.gather(c, position_ids) for c in (cos_cache, sin_cache))
    cos, sin = ops.expand_dims(cos_cache, 1), ops.expand_dims(sin_cache, 1)
    turned, rest = ops.split(heads, (d, extent(heads, 3) - d), -1)
    pairs = ops.reshape(turned, (*turned.shape[:-1], *((-1, 2) if interleaved else (2, -1))))
    axis = -1 if interleaved else -2
    a, b = (ops.squeeze(part, axis) for part in ops.split(pairs, 2, axis))
    real = ops.sub(ops.mul(cos, a), ops.mul(sin, b))
    imaginary = ops.add(ops.mul(sin, a), ops.mul(cos, b))
    both = ops.reshape(ops.stack([real, imaginary], axis), tuple(turned.shape))
    out = ops.concat([both, rest], -1)
    return (
        ops.reshape(ops.transpose(out, (0, 2, 1, 3)), tuple(x.shape)) if len(x.shape) == 3 else out
    )


# --- The way back ---------------------------------------------------------------------------------


@register_composition(ops.ScaledDotProductAttention)
def attention_of(self: Any, q: Any, k: Any, v: Any, mask: Any, state: Any) -> Any:
    """All scores at once; a query that sees nothing gets 0."""
    if self.dropout:
        raise OnnxError("attention with dropout is not written; net.set_train(False) leaves it out")
    given = q.dtype
    if given.itemsize == 2:
        q, k, v = (ops.cast(x, float32) for x in (q, k, v))
    scores = ops.mul(ops.matmul(q, k, transpose_y=True), self.scale)
    seen = mask if mask.dtype == bool_ else None
    if seen is None:
        scores = ops.add(scores, ops.cast(mask, scores.dtype))
    if self.causal:
        rows, columns = (ops.arange(scores.shape[axis]) for axis in (-2, -1))
        earlier = ops.greater_equal(ops.expand_dims(rows, 1), columns)
        seen = earlier if seen is None else ops.logical_and(seen, earlier)
    if seen is not None:
        scores = ops.where(seen, scores, -float("inf"))
    top = ops.max(scores, -1, True)
    none = ops.equal(top, -float("inf"))
    weights = ops.exp(ops.sub(scores, ops.where(none, 0.0, top)))
    total = ops.sum(weights, -1, True)
    out = ops.matmul(ops.div(weights, ops.where(none, 1.0, total)), v)
    lse = ops.where(none, float("inf"), ops.add(top, ops.log(total)))
    return ops.cast(out, given), ops.squeeze(lse, -1)
