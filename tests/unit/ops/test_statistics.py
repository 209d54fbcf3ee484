"""Quantiles of all methods, and reductions without NaN: NumPy's numbers, dtypes, gradients."""

import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import AttributeRefusedError, ShapeError, TracedValueError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

INF, NAN = np.inf, np.nan
SELECTING = ["lower", "higher", "nearest", "inverted_cdf", "closest_observation"]
METHODS = [
    *SELECTING, "linear", "midpoint", "averaged_inverted_cdf", "interpolated_inverted_cdf", "hazen",
    "weibull", "median_unbiased", "normal_unbiased",
]  # fmt: skip


def slope(f, x):
    return grad(lambda v: ops.sum(f(v)))(np.asarray(x, np.float64)).asnumpy()


# Quantiles


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_are_numpys(method):
    rng = np.random.default_rng(0)
    q = np.array([0, 1e-3, 0.1, 0.125, 0.25, 0.3, 1 / 3, 0.5, 0.62, 0.75, 0.9, 1])
    for n in range(1, 11):
        x = rng.standard_normal((2, n))
        expected = np.quantile(x, q, axis=1, method=method)
        np.testing.assert_allclose(
            ops.quantile(x, q, 1, method=method).asnumpy(), expected, 1e-13, 1e-14
        )
    one = lambda x: ops.quantile(x, 0.3, 1, method=method)  # noqa: E731
    for got in (one(x), ml.jit(one)(x), ml.vmap(lambda r: ops.quantile(r, 0.3, method=method))(x)):
        np.testing.assert_allclose(got.asnumpy(), np.quantile(x, 0.3, axis=1, method=method), 1e-13)
    assert gradcheck(one, x, order=2).ok


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, -1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("q", [0.3, [0.2], [[0.0, 0.25], [0.5, 0.9]], np.float32(0.5), []])
def test_shapes_of_quantiles(axis, keepdims, q):
    x = np.random.default_rng(0).integers(-4, 5, (3, 4, 5)) / 4
    x[0, 1, 2] = NAN
    expected = np.quantile(x, q, axis, keepdims=keepdims) if np.size(q) else None
    got = ops.quantile(x, q, axis, keepdims)
    if expected is None:
        assert got.shape[0] == 0
    else:
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.asnumpy(), expected, 1e-15)
    hundred = ops.percentile(x, 100 * np.asarray(q), axis, keepdims)
    np.testing.assert_allclose(hundred.asnumpy(), got.asnumpy(), 1e-13, 1e-14)


def test_quantiles_beside_infinities_and_at_the_end_of_the_range():
    x = np.array([INF, -INF, 1.0, INF])
    assert ops.quantile(x, [0, 0.1, 0.3, 0.5, 0.9]).tolist() == [-INF, -INF, -INF, INF, INF]
    assert np.isnan(ops.quantile(np.array([-INF, INF]), 0.5).item())
    top = np.finfo(np.float64).max
    assert ops.quantile(np.array([-top, top]), 0.5).item() == 0.0
    assert slope(lambda v: ops.quantile(v, 0.5), [-INF, 1.0]).tolist() == [0.5, 0.5]
    assert ops.quantile(np.array([0.1, 0.1, 0.1]), 0.3).item() == 0.1  # no rounding between equals


def test_the_gradient_of_quantiles_among_equal_elements():
    x = np.array([5.0, 1.0, 5.0, 5.0, 7.0])
    np.testing.assert_allclose(slope(lambda v: ops.quantile(v, 0.3), x), [0.8, 0, 0.2, 0, 0], 1e-15)
    assert slope(lambda v: ops.quantile(v, 0.5), x).tolist() == [0, 0, 1, 0, 0]
    assert slope(lambda v: ops.quantile(v, [0.0, 1.0]), x).tolist() == [0, 1, 0, 0, 1]
    for q in (0.1, 0.4, 0.77):
        assert slope(lambda v, q=q: ops.quantile(v, q), np.ones(6)).sum() == pytest.approx(1)


def test_dtypes_of_quantiles():
    for method in METHODS:
        selects = method in SELECTING
        x = np.array([3, 1, 2], np.int8)
        whole = ops.quantile(x, 0.5, method=method)
        assert whole.dtype == (ml.int8 if selects else ml.float32)
        assert whole.item() == np.quantile(x, 0.5, method=method)
        coins = ops.quantile(np.array([True, False, True]), 0.5, method=method)
        assert coins.dtype == (ml.bool_ if selects else ml.float32)
        for dtype in (ml.float16, ml.bfloat16, ml.float32, ml.float64):
            x = ml.Tensor([1.0, NAN, 2.0, 4.0], dtype=dtype)
            got = ops.quantile(x[:1], 0.5, method=method), ops.quantile(x, 0.5, method=method)
            assert [g.dtype for g in got] == [dtype] * 2
            assert (got[0].item(), np.isnan(got[1].item())) == (1.0, True)
    many = ops.quantile(ml.Tensor(np.arange(5000.0) % 7, dtype=ml.float16), 0.49999)
    assert many.item() == 3.0
    assert ops.quantile(np.array(3.0), 0.2).item() == 3.0
    assert ops.quantile(np.zeros((0, 3)), [0.5, 0.6], 1).shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.quantile([1.0], 1.5), ValueRefusedError,
         "quantile got q=1.5; expected a number from 0 to 1"),
        (lambda: ops.percentile([1.0], [50, -1]), ValueRefusedError,
         "percentile got q=-1; expected a number from 0 to 100"),
        (lambda: ops.quantile([1.0], NAN), ValueRefusedError, "quantile got q=nan"),
        (lambda: ops.quantile([1.0], True), AttributeRefusedError, "quantile got q=True; expected"),
        (lambda: ops.quantile([1.0], 0.5, method="cubic"), ValueRefusedError,
         "quantile got method='cubic'; expected one of 'linear', 'midpoint'"),
        (lambda: ops.quantile(np.ones((0, 3)), 0.5, 0), ShapeError,
         "quantile cannot reduce axis 0 of shape"),
        (lambda: ops.percentile(np.ones((2, 3)), 5, 2), ShapeError, "percentile got axis 2"),
        (lambda: ops.quantile([1.0], 0.5, keepdims=1), AttributeRefusedError, "got keepdims=1"),
        (lambda: ml.jit(ops.quantile)(np.ones(3), np.array(0.5)),
         TracedValueError, "q"),
    ],
)  # fmt: skip
def test_what_quantiles_refuse(call, error, text):
    with pytest.raises(error, match=text):
        call()


# Reductions without NaN

PAIRS = {
    "nansum": np.nansum, "nanmean": np.nanmean, "nanmax": np.nanmax, "nanmin": np.nanmin,
    "nanvar": np.nanvar, "nanstd": np.nanstd,
}  # fmt: skip


def quietly(fn, *args, **options):
    """NumPy warns of rows of NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(*args, **options)


@pytest.fixture
def holed():
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    x[0, 1, 2] = x[1, 0] = x[2, :, 4] = x[:, 3, 1] = NAN
    return x


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_without_nan_are_numpys(name, keepdims, holed):
    fn = getattr(ops, name)
    for axis in (None, 0, -1, (0, 2), (1, -1), ()):
        expected = quietly(PAIRS[name], holed, axis, keepdims=keepdims)
        call = lambda x, axis=axis: fn(x, axis, keepdims)  # noqa: E731
        for got in (call(holed), ml.jit(call)(holed)):
            np.testing.assert_allclose(got.asnumpy(), expected, 1e-13, 1e-14)
    rows = ml.vmap(lambda x: fn(x, -1))(holed)
    np.testing.assert_allclose(rows.asnumpy(), quietly(PAIRS[name], holed, -1), 1e-13, 1e-14)


@pytest.mark.parametrize("correction", [1, 1.5, 4])
def test_corrections_count_what_is_there(correction, holed):
    for ours, theirs in ((ops.nanvar, np.nanvar), (ops.nanstd, np.nanstd)):
        got = ours(holed, -1, correction=correction).asnumpy()
        enough = (~np.isnan(holed)).sum(-1) > correction
        expected = quietly(theirs, holed, -1, ddof=correction)
        np.testing.assert_allclose(got[enough], expected[enough], 1e-13)
        assert not np.isfinite(got[~enough]).any()


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_where_there_is_no_nan(name, holed):
    fn = getattr(ops, name)
    present = ~np.isnan(holed)
    whole = {"nansum": ops.sum, "nanmean": ops.mean, "nanmax": ops.max, "nanmin": ops.min}
    whole |= {"nanvar": ops.var, "nanstd": ops.std}
    for row, has in zip(holed.reshape(-1, 5), present.reshape(-1, 5), strict=True):
        got = slope(fn, row)
        np.testing.assert_array_equal(got[~has], 0)
        if has.any():
            np.testing.assert_allclose(got[has], slope(whole[name], row[has]), 1e-12, 1e-15)
    kept = holed[0].copy()
    missing = np.isnan(kept)
    full = np.where(missing, 0.0, kept)
    hole = np.where(missing, NAN, 0.0)
    assert gradcheck(lambda v: fn(v + hole, -1), full, order=2).ok


def test_dtypes_without_nan():
    for name in PAIRS:
        fn = getattr(ops, name)
        for dtype in (ml.float16, ml.bfloat16, ml.float32, ml.float64):
            assert fn(ml.Tensor([1.0, NAN, 2.0], dtype=dtype)).dtype == dtype
        kept = {"nansum": ml.int64, "nanmax": ml.int8, "nanmin": ml.int8}.get(name, ml.float32)
        got = fn(np.array([1, 3], np.int8))
        assert (got.dtype, got.item()) == (kept, PAIRS[name]([1, 3]))
        assert fn(np.float64(2.0)).item() == PAIRS[name](2.0)
    narrow = ml.Tensor(np.where(np.arange(9000) % 3, 1.0, NAN), dtype=ml.float16)
    assert ops.nanmean(narrow).item() == 1.0
    assert ops.nansum(np.zeros((0, 2)), 0).tolist() == [0.0, 0.0]
    assert np.isnan(ops.nanmean(np.zeros((0, 2)), 0).asnumpy()).all()
    assert ops.nanmax(np.array([-INF, NAN])).item() == -INF
    for fn in (ops.nanmax, ops.nanmin):
        with pytest.raises(ShapeError, match=f"{fn.__name__} cannot reduce axis 0 of shape"):
            fn(np.zeros((0, 2)), 0)
    with pytest.raises(AttributeRefusedError, match="nanvar got correction='a'; expected a number"):
        ops.nanvar(1.0, correction="a")


def test_amax_and_amin_are_max_and_min():
    assert ops.amax is ops.max
    assert ops.amin is ops.min
    assert grad(ops.amax)(np.array([2.0, 1.0, 2.0])).tolist() == [0.5, 0, 0.5]
