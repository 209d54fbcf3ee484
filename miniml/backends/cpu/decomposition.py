"""NumPy kernels of solvers and matrix decompositions, by LAPACK: NaN where there is no result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..kernel import Array
from ..registry import register
from ..signature import WIDE
from . import linalg

Pair = tuple[Array, Array]
NoResult = np.linalg.LinAlgError
# The ratio to the largest from which on numbers of a vector count as largest, for its sign.
LARGEST = 0.9
SMALL = 32  # rows; up to here it is faster to solve a whole stack by elimination


def finite(a: Array) -> Array:
    """a; NoResult if it is not finite, for which LAPACK may give anything, or never return."""
    if not np.isfinite(a).all():
        raise NoResult
    return a


def cholesky(a: Array) -> Array:
    return np.linalg.cholesky(symmetric(finite(a)))


def solve(a: Array, b: Array) -> Array:
    return np.linalg.solve(finite(a), b)


def triangular_solve(
    a: Array, b: Array, *, upper: bool, transpose: bool, unit_diagonal: bool
) -> Array:
    t = np.triu(a) if upper else np.tril(a)
    if unit_diagonal:
        np.einsum("...ii->...i", t)[...] = 1
    t, upwards = finite(t.mT if transpose else t), upper != transpose
    # Elimination finds nothing to eliminate, but takes what is not finite to all rows.
    if t.shape[-1] > SMALL or not np.isfinite(b).all():
        return substituted(t, b, upwards)
    if upwards:
        return np.linalg.solve(t, b)
    return np.linalg.solve(t[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]


def substituted(t: Array, b: Array, upwards: bool) -> Array:
    """Solve one triangular system after another by LAPACK's substitution, which NumPy lacks."""
    from scipy.linalg import solve_triangular

    out = np.empty(b.shape, b.dtype)
    for i in np.ndindex(b.shape[:-2]):
        out[i] = solve_triangular(t[i], b[i], lower=not upwards, check_finite=False)
    return out


def det(a: Array) -> Array:
    return np.asarray(np.linalg.det(finite(a)))


def slogdet(a: Array) -> Pair:
    sign, logabsdet = np.linalg.slogdet(finite(a))
    return sign, logabsdet


def qr(a: Array) -> Pair:
    q, r = np.linalg.qr(finite(a))
    signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1).astype(a.dtype)
    return q * signs[..., None, :], np.triu(r * signs[..., None])


def svd(a: Array) -> tuple[Array, Array, Array]:
    u, s, vh = np.linalg.svd(finite(a), full_matrices=False)
    signs = signs_of(u)
    return u * signs, s, vh * signs.mT


def eigh(a: Array) -> Pair:
    w, v = np.linalg.eigh(symmetric(finite(a)))
    return w, v * signs_of(v)


def pinv(a: Array, *, rtol: float) -> Array:
    return np.linalg.pinv(finite(a), rtol=rtol)


def symmetric(a: Array) -> Array:
    return a / 2 + a.mT / 2


def signs_of(vectors: Array) -> Array:
    """1 or -1 for each column: the sign of the first of its largest numbers."""
    sizes = np.abs(vectors)
    first = np.argmax(sizes >= LARGEST * sizes.max(-2, keepdims=True), -2, keepdims=True)
    chosen = np.take_along_axis(vectors, first, -2)
    return np.where(chosen < 0, -1, 1).astype(vectors.dtype)


def of_stacks(fn: Callable[..., Any]) -> Callable[..., None]:
    """The kernel of `fn`, which returns its results for a stack of matrices, or raises if one of
    them has none: that one gets NaN."""

    def kernel(*inputs: Array, out: Array | tuple[Array, ...], **attrs: Any) -> None:
        a, outs = inputs[0], out if isinstance(out, tuple) else (out,)
        try:
            found = linalg.limited(a.size * max(a.shape[-2:]), partial(fn, **attrs), *inputs)
        except NoResult:
            if a.ndim == 2:
                found = (np.nan,) * len(outs)
            else:
                for i in range(len(a)):
                    kernel(*[x[i] for x in inputs], out=tuple([o[i, ...] for o in outs]), **attrs)
                return
        for target, result in zip(outs, found if isinstance(found, tuple) else (found,)):
            target[...] = result

    return kernel


for name, fn, signature in (
    ("Cholesky", cholesky, "{}->{}"),
    ("Solve", solve, "{}{}->{}"),
    ("TriangularSolve", triangular_solve, "{}{}->{}"),
    ("Det", det, "{}->{}"),
    ("SlogDet", slogdet, "{}->{}{}"),
    ("QR", qr, "{}->{}{}"),
    ("SVD", svd, "{}->{}{}{}"),
    ("Eigh", eigh, "{}->{}{}"),
    ("Pinv", pinv, "{}->{}"),
):
    register(name, of_stacks(fn), *[signature.replace("{}", c) for c in WIDE])
