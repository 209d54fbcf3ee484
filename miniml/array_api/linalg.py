"""The extension `linalg` of the array API standard."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import ops
from ..core.abstract import real_dtype
from ..core.options import choice
from ..core.tensor import Tensor
from ..ops import cholesky as _cholesky
from ..ops import det as det
from ..ops import inv as inv
from ..ops import matmul as matmul
from ..ops import matrix_power as matrix_power
from ..ops import outer as outer
from .dtypes import finfo
from .functions import Axes
from .functions import matrix_transpose as matrix_transpose
from .functions import sum as _sum
from .functions import tensordot as tensordot
from .functions import vecdot as vecdot

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    """a = eigenvectors diag(eigenvalues) eigenvectors^H."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """a = Q R."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """det(a) = sign exp(logabsdet)."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """a = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """L with L L^T = x, or with `upper` U with U^T U = x."""
    return _cholesky(x, upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `axis`."""
    return ops.cross(x1, x2, axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The elements of each matrix at [i, i + offset]."""
    return ops.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: object = None) -> Tensor:
    """The sum of `diagonal`, in the dtype of a sum."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors in columns, of symmetric matrices."""
    return EighResult(*ops.eigh(x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of symmetric matrices in ascending order."""
    return ops.eigh(x)[0]


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Sign and logarithm of the determinant."""
    return SlogdetResult(*ops.slogdet(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The x for which x1 x = x2: a vector where x2 has one axis, else matrices, which broadcast."""
    if len(x2.shape) == 1:
        batch = (*x1.shape[:-2], x2.shape[0], 1)
        column = ops.broadcast_to(ops.expand_dims(x2, -1), batch)
        return ops.squeeze(ops.solve(x1, column), -1)
    return ops.solve(x1, x2)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Q with orthonormal columns and R upper triangular, x = Q R.

    mode: "reduced" gives min(m, n) columns, "complete" all m.
    """
    known = choice("qr", "mode", mode, ("reduced", "complete"))
    q, r = ops.qr(x)
    if known == "reduced" or q.shape[-1] == q.shape[-2]:
        return QRResult(q, r)
    rest = x.shape[-2] - r.shape[-2]
    zeros = ops.zeros((*r.shape[:-2], rest, r.shape[-1]), r.dtype)
    return QRResult(_completed(q), ops.concat([r, zeros], -2))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular values in descending order, with orthonormal columns in U and rows in Vh."""
    u, s, vh = ops.svd(x)
    if not full_matrices:
        return SVDResult(u, s, vh)
    return SVDResult(_completed(u), s, ops.swapaxes(_completed(ops.swapaxes(vh, -2, -1)), -2, -1))


def _completed(q: Tensor) -> Tensor:
    """Orthonormal columns, and others that make them a basis: `qr` finds what is at right angles
    to them in as many unit vectors, and gives columns of length 1 even where it finds nothing."""
    rows, columns = q.shape[-2:]
    if rows == columns:
        return q
    units = ops.broadcast_to(
        ops.eye(rows, rows - columns, q.dtype), (*q.shape[:-1], rows - columns)
    )
    basis, _ = ops.qr(ops.concat([q, units], -1))
    return ops.concat([q, basis[..., columns:]], -1)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values in descending order."""
    return ops.svd(x)[1]


def pinv(x: Tensor, /, *, rtol: float | None = None) -> Tensor:
    """The pseudo-inverse; singular values up to rtol times the largest count as 0."""
    return ops.pinv(x, rtol)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number (int64) of singular values above rtol times the largest: by default the dtype's
    eps times the longer side."""
    values = svdvals(x)
    if rtol is None:
        rtol = finfo(real_dtype(values.dtype)).eps * max(x.shape[-2:])
    elif isinstance(rtol, Tensor):
        rtol = ops.expand_dims(rtol, -1)
    if not values.shape[-1]:
        return ops.zeros(values.shape[:-1], "int64")
    return ops.count_nonzero(ops.greater(values, ops.mul(values[..., :1], rtol)), -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of each matrix: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    return ops.matrix_norm(x, ord, keepdims)


def vector_norm(
    x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """(sum |x|^ord)^(1 / ord) over `axis`; inf and -inf give the largest and the smallest |x|."""
    return ops.norm(x, ord, axis, keepdims)
