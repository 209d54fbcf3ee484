"""Elementwise functions made of others: NumPy's and SciPy's numbers, ends, kinks, derivatives."""

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

INF, NAN = np.inf, np.nan
S, A = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def ramp(x):
    return np.clip(x / 6 + 0.5, 0, 1)


def elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * special.expm1(np.minimum(x, 0)))


# name: the function, the same in NumPy, and its kinks, at each of which a gradient is promised.
ACTIVATIONS = {
    "log_sigmoid": (ops.log_sigmoid, special.log_expit, {}),
    "relu6": (ops.relu6, lambda x: np.clip(x, 0, 6), {0: 0, 6: 0.5}),
    "hard_tanh": (ops.hard_tanh, lambda x: np.clip(x, -1, 1), {-1: 1, 1: 1}),
    "hard_tanh of a range": (
        lambda x: ops.hard_tanh(x, -2, 0.5), lambda x: np.clip(x, -2, 0.5), {-2: 1, 0.5: 1}
    ),
    "hard_sigmoid": (ops.hard_sigmoid, ramp, {-3: 1 / 6, 3: 1 / 6}),
    "hard_sigmoid of ONNX": (
        lambda x: ops.hard_sigmoid(x, 0.25, 0.5), lambda x: np.clip(x / 4 + 0.5, 0, 1), {2: 0.25}
    ),
    "hard_swish": (ops.hard_swish, lambda x: np.maximum(x, -3) * ramp(x), {-3: -0.5, 3: 1.5}),
    "mish": (ops.mish, lambda x: np.maximum(x, -800) * np.tanh(np.logaddexp(0, x)), {}),
    "softsign": (
        ops.softsign, lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))), {0: 1}
    ),
    "celu": (lambda x: ops.celu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * elu(x / 1.5)), {0: 1}),
    "selu": (ops.selu, lambda x: S * elu(x, A), {0: S * A}),
    "softshrink": (ops.softshrink, lambda x: x - np.clip(x, -0.5, 0.5), {-0.5: 0, 0.5: 0}),
    "softshrink of nothing": (lambda x: ops.softshrink(x, 0), lambda x: x, {0: 0}),
    "threshold": (lambda x: ops.threshold(x, 0.1, -3.0), lambda x: np.where(x <= 0.1, -3, x),
                  {0.1: 0}),
    "prelu": (lambda x: ops.prelu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x), {0: 0.1}),
}  # fmt: skip
POINTS = np.array([-INF, -1e4, -50.0, -2.5, -0.3, 0.0, 0.3, 2.5, 5.0, 50.0, 1e4, INF, NAN])


def slope(f, x):
    return grad(lambda v: ops.sum(f(v)))(np.asarray(x, np.float64)).asnumpy()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    fn, reference, kinks = ACTIVATIONS[name]
    with np.errstate(invalid="ignore"):
        expected = reference(POINTS)
    got = fn(POINTS).asnumpy()
    np.testing.assert_allclose(got, expected, 1e-14)
    np.testing.assert_allclose(ml.jit(fn)(POINTS).asnumpy(), got, 1e-14)
    assert fn(np.zeros((0, 3))).shape == (0, 3)
    assert fn(np.float64(0.3)).shape == ()
    assert fn(ml.Tensor(POINTS[3:8], dtype=ml.float16)).dtype == ml.float16
    assert fn(np.array([1, 2])).dtype == (ml.int64 if name == "relu6" else ml.float32)
    assert gradcheck(fn, np.array([-4.1, -2.4, -0.7, 0.2, 2.2, 4.3, 7.0]), order=2).ok
    np.testing.assert_allclose(slope(fn, list(kinks)), list(kinks.values()), 1e-15)


def test_prelu_learns_its_slope():
    x, slopes = np.array([[-2.0, 3.0], [INF, -1.0]]), np.array([0.5, 0.25])
    np.testing.assert_array_equal(ops.prelu(x, slopes).asnumpy(), [[-1, 3], [INF, -0.25]])
    dslope = grad(lambda s: ops.sum(ops.prelu(x, s)))(slopes)
    np.testing.assert_array_equal(dslope.asnumpy(), [-2, -1])
    with pytest.raises(ShapeError, match=r"prelu got x of shape \(2, 2\) and slope of \(3,\)"):
        ops.prelu(x, np.ones(3))


@pytest.mark.parametrize("alpha", [0, -1.0, NAN])
def test_celu_needs_an_alpha_above_0(alpha):
    with pytest.raises(ValueRefusedError, match="celu got alpha"):
        ops.celu(1.0, alpha)


# Of two numbers

BINARY = {
    "logaddexp": (ops.logaddexp, np.logaddexp),
    "hypot": (ops.hypot, np.hypot),
    "xlogy": (ops.xlogy, special.xlogy),
    "xlog1py": (ops.xlog1py, special.xlog1py),
    "copysign": (ops.copysign, np.copysign),
}
ENDS = [-INF, -2.0, -1.0, 0.0, 1.0, 3.0, 1e-9, 1e200, INF, NAN]


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name):
    fn, reference = BINARY[name]
    x, y = np.array(ENDS)[:, None], np.array(ENDS)
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    got = fn(x, y).asnumpy()
    np.testing.assert_allclose(got, expected, 1e-14)
    np.testing.assert_allclose(ml.jit(fn)(x, y).asnumpy(), got, 1e-14)
    many = fn(np.repeat(x, 20, 0), y).asnumpy()  # few numbers may be computed in another way
    np.testing.assert_allclose(many, np.repeat(expected, 20, 0), 1e-14)
    assert fn(np.zeros((0, 1)), y).shape == (0, len(ENDS))
    assert fn(np.array([1, 2]), np.array([1, 2])).dtype == ml.float32
    for dtype in (ml.float16, ml.float64):
        wide = ml.Tensor([0.7, 2.0], dtype=dtype)
        assert {fn(wide, 0.3).dtype, fn(0.3, wide).dtype} == {dtype}
    np.testing.assert_allclose(fn(np.array(0.7), 0.3).item(), reference(0.7, 0.3), 1e-15)
    pairs = np.array([0.4, 2.0, 0.3]), np.array([1.5, 0.2, 0.3])  # of which one is equal
    assert gradcheck(fn, *pairs, order=2).ok


@pytest.mark.parametrize(
    ("fn", "x", "y", "expected"),
    [
        (ops.logaddexp, -INF, -INF, (0, 1)),
        (ops.logaddexp, INF, 3.0, (1, 0)),
        (ops.logaddexp, 1e4, 1e4, (0.5, 0.5)),
        (ops.hypot, 0.0, 0.0, (0, 0)),
        (ops.hypot, INF, 1.0, (0, 0)),
        (ops.hypot, 3e200, -4e200, (0.6, -0.8)),
        (ops.hypot, 3e-200, 4e-200, (0.6, 0.8)),
        (ops.xlogy, 0.0, 0.0, (0, 0)),
        (ops.xlogy, 0.0, 2.0, (np.log(2), 0)),
        (ops.xlog1py, 0.0, -1.0, (0, 0)),
        (ops.xlog1py, 0.0, INF, (0, 0)),
        (ops.xlog1py, 0.0, 1.0, (np.log(2), 0)),
        (ops.xlog1py, 2.0, 1e-20, (1e-20, 2)),
        (ops.copysign, -2.0, -0.0, (1, 0)),
        (ops.copysign, -2.0, 0.0, (-1, 0)),
        (ops.copysign, 0.0, -1.0, (0, 0)),
        (ops.copysign, INF, -3.0, (-1, 0)),
    ],
)
def test_gradients_at_ends(fn, x, y, expected):
    got = grad(fn, argnums=(0, 1))(np.array(x), np.array(y))
    np.testing.assert_allclose([d.item() for d in got], expected, 1e-15)


def test_log10_is_whole_at_powers_of_ten():
    powers = np.arange(-300, 300)
    got = ops.log10(np.array([float(f"1e{p}") for p in powers])).asnumpy()
    np.testing.assert_array_equal(got, np.log10([float(f"1e{p}") for p in powers]))
    assert (got == powers)[300:].all()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", BINARY)
def test_integers_are_floats_before_anything_is_computed_of_them(name, dtype):
    fn, least, most = BINARY[name][0], np.iinfo(dtype).min, np.iinfo(dtype).max
    x, y = np.array([3, most, least, 1], dtype), np.array([5, least, 0, most], dtype)
    got = fn(x, y)
    assert got.dtype == ml.float32
    expected = fn(x.astype(np.float64), y.astype(np.float64)).asnumpy()
    np.testing.assert_allclose(got.asnumpy(), expected, 1e-6, 1e-38)
    half = fn(x.astype(np.float16), y)
    assert half.dtype == ml.float16
    np.testing.assert_allclose(half.asnumpy(), expected, 2e-3, 1e-7)


def test_copysign_takes_the_sign_of_zeros_and_nan():
    y = np.array([0.0, -0.0, NAN, -NAN, -1.0])
    for dtype in (ml.float16, ml.bfloat16, ml.float32, ml.float64):
        signs = ml.Tensor(y, dtype=dtype)
        for fn in (ops.copysign, ml.jit(ops.copysign)):
            assert fn(2.0, signs).astype(ml.float32).tolist() == np.copysign(2.0, y).tolist()
            zeros = fn(ml.Tensor(0.0, dtype=dtype), signs).asnumpy().astype(float)
            np.testing.assert_array_equal(np.signbit(zeros), np.signbit(y))
    assert np.copysign(ml.Tensor([2.0]), -1.0).tolist() == [-2.0]


def test_shrinking_and_thresholds_refuse_what_they_cannot_be():
    with pytest.raises(ValueRefusedError, match=r"softshrink got lambd=-1; expected a number >= 0"):
        ops.softshrink(1.0, -1)
    assert ops.threshold(np.array([1, 5]), 2, 0).dtype == ml.int64
    rows = ops.threshold(np.array([[1.0], [5.0]]), np.array([0.0, 3.0]), -1.0)
    assert rows.tolist() == [[1.0, -1.0], [5.0, 5.0]]


def test_xlogy_of_0_is_0_beside_every_logarithm():
    y = np.array([0.0, 1e-30, 0.5, 1.0, 2.0, np.inf, -1.0])
    for fn in (ops.xlogy, ml.jit(ops.xlogy)):
        got = fn(np.zeros_like(y), y).asnumpy()
        assert not got.any()
        assert not np.signbit(got).any()


# Points between two numbers


def test_lerp_is_exact_at_both_ends_and_monotonic():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 500)) * np.exp(rng.uniform(-20, 20, (2, 500)))
    for fn in (ops.lerp, ml.jit(ops.lerp)):
        np.testing.assert_array_equal(fn(x, y, 0.0).asnumpy(), x)
        np.testing.assert_array_equal(fn(x, y, 1.0).asnumpy(), y)
        np.testing.assert_array_equal(fn(x, x, 0.3).asnumpy(), x)
        w = rng.uniform(-0.5, 1.5, (3, 1))
        np.testing.assert_allclose(fn(x, y, w).asnumpy(), x + w * (y - x), 1e-12, 1e-12 * x.max())
    assert ops.lerp(np.array([1, 2]), 4, 0.5).dtype == ml.float32
    assert ops.lerp(ml.Tensor([1.0], dtype=ml.float16), 4, 0.5).dtype == ml.float16
    assert ops.lerp(np.zeros((0, 2)), 1.0, np.zeros(2)).shape == (0, 2)
    given = np.array([0.3, -1.0, 2.0]), np.array([1.3, 4.0]), np.array([0.2, 0.7])
    assert gradcheck(ops.lerp, given[0][:, None], given[1], given[2], order=2).ok
    got = ml.vmap(ops.lerp, in_axes=(0, None, None))(given[0], 2.0, 0.25)
    np.testing.assert_allclose(got.asnumpy(), given[0] * 0.75 + 0.5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8])
def test_divmod_is_numpys(dtype):
    x, y = np.array([7, 8, 9, 200]).astype(dtype), np.array([3, 2, 5, 7]).astype(dtype)
    if dtype in (np.float64, np.float32, np.int32):
        x[::2] *= -1
    for got in (ops.divmod(x, y), divmod(ml.Tensor(x), y), np.divmod(ml.Tensor(x), ml.Tensor(y))):
        for part, right in zip(got, np.divmod(x, y), strict=True):
            assert part.dtype == dtype
            np.testing.assert_array_equal(part.asnumpy(), right)
    assert [part.item() for part in divmod(7.5, ml.Tensor(2.0))] == [3.0, 1.5]
    quotient, rest = ml.jit(ops.divmod)(x, y)
    np.testing.assert_array_equal((quotient * y + rest).asnumpy(), x)


# Closeness, fractions, and what takes the place of NaN


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_isclose_is_numpys(dtype, equal_nan):
    x = np.array([0, -0.0, 1, 1.001, 1e3, -1e3, 60000, -60000, INF, -INF, NAN], dtype)
    for rtol, atol in ((1e-5, 1e-8), (2e-3, 0), (0, 0.5), (0, 0)):
        options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
        wide = x.astype(np.float32) if dtype == np.float16 else x
        expected = np.isclose(wide[:, None], wide, **options)
        for fn in (ops.isclose, ml.jit(lambda x, y, o=options: ops.isclose(x, y, **o))):
            got = fn(x[:, None], x, **(options if fn is ops.isclose else {}))
            assert got.dtype == ml.bool_
            np.testing.assert_array_equal(got.asnumpy(), expected)
        assert ops.allclose(x, x[::-1], **options).item() == np.allclose(x, x[::-1], **options)
    assert ops.allclose(x[:-1], x[:-1]).item()
    assert ops.allclose(x, x, equal_nan=equal_nan).item() == equal_nan


def test_isclose_of_integers_and_beside_python_numbers():
    assert ops.isclose(np.array([2**40]), np.array([2**40 + 1]), 0, 0.5).tolist() == [False]
    assert ops.isclose(np.array([True, False]), np.array([True, True])).tolist() == [True, False]
    assert ops.isclose(np.array([3, 4]), 3.0).tolist() == [True, False]
    assert ops.isclose(np.float32(0.1), 0.1).item()
    assert ops.allclose(np.zeros((0, 3)), 1.0).item()
    assert ops.isclose(np.zeros((2, 1)), np.zeros(3)).shape == (2, 3)
    with pytest.raises(ValueRefusedError, match="isclose got rtol=-1; expected a number >= 0"):
        ops.isclose(1.0, 1.0, rtol=-1)
    with pytest.raises(AttributeRefusedError, match="isclose got equal_nan=1; expected True or"):
        ops.isclose(1.0, 1.0, equal_nan=1)
    with pytest.raises(ShapeError, match="cannot broadcast"):
        ops.allclose(np.ones(2), np.ones(3))


def test_nan_to_num_is_numpys():
    x = np.array([NAN, INF, -INF, 2.5, -0.0])
    for options in ({}, {"nan": -1.0}, {"nan": INF, "posinf": 3.0}, {"neginf": NAN}):
        expected = np.nan_to_num(x, **options)
        for fn in (ops.nan_to_num, ml.jit(lambda x, o=options: ops.nan_to_num(x, **o))):
            got = fn(x, **(options if fn is ops.nan_to_num else {})).asnumpy()
            np.testing.assert_array_equal(got, expected)
    for dtype in (ml.float16, ml.bfloat16, ml.float32):
        got = ops.nan_to_num(ml.Tensor(x, dtype=dtype))
        assert got.dtype == dtype
        most = float(ml_dtypes.finfo(dtype).max)
        assert got.astype(ml.float64).tolist() == [0.0, most, -most, 2.5, 0.0]
    for whole in (np.array([1, -2], np.int8), np.array([True, False])):
        got = ops.nan_to_num(whole, nan=5.0)
        assert (got.dtype, got.tolist()) == (whole.dtype, whole.tolist())
    np.testing.assert_array_equal(slope(ops.nan_to_num, x), [0, 0, 0, 1, 1])
    with pytest.raises(DTypeError, match="got None where it takes a tensor"):
        ops.nan_to_num(x, nan=None)


def test_fractions_have_the_sign_of_the_number():
    x = np.array([2.75, -2.75, 3.0, -0.25, 1e300])
    np.testing.assert_array_equal(ops.frac(x).asnumpy(), np.modf(x)[0])
    assert ops.frac(np.array([3, -4])).tolist() == [0, 0]
    np.testing.assert_array_equal(slope(ops.frac, x), 1)
    assert np.isnan(ops.frac(INF).item())
    with pytest.raises(DTypeError, match="Sub has no meaning for bool"):
        ops.frac(True)


# sinc

PRECISE = np.longdouble


def sinc_and_slopes(x):
    """sin(pi x) / (pi x) and its first two derivatives, by the series or the quotients, in long
    double."""
    v = np.asarray(x, PRECISE) * PRECISE("3.14159265358979323846264338327950288")
    with np.errstate(all="ignore"):
        s, c = np.sin(v) / v, np.cos(v)
        first = (c - s) / v
        far = s, np.pi * first, np.pi**2 * (-s - 2 * first / v)
    k = np.arange(1, 16, dtype=PRECISE)
    factorials = np.cumprod(2 * k * (2 * k + 1))
    terms = (-1) ** k * v[..., None] ** (2 * k) / factorials
    below = np.where(np.abs(v) < 2, v, 1)[..., None]
    near = (
        1 + terms.sum(-1), np.pi * (terms * 2 * k / below).sum(-1),
        np.pi**2 * ((-1) ** k * (2 * k) * (2 * k - 1) * below ** (2 * k - 2) / factorials).sum(-1),
    )  # fmt: skip
    return [np.where(np.abs(v) < 2, a, b).astype(float) for a, b in zip(near, far, strict=True)]


def test_sinc_and_its_derivatives_are_right_near_0_too():
    tiny = [1e-300, -1e-9, 1e-6, -1e-3]
    x = np.array([*tiny, 0.1, 0.31, -0.318, 0.319, 0.5, -0.9, 1.4, 2.5, -7.3, 40.1])
    value, first, second = sinc_and_slopes(x)
    for fn in (ops.sinc, ml.jit(ops.sinc)):
        np.testing.assert_allclose(fn(x).asnumpy(), value, 1e-14)
        np.testing.assert_allclose(slope(fn, x), first, 2e-14)
        bent = slope(lambda v, fn=fn: grad(lambda u: ops.sum(fn(u)))(v), x)
        np.testing.assert_allclose(bent, second, 1e-12)
    assert gradcheck(ops.sinc, np.array([-1.3, -0.2, 0.3, 0.33, 0.7, 2.1]), order=2).ok


def test_sinc_at_integers_far_away_and_of_other_dtypes():
    n = np.array([1.0, -2, 3, 1e6, 2.0**52])
    for fn in (ops.sinc, ml.jit(ops.sinc)):
        assert not fn(n).asnumpy().any()
        assert fn(np.zeros(2)).tolist() == [1.0, 1.0]
        assert np.isnan(fn(np.array([INF, -INF, NAN])).asnumpy()).all()
    np.testing.assert_allclose(slope(ops.sinc, n), np.cos(np.pi * (n % 2)) / n, 1e-15)
    assert slope(ops.sinc, [0.0]).tolist() == [0.0]
    half = 1e6 + 0.5
    assert ops.sinc(np.array(half)).item() == pytest.approx(1 / (np.pi * half), rel=1e-15)
    for dtype in (ml.float16, ml.bfloat16, ml.float32):
        x = ml.Tensor(np.linspace(-5, 5, 41), dtype=dtype)
        eps = float(ml_dtypes.finfo(dtype).eps)
        wide = np.sinc(x.asnumpy().astype(float))
        np.testing.assert_allclose(ops.sinc(x).asnumpy().astype(float), wide, 2 * eps, 1e-7)
    assert ops.sinc(np.array([0, 1])).dtype == ml.float32
    assert ops.sinc(np.zeros((0, 3))).shape == (0, 3)
