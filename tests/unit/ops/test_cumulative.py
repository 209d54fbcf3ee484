"""Running products and extrema: ties, zeros, NaN, empty arrays, their gradients."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ShapeError
from miniml.grad import grad, vjp
from miniml.testing import gradcheck

INF, NAN = np.inf, np.nan
ENDS = [(r, e) for r in (False, True) for e in (False, True)]


def products(x, axis, reverse, exclusive):
    """By explicit products of slices."""
    x = np.moveaxis(x, axis, 0)
    n = len(x)
    parts = [x[i + exclusive :] if reverse else x[: i + 1 - exclusive] for i in range(n)]
    return np.moveaxis(np.stack([p.prod(axis=0) for p in parts]), 0, axis)


@pytest.mark.parametrize("providers", [("miniml",), ("cc",)])
@pytest.mark.parametrize("shape", [(4, 100, 3), (100, 40), (3, 90)])
def test_products_of_float32_neither_overflow_nor_vanish_on_the_way(shape, providers):
    """They are those of float64, rounded once."""
    rng = np.random.default_rng(6)
    x = (10.0 ** (20 * rng.choice([-1, 1], shape)) * rng.uniform(0.5, 2, shape)).astype(np.float32)
    x[np.abs(np.cumsum(np.log10(x.astype(float)), 1)) > 250] = 1  # float64 holds all
    with ml.context(providers=providers), np.errstate(over="ignore"):
        for axis in (0, 1, -1):
            for fn, numpys in ((ops.prod, np.prod), (ops.cumprod, np.cumprod)):
                expected = numpys(x.astype(float), axis).astype(np.float32)
                got = ml.jit(lambda x, fn=fn, axis=axis: fn(x, axis))(x).asnumpy()
                np.testing.assert_allclose(got, expected, 2e-7, 2e-45)


@pytest.mark.parametrize(("reverse", "exclusive"), ENDS)
def test_products_and_their_gradients_where_elements_are_0(reverse, exclusive):
    rng = np.random.default_rng(0)
    x, dout = rng.uniform(0.5, 2.0, (2, 3, 7)), rng.standard_normal((2, 3, 7))
    x[0, 0, 2] = x[0, 1, 3] = x[0, 1, 5] = x[1, 2, 0] = x[1, 2, 6] = x[1, 1, 4] = 0
    for axis in (0, 1, -1):
        fn = lambda x, axis=axis: ops.cumprod(x, axis, reverse, exclusive)  # noqa: E731
        expected = products(x, axis, reverse, exclusive)
        np.testing.assert_allclose(fn(x).asnumpy(), expected, 1e-15)
        # A product is linear in each element, so the difference is exact up to rounding.
        slope = np.zeros_like(x)
        for place in np.ndindex(*x.shape):
            more = x.copy()
            more[place] += 1
            slope[place] = (dout * (products(more, axis, reverse, exclusive) - expected)).sum()
        got = vjp(fn, x)[1](dout)[0]
        np.testing.assert_allclose(got.asnumpy(), slope, 1e-12, 1e-12)
    assert gradcheck(lambda x: ops.cumprod(x, 1, reverse, exclusive), x[:, 1], order=2).ok


def test_products_of_the_fewest():
    assert ops.cumprod(np.zeros((0, 3)), 0).shape == (0, 3)
    assert grad(lambda x: ops.sum(ops.cumprod(x, 1)))(np.zeros((2, 0))).shape == (2, 0)
    np.testing.assert_array_equal(ops.cumprod(np.ones((2, 0)), 0, exclusive=True).shape, (2, 0))
    one = np.array([3.0])
    assert grad(lambda x: ops.sum(ops.cumprod(x, 0)))(one).tolist() == [1.0]
    assert grad(lambda x: ops.sum(ops.cumprod(x, 0, exclusive=True)))(one).tolist() == [0.0]
    for fn in (ops.cumprod, ops.cummax, ops.cummin):
        with pytest.raises(ShapeError, match=r"a tensor of shape \(\) has none"):
            fn(np.float64(3), 0)
        with pytest.raises(ShapeError, match="axis 2 of a tensor of rank 2"):
            fn(np.ones((2, 2)), 2)


def test_products_of_any_dtype():
    assert ops.cumprod(np.array([100, 100, 100], np.int8), 0).tolist() == [100, 10**4, 10**6]
    assert ops.cumprod(np.array([2, 3], np.uint8), 0).dtype == ml.uint64
    assert ops.cumprod(np.array([True, False, True]), 0).tolist() == [1, 0, 0]
    narrow = ml.Tensor(np.full(20, 2.0), dtype=ml.float16)
    assert ops.cumprod(narrow, 0).tolist()[10:17] == [2048.0, 4096, 8192, 16384, 32768, INF, INF]
    slope = grad(lambda x: ops.sum(ops.cumprod(x, 0)[:3]))(narrow)
    assert (slope.dtype, slope.tolist()[:4]) == (ml.float16, [7.0, 6.0, 4.0, 0.0])
    with np.errstate(over="ignore"):
        x = np.array([1e200, 1e-200, 1e200, INF, 2.0, NAN, 0.0])
        np.testing.assert_array_equal(ops.cumprod(x, 0).asnumpy(), np.cumprod(x))


def torchs(x, best):
    """Values and places along the last axis, element by element; of equal ones the last."""
    values, where = x.copy(), np.zeros(x.shape, np.int64)
    for row in np.ndindex(*x.shape[:-1]):
        at = 0
        for i, v in enumerate(x[row]):
            kept = x[row][at]
            at = i if v != v or (kept == kept and best(v, kept) == v) else at
            values[row][i], where[row][i] = x[row][at], at
    return values, where


@pytest.mark.parametrize(("fn", "best"), [(ops.cummax, max), (ops.cummin, min)])
def test_extrema_and_where_they_stand(fn, best):
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (4, 3, 9)).astype(float)
    x[0, 0, 4] = x[0, 1, 0] = x[0, 2, 3] = x[0, 2, 6] = NAN
    x[1, 0, 2:] = INF
    x[1, 1, :3] = -INF
    expected = torchs(x, best)
    for axis, way in ((2, (0, 1, 2)), (-2, (0, 2, 1)), (0, (2, 0, 1))):
        turned = x.transpose(way)
        call = lambda v, axis=axis: fn(v, axis)  # noqa: E731
        for found in (call(turned), ml.jit(call)(turned)):
            for got, right in zip(found, expected, strict=True):
                np.testing.assert_array_equal(got.asnumpy(), right.transpose(way))
    few = rng.integers(-3, 4, (2, 9)).astype(np.int8)
    for got, right in zip(fn(few, 1), torchs(few, best), strict=True):
        np.testing.assert_array_equal(got.asnumpy(), right)
    assert [out.shape for out in fn(np.zeros((0, 3)), 0)] == [(0, 3)] * 2
    assert fn(np.array([True, False]), 0)[0].dtype == ml.bool_
    slope = vjp(lambda x: fn(x, -1)[0], x)[1](np.ones_like(x))[0].asnumpy()
    counts = [np.bincount(row, minlength=9) for row in expected[1].reshape(-1, 9)]
    np.testing.assert_array_equal(slope.reshape(-1, 9), counts)
    assert gradcheck(lambda x: fn(x, 0)[0] ** 2, np.array([0.3, -0.2, 0.9, 0.5]), order=2).ok


# log(sum(exp(x)))


def test_sums_of_exponentials_are_numpys():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 7)) * 100
    x[0, 0, :3], x[0, 1], x[0, 2, 3], x[1, 0, 4] = -INF, -INF, INF, NAN
    for axis in (0, 1, -1):
        for reverse in (False, True):
            turned = np.flip(x, axis) if reverse else x
            with np.errstate(invalid="ignore"):
                expected = np.logaddexp.accumulate(turned, axis)
            expected = np.flip(expected, axis) if reverse else expected
            fn = lambda x, axis=axis, reverse=reverse: ops.logcumsumexp(x, axis, reverse)  # noqa: E731
            for got in (fn(x), ml.jit(fn)(x)):
                np.testing.assert_allclose(got.asnumpy(), expected, 1e-14)
    rows = ml.vmap(lambda x: ops.logcumsumexp(x, -1))(x)
    np.testing.assert_allclose(rows.asnumpy(), ops.logcumsumexp(x, -1).asnumpy(), 1e-14)


def test_gradients_of_sums_of_exponentials_are_stable():
    """By the matrix exp(x_i - out_j), i <= j, in which nothing overflows."""
    rng = np.random.default_rng(0)
    for scale in (1, 30, 2000):
        x, dout = scale * rng.standard_normal(9), rng.standard_normal(9)
        for reverse in (False, True):
            turned, given = (x[::-1], dout[::-1]) if reverse else (x, dout)
            out = np.logaddexp.accumulate(turned)
            matrix = np.exp(np.minimum(turned[:, None] - out, 0)) * np.triu(np.ones((9, 9)))
            expected = (matrix @ given)[:: -1 if reverse else 1]
            fn = lambda x, reverse=reverse: ops.logcumsumexp(x, 0, reverse)  # noqa: E731
            for call in (fn, ml.jit(fn)):
                got = vjp(call, x)[1](dout)[0].asnumpy()
                np.testing.assert_allclose(got, expected, 1e-11, 1e-15)
            twice = lambda x, fn=fn, dout=dout: ops.sum(vjp(fn, x)[1](dout)[0] * dout)  # noqa: E731
            bent = grad(twice)(x).asnumpy()
            assert np.isfinite(bent).all()
            if scale == 1:
                assert gradcheck(fn, x, order=2).ok


def test_sums_of_exponentials_of_nothing_and_beside_infinities():
    dx = lambda x: grad(lambda x: ops.sum(ops.exp(ops.logcumsumexp(x, 0))))(x).tolist()  # noqa: E731
    assert dx(np.array([-INF, -INF, 0.0, -INF])) == [0.0, 0.0, 2.0, 0.0]
    assert dx(np.full(3, -INF)) == [0.0] * 3
    assert dx(np.zeros(0)) == []
    assert ops.logcumsumexp(np.zeros((0, 3)), 0).shape == (0, 3)
    assert ops.logcumsumexp(np.array([0, 0]), 0).dtype == ml.float32
    for dtype in (ml.float16, ml.bfloat16):
        narrow = ml.Tensor(np.zeros(64), dtype=dtype)
        got = ops.logcumsumexp(narrow, 0)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.asnumpy().astype(float), np.log(np.arange(1, 65)), 5e-3)
        slope = grad(lambda x: ops.logcumsumexp(x, 0)[-1])(narrow).asnumpy().astype(float)
        np.testing.assert_allclose(slope, 1 / 64, 1e-2)
    with pytest.raises(ShapeError, match=r"LogCumSumExp .*axis 2 of a tensor of rank 1"):
        ops.logcumsumexp(np.ones(3), 2)
