"""Autocast: which primitives compute in 16 bits, and which in float32, where a context says so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .dtype import FLOATS, DType, bfloat16, float16, float32, float64
from .ops.arithmetic import Cast
from .primitive import Primitive
from .tensor import Tensor

# Products take the time, and sum in float32 inside, so that 11 or 8 bits of input are enough.
LOW = frozenset(
    """MatMul Einsum Conv2D Conv2DInputGrad Conv2DWeightGrad ScaledDotProductAttention""".split()
)
# These overflow float16 (from 65504 on), or lose in sums and near 1 what 16 bits do not hold.
WIDE = frozenset(
    """Softmax LogSoftmax LogSumExp LayerNorm BatchNorm CrossEntropy Sum Mean Prod CumSum
    CumProd Exp Exp2 Expm1 Log Log1p Log2 Log10 LGamma Polygamma Pow Reciprocal Rsqrt Square
    Softplus Sinh Cosh Tan Asin Acos Erf Erfc ErfInv""".split()
) | frozenset("Cholesky Det Eigh Pinv QR SVD SlogDet Solve TriangularSolve".split())  # take no less
_NARROW = float16, bfloat16


def autocast(
    primitive: Primitive,
    tensors: list[Tensor],
    low: DType,
    cast: Callable[[Primitive, list[Any]], Any],
) -> list[Tensor]:
    """The tensors of a call, brought to the dtype in which the primitive computes.

    LOW ones get their floats in `low`, unless one is float64; WIDE ones get 16 bits as float32;
    all others get what they are given, and promote it where they do. Integers stay.
    """
    to = computed_in(primitive.name, {t.dtype for t in tensors}, low)
    if to is None:
        return tensors
    change = FLOATS if to == low else _NARROW
    return [cast(Cast(to), [t])[0] if t.dtype in change and t.dtype != to else t for t in tensors]


def computed_in(name: str, dtypes: Collection[DType], low: DType) -> DType | None:
    """The dtype to which inputs of these dtypes are cast; None where they stay."""
    if name in LOW and float64 not in dtypes and any(d in FLOATS and d != low for d in dtypes):
        return low
    return float32 if name in WIDE and any(d in _NARROW for d in dtypes) else None
