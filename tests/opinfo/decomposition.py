"""Rows of linear systems, determinants and factorisations, on matrices that are far from singular.

The references take other ways than the kernels: sums over permutations, orthogonalisation in long
double, other routines of LAPACK.
"""

from itertools import permutations

import numpy as np
import scipy.linalg

from miniml import ops
from miniml.errors import DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers

SQUARES = ((3, 3), (2, 2, 2), (1, 1), (0, 0), (2, 0, 0))
STACKS = ((3, 2), (2, 3), (2, 3, 3), (1, 1), (0, 2), (2, 0))


def far(rng, shape, dtype):
    """Numbers, and larger ones on the diagonal, all of which differ."""
    diagonal = np.eye(*shape[-2:]) * np.arange(2, 2 + shape[-1])
    return (numbers(rng, shape, dtype, -1.0, 1.0) + diagonal).astype(dtype)


def signed(rng, shape, dtype):
    """The same, with a negative last row, or of a stack a negative last matrix, so that some
    determinants are negative, and some of the largest eigenvalues."""
    a = far(rng, shape, dtype)
    a[-1:] *= -1
    return a


def matrices(shapes, draw=signed):
    return lambda rng, dtype: [Sample((draw(rng, s, dtype),)) for s in shapes]


def systems(*attrs):
    """Square matrices and right sides."""

    def samples(rng, dtype):
        for a, k in (((3, 3), 2), ((2, 2, 2), 1), ((1, 1), 3), ((0, 0), 2), ((2, 2), 0)):
            b = numbers(rng, (*a[:-1], k), dtype)
            for given in attrs if a == (3, 3) else attrs[:1]:
                yield Sample((signed(rng, a, dtype), b), given)

    return samples


def stacked(fn):
    """`fn` of single matrices as one of stacks, with NaN for what is not finite."""

    def of_stack(*inputs, **attrs):
        *batch, _, _ = inputs[0].shape
        rows = [np.reshape(x, (-1, *x.shape[len(batch) :])) if x.size else x for x in inputs]
        found = [of_one(*xs, **attrs) for xs in zip(*rows)] if batch else None
        if not batch:
            return of_one(*inputs, **attrs)
        outs = zip(*found) if isinstance(found[0], tuple) else [found]
        joined = tuple(np.reshape(np.stack(o), (*batch, *np.shape(o[0]))) for o in outs)
        return joined if len(joined) > 1 else joined[0]

    def of_one(*inputs, **attrs):
        if np.isfinite(inputs[0]).all():
            return fn(*inputs, **attrs)
        outs = fn(*(np.eye(*x.shape) for x in inputs), **attrs)
        nan = [np.full(np.shape(o), np.nan) for o in (outs if isinstance(outs, tuple) else [outs])]
        return tuple(nan) if isinstance(outs, tuple) else nan[0]

    return of_stack


@stacked
def cholesky(a):
    a, low = (a + a.T) / 2, np.zeros(a.shape)
    for j in range(len(a)):
        low[j:, j] = a[j:, j] - low[j:, :j] @ low[j, :j]
        low[j:, j] /= np.sqrt(low[j, j])
    return low


@stacked
def solve(a, b):
    return np.linalg.pinv(a) @ b


def triangular_solve(a, b, upper=False, transpose=False, unit_diagonal=False):
    t = np.triu(a) if upper else np.tril(a)
    t = np.where(np.eye(a.shape[-1], dtype=bool) & unit_diagonal, 1.0, t)
    return substituted(t.mT if transpose else t, b, upwards=upper != transpose)


@stacked
def substituted(t, b, upwards):
    out, order = np.zeros(b.shape), [*range(len(t))][:: -1 if upwards else 1]
    for k, i in enumerate(order):
        known = sum((t[i, j] * out[j] for j in order[:k]), start=0.0)
        out[i] = (b[i] - known) / t[i, i]
    return out


@stacked
def det(a):
    total = 0.0
    for order in permutations(range(len(a))):
        swaps = sum(x > y for i, x in enumerate(order) for y in order[i:])
        total += (-1) ** swaps * np.prod([a[i, j] for i, j in enumerate(order)])
    return np.float64(total)


def slogdet(a):
    value = det(a)
    return np.sign(value), np.log(np.abs(value))


@stacked
def qr(a):
    """Gram-Schmidt, twice, in long double."""
    wide, k = a.astype(np.longdouble), min(a.shape)
    q = np.zeros((len(a), k), np.longdouble)
    for j in range(k):
        left = wide[:, j]
        for _ in range(2):
            left = left - q[:, :j] @ (q[:, :j].T @ left)
        q[:, j] = left / np.sqrt(left @ left)
    return q.astype(float), np.triu(q.T @ wide).astype(float)


def signs(vectors):
    """The sign of the first of the largest numbers in each column."""
    chosen = [next(x for x in c if abs(x) >= 0.9 * abs(c).max()) for c in vectors.T]
    return np.sign(chosen)


@stacked
def svd(a):
    u, s, vh = scipy.linalg.svd(a, full_matrices=False, lapack_driver="gesvd")
    return u * signs(u), s, vh * signs(u)[:, None]


@stacked
def eigh(a):
    w, v = scipy.linalg.eigh((a + a.T) / 2, driver="ev")
    return w, v * signs(v)


@stacked
def pinv(a, rtol):
    return scipy.linalg.pinv(a, rtol=rtol)


def pinvs(rng, dtype):
    for shape in STACKS:
        yield Sample((signed(rng, shape, dtype),), {"rtol": 1e-6})
    lone = np.ones((3, 2)) * np.arange(1, 4)[:, None]  # of rank 1
    yield Sample((lone.astype(dtype),), {"rtol": 0.01})


def refusals(shape, match):
    return (
        Refusal((np.ones(shape),), match, error=ShapeError),
        Refusal((np.ones(3),), r"got shape \(3,\)", error=ShapeError),
        Refusal((np.ones((2, 2), np.float16),), "got float16", error=DTypeError),
    )


NOT_SQUARE = refusals((2, 3), r"got shape \(2, 3\); it takes square matrices")
SIDES = (
    Refusal((np.ones((2, 2)), np.ones((3, 1))), r"b of shape \(3, 1\)", error=ShapeError),
    Refusal((np.ones((2, 2)), np.ones(2)), r"b of shape \(2,\).*shape \(2, k\)", error=ShapeError),
    Refusal((np.ones((2, 3)), np.ones((2, 1))), "takes square", error=ShapeError),
)
FAR = "matrices far from singular"
TRIANGLES = [
    {"upper": upper, "transpose": transpose, "unit_diagonal": unit}
    for upper in (False, True) for transpose in (False, True) for unit in (False, True)
]  # fmt: skip

ROWS = (
    OpInfo(ops.Cholesky, matrices(SQUARES, far), cholesky, domain="positive definite matrices",
           refused=NOT_SQUARE),
    OpInfo(ops.Solve, systems({}), solve, domain=FAR, refused=SIDES),
    OpInfo(ops.TriangularSolve, systems(*TRIANGLES), triangular_solve, domain=FAR, refused=SIDES),
    OpInfo(ops.Det, matrices(SQUARES), det, domain=FAR, refused=NOT_SQUARE),
    OpInfo(ops.SlogDet, matrices(SQUARES), slogdet, domain=FAR, refused=NOT_SQUARE),
    OpInfo(ops.QR, matrices(STACKS), qr, domain="independent first columns",
           refused=refusals((), r"got shape \(\); it takes matrices")),
    OpInfo(ops.SVD, matrices(STACKS), svd, domain="singular values that differ, none 0",
           refused=refusals((), r"got shape \(\); it takes matrices")),
    OpInfo(ops.Eigh, matrices(SQUARES), eigh, domain="eigenvalues that differ",
           refused=NOT_SQUARE),
    OpInfo(ops.Pinv, pinvs, pinv, domain="singular values away from where they count as 0",
           refused=(Refusal((np.ones((2, 2)),), "rtol=-1.0", {"rtol": -1.0},
                            ValueRefusedError),)),
)  # fmt: skip
