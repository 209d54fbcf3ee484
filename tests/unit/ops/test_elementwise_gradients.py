"""Gradients of the elementwise families that no row can state: ties, kinks, poles."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad, vjp
from miniml.testing import gradcheck

NAN, INF = np.nan, np.inf


def t(values, dtype=ml.float64):
    return ml.Tensor(values, dtype=dtype)


def pulled(f, *xs, dout=None):
    """The gradients of sum(f(*xs) * dout)."""
    out, pull = vjp(f, *map(t, xs))
    return [g.asnumpy() for g in pull(ops.ones_like(out) if dout is None else t(dout))]


def test_a_broadcast_input_gets_the_sum():
    x, y = np.arange(1.0, 7.0).reshape(2, 3), np.array([1.0, 2.0, 4.0])
    for fn, dx, dy in (
        (ops.mul, np.broadcast_to(y, (2, 3)), x.sum(0)),
        (ops.div, np.broadcast_to(1 / y, (2, 3)), -(x / y**2).sum(0)),
        (ops.sub, np.ones((2, 3)), [-2.0] * 3),
        (lambda a, b: ops.where(x > 2, a, b), x > 2, (x <= 2).sum(0)),
    ):
        came = pulled(fn, x, y)
        np.testing.assert_allclose(came[0], dx)
        np.testing.assert_allclose(came[1], dy)
    (dx,) = pulled(lambda s: ops.maximum(s, y), 3.0)
    assert (dx.shape, dx) == ((), 2.0)


def test_ties_share_the_gradient():
    for fn, wanted in ((ops.maximum, [0.0, 1.0, 2.0]), (ops.minimum, [2.0, 1.0, 0.0])):
        dx, dy = pulled(fn, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], dout=[2.0, 2.0, 2.0])
        assert dx.tolist() == wanted
        assert (dx + dy).tolist() == [2.0, 2.0, 2.0]
    (dx,) = pulled(lambda x: ops.maximum(x, x), [1.0, 2.0])
    assert dx.tolist() == [1.0, 1.0]


def test_clip_passes_the_gradient_inside_and_on_its_bounds():
    (dx,) = pulled(lambda x: ops.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0, NAN])
    assert dx.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16, ml.float32, ml.float64])
def test_relu_passes_nothing_where_it_is_zero(dtype):
    x = t([-INF, -1.0, -0.0, 0.0, 1e-7, 1.0, INF], dtype)
    out, pull = vjp(ops.relu, x)
    assert (out.dtype, out.asnumpy()[:4].tolist()) == (dtype, [0, 0, 0, 0])
    for dout in (1.0, INF):
        (dx,) = pull(ops.full_like(out, dout))
        assert (dx.dtype, dx.tolist()) == (dtype, [0, 0, 0, 0, dout, dout, dout])
    (dx,) = pull(ops.full_like(out, NAN))
    assert np.isnan(dx.asnumpy().astype(float)).tolist() == [False] * 4 + [True] * 3


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 1 << 17), (1 << 17, 3), (2, 1, 1 << 19)])
def test_relu_of_any_size(shape):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_array_equal(ops.relu(x), np.where(x > 0, x, 0))
    np.testing.assert_array_equal(ml.jit(ops.relu)(ml.Tensor(x.T)), np.where(x > 0, x, 0).T)


def test_relu_has_gradients_of_any_order():
    def cubed(x):
        return ops.relu(x) ** 3

    for x, wanted in ((2.0, [12.0, 12.0, 6.0]), (-2.0, [0.0, 0.0, 0.0])):
        f, came = cubed, []
        for _ in wanted:
            f = grad(f)
            came.append(f(t(x)).item())
        assert came == wanted


@pytest.mark.parametrize("slope", [0.01, 0.0, 1.5, -0.5])
def test_leaky_relu_of_any_slope(slope):
    x = np.array([-2.0, 3.0])
    np.testing.assert_allclose(ops.leaky_relu(x, slope), np.where(x > 0, x, slope * x))
    np.testing.assert_allclose(pulled(lambda v: ops.leaky_relu(v, slope), x)[0], [slope, 1.0])


def test_pow_has_finite_gradients_where_the_formula_has_none():
    for x, y, dx, dy in (
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 1.0, 1.0, 0.0),
        (0.0, 2.0, 0.0, 0.0),
        (-2.0, 3.0, 12.0, 0.0),
        (2.0, 3.0, 12.0, 8 * np.log(2)),
        (3.0, 0.0, 0.0, np.log(3)),
    ):
        np.testing.assert_allclose(pulled(ops.pow, x, y), [dx, dy])


@pytest.mark.parametrize("power", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
def test_small_whole_powers_are_numpys(power, dtype):
    x = (np.random.default_rng(0).standard_normal(200) * 3).astype(dtype)
    if dtype == np.bool_:
        if power > 2:
            np.testing.assert_array_equal(ops.pow(ml.Tensor(x), power), x.astype(np.int64))
        return
    out, expected = ops.pow(ml.Tensor(x), power).asnumpy(), np.power(x, power)
    assert out.dtype == expected.dtype
    if x.dtype.kind in "iu":
        np.testing.assert_array_equal(out, expected)
    else:
        np.testing.assert_array_max_ulp(out, expected, 2)
        dx = grad(lambda x: ops.sum(ops.pow(x, power)))(ml.Tensor(x))
        np.testing.assert_allclose(dx, power * x ** (power - 1), rtol=1e-5)


def test_pow_has_its_second_derivative_at_zero():
    for y, wanted in ((0.0, 0.0), (1.0, 0.0), (2.0, 2.0), (3.0, 0.0)):
        second = grad(grad(lambda x, y=y: ops.pow(x, t(y))))
        assert second(t(0.0)).item() == wanted
    mixed = grad(grad(ops.pow), argnums=1)  # d/dy of y x^(y - 1) is 1 / x at y = 0
    np.testing.assert_allclose(mixed(t(3.0), t(0.0)).item(), 1 / 3)


@pytest.mark.parametrize(
    ("fn", "x", "y", "dx", "dy"),
    [
        (ops.pow, 1e-5, 0.0, 0.0, np.log(1e-5)),  # 1 / x overflows
        (ops.pow, NAN, 0.0, 0.0, NAN),
        (ops.pow, 0.0, -1.0, -INF, 0.0),  # the output is infinite
        (ops.div, 0.0, 1e-5, INF, 0.0),  # 1 / y overflows
        (ops.div, 1e-7, 1e-5, INF, -1000.0),
        (ops.atan2, 1e-4, 1e-4, 5000.0, -5000.0),  # the squares vanish
        (ops.atan2, 300.0, 300.0, 1 / 600, -1 / 600),  # the squares overflow
        (ops.atan2, 0.0, 1e-5, INF, 0.0),
        (ops.atan2, INF, 2.0, 0.0, 0.0),
    ],
)
def test_gradients_of_pairs_where_a_part_of_the_formula_leaves_float16(fn, x, y, dx, dy):
    x, y = np.float16(x), np.float16(y)

    def pull(x, y):
        return vjp(fn, x, y)[1](ops.ones_like(x))

    for got in (pull(x, y), ml.jit(pull)(x, y)):
        np.testing.assert_allclose([float(g.item()) for g in got], [dx, dy], 0.2)


@pytest.mark.parametrize("fn", [ops.atan, ops.asinh, ops.elu, ops.expm1, ops.tan])
def test_second_derivatives_where_the_pieces_of_a_rule_meet(fn):
    """At 0 and 1, and far out: from the closed forms."""
    points = np.array([-50.0, -1.0, -0.5, 0.0, 0.5, 1.0, 50.0])
    expected = {
        ops.atan: -2 * points / (1 + points**2) ** 2,
        ops.asinh: -points / (1 + points**2) ** 1.5,
        ops.elu: np.where(points <= 0, np.exp(points), 0),
        ops.expm1: np.exp(points),
        ops.tan: 2 * np.tan(points) / np.cos(points) ** 2,
    }[fn]
    second = grad(lambda x: ops.sum(grad(lambda v: ops.sum(fn(v)))(x)))
    np.testing.assert_allclose(second(points), expected, 1e-12)


@pytest.mark.parametrize(
    ("fn", "points"),
    [
        (ops.div, ([3.0, 0.0, -2.0], [0.5, -2.0, 4.0])),
        (ops.pow, ([3.0, 0.5, 2.0], [0.0, -2.5, 4.0])),
        (ops.atan2, ([3.0, 0.0, -2.0, 1.0], [0.5, -2.0, 0.0, 1.0])),
        (ops.rsqrt, ([0.5, 4.0],)),
        (ops.reciprocal, ([0.5, -4.0],)),
        (ops.acosh, ([1.5, 40.0],)),
        (ops.log2, ([0.5, 40.0],)),
        (ops.log10, ([0.5, 40.0],)),
        (ops.exp2, ([0.5, -4.0],)),
        (lambda x: ops.gelu(x, "tanh"), ([0.5, -4.0, 40.0],)),
    ],
)
def test_second_derivatives_of_rules_that_mind_the_range(fn, points):
    assert gradcheck(fn, *map(np.array, points), order=2).ok


def test_the_exponent_two_is_a_square():
    x = t([1.0, -3.0])
    assert "Square" in str(ml.trace(lambda x: x**2, x))
    assert (x**2).tolist() == [1.0, 9.0]


def test_select_protects_from_what_it_does_not_select():
    x = t([0.0, 4.0])

    def safe_log(x):
        return ops.sum(ops.where(x > 0, ops.log(ops.where(x > 0, x, 1.0)), 0.0))

    assert grad(safe_log)(x).tolist() == [0.0, 0.25]
    dx, dy = pulled(lambda a, b: ops.where(x > 0, a, b), x, x, dout=[INF, NAN])
    np.testing.assert_array_equal(dx, [0.0, NAN])
    np.testing.assert_array_equal(dy, [INF, 0.0])


def test_abs_has_the_subgradient_zero_at_zero():
    assert pulled(ops.abs, [-2.0, 0.0, 2.0])[0].tolist() == [-1.0, 0.0, 1.0]


def test_piecewise_constant_functions_pass_no_gradient():
    x = t([1.3, -2.6])
    for fn in (ops.floor, ops.ceil, ops.round, ops.trunc, ops.sign, lambda x: ops.floor_div(x, 2)):
        assert grad(lambda x, fn=fn: ops.sum(x * fn(x)))(x).tolist() == fn(x).tolist()


def test_the_slope_of_gelu_is_relatively_accurate_in_its_tail():
    (slope,) = pulled(ops.gelu, -8.0)  # Phi(-8) - 8 phi(-8)
    np.testing.assert_allclose(slope, 6.220960574271785e-16 - 8 * 5.052271083536893e-15)
