"""Attention: softmax(q k^T) v, composed, or in blocks that never hold all scores."""

from __future__ import annotations

import math
from functools import reduce
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape
from ..dtype import FLOATS, DType, bool_, float32, is_float, promote, uint64
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from ..primitive import Primitive
from ..settings import current
from ..trace import computes_at_once, current_trace
from .arithmetic import add, cast, mul
from .compare import equal, logical_not, select
from .composed.sampling import dropout as dropped
from .inference.devices import on_one_device
from .inference.shapes import broadcast, dtype_of, needs_float, shape_of
from .linalg import matmul
from .norm import softmax
from .random import block_count
from .reduce import max
from .shape import broadcast_to, reshape

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "ScaledDotProductAttention", "ScaledDotProductAttentionGrad",
    "ScaledDotProductAttentionMaskGrad", "scaled_dot_product_attention",
]  # fmt: skip

# Scores of all matrices together up to which they are kept. From there on blocks are as fast, in C
# from 2^15 on and in NumPy op by op, and up to twice as fast from 2^20 on. In graphs on a GPU what
# passes between the products is one pass, and 4 MB are no burden.
COMPOSED, COMPOSED_ON_CUDA = 2**16, 2**20


class Attending(Primitive, abstract=True):
    """What the primitives of attention have in common.

    q (..., T, E), k (..., S, E), v (..., S, F), with the same leading axes, of one float dtype;
    mask: bools, True where a query sees a key, or of q's dtype, to be added to the scores;
    it broadcasts to (..., T, S). causal: query i sees keys 0 to i. The scores are
    q k^T scale + mask, -inf for what is not seen. dropout: the probability with which a weight
    becomes 0, by the draw of Bernoulli(shape=(..., T, S), p=1 - dropout, skip=skip)(state); the
    others are divided by 1 - dropout.
    """

    scale: float = 1.0
    causal: bool = False
    dropout: float = 0.0
    skip: int = 0

    def _checked(self, q: Shape, k: Shape, v: Shape, mask: Shape, state: Shape) -> Shape:
        """(..., T, S), the shape of the scores."""
        if state != (2,):
            raise ShapeError(f"{self.name} needs state of shape (2,), (key, offset); got {state}")
        if not math.isfinite(self.scale) or not 0.0 <= self.dropout <= 1.0:
            raise AttributeRefusedError(
                f"{self.name} got scale={self.scale} and dropout={self.dropout}; the scale is "
                "finite, and a probability is in [0, 1]"
            )
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

    outputs = ("out", "lse")

    def infer_shape(
        self, q: Shape, k: Shape, v: Shape, mask: Shape, state: Shape
    ) -> tuple[Shape, Shape]:
        self._checked(q, k, v, mask, state)
        return (*q[:-1], v[-1]), q[:-1]

    def infer_dtype(
        self, q: DType, k: DType, v: DType, mask: DType, state: DType
    ) -> tuple[DType, DType]:
        dtype = self._typed(q, k, v, mask, state)
        return dtype, wide(dtype)


class Pulled(Attending, abstract=True):
    """The gradients of attention, from weights that are computed again: P = exp(scores - lse).

    Z is 0 where dropout dropped a weight and 1 / (1 - dropout) elsewhere, out = (P Z) v,
    dS = P (Z (dout v^T) - delta). lse and delta (..., T), of lse's dtype; dout as out.
    """

    def _shapes(self, given: tuple[Shape, ...]) -> None:
        q, k, v, mask, state, lse, delta, dout = given
        self._checked(q, k, v, mask, state)
        if not lse == delta == q[:-1] or dout != (*q[:-1], v[-1]):
            raise ShapeError(
                f"{self.name} got lse of {lse}, delta of {delta} and dout of {dout}; expected "
                f"{q[:-1]} twice, and {(*q[:-1], v[-1])}"
            )

    def _dtype(self, given: tuple[DType, ...]) -> DType:
        q, k, v, mask, state, lse, delta, dout = given
        dtype = self._typed(q, k, v, mask, state)
        if not lse == delta == wide(dtype) or dout != dtype:
            raise DTypeError(
                f"{self.name} got lse of {lse.name}, delta of {delta.name} and dout of "
                f"{dout.name}; expected {wide(dtype).name} twice, and {dtype.name}"
            )
        return dtype


class ScaledDotProductAttentionGrad(Pulled):
    """dq = scale dS k, dk = scale dS^T q and dv = (P Z)^T dout, in blocks, as for `Pulled`."""

    outputs = ("dq", "dk", "dv")

    def infer_shape(
        self, q: Shape, k: Shape, v: Shape, mask: Shape, state: Shape, lse: Shape, delta: Shape,
        dout: Shape,
    ) -> tuple[Shape, Shape, Shape]:  # fmt: skip
        self._shapes((q, k, v, mask, state, lse, delta, dout))
        return q, k, v

    def infer_dtype(
        self, q: DType, k: DType, v: DType, mask: DType, state: DType, lse: DType, delta: DType,
        dout: DType,
    ) -> DType:  # fmt: skip
        return self._dtype((q, k, v, mask, state, lse, delta, dout))


class ScaledDotProductAttentionMaskGrad(Pulled):
    """dmask = dS, summed to the shape of the mask, in blocks, as for `Pulled`; the mask is of
    floats."""

    def infer_shape(
        self, q: Shape, k: Shape, v: Shape, mask: Shape, state: Shape, lse: Shape, delta: Shape,
        dout: Shape,
    ) -> Shape:  # fmt: skip
        self._shapes((q, k, v, mask, state, lse, delta, dout))
        return mask

    def infer_dtype(
        self, q: DType, k: DType, v: DType, mask: DType, state: DType, lse: DType, delta: DType,
        dout: DType,
    ) -> DType:  # fmt: skip
        if mask == bool_:
            raise DTypeError(f"{self.name} got a mask of bool, which has no gradient")
        return self._dtype((q, k, v, mask, state, lse, delta, dout))


def wide(dtype: DType) -> DType:
    """The dtype of sums: float32 for floats of 16 bits."""
    return float32 if dtype.itemsize == 2 else dtype


@on_one_device
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
    added to the scores, -inf for what is not seen. is_causal: query i sees keys 0 to i, and of
    these what mask says. A query that sees nothing gets 0. scale: 1 / sqrt(E) by default.
    dropout: the probability with which a weight becomes 0, the others being divided by
    1 - dropout; in evaluation pass 0. Leading axes broadcast; floats are promoted.

    Up to 2^16 scores in all, 2^20 in graphs on a GPU, are computed together. More never are, nor
    those of floats of 16 bits, which are summed and weighted in float32: out and its gradients in
    q, k, v and mask are computed in blocks, with memory of the size of these; what is kept for the
    gradient is T numbers a matrix. The second derivative does hold (..., T, S) arrays. What is
    masked counts as 0 v, so NaN or infinity there may pass into the result.
    Sources: Vaswani et al. 2017, "Attention is all you need"; Rabe, Staats 2021, "Self-attention
    does not need O(n^2) memory"; Dao et al. 2022, "FlashAttention".

    >>> x = np.eye(2, dtype=np.float32)
    >>> scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.0).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    _check_settings(dropout, is_causal, scale)
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
    attend = ScaledDotProductAttention(factor, bool(is_causal), float(dropout), skip)
    return attend(q, k, v, mask, state)[0]


_NAME = "scaled_dot_product_attention"


def _composes(scores: int, dtype: DType) -> bool:
    """Whether so many scores are kept. Those of 16 bits never are: rounded between the two
    products, they would be wrong by more than their softmax bears."""
    narrow = dtype.itemsize == 2 or (dtype == float32 and current().autocast)
    one_pass = current().device_target != "cpu" and not computes_at_once()
    return not narrow and scores <= (COMPOSED_ON_CUDA if one_pass else COMPOSED)


def _check_settings(dropout: Any, is_causal: Any, scale: Any) -> None:
    """AttributeRefusedError unless they are a probability, a bool and a finite number or None."""
    probability = isinstance(dropout, Real) and 0.0 <= float(dropout) <= 1.0
    number = scale is None or (isinstance(scale, Real) and math.isfinite(scale))
    if not (probability and number and isinstance(is_causal, (bool, np.bool_))):
        raise AttributeRefusedError(
            f"{_NAME} got dropout={dropout!r}, is_causal={is_causal!r} and scale={scale!r}; "
            "expected a probability, True or False, and a finite number; a scale that is learnt "
            "goes into q"
        )


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


def _weights(scores: Any, mask: Any, causal: bool) -> Any:
    """softmax of scores where they are seen; 0 where nothing is.

    What is not seen is added to the scores, in the shape of the mask: C compilers do not vectorise
    a choice for each score.
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
