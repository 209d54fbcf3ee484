"""Elementwise functions made of others: NumPy's and SciPy's numbers, ends, kinks, derivatives."""

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import ops
from miniml.core.errors import ShapeError, ValueRefusedError
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


def test_xlogy_of_0_is_0_beside_every_logarithm():
    y = np.array([0.0, 1e-30, 0.5, 1.0, 2.0, np.inf, -1.0])
    for fn in (ops.xlogy, ml.jit(ops.xlogy)):
        got = fn(np.zeros_like(y), y).asnumpy()
        assert not got.any()
        assert not np.signbit(got).any()
