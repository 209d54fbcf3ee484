"""Gradient rules of matrix decompositions, made of products and the decompositions themselves.

Sources: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), for inverses, determinants, eigenvalues and singular values; Murray,
"Differentiation of the Cholesky decomposition" (2016); Walter and Lehmann, "Algorithmic
differentiation of linear algebra functions" (2010), for QR, and Roberts and Roberts, "QR and LQ
decomposition matrix backpropagation algorithms" (2020), for wide matrices; Townsend,
"Differentiating the singular value decomposition" (2016); Golub and Pereyra, "The differentiation
of pseudo-inverses" (1973).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.bprop import rule
from ..batching import Batched, all_in_front, batches


def turned(x: Any) -> Any:
    """x^T."""
    return ops.swapaxes(x, -1, -2)


def lower(x: Any) -> Any:
    """The lower triangle of x, with half of the diagonal."""
    n = x.shape[-1]
    return ops.mul(ops.tril(x), np.ones((n, n), x.dtype) - np.eye(n, dtype=x.dtype) / 2)


@rule(ops.Cholesky)
def cholesky_bprop(self: ops.Cholesky, a: Any, out: Any, dout: Any) -> tuple[Any]:
    """The symmetric part of L^-T lower(L^T dout) L^-1."""
    pull = ops.TriangularSolve(transpose=True)
    left = pull(out, lower(ops.matmul(out, dout, True)))
    both = pull(out, turned(left))
    return (ops.mul(ops.add(both, turned(both)), 0.5),)


@rule(ops.Solve)
def solve_bprop(self: ops.Solve, a: Any, b: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    db = self(turned(a), dout)
    return ops.neg(ops.matmul(db, out, False, True)), db


@rule(ops.TriangularSolve)
def triangular_solve_bprop(
    self: ops.TriangularSolve, a: Any, b: Any, out: Any, dout: Any
) -> tuple[Any, Any]:
    db = ops.TriangularSolve(self.upper, not self.transpose, self.unit_diagonal)(a, dout)
    x, y = (out, db) if self.transpose else (db, out)
    product, strict = ops.neg(ops.matmul(x, y, False, True)), int(self.unit_diagonal)
    return (ops.triu(product, strict) if self.upper else ops.tril(product, -strict)), db


@rule(ops.Det)
def det_bprop(self: ops.Det, a: Any, out: Any, dout: Any) -> tuple[Any]:
    """dout times the cofactors, det(a) a^-T; for a singular matrix those of a nearby one, since
    they are continuous and the errors of the determinant and of the inverse cancel."""
    if not a.size:
        return (ops.zeros_like(a),)
    size = ops.max(ops.abs(ops.stop_gradient(a)), (-1, -2), True)
    size = ops.select(ops.equal(size, 0), 1, size)
    singular = ops.expand_dims(ops.equal(out, 0), (-1, -2))
    step = np.eye(a.shape[-1], dtype=a.dtype) * (8 * np.finfo(a.dtype).eps)
    near = ops.add(a, ops.select(singular, ops.mul(size, step), 0))
    cofactors = ops.mul(ops.expand_dims(self(near), (-1, -2)), turned(ops.inv(near)))
    return (ops.mul(ops.expand_dims(dout, (-1, -2)), cofactors),)


@rule(ops.SlogDet)
def slogdet_bprop(self: ops.SlogDet, a: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.mul(ops.expand_dims(dout[1], (-1, -2)), turned(ops.inv(a))),)


@rule(ops.QR)
def qr_bprop(self: ops.QR, a: Any, out: Any, dout: Any) -> tuple[Any]:
    (q, r), (dq, dr) = out, dout
    m, n = a.shape[-2:]
    if m >= n:
        return (_tall_qr(q, r, dq, dr),)
    # a = [x, y] and r = [u, v]: x = q u, and v = q^T y.
    du, dv = ops.split(dr, (m, n - m), -1)
    dq = ops.add(dq, ops.matmul(a[..., m:], dv, False, True))
    return (ops.concat([_tall_qr(q, r[..., :m], dq, du), ops.matmul(q, dv)], -1),)


def _tall_qr(q: Any, r: Any, dq: Any, dr: Any) -> Any:
    """(dq + q M) r^-T, where M = r dr^T - dq^T q with its upper triangle replaced by the lower."""
    half = lower(ops.sub(ops.matmul(r, dr, False, True), ops.matmul(dq, q, True)))
    rows = ops.add(dq, ops.matmul(q, ops.add(half, turned(half))))
    return turned(ops.TriangularSolve(upper=True)(r, turned(rows)))


def ratio(x: Any, y: Any, used: Any) -> Any:
    """x / y; where y is 0 and the vector is not used, x itself, which is 0 there as well."""
    return ops.div(x, ops.select(ops.logical_and(ops.equal(y, 0), ops.logical_not(used)), 1, y))


def used_columns(dv: Any) -> Any:
    """(..., 1, n): True for vectors with a dout other than 0; only these must be determined."""
    return ops.any(ops.not_equal(dv, 0), -2, True)


def turns(v: Any, dv: Any, gaps: Any) -> Any:
    """The skew part of v^T dv over the gaps: the rotation of columns in the plane of each two of
    them. Infinite or NaN where the gap is 0 and one of the two is used."""
    used = used_columns(dv)
    two = np.logical_not(np.eye(v.shape[-1], dtype=np.bool_))
    used = ops.logical_and(ops.logical_or(used, turned(used)), two)
    return ratio(skew(ops.matmul(v, dv, True)), gaps, used)


def skew(x: Any) -> Any:
    """x - x^T."""
    return ops.sub(x, turned(x))


def differences(x: Any) -> Any:
    """x_j - x_i for row i and column j."""
    return ops.sub(ops.expand_dims(x, -2), ops.expand_dims(x, -1))


@rule(ops.Eigh)
def eigh_bprop(self: ops.Eigh, a: Any, out: Any, dout: Any) -> tuple[Any]:
    """v (diag(dw) + F * (v^T dv)) v^T, its symmetric part, with F_ij = 1 / (w_j - w_i)."""
    (w, v), (dw, dv) = out, dout
    inner = ops.add(ops.mul(turns(v, dv, differences(w)), 0.5), diagonal(dw))
    return (ops.matmul(ops.matmul(v, inner), v, False, True),)


def diagonal(x: Any) -> Any:
    """Matrices with the rows of x on their diagonals."""
    return ops.mul(ops.expand_dims(x, -1), np.eye(x.shape[-1], dtype=x.dtype))


@rule(ops.SVD)
def svd_bprop(self: ops.SVD, a: Any, out: Any, dout: Any) -> tuple[Any]:
    """u (G_u S + S G_v + dS) vh, and the parts of du / s and dv / s orthogonal to u and v; G_u is
    the skew part of u^T du over s_j^2 - s_i^2, and G_v that of v^T dv."""
    (u, s, vh), (du, ds, dvh) = out, dout
    dv, (m, n) = turned(dvh), a.shape[-2:]
    row, column = ops.expand_dims(s, -2), ops.expand_dims(s, -1)
    gaps = ops.mul(differences(s), ops.add(row, column))
    left = ops.mul(turns(u, du, gaps), row)
    right = ops.mul(column, turns(turned(vh), dv, gaps))
    da = ops.matmul(ops.matmul(u, ops.add(ops.add(left, right), diagonal(ds))), vh)
    if m > n:
        rest = ops.sub(du, ops.matmul(u, ops.matmul(u, du, True)))
        da = ops.add(da, ops.matmul(ratio(rest, row, used_columns(du)), vh))
    if n > m:
        rest = ops.sub(dvh, ops.matmul(ops.matmul(dvh, vh, False, True), vh))
        da = ops.add(da, ops.matmul(u, ratio(rest, column, turned(used_columns(dv)))))
    return (da,)


@rule(ops.Pinv)
def pinv_bprop(self: ops.Pinv, a: Any, out: Any, dout: Any) -> tuple[Any]:
    """-p^T dp p^T + (1 - a p) dp^T p p^T + p^T p dp^T (1 - p a), each once."""
    p, g = out, turned(dout)
    pt = turned(p)
    right = ops.matmul(ops.matmul(g, p), pt)
    left = ops.matmul(ops.matmul(pt, p), g)
    inner = ops.matmul(ops.matmul(pt, dout), pt)
    outer = ops.sub(right, ops.matmul(a, ops.matmul(p, right)))
    return (ops.sub(ops.add(outer, ops.sub(left, ops.matmul(ops.matmul(left, p), a))), inner),)


# --- Batching -------------------------------------------------------------------------------------


@batches(ops.Solve, ops.TriangularSolve)
def batch_solve(self: ops.Solve, batched: Batched, a: Any, b: Any) -> Any:
    """One matrix for all examples has one factorization: their right sides stand side by side."""
    if batched[0] or len(a.shape) > 2:
        return self(*all_in_front(batched, (a, b)))
    size, n, k = b.shape
    columns = ops.reshape(ops.transpose(b, (1, 0, 2)), (n, size * k))
    return ops.transpose(ops.reshape(self(a, columns), (n, size, k)), (1, 0, 2))
