"""Reductions where a row of samples cannot say it: ties, zeros, long sums, low precision."""

from itertools import combinations

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ShapeError
from miniml.grad import grad, vjp
from miniml.testing import gradcheck

NAN, INF = np.nan, np.inf


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def slope(f, x):
    """The gradient of sum(f(x)), as an array."""
    return grad(lambda v: ops.sum(f(v)))(np.asarray(x, np.float64)).asnumpy()


# Sums: which way is taken depends on shapes and axes only


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 2, 5), (1, 4, 1, 5), (2, 1, 3, 1), (3, 0, 2, 1)])
def test_sums_and_means_over_every_set_of_axes(rng, shape, keepdims):
    x = rng.normal(size=shape)
    for n in range(5):
        for axes in combinations(range(4), n):
            np.testing.assert_allclose(
                ops.sum(x, axes, keepdims).asnumpy(), x.sum(axis=axes, keepdims=keepdims), 1e-12
            )
            if x.size:
                np.testing.assert_allclose(
                    ops.mean(x, axes, keepdims).asnumpy(), x.mean(axis=axes, keepdims=keepdims)
                )


@pytest.mark.parametrize(
    "shape", [(1, 3000), (3000, 1), (1025, 3), (3, 1025), (2049, 2, 5), (2, 2, 1500)]
)
def test_long_sums(rng, shape):
    x = rng.normal(size=shape)
    for axis in (None, *range(len(shape))):
        np.testing.assert_allclose(ops.sum(x, axis).asnumpy(), x.sum(axis=axis), 1e-9, 1e-11)
    np.testing.assert_allclose(ops.sum_to(x, shape[1:]).asnumpy(), x.sum(axis=0), 1e-9, 1e-11)
    np.testing.assert_allclose(ops.sum_to(x, (1,)).asnumpy(), [x.sum()], 1e-9, 1e-11)


@pytest.mark.parametrize(
    ("shape", "axis"), [((200_000, 3), 0), ((3, 200_000), 1), ((600_000,), None)]
)
def test_long_float32_sums_lose_little(rng, shape, axis):
    x = rng.random(size=shape).astype(np.float32)
    exact = x.astype(np.float64).sum(axis=axis)
    assert np.max(np.abs(ops.sum(x, axis).asnumpy() / exact - 1)) < 2e-6


def test_sums_of_arrays_that_are_not_contiguous(rng):
    x = ml.Tensor(rng.normal(size=(6, 4, 5)))
    turned = ops.transpose(x, (2, 0, 1))
    array = turned.asnumpy()
    for axis in (0, 1, 2, (0, 1), (1, 2), (0, 2)):
        np.testing.assert_allclose(ops.sum(turned, axis).asnumpy(), array.sum(axis=axis))
    repeated = ops.broadcast_to(x, (3, 6, 4, 5))
    np.testing.assert_allclose(ops.sum(repeated, 0).asnumpy(), 3 * x.asnumpy())


@pytest.mark.parametrize(("shape", "axis"), [((5, 3), 0), ((3, 5), 1), ((3, 5), None)])
def test_infinities_and_nans_reach_their_own_sums_only(shape, axis):
    x = np.ones(shape)
    x[0, 0], x[1, 1] = INF, NAN
    np.testing.assert_array_equal(ops.sum(x, axis).asnumpy(), x.sum(axis=axis))


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (ml.bool_, ml.int64), (ml.int8, ml.int64), (ml.uint8, ml.uint64), (ml.float16, ml.float16),
        (ml.bfloat16, ml.bfloat16), (ml.float64, ml.float64),
    ],
)  # fmt: skip
def test_dtypes_of_sums(dtype, wanted):
    x = ml.Tensor(np.ones(300), dtype=dtype)
    for fn in (ops.sum, ops.prod, lambda v: ops.cumsum(v, 0)):
        assert fn(x).dtype == wanted
    assert ops.sum(x).item() == 300
    assert ops.mean(x).dtype == (wanted if wanted in ml.dtype.FLOATS else ml.float32)


def test_low_precision_is_summed_in_float32():
    for dtype in (ml.bfloat16, ml.float16):
        x = ml.Tensor(np.full((1000, 2), 0.1), dtype=dtype)
        assert ops.sum(x, 0).tolist() == pytest.approx([100, 100], rel=4e-3)
        assert ops.sum_to(x, (2,)).tolist() == pytest.approx([100, 100], rel=4e-3)
        assert ops.mean(x).item() == pytest.approx(0.1, rel=4e-3)
        assert ops.cumsum(x, 0).tolist()[-1][0] == pytest.approx(100, rel=4e-3)
    assert ops.mean(ml.Tensor(np.full(200, 60000.0), dtype=ml.float16)).item() == 60000


def test_nothing_to_reduce():
    x = ml.Tensor(np.zeros((0, 3)))
    assert ops.sum(x, 0).tolist() == [0, 0, 0]
    assert ops.prod(x, 0).tolist() == [1, 1, 1]
    assert ops.logsumexp(x, 0).tolist() == [-INF] * 3
    assert ops.any(x).item() is False
    assert ops.all(x).item() is True
    assert np.isnan(ops.mean(x, 0).asnumpy()).all()
    assert ops.max(x, 1).shape == (0,)
    for fn in (ops.max, ops.min, ops.argmax, ops.argmin):
        with pytest.raises(ShapeError, match=r"cannot reduce axis 0 of shape \(0, 3\)"):
            fn(x, 0)
    for fn in (ops.sum, ops.mean, ops.prod, ops.logsumexp):
        assert slope(lambda v, fn=fn: fn(v, 0), x.asnumpy()).shape == (0, 3)


# Extrema


def test_ties_share_the_gradient():
    x = [[3.0, 3.0, 1.0], [2.0, 5.0, 5.0]]
    assert slope(lambda v: ops.max(v, 1), x).tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.5]]
    assert slope(lambda v: ops.min(v, 1), x).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert slope(lambda v: ops.max(v, None, True), [[7.0] * 4]).tolist() == [[0.25] * 4]


def test_extrema_of_nan_and_bool_and_lists():
    x = [1.0, NAN, 3.0]
    assert np.isnan(ops.max(x).item())
    assert np.isnan(ops.min(x).item())
    assert ops.argmax(x).item() == ops.argmin(x).item() == 1
    assert ops.max([True, False]).item() is True
    assert ops.min([[3, 1], [2, 5]], -1).tolist() == [1, 2]


def test_argmax_takes_the_first_of_equals():
    x = np.array([[1, 7, 7], [9, 9, 2]])
    assert ops.argmax(x, 1).tolist() == [1, 0]
    assert ops.argmax(x).item() == 3
    assert ops.argmin(x, 0, True).tolist() == [[0, 0, 1]]
    assert ops.argmax(x, -1).dtype == ml.int64
    with pytest.raises(ShapeError, match="takes one axis"):
        ops.argmax(x, (0, 1))


# Products: the gradient is a product of the others, at any order


def test_gradients_of_products_with_zeros():
    x = [[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]]
    first = slope(lambda v: ops.prod(v, 1), x)
    assert first.tolist() == [[6, 3, 2], [6, 0, 0], [0, 0, 0], [0, 0, 0]]

    def twice(v):
        return grad(lambda u: ops.sum(ops.prod(u, 1)))(v)

    # d^2/dx_i dx_j is the product of what is left, here x_k: summed over i != j.
    assert slope(twice, x).tolist() == [[5, 4, 3], [5, 3, 2], [3, 3, 0], [0, 0, 0]]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 13])
def test_gradient_of_a_product_is_the_product_of_the_others(rng, n):
    x = rng.normal(size=(3, n, 2))
    wanted = np.stack([np.delete(x, i, 1).prod(axis=1) for i in range(n)], 1)
    np.testing.assert_allclose(slope(lambda v: ops.prod(v, 1), x), wanted)
    wanted = x.prod() / x
    np.testing.assert_allclose(slope(ops.prod, x), wanted)
    np.testing.assert_allclose(slope(lambda v: ops.prod(v, (0, -1), True), x).shape, x.shape)


# Log-sum-exp, running sums


def test_logsumexp_where_exp_would_overflow_or_vanish():
    assert ops.logsumexp([1e4, 1e4]).item() == pytest.approx(1e4 + np.log(2))
    assert ops.logsumexp([-1e4, -1e4]).item() == pytest.approx(-1e4 + np.log(2))
    x = np.array([[-INF, -INF], [INF, 0.0], [-INF, 2.0], [NAN, 0.0]])
    np.testing.assert_array_equal(ops.logsumexp(x, 1).asnumpy(), [-INF, INF, 2, NAN])
    np.testing.assert_array_equal(slope(lambda v: ops.logsumexp(v, 1), x[[0, 2]]), [[0, 0], [0, 1]])
    assert ops.logsumexp(np.array([0, 0])).dtype == ml.float32


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (ml.float16, 1e3),
        (ml.float16, 6e4),
        (ml.float32, 1e7),
        (ml.float64, 1e16),
        (ml.float64, 1.0),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_gradient_of_logsumexp_is_a_softmax_however_coarse_its_value(rng, dtype, size, sign):
    """The output is rounded by more than 1 here, and exp(x - out) was off by that factor."""
    x = (sign * size + rng.normal(size=(3, 4))).astype(dtype)
    for axis in (1, (0, 1), None):
        exact = x.astype(np.float64)
        shares = np.exp(exact - exact.max(axis, keepdims=True))
        got = grad(lambda v, axis=axis: ops.sum(ops.logsumexp(v, axis)))(x)
        expected = shares / shares.sum(axis, keepdims=True)
        np.testing.assert_allclose(got, expected, 8 * np.finfo(dtype).eps)


def test_logsumexp_has_second_derivatives(rng):
    report = gradcheck(lambda v: ops.logsumexp(v, 1), rng.normal(size=(2, 3)), order=2)
    assert report.ok


def test_cumsum_directions():
    x = [1, 2, 3]
    assert ops.cumsum(x, 0).tolist() == [1, 3, 6]
    assert ops.cumsum(x, 0, exclusive=True).tolist() == [0, 1, 3]
    assert ops.cumsum(x, -1, reverse=True).tolist() == [6, 5, 3]
    assert ops.cumsum(x, 0, True, True).tolist() == [5, 3, 0]
    assert ops.cumsum([INF, 1.0], 0, exclusive=True).tolist() == [0, INF]


@pytest.mark.parametrize("count", [1000, 16384, 20000, 1_000_000])
def test_the_gradient_of_a_mean_of_many_float16(count):
    """1 / count is not a normal number of float16; a scaled loss divided by it is."""
    _, pull = vjp(ops.mean, np.ones(count, np.float16))
    np.testing.assert_allclose(pull(np.float16(1024))[0].asnumpy()[0], 1024 / count, 2e-3)


# Axes


def test_axes_may_be_lists_and_numpy_integers():
    x = np.arange(6.0).reshape(2, 3)
    assert ops.sum(x, [0, 1]).item() == 15
    assert ops.max(x, np.int64(1)).tolist() == [2, 5]
    assert ops.sum(x, ()).tolist() == x.tolist()


@pytest.mark.parametrize("fn", [ops.sum, ops.mean, ops.max, ops.prod, ops.logsumexp, ops.any])
def test_axes_that_are_refused(fn):
    x = np.ones((2, 3))
    with pytest.raises(ShapeError, match="axis 2 of a tensor of rank 2; its axes are -2 to 1"):
        fn(x, 2)
    with pytest.raises(ShapeError, match="names one axis twice"):
        fn(x, (0, -2))
    with pytest.raises(ShapeError, match="an axis is an int"):
        fn(x, "rows")
    with pytest.raises(ShapeError, match=r"shape \(\) has none"):
        fn(1.0, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_norm_is_right_for_every_size_and_0_without_a_slope_for_zeros(dtype):
    info = np.finfo(dtype)
    rows = np.array([info.smallest_subnormal, info.tiny, 1.0, info.max / 4])[:, None] * [0, -3, 1.5]
    rows = np.concatenate([np.zeros((1, 3)), rows if dtype != np.float64 else rows[2:3]])
    rows = rows.astype(dtype)
    expected = np.sqrt((rows.astype(np.float64) ** 2).sum(1))
    for fn in (lambda x: ops.norm(x, axis=1), ml.jit(lambda x: ops.norm(x, axis=1))):
        eps, tiny = float(info.eps), float(info.smallest_subnormal)
        np.testing.assert_allclose(fn(rows).asnumpy().astype(float), expected, eps, tiny / 2)
        slopes = grad(lambda x, fn=fn: ops.sum(fn(x)))(rows).asnumpy()
        lengths = np.where(expected == 0, 1, expected)[:, None]
        np.testing.assert_allclose(slopes.astype(float), rows / lengths, 4 * eps)
        assert not np.any(slopes[0])


@pytest.mark.parametrize("shape", [(1024, 7), (300, 300), (5, 2050), (4096,), (65, 1, 64), (1009,)])
def test_sums_of_all_elements_of_any_memory(shape):
    """By rows, where there are many: within a few units of the sum of sizes, and infinite or NaN
    as NumPy's."""
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32) + 1
    for given in (x, x.T, x[::-1]):
        for value in (1.0, np.inf, np.nan):
            given.flat[17] = value
            got, exact = ops.sum(ml.Tensor(given)).item(), given.sum(dtype=np.float64)
            np.testing.assert_allclose(got, exact, atol=4e-7 * np.abs(x[np.isfinite(x)]).sum())
            got = ops.mean(ml.Tensor(given)).item()
            np.testing.assert_allclose(got, exact / x.size, rtol=1e-5)
