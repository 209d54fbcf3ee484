"""Correct pairs of linear algebra: products of matrices, solving, inverses, determinants."""

from __future__ import annotations

import numpy as np

from .rows import Array, Arrays, Pair, in_dtype, normal

HILBERT = 1.0 / (np.arange(6)[:, None] + np.arange(6) + 1.0)


def matmul_vjp(a: Array, b: Array, dout: Array) -> Arrays:
    return dout @ b.T, a.T @ dout


def batched_vjp(a: Array, b: Array, dout: Array) -> Arrays:
    """(3, 2, 4) @ (4, 5): the matrix is shared by the batch."""
    return dout @ b.T, np.einsum("nij,nik->jk", a, dout)


def solve_vjp(a: Array, b: Array, dout: Array) -> Arrays:
    y = np.linalg.solve(a.T, dout)
    return -np.outer(y, np.linalg.solve(a, b)), y


def of_condition(number: float, rng: np.random.Generator) -> Array:
    """A 6 x 6 matrix whose singular values fall from 1 to 1 / number."""
    left, right = (np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in range(2))
    return left * np.geomspace(1, 1 / number, 6) @ right


def inverse_vjp(a: Array, dout: Array) -> Arrays:
    i = np.linalg.inv(a).T
    return (-i @ dout @ i,)


def log_det(a: Array) -> Array:
    return np.linalg.slogdet(a)[1]


def log_det_vjp(a: Array, dout: Array) -> Arrays:
    return (dout * np.linalg.inv(a).T,)


ALGEBRA = (
    Pair("matmul", np.matmul, matmul_vjp, normal((3, 4), (4, 5))),
    Pair("matmul of squares", np.matmul, matmul_vjp, normal((4, 4), (4, 4))),
    Pair("matmul over a batch", np.matmul, batched_vjp, normal((3, 2, 4), (4, 5))),
    Pair("matmul of 100 x 100", np.matmul, matmul_vjp, normal((100, 100), (100, 100))),
    Pair("float32 matmul", np.matmul, matmul_vjp,
         in_dtype(np.float32, normal((30, 40), (40, 20)))),
    Pair("ill-conditioned solve", np.linalg.solve, solve_vjp,
         lambda rng: (HILBERT.copy(), rng.normal(size=6)),
         scales="the matrix is singular a ten-millionth away"),
    Pair("solve of condition 1e6", np.linalg.solve, solve_vjp,
         lambda rng: (of_condition(1e6, rng), rng.normal(size=6)),
         scales="the matrix is singular a millionth away"),
    Pair("inverse", np.linalg.inv, inverse_vjp,
         lambda rng: (rng.normal(size=(4, 4)) + 4 * np.eye(4),)),
    Pair("log of a determinant", log_det, log_det_vjp,
         lambda rng: (rng.normal(size=(4, 4)) + 4 * np.eye(4),)),
)  # fmt: skip
