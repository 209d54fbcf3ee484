"""Small matrices in C: NumPy's float64 results, rounded once, and the same bits in any stack."""

from functools import partial
from itertools import product

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(3)


def turned(a):
    return ops.swapaxes(a, -1, -2)


ALL = [*product((False, True), repeat=3)]  # upper, transposed, of ones on the diagonal
FEW = [ALL[0], ALL[3]]  # downwards and upwards
BOTH = [*FEW, ALL[1], ALL[4]]  # of ones on the diagonal and not


def everything(a, spd, b, hows):
    """All that there is in C, of views too."""
    found = [ops.solve(a, b), ops.solve(turned(a), b), ops.inv(a), ops.det(a), *ops.slogdet(a)]
    found += [ops.triangular_solve(spd, b, *how) for how in hows]
    return (*found, ops.cholesky(spd))


def each_text(a, spd, b):
    """Of what has one text in C, one: elimination, substitution either way, a root."""
    found = [ops.solve(a, b), *ops.slogdet(a), ops.cholesky(spd)]
    return *found, *(ops.triangular_solve(spd, b, *how) for how in FEW)


def expected(a, spd, b, hows):
    """The same by LAPACK, in float64."""
    a, spd, b = (x.astype(np.float64) for x in (a, spd, b))
    found = [np.linalg.solve(a, b), np.linalg.solve(a.mT, b), np.linalg.inv(a), np.linalg.det(a)]
    found += [*np.linalg.slogdet(a)]
    for upper, transpose, unit in hows:
        t = np.triu(spd) if upper else np.tril(spd)
        if unit:
            np.einsum("...ii->...i", t)[...] = 1
        found.append(np.linalg.solve(t.mT if transpose else t, b))
    return (*found, np.linalg.cholesky(spd))


def draw(dtype, count, n, k):
    """Matrices that are far from singular, though their greatest elements are off the diagonal."""
    a = RNG.uniform(-1, 1, (count, n, n)) / (3 * n) + np.eye(n)[RNG.permutation(n)]
    spd = np.eye(n) + (a @ a.mT)
    return [x.astype(dtype) for x in (a, spd, RNG.standard_normal((count, n, k)))]


def compiled(fn, *arrays):
    with ml.context(providers=("cc",)):
        return [t.asnumpy() for t in ml.jit(fn)(*arrays)]


@pytest.mark.parametrize(
    ("n", "k", "dtype"), [(1, 1, "f"), (4, 9, "d"), (10, 35, "f"), (33, 2, "d"), (4, 2, "f")]
)
def test_results_are_those_of_float64(n, k, dtype):
    """n: a full block of elimination and less; k: more columns than are solved at a time. dtype:
    only what is read and written, since all compute in float64."""
    given, hows = draw(dtype, 11, n, k), BOTH if n == 4 else ALL
    eps, fn = np.finfo(dtype).eps, partial(everything, hows=hows)
    for got, right in zip(compiled(fn, *given), expected(*given, hows), strict=True):
        assert got.dtype == dtype
        most = np.maximum(1, np.abs(right).max(tuple(range(1, right.ndim)), keepdims=True))
        assert (np.abs(got - right) <= max(eps, n * 64 * 2.0**-52) * most).all()


def test_a_matrix_has_the_same_bits_in_every_stack_and_on_any_number_of_threads():
    """In a vector with others, in what is left of a stack, by itself."""
    for n, part, dtype in ((3, slice(0, 1), np.float64), (20, slice(5, 16), np.float32)):
        given = draw(dtype, 23, n, 2)
        whole = compiled(each_text, *given)
        for one, all_ in zip(compiled(each_text, *(x[part] for x in given)), whole, strict=True):
            np.testing.assert_array_equal(one, all_[part])
    given, found = draw(np.float32, 3000, 5, 3), []
    for threads in (1, 2):
        with ml.context(threads=threads):
            found.append(compiled(each_text, *given))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("lane", [0, 6, 8])
def test_a_matrix_without_a_result_does_not_touch_its_neighbours(lane):
    a, spd, b = draw(np.float64, 9, 3, 2)
    bad = [np.full((3, 3), np.nan), np.diag([1.0, np.inf, 1.0]), np.zeros((3, 3)), np.ones((3, 3))]
    fn = partial(everything, hows=BOTH)
    good = compiled(fn, a, spd, b)
    others = [i for i in range(9) if i != lane]
    for matrix in bad:
        a[lane], spd[lane] = matrix, -np.abs(matrix)
        with np.errstate(all="ignore"):
            right = [t.asnumpy() for t in fn(*map(ml.Tensor, (a, spd, b)))]
        for got, before, own in zip(compiled(fn, a, spd, b), good, right, strict=True):
            np.testing.assert_array_equal(got[others], before[others])
            np.testing.assert_allclose(got[lane], own[lane], rtol=1e-15)


def test_determinants_whose_products_leave_float64_on_the_way():
    """By logarithms NumPy has them to some digits; these are exact."""
    big = np.array([[1e200, 1e200, 1e-300, 1e-100], [1e-300, 1e-20, 1e200, 5.0], [5e-324, 1, 1, 1]])
    a = np.stack([np.diag(d) for d in (*big, *big[::-1])])
    det, sign, log = compiled(lambda a: (ops.det(a), *ops.slogdet(a)), a)
    np.testing.assert_allclose(det[:3], [1, 5e-120, 5e-324], rtol=1e-14)
    np.testing.assert_allclose(log, np.linalg.slogdet(a)[1], rtol=1e-15, atol=1e-12)
    assert (sign == 1).all()
    assert np.isinf(compiled(lambda a: (ops.det(a),), np.diag([1e200, 1e200]))[0])


def test_right_sides_may_be_views_and_broadcast():
    a, _, b = draw(np.float32, 10, 4, 4)
    fn = lambda a, b: (ops.solve(a, b[0]), ops.solve(a, turned(b)), ops.solve(a[:, ::-1], b))  # noqa: E731
    right = np.linalg.solve(a, b[:1]), np.linalg.solve(a, b.mT), np.linalg.solve(a[:, ::-1], b)
    for got, want in zip(compiled(fn, a, b), right, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_in_a_loop_and_of_many_rows():
    """More rows than C takes are LAPACK's, and a loop calls that."""
    for n in (6, 130):
        a, _, b = draw(np.float64, 1, n, 1)
        fn = lambda a, b: ops.scan(lambda x, _: (ops.solve(a, x),) * 2, b, length=3)[1]  # noqa: E731
        got = ml.jit(fn)(a, b).asnumpy()
        np.testing.assert_allclose(got, np.linalg.solve(a @ a @ a, b), rtol=1e-10, atol=1e-15)
