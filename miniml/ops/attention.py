"""Scaled dot-product attention, composed or blockwise (FlashAttention), and positional encodings.

First the primitives of blockwise attention, which never hold all scores, and of its gradients;
then the function, which composes small ones of other operations; then sinusoidal positions and
rotary embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..core.abstract import (
    FLOATS,
    Abstract,
    DType,
    Shape,
    as_dtype,
    bool_,
    float32,
    float64,
    is_float,
    promote,
    uint64,
)
from ..core.errors import DTypeError, ShapeError
from ..core.options import flag, integer, number, probability
from ..core.primitive import Primitive
from ..core.settings import current
from ..core.trace import computes_at_once, current_trace
from .checks import Tensor, broadcast, composition, dtype_of, is_one_integer, needs_float, shape_of
from .elementwise import add, cast, cos, mul, sin, sub
from .images import lengths
from .linalg import matmul
from .logic import equal, logical_not, select
from .norm import softmax
from .random import block_count
from .random import dropout as dropped
from .reduce import max
from .rules import Flops
from .shape import broadcast_to, concat, reshape, split, stack

__all__ = [
    "ScaledDotProductAttention", "ScaledDotProductAttentionGrad",
    "ScaledDotProductAttentionMaskGrad", "scaled_dot_product_attention",
    "rotary_embedding", "sinusoidal_positions",
]  # fmt: skip


def per_score(times: float) -> Flops:
    """times (2 (E + F) + 5) for each score of a query of size E with a value of size F."""

    def flops(primitive: Primitive, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        q, k, v = (x.shape for x in inputs[:3])
        return int(times * prod(q[:-1]) * k[-2] * (2 * (q[-1] + v[-1]) + 5))

    return flops


class Attending(Primitive, abstract=True):
    """Attributes and checks that the primitives of attention share.

    q (..., T, E), k (..., S, E), v (..., S, F), with the same leading axes, of one float dtype;
    mask: bools, True where a query sees a key, or of q's dtype, to be added to the scores; it
    broadcasts to (..., T, S). causal: query i sees keys 0 to i. The scores are q k^T scale + mask,
    -inf for keys that are not seen. dropout: the probability with which a weight becomes 0, by the
    draw of Bernoulli(shape=(..., T, S), p=1 - dropout, skip=skip)(state); the others are divided by
    1 - dropout.
    """

    scale: float = 1.0
    causal: bool = False
    dropout: float = 0.0
    skip: int = 0

    def _checked(self, q: Shape, k: Shape, v: Shape, mask: Shape, state: Shape) -> Shape:
        """(..., T, S), the shape of the scores."""
        if state != (2,):
            raise ShapeError(f"{self.name} needs state of shape (2,), (key, offset); got {state}")
        number(self.name, "scale", self.scale)
        probability(self.name, "dropout", self.dropout)
        if not q[:-2] == k[:-2] == v[:-2]:
            raise ShapeError(f"{self.name} got q of {q}, k of {k} and v of {v}; {_AXES}")
        return scores_shape(self.name, q, k, v, mask)

    def _typed(self, q: DType, k: DType, v: DType, mask: DType, state: DType) -> DType:
        """The dtype of q, if all fit."""
        if not q == k == v or mask not in (q, bool_) or state != uint64:
            raise DTypeError(
                f"{self.name} got q of {q.name}, k of {k.name}, v of {v.name}, mask of {mask.name} "
                f"and state of {state.name}; the first three have one dtype, the mask that or "
                "bool, and state is uint64"
            )
        return needs_float(self.name, q)


_AXES = "they have shapes (..., T, E), (..., S, E) and (..., S, F), with equal leading axes"


def scores_shape(name: str, q: Shape, k: Shape, v: Shape, mask: Shape) -> Shape:
    """(..., T, S), with the leading axes of q, if q, k, v and the mask fit."""
    if min(map(len, (q, k, v))) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise ShapeError(
            f"{name} got q of shape {q}, k of {k} and v of {v}; expected (..., T, E), (..., S, E) "
            "and (..., S, F)"
        )
    full = (*q[:-1], k[-2])
    pairs = zip(mask[::-1], full[::-1], strict=False)
    if len(mask) > len(full) or any(a not in (1, b) for a, b in pairs):
        raise ShapeError(
            f"{name} got a mask of shape {mask}; expected one that broadcasts to {full}, "
            "(..., T, S)"
        )
    return full


class ScaledDotProductAttention(Attending):
    """out = softmax(q k^T scale + mask) v, and lse, the logarithm of the sum that softmax divides
    by; as for `scaled_dot_product_attention`.

    out (..., T, F), lse (..., T): of float32 for floats of 16 bits. Where a query sees nothing, out
    is 0 and lse +inf, so that exp(score - lse) is 0 too.
    Source: Dao et al. 2022, "FlashAttention".
    """

    autocast = "low"
    outputs = ("out", "lse")
    flops = per_score(1.0)

    def infer_shape(
        self, q: Shape, k: Shape, v: Shape, mask: Shape, state: Shape
    ) -> tuple[Shape, Shape]:
        self._checked(q, k, v, mask, state)
        return (*q[:-1], v[-1]), q[:-1]

    def infer_dtype(
        self, q: DType, k: DType, v: DType, mask: DType, state: DType
    ) -> tuple[DType, DType]:
        dtype = self._typed(q, k, v, mask, state)
        return dtype, promote(dtype, float32)


class Pulled(Attending, abstract=True):
    """The gradients of attention, from recomputed weights P = exp(scores - lse).

    Z is 0 where dropout dropped a weight and 1 / (1 - dropout) elsewhere, out = (P Z) v,
    dS = P (Z (dout v^T) - delta). lse and delta (..., T), of lse's dtype; dout as out.
    """

    inputs = ("q", "k", "v", "mask", "state", "lse", "delta", "dout")

    def infer_dtype(self, *given: DType) -> DType:
        q, k, v, mask, state, lse, delta, dout = given
        dtype = self._typed(q, k, v, mask, state)
        wide = promote(dtype, float32)
        if not lse == delta == wide or dout != dtype:
            raise DTypeError(
                f"{self.name} got lse of {lse.name}, delta of {delta.name} and dout of "
                f"{dout.name}; expected {wide.name} twice, and {dtype.name}"
            )
        return dtype

    def _fitting(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The shapes of the inputs, if they fit."""
        q, k, v, mask, state, lse, delta, dout = given
        self._checked(q, k, v, mask, state)
        if not lse == delta == q[:-1] or dout != (*q[:-1], v[-1]):
            raise ShapeError(
                f"{self.name} got lse of {lse}, delta of {delta} and dout of {dout}; expected "
                f"{q[:-1]} twice, and {(*q[:-1], v[-1])}"
            )
        return given


class ScaledDotProductAttentionGrad(Pulled):
    """dq = scale dS k, dk = scale dS^T q and dv = (P Z)^T dout, in blocks, as for `Pulled`."""

    outputs = ("dq", "dk", "dv")
    flops = per_score(2.5)

    def infer_shape(self, *given: Shape) -> tuple[Shape, ...]:
        return self._fitting(given)[:3]


class ScaledDotProductAttentionMaskGrad(Pulled):
    """dmask = dS, summed to the shape of the mask, in blocks, as for `Pulled`; the mask is of
    floats.

    DTypeError for one of bool, which has no gradient.
    """

    flops = per_score(1.0)

    def infer_shape(self, *given: Shape) -> Shape:
        return self._fitting(given)[3]

    def infer_dtype(self, *given: DType) -> DType:
        if given[3] == bool_:
            raise DTypeError(f"{self.name} got a mask of bool, which has no gradient")
        return super().infer_dtype(*given)


# --- Scaled dot-product attention -----------------------------------------------------------------


@composition
def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(q k^T scale + mask) v, with q (..., T, E), k (..., S, E), v (..., S, F): each of T
    queries gets the mean of the rows of v, (..., T, F), weighted by how well the keys fit it.

    mask: broadcasts to (..., T, S). Bools say which keys a query sees (True: it does); floats are
    added to the scores, -inf for an unseen key. is_causal: query i sees keys 0 to i, and of these
    what mask says. A query that sees nothing gets 0. scale: 1 / sqrt(E) by default. dropout: the
    probability with which a weight becomes 0, the others being divided by 1 - dropout; in
    evaluation pass 0. Leading axes broadcast; floats are promoted.

    Up to 2^16 scores in all, 2^20 in graphs on a GPU, are computed together. More never are, nor
    those of floats of 16 bits, which are summed and weighted in float32: out and its gradients in
    q, k, v and mask are computed in blocks, with memory of the size of these; the gradient keeps T
    numbers a matrix. The second derivative does hold (..., T, S) arrays. What is masked counts as 0
    v, so NaN or infinity there may pass into the result.
    Sources: Vaswani et al. 2017, "Attention is all you need"; Rabe, Staats 2021, "Self-attention
    does not need O(n^2) memory"; Dao et al. 2022, "FlashAttention".

    >>> x = np.eye(2, dtype=np.float32)
    >>> scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.0).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    dropout = probability(_NAME, "dropout", dropout)
    is_causal = flag(_NAME, "is_causal", is_causal)
    if scale is not None:  # one that is learnt goes into q
        scale = number(_NAME, "scale", scale)
    q, k, v, mask = _together(q, k, v, mask)
    of_mask = () if mask is None else shape_of(mask)
    full = scores_shape(_NAME, shape_of(q), shape_of(k), shape_of(v), of_mask)
    factor = 1.0 / math.sqrt(shape_of(q)[-1] or 1) if scale is None else float(scale)
    if _composes(math.prod(full), dtype_of(q)):
        scores = mul(matmul(q, k, transpose_y=True), factor)
        return matmul(dropped(_weights(scores, mask, is_causal), dropout), v)
    state, skip = np.zeros(2, np.uint64), 0
    if dropout:
        state, skip = current_trace().reserve(block_count(full, dtype_of(q)))
    mask = np.ones((1, 1), np.bool_) if mask is None else mask
    return ScaledDotProductAttention(factor, is_causal, dropout, skip)(q, k, v, mask, state)[0]


_NAME = "scaled_dot_product_attention"


def _together(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """q, k and v with one float dtype and equal leading axes; the mask of that dtype, or bools."""
    dtype = reduce(promote, (dtype_of(x) for x in (q, k, v)))
    dtype = dtype if is_float(dtype) else float32
    q, k, v = (x if dtype_of(x) == dtype else cast(x, dtype) for x in (q, k, v))
    shapes = [shape_of(x) for x in (q, k, v)]
    lead = broadcast(_NAME, *(s[:-2] for s in shapes))
    q, k, v = (
        x if s[:-2] == lead else broadcast_to(x, (*lead, *s[-2:]))
        for x, s in zip((q, k, v), shapes, strict=True)
    )
    if mask is None:
        return q, k, v, None
    mask, given = mask if shape_of(mask) else reshape(mask, (1,)), dtype_of(mask)
    if given not in (bool_, *FLOATS):
        raise DTypeError(f"{_NAME} got a mask of {given.name}; expected bool or float")
    return q, k, v, mask if given in (bool_, dtype) else cast(mask, dtype)


# The number of scores up to which attention is composed. Beyond it blocks are as fast, in C from
# 2^15 on and in NumPy op by op, and up to twice as fast from 2^20 on. In graphs on a GPU the work
# between the two products is one fused kernel, and 4 MB of scores cost little.
COMPOSED, COMPOSED_ON_CUDA = 2**16, 2**20


def _composes(scores: int, dtype: DType) -> bool:
    """True if attention with so many scores is composed. That of 16-bit floats never is: scores
    rounded between the two products would lose too much accuracy in the softmax."""
    narrow = dtype.itemsize == 2 or (dtype == float32 and current().autocast)
    one_pass = current().device_target != "cpu" and not computes_at_once()
    return not narrow and scores <= (COMPOSED_ON_CUDA if one_pass else COMPOSED)


def _weights(scores: Any, mask: Any, causal: bool) -> Any:
    """softmax of the scores that are seen; 0 for a query that sees nothing.

    The mask is added to the scores as 0 or -inf: C compilers do not vectorize a selection.
    """
    if mask is None and not causal:
        return softmax(scores)
    shape, dtype, hidden = shape_of(scores), dtype_of(scores), -math.inf
    later = np.where(np.tri(*shape[-2:], dtype=np.bool_), 0.0, hidden).astype(dtype)
    if mask is None:  # key 0 is seen by all
        return softmax(add(scores, later))
    bias = cast(select(mask, 0.0, hidden), dtype) if dtype_of(mask) == bool_ else mask
    bias = add(bias, later) if causal else bias
    empty = equal(max(bias, -1, True), hidden) if shape[-1] else np.zeros((), np.bool_)
    weights = softmax(add(scores, select(empty, 0.0, bias)))
    return mul(weights, cast(logical_not(empty), dtype))


# --- Positional encodings -------------------------------------------------------------------------


@composition
def sinusoidal_positions(
    length: int, d: int, start: Any = 0, base: float = 10000.0, dtype: object = float
) -> Tensor:
    """sin(t / base^(2 i / d)) in column 2 i and cos of the same in column 2 i + 1, (length, d), for
    t = start, start + 1, ...; float32 by default. Columns are waves of growing length.

    start: an int, or an integer Tensor of shape (), which a compiled function need not know.

    Source: Vaswani et al. 2017, "Attention is all you need", section 3.5.

    >>> sinusoidal_positions(2, 2).tolist()
    [[0.0, 1.0], [0.8414709568023682, 0.5403022766113281]]
    """
    name = "sinusoidal_positions"
    length, d = lengths(name, "(length, d)", (length, d), 2, 0)
    speeds, kind = _speeds(name, d, base), as_dtype(dtype)
    if is_one_integer(start):
        times = cast(add(start, np.arange(length)), float64)
        angles = mul(reshape(times, (length, 1)), speeds)
        waves = reshape(stack([sin(angles), cos(angles)], -1), (length, 2 * len(speeds)))
        return cast(waves[:, :d], kind)
    angles = (integer(name, "start", start) + np.arange(length))[:, None] * speeds
    both = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, 2 * len(speeds))
    return cast(both[:, :d], kind)


@composition
def rotary_embedding(
    x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False
) -> Tensor:
    """(a cos(p w_i) - b sin(p w_i), a sin(p w_i) + b cos(p w_i)) for each pair of features (a, b)
    of x (..., T, d) at position p, with w_i = base^(-2 i / d).

    The product of two vectors turned in this way depends on the distance of their positions alone.
    Pair i is features i and i + d / 2, or, with interleaved, 2 i and 2 i + 1, as in the paper; in
    the weights that make x this is a permutation. positions: integers that broadcast to (..., T),
    by default 0 to T - 1; as a tensor they are taken in float32, exact below 2^24. ShapeError for
    an odd d, DTypeError for an x that is no float.
    Source: Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding".

    >>> rotary_embedding([[1.0, 0.0], [1.0, 0.0]]).tolist()
    [[1.0, 0.0], [0.5403022766113281, 0.8414709568023682]]
    """
    shape, dtype = shape_of(x), dtype_of(x)
    if not is_float(dtype):
        raise DTypeError(f"rotary_embedding got x of {dtype.name}; it turns floats; cast x")
    if len(shape) < 2 or shape[-1] % 2:
        raise ShapeError(
            f"rotary_embedding got x of shape {shape}; expected (..., T, d) with an even d"
        )
    interleaved = flag("rotary_embedding", "interleaved", interleaved)
    turn, tilt = _turns(shape, dtype, positions, base)
    half = shape[-1] // 2
    axis = -1 if interleaved else -2
    pairs = reshape(x, (*shape[:-1], half, 2) if interleaved else (*shape[:-1], 2, half))
    a, b = (reshape(part, (*shape[:-1], half)) for part in split(pairs, 2, axis))
    turned = sub(mul(a, turn), mul(b, tilt)), add(mul(a, tilt), mul(b, turn))
    if not interleaved:
        return concat(turned, -1)
    return reshape(stack(turned, -1), shape)


def _turns(shape: Shape, dtype: DType, positions: Any, base: float) -> tuple[Any, Any]:
    """cos and sin of the angles, (..., T, d / 2)."""
    given = np.arange(shape[-2]) if positions is None else positions
    if dtype_of(given).kind not in "iu":
        raise DTypeError(
            f"rotary_embedding got positions of {dtype_of(given).name}; expected integers"
        )
    extents = shape_of(given)
    if broadcast("rotary_embedding positions", extents, shape[:-1]) != shape[:-1]:
        raise ShapeError(
            f"rotary_embedding got positions of shape {extents}; expected one that broadcasts to "
            f"{shape[:-1]}"
        )
    speeds = _speeds("rotary_embedding", shape[-1], base)
    if isinstance(given, (int, list, tuple, np.ndarray)):
        angles = np.asarray(given)[..., None] * speeds
        return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    angles = mul(reshape(cast(given, float32), (*extents, 1)), speeds.astype(float32))
    return cast(cos(angles), dtype), cast(sin(angles), dtype)


def _speeds(name: str, d: int, base: float) -> Any:
    """base^(-2 i / d) for each pair of d features, in float64."""
    return number(name, "base", base, above=0) ** (-2.0 * np.arange(-(-d // 2), dtype=float64) / d)
