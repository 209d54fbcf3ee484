"""Linear algebra: what no row can say of matrices that are singular, empty or nearly singular."""

import numpy as np
import pytest
import scipy.linalg

import miniml as ml
from miniml import ops
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    NonFiniteError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import grad, hessian, jvp, vjp
from miniml.testing import gradcheck

RNG = np.random.default_rng(12)
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
GOOD = np.array([[2.0, 1.0], [1.0, 3.0]])
HILBERT = scipy.linalg.hilbert(8)
FUNCTIONS = {
    "cholesky": ops.cholesky, "inv": ops.inv, "det": ops.det, "slogdet": ops.slogdet, "qr": ops.qr,
    "svd": ops.svd, "eigh": ops.eigh, "pinv": ops.pinv, "solve": lambda a: ops.solve(a, a),
    "triangular_solve": lambda a: ops.triangular_solve(a, a),
}  # fmt: skip


def parts(out):
    return out if isinstance(out, tuple) else (out,)


def arrays(out):
    return [t.asnumpy() for t in parts(out)]


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_matrix_gives_the_same_bits_alone_and_in_a_stack(fn):
    """Vectors of nearly equal values would be others by one rounding more."""
    root = RNG.normal(size=(4, 6, 6))
    stack = root @ root.mT + 1e-13 * RNG.normal(size=(4, 6, 6)) + np.eye(6)
    stack[1] = np.eye(6) + 1e-15 * root[1]
    for i, one in enumerate(stack):
        for of_all, alone in zip(arrays(fn(stack)), arrays(fn(one)), strict=True):
            np.testing.assert_array_equal(of_all[i], alone)


def test_systems_broadcast_and_take_one_right_side():
    a, b = RNG.normal(size=(3, 1, 4, 4)), RNG.normal(size=(2, 4, 5))
    np.testing.assert_allclose(ops.solve(a, b).asnumpy(), np.linalg.solve(a, b), atol=1e-9)
    assert ops.solve(a, b[0, :, 0]).shape == (3, 1, 4)
    expected = scipy.linalg.solve_triangular(a[0, 0], b[1], trans=1, lower=True)
    got = ops.triangular_solve(a[0, 0], b, transpose=True)
    np.testing.assert_allclose(got.asnumpy()[1], expected, rtol=1e-9)


def test_gradients_are_summed_where_a_system_is_broadcast():
    a, b = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=(2, 3, 1))
    out, pull = vjp(ops.solve, ml.Tensor(a), ml.Tensor(b))
    da, db = pull(ops.ones_like(out))
    each = np.linalg.inv(a).sum(0)[:, None]  # a^-T 1
    np.testing.assert_allclose(db.asnumpy(), np.stack([each, each]), rtol=1e-12)
    np.testing.assert_allclose(da.asnumpy(), -each @ out.asnumpy().sum(0).T, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_matrix_without_a_result_gets_nan_and_its_neighbours_do_not(name):
    """In a stack, alone, and in a graph alike."""
    fn, bad = FUNCTIONS[name], np.array([[np.nan, 1.0], [1.0, 2.0]])
    infinite = np.array([[np.inf, 1.0], [1.0, 2.0]])
    stack = ml.Tensor(np.stack([GOOD, bad, infinite]))
    eager, compiled = arrays(fn(stack)), arrays(ml.jit(fn)(stack))
    for out, again, right, alone in zip(eager, compiled, arrays(fn(GOOD)), arrays(fn(bad))):
        assert np.array_equal(out, again, equal_nan=True)
        np.testing.assert_allclose(out[0], right, rtol=1e-14, atol=1e-15)
        assert np.isnan(out[1:]).all()
        assert np.isnan(alone).all()


def test_singular_matrices_and_those_that_are_not_positive_definite():
    for fn in (ops.inv, lambda a: ops.solve(a, ml.Tensor([1.0, 2.0], ml.float64))):
        assert np.isnan(fn(SINGULAR).asnumpy()).all()
    stack = ml.Tensor(np.stack([GOOD, [[1.0, 0.0], [5.0, 0.0]]]))
    assert np.isnan(ops.triangular_solve(stack, stack).asnumpy()).all((1, 2)).tolist() == [0, 1]
    assert not np.isnan(ops.triangular_solve(stack, stack, unit_diagonal=True).asnumpy()).any()
    assert np.isnan(ops.cholesky([[1.0, 2.0], [2.0, 1.0]]).asnumpy()).all()
    assert np.isnan(ops.cholesky(np.zeros((2, 2))).asnumpy()).all()
    assert arrays(ops.slogdet(SINGULAR)) == [0, -np.inf]
    assert ops.det(SINGULAR).item() == 0


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (33, 33)])
def test_a_matrix_alone_gives_what_it_gives_in_a_stack(name, shape):
    """By LAPACK directly if it is small, and in float64 both times."""
    if shape[0] != shape[1] and name not in ("qr", "svd", "pinv"):
        return
    a = RNG.normal(size=shape).astype(np.float32)
    a = a @ a.T if name in ("cholesky", "eigh") else a
    alone, stacked = arrays(FUNCTIONS[name](a)), arrays(FUNCTIONS[name](a[None]))
    for one, of_many in zip(alone, stacked, strict=True):
        np.testing.assert_allclose(one, of_many[0], rtol=2e-7, atol=2e-7)


def test_what_lies_outside_a_triangle_is_not_read():
    a = np.array([[2.0, np.nan], [1.0, 4.0]])
    b = np.array([2.0, 5.0])
    assert ops.triangular_solve(a, b).tolist() == [1, 1]
    assert ops.triangular_solve(a.T, b, upper=True, transpose=True).tolist() == [1, 1]
    both = np.array([[np.inf, np.inf], [1.0, np.nan]])
    assert ops.triangular_solve(both, b, unit_diagonal=True).tolist() == [2, 3]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_triangles_of_many_rows(upper, transpose):
    """Which are solved one by one; one of them is singular."""
    a, b = RNG.normal(size=(3, 40, 40)) + 40 * np.eye(40), RNG.normal(size=(3, 40, 2))
    a[1, 7, 7] = 0
    x = ops.triangular_solve(a, b, upper, transpose).asnumpy()
    t = np.triu(a) if upper else np.tril(a)
    left = (t.mT if transpose else t) @ x - b
    assert np.isnan(left[1]).all()
    assert np.abs(left[[0, 2]]).max() < 1e-12
    one = ops.triangular_solve(a[0], b[0], upper, transpose).asnumpy()
    np.testing.assert_allclose(one, x[0], rtol=1e-14)


def test_check_nan_names_the_call():
    with ml.context(check_nan=True), pytest.raises(NonFiniteError, match="Solve") as caught:
        ops.inv(SINGULAR)
    assert "ops.inv(SINGULAR)" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (3, 0), (0, 3)])
def test_without_elements(shape):
    x = np.ones(shape)
    k = min(shape[-2:])
    assert [t.shape for t in ops.qr(x)] == [(*shape[:-1], k), (*shape[:-2], k, shape[-1])]
    assert ops.svd(x)[1].shape == (*shape[:-2], k)
    assert ops.pinv(x).shape == (*shape[:-2], *shape[-2:][::-1])
    if shape[-1] == shape[-2]:
        assert np.array_equal(ops.det(x).asnumpy(), np.ones(shape[:-2]))
        assert arrays(ops.slogdet(x))[1].tolist() == np.zeros(shape[:-2]).tolist()
        assert ops.inv(x).shape == ops.cholesky(x).shape == ops.eigh(x)[1].shape == shape
        assert grad(lambda x: ops.sum(ops.det(x)))(ml.Tensor(x)).shape == shape


def test_the_errors_of_nearly_singular_systems_are_those_of_rounding():
    """Backward: the result is exact for a matrix that differs by some roundings."""
    u = np.finfo(float).eps
    x = ops.solve(HILBERT, np.ones(8)).asnumpy()
    left = np.abs(HILBERT @ x - 1).max()
    assert left <= 8 * 8 * u * np.abs(HILBERT).sum(1).max() * np.abs(x).max()
    q, r = arrays(ops.qr(HILBERT))
    np.testing.assert_allclose(q.T @ q, np.eye(8), atol=64 * u)
    np.testing.assert_allclose(q @ r, HILBERT, atol=64 * u)
    values = arrays(ops.svd(HILBERT))[1]
    np.testing.assert_allclose(values, arrays(ops.eigh(HILBERT))[0][::-1], atol=64 * u)


def test_integers_are_cast_and_narrow_floats_refused():
    assert ops.inv([[2, 0], [0, 4]]).tolist() == [[0.5, 0], [0, 0.25]]
    assert ops.det(np.eye(2, dtype=np.int64)).dtype == ml.float32
    assert ops.solve(np.eye(2), np.ones(2, np.float32)).dtype == ml.float64
    for fn in FUNCTIONS.values():
        with pytest.raises(DTypeError, match=r"got (float16|bfloat16).*cast"):
            fn(ml.Tensor(GOOD, ml.float16))


def test_refusals_name_what_was_given():
    with pytest.raises(ShapeError, match=r"inv got shape \(2, 3\); it takes square matrices"):
        ops.inv(np.ones((2, 3)))
    with pytest.raises(ShapeError, match=r"Solve batch axes cannot broadcast.*\(2,\) and \(3,\)"):
        ops.solve(np.ones((2, 4, 4)), np.ones((3, 4, 1)))
    with pytest.raises(ShapeError, match=r"a of shape \(4, 4\) and b of shape \(3, 1\); b has one"):
        ops.solve(np.ones((4, 4)), np.ones(3))
    with pytest.raises(ShapeError, match=r"pinv got shape \(3,\)"):
        ops.pinv(np.ones(3))


def test_signs_do_not_hang_on_rounding():
    """Of equal numbers the first is positive, however each of them is rounded."""
    v = arrays(ops.eigh([[2.0, 1.0], [1.0, 2.0]]))[1]
    np.testing.assert_allclose(v, np.array([[1, 1], [-1, 1]]) / np.sqrt(2), atol=1e-6)
    for _ in range(8):
        near = np.array([[2.0, 1.0], [1.0, 2.0]]) + 1e-14 * RNG.normal(size=(2, 2))
        np.testing.assert_allclose(arrays(ops.eigh(near))[1], v, atol=1e-6)
    u, s, vh = arrays(ops.svd(-np.eye(1)))
    assert (u.item(), s.item(), vh.item()) == (1, 1, -1)
    assert (np.diag(arrays(ops.qr(-HILBERT))[1]) >= 0).all()


def cofactors(a):
    n = len(a)
    minors = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(n)] for i in range(n)]
    return np.array([[(-1) ** (i + j) * np.linalg.det(minors[i][j]) for j in range(n)]
                     for i in range(n)])  # fmt: skip


@pytest.mark.parametrize(
    "a",
    [SINGULAR, np.diag([1.0, 1.0], 1), np.zeros((3, 3)), np.zeros((1, 1)), np.ones((3, 3)),
     np.arange(9.0).reshape(3, 3), 1e5 * (np.arange(16.0).reshape(4, 4) % 5) * [1, 0, 1, 1]],
    ids=["rank 1", "nilpotent", "zeros", "one zero", "ones", "rounded", "zero column"],
)  # fmt: skip
def test_the_gradient_of_det_at_singular_matrices_is_the_cofactors(a):
    expected = cofactors(a)
    got = grad(ops.det)(ml.Tensor(a)).asnumpy()
    np.testing.assert_allclose(got, expected, atol=1e-13 * max(1, np.abs(a).max() ** (len(a) - 1)))


def test_gradients_of_symmetric_functions_are_symmetric():
    a = ml.Tensor(GOOD @ GOOD.T)
    for fn in (ops.cholesky, lambda a: ops.eigh(a)[1]):
        g = grad(lambda a, fn=fn: ops.sum(fn(a) * ml.Tensor([[1.0, 2], [3, 5]], ml.float64)))(a)
        np.testing.assert_allclose(g.asnumpy(), g.asnumpy().T, atol=1e-15)


def test_gradients_of_equal_eigenvalues_and_singular_values():
    """Right where only they are used; none where their vectors are, or for a second derivative."""
    eye, weights = ml.Tensor(np.eye(3)), ml.Tensor([1.0, 2.0, 5.0], ml.float64)
    assert grad(lambda a: ops.sum(ops.eigh(a)[0]))(eye).tolist() == np.eye(3).tolist()
    assert grad(lambda a: ops.sum(ops.svd(a)[1]))(eye).tolist() == np.eye(3).tolist()
    powers = grad(lambda a: ops.sum(grad(lambda a: ops.sum(ops.eigh(a)[0] ** 2))(a)))
    two = ml.Tensor(np.diag([1.0, 2.0]))
    np.testing.assert_allclose(powers(two).asnumpy(), 2 * np.ones((2, 2)), atol=1e-14)
    assert not np.isfinite(powers(eye).asnumpy()).all()
    square = hessian(lambda a: ops.sum(ops.eigh(a)[0] ** 2))
    assert np.isfinite(square(two).asnumpy()).all()
    assert not np.isfinite(square(eye).asnumpy()).all()
    for fn in (lambda a: ops.eigh(a)[1] @ weights, lambda a: ops.svd(a)[0] @ weights):
        assert not np.isfinite(grad(lambda a, fn=fn: ops.sum(fn(a)))(eye).asnumpy()).all()


def test_vectors_of_equal_values_that_cancel_out_have_no_gradient_either():
    """v w v^T is smooth, but how v turns in the plane of two equal eigenvalues is 0 / 0."""
    a, some = ml.Tensor(np.diag([2.0, 2.0, 1.0])), RNG.normal(size=(3, 3))

    def rebuilt(a):
        w, v = ops.eigh(a)
        return ops.sum(some * ops.matmul(v * w, v, False, True))

    def rebuilt_of_three(a):
        u, s, vh = ops.svd(a)
        return ops.sum(some * ops.matmul(u * s, vh))

    for fn in (rebuilt, rebuilt_of_three):
        assert not np.isfinite(grad(fn)(a).asnumpy()).all()


def test_vectors_that_are_not_used_take_no_part():
    """The first eigenvector alone, beside two that are not determined, as by perturbation."""
    a, weights = np.diag([3.0, 1.0, 1.0]), np.array([1.0, 2.0, 5.0])
    expected = np.zeros((3, 3))
    expected[0, 1:] = weights[1:] / (3 - 1)
    for fn in (lambda a: ops.eigh(a)[1][:, -1], lambda a: ops.svd(a)[0][:, 0]):
        slope = grad(lambda a, fn=fn: ops.sum(fn(a) * weights))(ml.Tensor(a)).asnumpy()
        np.testing.assert_allclose((slope + slope.T) / 2, (expected + expected.T) / 2, atol=1e-15)
    direction = RNG.normal(size=(3, 3))
    _, turned = jvp(lambda a: ops.eigh(a)[1][:, -1], (ml.Tensor(a),), (ml.Tensor(direction),))
    found = (direction + direction.T)[0, 1:] / 2 / (3 - 1)
    np.testing.assert_allclose(turned.asnumpy(), [0.0, *found], atol=1e-15)


def test_the_gradient_of_a_rank_one_matrix_by_its_singular_values():
    a = np.outer([1.0, 2.0, 2.0], [0.6, 0.8])
    g = grad(lambda a: ops.max(ops.svd(a)[1]))(ml.Tensor(a)).asnumpy()
    np.testing.assert_allclose(g, a / 3, atol=1e-14)  # u v^T


def test_the_pseudo_inverse_of_any_rank_and_its_gradient():
    for rank in (0, 1, 2):
        a = RNG.normal(size=(4, rank)) @ RNG.normal(size=(rank, 3))
        np.testing.assert_allclose(ops.pinv(a).asnumpy(), np.linalg.pinv(a), atol=1e-13)
    few = ops.pinv(np.diag([4.0, 0.02, 0.5]), rtol=0.01).asnumpy()
    np.testing.assert_allclose(few, np.diag([0.25, 0, 2]), atol=1e-15)
    eye = ml.Tensor(np.eye(3))  # where singular values are equal
    g = grad(lambda a: ops.sum(ops.pinv(a) * ml.Tensor(HILBERT[:3, :3])))(eye)
    np.testing.assert_allclose(g.asnumpy(), -HILBERT[:3, :3], atol=1e-14)
    a, b = RNG.normal(size=(3, 2)), RNG.normal(size=(2, 3))
    low = ml.Tensor(a @ b)  # moved within its rank
    g = grad(lambda x: ops.sum(ops.pinv(x)))(low).asnumpy()
    h = 1e-6 * RNG.normal(size=a.shape)
    slope = np.linalg.pinv((a + h) @ b).sum() - np.linalg.pinv((a - h) @ b).sum()
    np.testing.assert_allclose(np.sum(g * (2 * h @ b)), slope, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
def test_lstsq_gives_the_shortest_of_the_best(shape):
    a, b = RNG.normal(size=shape), RNG.normal(size=(shape[-2], 2))
    a[..., -1] = a[..., 0]  # of lower rank
    got = ops.lstsq(a, b).asnumpy().reshape(-1, shape[-1], 2)
    for single, x in zip(a.reshape(-1, *shape[-2:]), got):
        np.testing.assert_allclose(x, np.linalg.lstsq(single, b)[0], atol=1e-12)
    assert ops.lstsq(a, b[:, 0]).shape == (*shape[:-2], shape[-1])


def test_determinants_that_no_float_holds():
    big = ml.Tensor(1e200 * np.eye(4))
    assert ops.det(big).item() == np.inf
    sign, log = ops.slogdet(big)
    np.testing.assert_allclose([sign.item(), log.item()], [1, 800 * np.log(10)])
    np.testing.assert_allclose(grad(lambda a: ops.slogdet(a)[1])(big).asnumpy(), 1e-200 * np.eye(4))


# Functions of matrices

ORDERS = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)


@pytest.mark.parametrize("ord", ORDERS)
def test_matrix_norms_and_condition_numbers_are_numpys(ord):
    rng = np.random.default_rng(0)
    a, wide = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3, 4))
    for keepdims in (False, True):
        expected = np.linalg.norm(wide, ord, (-2, -1), keepdims)
        for run in (ops.matrix_norm, ml.jit(ops.matrix_norm)):
            np.testing.assert_allclose(run(wide, ord, keepdims).asnumpy(), expected, 1e-12)
    np.testing.assert_allclose(ops.cond_number(a, ord).asnumpy(), np.linalg.cond(a, ord), 1e-10)
    each = ml.vmap(lambda m: ops.cond_number(m, ord))(a)
    np.testing.assert_allclose(each.asnumpy(), np.linalg.cond(a, ord), 1e-10)
    assert gradcheck(lambda m: ops.matrix_norm(m, ord), wide).ok
    assert gradcheck(lambda m: ops.cond_number(m, ord), a).ok
    special = np.array([[[1.0, 2], [2, 4]], [[np.nan, 1], [1, 1]], [[0, 0], [0, 0]]])
    found = ops.cond_number(special, ord).asnumpy()
    assert found[0] < 1e-15 if ord == -2 else found[0] > 1e15
    assert np.isnan(found[1])
    assert found[2] == np.inf


def test_norms_of_other_dtypes():
    assert ops.matrix_norm(np.array([[3, 4]], np.int32)).item() == 5
    for dtype in ("float16", "bfloat16"):
        x = ml.Tensor([[3.0, 4.0]]).astype(dtype)
        for ord, expected in (("fro", 5), (1, 4), (np.inf, 7)):
            norm = ops.matrix_norm(x, ord)
            assert (norm.item(), norm.dtype) == (expected, x.dtype)


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 7, 12])
def test_powers_of_matrices(n):
    a = np.random.default_rng(1).normal(size=(2, 3, 3))
    expected = np.linalg.matrix_power(a, n)
    for run in (lambda m: ops.matrix_power(m, n), ml.jit(lambda m: ops.matrix_power(m, n))):
        np.testing.assert_allclose(run(a).asnumpy(), expected, 1e-9, 1e-12)
    if n:
        assert gradcheck(lambda m: ops.matrix_power(m, n), a[0]).ok
    if n >= 0:
        whole = np.array([[1, 1], [1, 0]])
        power = ops.matrix_power(whole, n)
        assert power.dtype == ml.int64
        assert power.tolist() == np.linalg.matrix_power(whole, n).tolist()


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponentials_of_matrices_are_scipys(dtype, size):
    a = (np.random.default_rng(2).normal(size=(3, 5, 5)) * size).astype(dtype)
    expected = np.stack([scipy.linalg.expm(m.astype(np.float64)) for m in a])
    # Rounding of the input alone changes the result by eps times its condition number.
    condition = np.array([scipy.linalg.expm_cond(m.astype(np.float64)) for m in a])
    bound = 16 * np.finfo(dtype).eps * np.maximum(condition, 1)[:, None, None]
    for run in (ops.expm, ml.jit(ops.expm), ml.vmap(ops.expm)):
        got = run(a)
        assert got.dtype.name == dtype
        sizes = np.linalg.norm(expected, axis=(-2, -1), keepdims=True)
        assert np.all(np.abs(got.asnumpy() - expected) <= bound * sizes)


def test_gradients_of_exponentials():
    a = np.random.default_rng(3).normal(size=(2, 3, 3)) * np.array([0.1, 4.0])[:, None, None]
    assert gradcheck(ops.expm, a, order=2).ok
    assert gradcheck(ml.jit(ops.expm), a).ok
    direction = np.sin(np.arange(18.0)).reshape(a.shape)
    expected = [scipy.linalg.expm_frechet(m, d)[1] for m, d in zip(a, direction)]
    for run in (jvp, ml.jit(lambda *args: jvp(ops.expm, *args))):
        args = ((a,), (direction,))
        _, tangent = run(ops.expm, *args) if run is jvp else run(*args)
        np.testing.assert_allclose(tangent.asnumpy(), expected, 1e-9)
    zero = vjp(ops.expm, np.zeros((2, 2)))[1](np.ones((2, 2)))[0]
    np.testing.assert_allclose(zero.asnumpy(), np.ones((2, 2)), 1e-12)


def test_exponentials_of_what_has_none_and_of_nothing():
    bad = np.array([[[np.nan, 0], [0, 1]], [[np.inf, 0], [0, 1]], [[1e30, 0], [0, 1]],
                    [[-1e3, 0], [0, 0]]])  # fmt: skip
    found = ops.expm(bad).asnumpy()
    assert np.isnan(found[:3]).all()
    np.testing.assert_allclose(found[3], [[0, 0], [0, 1]], atol=1e-12)
    assert ops.expm(np.zeros((0, 2, 2))).shape == (0, 2, 2)
    assert ops.expm(np.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert ops.expm([[0, 0], [0, 0]]).dtype == ml.float32


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.matrix_norm(np.ones(3)), ShapeError, "matrix_norm got shape"),
        (lambda: ops.matrix_norm(np.eye(2), 3), ValueRefusedError, "norm got ord=3; expected"),
        (lambda: ops.matrix_norm(np.eye(2), True), ValueRefusedError, "ord=True"),
        (lambda: ops.matrix_norm(np.eye(2, dtype=np.float16), 2), DTypeError, "SVD got float16"),
        (lambda: ops.cond_number(np.ones((2, 3)), 1), ShapeError, "it takes square matrices"),
        (lambda: ops.cond_number(np.eye(2), "max"), ValueRefusedError, "ord='max'"),
        (lambda: ops.matrix_power(np.ones((2, 3)), 1), ShapeError, "it takes square matrices"),
        (lambda: ops.matrix_power(np.eye(2), 0.5), AttributeRefusedError, "power got n=0.5"),
        (lambda: ops.expm(np.ones((2, 3))), ShapeError, "expm got shape"),
        (lambda: ops.expm(np.eye(2, dtype=np.float16)), DTypeError, "expm needs float32 or"),
    ],
)  # fmt: skip
def test_refusals_of_functions_of_matrices(call, error, message):
    with pytest.raises(error, match=message):
        call()
