"""Linear algebra on a CUDA device: a warp or a block for a matrix, many matrices, no result."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.kernels import decomposition
from miniml.backends.cuda.sim.memory import SCHEDULES, using

RNG = np.random.default_rng(5)
ROUNDINGS = 40  # of the largest number, for rows of 40


def arrays(out):
    return [t.asnumpy() for t in (out if isinstance(out, tuple) else (out,))]


def symmetric(n):
    a = RNG.normal(size=(n, n))
    return a @ a.T + np.eye(n)


def near(got, expected, size=1.0):
    u = np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, expected, rtol=0, atol=ROUNDINGS * u * max(size, 1.0))


def check_systems(n):
    a, b = symmetric(n), RNG.normal(size=(n, 2))
    low = np.linalg.cholesky(a)
    near(arrays(ops.cholesky(a))[0], low, np.abs(a).max())
    mixed = a[::-1].copy()  # the largest numbers are not on the diagonal
    near(mixed @ arrays(ops.solve(mixed, b))[0], b, np.abs(a).max())
    sign, log = arrays(ops.slogdet(mixed))
    expected = np.linalg.slogdet(mixed)
    assert sign == expected[0]
    near(log, expected[1], abs(expected[1]))
    for upper, transpose in ((False, False), (True, False), (False, True), (True, True)):
        t = low.T if upper else low
        x = arrays(ops.triangular_solve(t, b, upper, transpose))[0]
        near((t.T if transpose else t) @ x, b, np.abs(a).max())


def check_factors(a):
    m, n = a.shape[-2:]
    size, k, eye = np.linalg.norm(a, 2), min(m, n), np.eye(min(m, n))
    q, r = arrays(ops.qr(a))
    near(q.T @ q, eye)
    near(q @ r, a, size)
    assert np.array_equal(r, np.triu(r))
    assert (np.diag(r) >= 0).all()
    u, s, vh = arrays(ops.svd(a))
    assert (u.shape, s.shape, vh.shape) == ((m, k), (k,), (k, n))
    near(u.T @ u, eye)
    near(vh @ vh.T, eye)
    near(u * s @ vh, a, size)
    near(s, np.linalg.svd(a)[1], size)


def check_eigenvalues(a):
    w, v = arrays(ops.eigh(a))
    size = np.linalg.norm(a, 2)
    near(v.T @ v, np.eye(len(a)))
    near(a @ v, v * w, size)
    near(w, np.linalg.eigvalsh(a), size)


@pytest.mark.parametrize("n", [3, 33])
def test_warps_and_blocks(on_device, n):
    check_systems(n)
    check_factors(RNG.normal(size=(n, 5)))
    check_factors(RNG.normal(size=(5, n)))
    check_eigenvalues(symmetric(min(n, 33)))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_every_order_of_threads(on_simulator, schedule):
    with ml.context(device_target=on_simulator), using(schedule=schedule, seed=5):
        check_systems(33)
        check_factors(RNG.normal(size=(33, 3)))
        check_eigenvalues(symmetric(4))


def test_more_matrices_than_blocks(on_device, monkeypatch):
    monkeypatch.setattr(decomposition, "MANY", 2)
    a = np.stack([symmetric(3) for _ in range(5)])
    for fn, inverse in ((ops.inv, np.linalg.inv), (ops.pinv, np.linalg.pinv)):
        near(arrays(fn(a))[0], inverse(a), np.abs(inverse(a)).max())
    near(arrays(ops.cholesky(a))[0], np.linalg.cholesky(a), np.abs(a).max())
    (q, r), (u, s, vh), (w, v) = (arrays(fn(a)) for fn in (ops.qr, ops.svd, ops.eigh))
    for product in (q @ r, u * s[:, None] @ vh, v * w[:, None] @ v.mT):
        near(product, a, np.abs(a).max())
    near(arrays(ops.det(a))[0], np.linalg.det(a), np.linalg.det(a).max())


BAD = np.array([[[2.0, 1.0], [1.0, 3.0]], [[np.nan, 1.0], [1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]])


def test_a_matrix_without_a_result_gets_nan(on_device):
    for fn in (ops.cholesky, ops.inv, lambda a: ops.triangular_solve(a, a)):
        (out,) = arrays(fn(BAD))
        assert np.isnan(out).all((1, 2)).tolist() == [False, True, True]
    for fn in (ops.det, ops.slogdet, ops.qr, ops.svd, ops.eigh, ops.pinv):
        for out in arrays(fn(BAD)):
            assert np.isnan(out).reshape(3, -1).all(1).tolist() == [False, True, False]
    assert [x[2] for x in arrays(ops.slogdet(BAD))] == [0, -np.inf]


def test_vectors_are_orthonormal_where_singular_values_are_0_or_equal(on_device):
    for a in (np.zeros((4, 3)), np.outer([1.0, 2, 2], [3.0, 4]), np.eye(3), np.ones((2, 5))):
        check_factors(a)
    for a in (np.zeros((3, 3)), np.eye(3), np.ones((3, 3)), np.eye(3)[::-1]):
        check_eigenvalues(a)
    near(arrays(ops.pinv(np.ones((2, 3))))[0], np.full((3, 2), 1 / 6))


def test_signs_do_not_hang_on_rounding(on_device):
    a = [[2.0, 1.0], [1.0, 2.0]] + 1e-14 * RNG.normal(size=(8, 2, 2))
    for vectors in (arrays(ops.eigh(a))[1][..., ::-1], arrays(ops.svd(a))[0]):
        expected = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
        np.testing.assert_allclose(vectors, np.stack([expected] * 8), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_do_not_leave_the_range(on_device, scale):
    a = (symmetric(3) * scale).astype(np.float32)
    wide = a.astype(float)
    size = np.abs(wide).max()
    near(arrays(ops.qr(a))[1] / np.float32(size), arrays(ops.qr(wide))[1] / size)
    near(arrays(ops.svd(a))[1] / np.float32(size), np.linalg.svd(wide)[1] / size, 4)
    near(arrays(ops.eigh(a))[0] / np.float32(size), np.linalg.eigvalsh(wide) / size, 4)
    near(arrays(ops.pinv(a))[0] * np.float32(size), np.linalg.pinv(wide) * size, 16)
    with np.errstate(over="ignore"):
        assert arrays(ops.det(a))[0] == np.float32(np.linalg.det(wide))  # 0 or infinite
