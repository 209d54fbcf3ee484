"""Gradient rules of matrix products, decompositions and Fourier transforms.

Products and Einstein sums are of the same kind. Rules of decompositions are made of products and of
the decompositions themselves.

Sources: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), for inverses, determinants, eigenvalues and singular values; Murray,
"Differentiation of the Cholesky decomposition" (2016); Walter and Lehmann, "Algorithmic
differentiation of linear algebra functions" (2010), for QR, and Roberts and Roberts, "QR and LQ
decomposition matrix backpropagation algorithms" (2020), for wide matrices; Townsend,
"Differentiating the singular value decomposition" (2016); Golub and Pereyra, "The differentiation
of pseudo-inverses" (1973).

The rule of a Fourier transform is its transpose, by transforms. A cotangent d of y stands for the
change Re(sum of d dy), as in JAX, so that a linear map passes it back by its transpose. The matrix
exp(-2 pi i j k / n) is symmetric.
"""

from __future__ import annotations

from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import real_dtype
from ...core.bprop import rule
from ...ops.linalg import Equation, parse
from ..batching import Batched, aligned, all_in_front, batches
from ..forward import moves_along


@rule(ops.MatMul)
def matmul_bprop(self: ops.MatMul, x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    a = x if len(x.shape) > 1 else ops.reshape(x, (1, *x.shape))
    b = y if len(y.shape) > 1 else ops.reshape(y, (*y.shape, 1))
    if a is not x or b is not y:
        rows = a.shape[-1 if self.transpose_x else -2]
        columns = b.shape[-2 if self.transpose_y else -1]
        batch = dout.shape[: len(dout.shape) - (a is x) - (b is y)]
        dout = ops.reshape(dout, (*batch, rows, columns))
    da, db = _factors(a, b, dout, self.transpose_x, self.transpose_y)
    return _fitted(da, a, x), _fitted(db, b, y)


def _factors(x: Any, y: Any, dout: Any, turned_x: bool, turned_y: bool) -> tuple[Any, Any]:
    """dx = dout y^T and dy = x^T dout, each in the layout of its input."""
    product = ops.matmul
    dx = product(y, dout, turned_y, True) if turned_x else product(dout, y, False, not turned_y)
    if len(y.shape) == 2 and len(x.shape) > 2 and not turned_x:
        # All of the batch shares y: one product over all rows instead of a sum of products.
        rows = prod(x.shape[:-1])
        x = ops.reshape(x, (rows, x.shape[-1]))
        dout = ops.reshape(dout, (rows, dout.shape[-1]))
    dy = product(dout, x, True, turned_x) if turned_y else product(x, dout, not turned_x, False)
    return dx, dy


def _fitted(gradient: Any, matrix: Any, expected: Any) -> Any:
    """The gradient summed over the batch axes its input broadcast along, in the input's shape."""
    if gradient.shape != matrix.shape:
        gradient = ops.sum_to(gradient, matrix.shape)
    return gradient if matrix is expected else ops.reshape(gradient, expected.shape)


@rule(ops.Einsum)
def einsum_bprop(self: ops.Einsum, *args: Any) -> tuple[Any, ...]:
    *operands, _, dout = args
    equation = parse(self.equation, tuple(x.shape for x in operands))
    plain = [_narrowed(x, t, equation) for x, t in zip(operands, equation.operands)]
    return tuple(
        _operand_gradient(i, operands[i].shape, plain, equation, dout) for i in range(len(operands))
    )


def _narrowed(x: Any, term: str, equation: Equation) -> tuple[Any, str]:
    """An operand without the axes that broadcast, and its labels."""
    kept = "".join(c for c, n in zip(term, x.shape) if n == equation.extents[c])
    shape = tuple(equation.extents[c] for c in kept)
    return (x if kept == term else ops.reshape(x, shape)), kept


def _operand_gradient(
    i: int, shape: tuple[int, ...], plain: list[tuple[Any, str]], equation: Equation, dout: Any
) -> Any:
    """dout contracted with the other operands; labels that only operand i has are broadcast."""
    term = plain[i][1]
    once = "".join(dict.fromkeys(term))
    others = plain[:i] + plain[i + 1 :]
    terms = [equation.output, *(t for _, t in others)]
    found = "".join(c for c in once if any(c in t for t in terms))
    gradient = dout
    if terms != [found]:
        gradient = ops.einsum(f"{','.join(terms)}->{found}", dout, *(x for x, _ in others))
    if found != once:
        extents = equation.extents
        gradient = ops.reshape(gradient, tuple(extents[c] if c in found else 1 for c in once))
        gradient = ops.broadcast_to(gradient, tuple(extents[c] for c in once))
    gradient = _on_diagonals(gradient, once, term, equation.extents)
    return gradient if gradient.shape == shape else ops.reshape(gradient, shape)


def _on_diagonals(gradient: Any, once: str, term: str, extents: dict[str, int]) -> Any:
    """A gradient labelled `once`, put on the diagonals that repeated labels of `term` take: in
    row-major order element i of a label of n that occurs k times is number i (1 + n + ... +
    n^(k-1)), between zeros."""
    labels = once
    for label in once:
        n, times = extents[label], term.count(label)
        if times == 1:
            continue
        rest = [k for k, c in enumerate(labels) if c != label]
        moved = ops.transpose(gradient, (*rest, labels.index(label)))
        shape, step = moved.shape[:-1], sum(n**k for k in range(times))
        before = ((0, 0),) * (len(shape) + 1)
        apart = ops.pad(ops.expand_dims(moved, -1), (*before, (0, step - 1)))
        flat = ops.reshape(apart, (*shape, n * step))[..., : n**times]
        gradient = ops.reshape(flat, (*shape, *(n,) * times))
        labels = labels.replace(label, "") + label * times
    at = {c: [k for k, of in enumerate(labels) if of == c] for c in labels}
    return ops.transpose(gradient, tuple(at[c].pop(0) for c in term))


# --- Batching -------------------------------------------------------------------------------------


@batches(ops.MatMul)
def batch_matmul(self: ops.MatMul, batched: Batched, x: Any, y: Any) -> Any:
    """An operand of one axis gets a second one for the product, which the result loses again."""
    row, column = (len(v.shape) - flag == 1 for v, flag in zip((x, y), batched, strict=True))
    if row:
        x = ops.expand_dims(x, -2)
    if column:
        y = ops.expand_dims(y, -1)
    out = self(*aligned(batched, (x, y)))
    lost = (-2,) * row + (-1,) * column
    return ops.squeeze(out, lost) if lost else out


@batches(ops.Einsum)
def batch_einsum(self: ops.Einsum, batched: Batched, *operands: Any) -> Any:
    """One more label, in front of the operands that differ between examples and of the output."""
    terms, arrow, output = self.equation.replace(" ", "").partition("->")
    if not arrow:
        labels = terms.replace(",", "").replace(".", "")
        once = sorted(c for c in set(labels) if labels.count(c) == 1)
        output = "..." * ("..." in terms) + "".join(once)
    label = next(c for c in ascii_letters if c not in self.equation)
    named = [label * f + t for t, f in zip(terms.split(","), batched, strict=True)]
    return ops.einsum(f"{','.join(named)}->{label}{output}", *operands)


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Einsum)
def jvp_einsum(self: ops.Einsum, primals: Any, tangents: Any, out: Any) -> Any:
    """It is linear in each operand."""
    total = None
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            term = self(*primals[:i], tangent, *primals[i + 1 :])
            total = term if total is None else total + term
    return total


# --- Decompositions -------------------------------------------------------------------------------


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
    both = pull(out, turned(pull(out, lower(ops.matmul(out, dout, True)))))
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


# --- Fourier transforms ---------------------------------------------------------------------------

# The transposes of real transforms are those of the other direction, which divide where these do.
_OTHER = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@rule(ops.FFT, ops.IFFT)
def transform_bprop(self: Any, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (self(dout),)


@rule(ops.RFFT)
def rfft_bprop(self: ops.RFFT, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """Re(sum over k of dout[k] exp(-2 pi i j k / n)), of the k that y has: IRFFT counts all but the
    ends twice."""
    once = _weights(dout, self.axis, x.shape[self.axis], 0.5)
    back = ops.IRFFT(x.shape[self.axis], self.axis, _OTHER[self.norm])
    return (ops.cast(back(ops.conj(dout) * once), x.dtype),)


@rule(ops.IRFFT)
def irfft_bprop(self: ops.IRFFT, x: Any, out: Any, dout: Any) -> tuple[Any]:
    twice = _weights(x, self.axis, self.n, 2.0)
    return (ops.conj(ops.RFFT(self.axis, _OTHER[self.norm])(dout)) * twice,)


def _weights(half: Any, axis: int, n: int, inner: float) -> Any:
    """1 for the numbers of half a transform of n that are their own conjugates, the first and for
    even n the last; `inner` for the others; to be multiplied along the axis."""
    count = half.shape[axis]
    weights = np.full(count, inner, real_dtype(half.dtype))
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0
    return weights.reshape(count, *(1,) * (-axis - 1))
