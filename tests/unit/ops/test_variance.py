"""Variance and standard deviation: any correction, any size of numbers, and their gradients."""

import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def slope(f, x):
    """The gradient of sum(f(x)), as an array."""
    return grad(lambda v: ops.sum(f(v)))(np.asarray(x, np.float64)).asnumpy()


@pytest.mark.parametrize("correction", [0, 1, 1.5])
def test_var_and_std_are_numpys(rng, correction):
    x = rng.normal(size=(4, 3, 5))
    for axis in (None, 0, (0, -1), ()):
        if axis == () and correction:
            continue
        for keepdims in (False, True):
            options = {"axis": axis, "keepdims": keepdims}
            came = ops.var(x, correction=correction, **options).asnumpy()
            np.testing.assert_allclose(came, np.var(x, ddof=correction, **options))
            came = ops.std(x, correction=correction, **options).asnumpy()
            np.testing.assert_allclose(came, np.std(x, ddof=correction, **options))


@pytest.mark.parametrize("dtype", [ml.float16, ml.float32, ml.float64])
@pytest.mark.parametrize("correction", [3, 5, 2.5])
def test_var_and_std_divide_by_no_number_below_zero(dtype, correction):
    """As NumPy does: by max(n - correction, 0)."""
    for x in ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], [5.0]):
        x = np.array(x, dtype)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.var(x, ddof=correction), np.std(x, ddof=correction)
        got = [f(x, correction=correction).asnumpy() for f in (ops.var, ops.std)]
        np.testing.assert_allclose(got, expected, rtol=1e-3)
        dx = slope(lambda v: ops.var(v, correction=correction), x)
        assert np.isfinite(dx).all() == (correction < len(x))


@pytest.mark.parametrize("correction", [0, 1])
def test_the_gradient_of_std_is_0_where_all_numbers_are_equal(correction):
    x = np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]])
    std = lambda v: ops.std(v, -1, correction=correction)  # noqa: E731
    expected = (x[1] - x[1].mean()) / (3 - correction) / np.std(x[1], ddof=correction)
    for fn in (std, ml.jit(std)):
        np.testing.assert_allclose(slope(fn, x), [[0, 0, 0], expected], 1e-14)
    weights = np.arange(6.0).reshape(2, 3)
    second = slope(lambda v: grad(lambda u: ops.sum(std(u)))(v) * weights, x)
    assert second[0].tolist() == [0, 0, 0]


def test_std_of_float16_fits_where_its_square_does_not():
    x = np.array([300.0, 301.0, 302.0, 60000.0])
    narrow = x.astype(np.float16)
    np.testing.assert_allclose(ops.std(narrow).item(), x.std(), 1e-3)
    np.testing.assert_allclose(grad(ops.std)(narrow), slope(ops.std, x), 1e-3)


def test_var_of_integers_and_of_low_precision():
    assert ops.var([1, 2, 3, 4]).item() == 1.25
    assert ops.var([1, 2, 3, 4]).dtype == ml.float32
    x = ml.Tensor([300.0, 301.0, 302.0, 303.0], dtype=ml.float16)  # squares leave float16's range
    assert (ops.var(x).item(), ops.var(x).dtype) == (1.25, ml.float16)
    assert np.isnan(ops.var([1.0], correction=1).item())


def test_gradient_of_var(rng):
    x = rng.normal(size=(5, 3))
    wanted = 2 * (x - x.mean(axis=0)) / 4
    np.testing.assert_allclose(
        slope(lambda v: ops.var(v, 0, correction=1), x), wanted, 1e-10, 1e-14
    )
