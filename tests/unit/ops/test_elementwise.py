"""Arithmetic, activations and comparisons where a row of samples cannot say it."""

import ml_dtypes
import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops
from miniml.errors import AttributeRefusedError, DeclarationError, DTypeError

NAN, INF = np.nan, np.inf
INTEGERS = np.array([1, 2], np.int64)


def t(values, dtype=ml.float64):
    return ml.Tensor(values, dtype=dtype)


# Dtypes


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [
        (ml.bfloat16, ml.float16, ml.float32),
        (ml.bfloat16, ml.float32, ml.float32),
        (ml.int64, ml.float16, ml.float16),
        (ml.uint8, ml.int8, ml.int16),
        (ml.bool_, ml.int8, ml.int8),
        (ml.float32, ml.float64, ml.float64),
    ],
)
@pytest.mark.parametrize("fn", [ops.add, ops.mul, ops.maximum, lambda x, y: ops.where(True, x, y)])
def test_two_tensors_meet_in_their_common_dtype(x, y, wanted, fn):
    assert fn(ml.Tensor([1, 0], dtype=x), ml.Tensor([1, 1], dtype=y)).dtype == wanted
    assert fn(ml.Tensor([1, 0], dtype=y), ml.Tensor([1, 1], dtype=x)).dtype == wanted


@pytest.mark.parametrize(
    ("scalar", "dtype", "wanted"),
    [
        (2, ml.bfloat16, ml.bfloat16),
        (2.0, ml.float16, ml.float16),
        (2, ml.uint8, ml.uint8),
        (2.0, ml.uint8, ml.float32),
        (2, ml.bool_, ml.int64),
        (True, ml.int8, ml.int8),
    ],
)
@pytest.mark.parametrize("fn", [ops.add, ops.maximum, lambda x, y: ops.where(True, x, y)])
def test_a_python_scalar_is_weak_on_either_side(scalar, dtype, wanted, fn):
    x = ml.Tensor([1, 0], dtype=dtype)
    assert fn(x, scalar).dtype == wanted
    assert fn(scalar, x).dtype == wanted


@pytest.mark.parametrize("fn", [ops.div, ops.atan2])
def test_true_division_of_integers_is_float32(fn):
    assert fn(INTEGERS, INTEGERS).dtype == ml.float32
    assert fn(INTEGERS, np.ones(2, np.float16)).dtype == ml.float16


def test_functions_of_floats_cast_integers_to_float32():
    for fn in (ops.sqrt, ops.exp, ops.tanh, ops.sigmoid, ops.gelu, ops.erf):
        assert fn(INTEGERS).dtype == ml.float32
    np.testing.assert_array_equal(ops.sqrt([1, 4, 9]), np.float32([1, 2, 3]))


def test_integers_stay_integers():
    x, y = ml.Tensor([-7, 7]), ml.Tensor([2, -2])
    for fn, wanted in (
        (ops.floor_div, [-4, -4]),
        (ops.mod, [1, -1]),
        (ops.maximum, [2, 7]),
        (ops.sub, [-9, 9]),
    ):
        out = fn(x, y)
        assert out.dtype == ml.int64
        assert out.tolist() == wanted == [fn(a, b).item() for a, b in zip([-7, 7], [2, -2])]
    assert ops.pow(x, 3).tolist() == [-343, 343]
    assert ops.clip(x, -3, 5).tolist() == [-3, 5]
    assert ops.relu(x).tolist() == [0, 7]
    assert ops.round(x).dtype == ops.floor(x).dtype == ml.int64


def test_an_integer_divided_by_zero_is_zero():
    assert ops.floor_div(INTEGERS, 0).tolist() == [0, 0]
    assert ops.mod(INTEGERS, 0).tolist() == [0, 0]


def test_bools_add_as_or_and_multiply_as_and():
    x, y = ml.Tensor([False, False, True, True]), ml.Tensor([False, True, False, True])
    assert (x + y).tolist() == (x | y).tolist() == [False, True, True, True]
    assert (x * y).tolist() == (x & y).tolist() == [False, False, False, True]
    assert (x ^ y).tolist() == [False, True, True, False]
    assert (~x).tolist() == [True, True, False, False]


def test_select_promotes_what_it_selects_from_and_leaves_the_condition_alone():
    assert ops.where([True, False], 1, 2.5).tolist() == [1.0, 2.5]
    assert ops.where([True, False], 1, 2).dtype == ml.int64
    assert ops.where(True, np.uint8(3), 4).dtype == ml.uint8
    text = str(ml.trace(ops.where, t([True], ml.bool_), t([1], ml.int64), t([1.0], ml.float32)))
    assert text.count("Cast") == 1


def test_promote_names_inputs_that_exist():
    with pytest.raises(DeclarationError, match="promotes z; its tensor inputs are x, y"):

        class Wrong(Primitive):
            promote = ("x", "z")

            def infer_shape(self, x, y):
                return x

            def infer_dtype(self, x, y):
                return x


ROUNDED = """sqrt rsqrt reciprocal exp expm1 exp2 log log1p log2 log10 sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh sigmoid softplus silu elu erf erfc gelu""".split()


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16])
def test_narrow_floats_are_rounded_once(dtype):
    """All 65,536 of them: half a unit of the narrow dtype, and what float32 may be off by.

    A value computed in float32 to a few units and rounded once can differ from the correctly
    rounded one only where the true value lies that near the middle of two narrow numbers. How
    often that is depends on the machine: on its libm, or on NumPy's float16 in hardware.
    """
    x = np.arange(65536).astype(np.uint16).view(dtype)
    for name in ROUNDED:
        fn = getattr(ops, name)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            got, exact = (fn(v).asnumpy().astype(np.float64) for v in (x, x.astype(np.float64)))
        unit, single = unit_of(exact, dtype), unit_of(exact, ml.float32)
        beyond = np.abs(exact) >= float(ml_dtypes.finfo(dtype).max) + unit / 2
        with np.errstate(invalid="ignore"):
            near = np.abs(got - exact) <= unit / 2 + 4 * single + VANISHING
        right = np.where(np.isnan(exact), np.isnan(got), np.where(beyond, np.isinf(got), near))
        assert right.all(), f"{name}: {x[~right][:5]} give {got[~right][:5]}, not {exact[~right]}"


# sigmoid and silu are 0 where exp(-x) overflows in float32.
VANISHING = 512 * float(np.finfo(np.float32).smallest_normal)


def unit_of(values, dtype):
    """The distance of two numbers of `dtype` near each of the values."""
    info = ml_dtypes.finfo(dtype)
    with np.errstate(invalid="ignore"):
        size = np.clip(np.abs(values), float(info.smallest_normal), float(info.max))
    return np.exp2(np.floor(np.log2(size))) * float(info.eps)


@pytest.mark.parametrize("source", [ml.float16, ml.bfloat16, ml.float32, ml.float64])
@pytest.mark.parametrize("target", ml.dtype.INTEGERS)
def test_floats_become_integers_by_one_rule(source, target):
    """Truncated; the nearest end of the range where they do not fit; 0 for NaN."""
    info = np.iinfo(target)
    edges = [float(e) + d for e in (info.min, info.max) for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    with np.errstate(over="ignore"):
        x = np.array([NAN, INF, -INF, 1e30, -1e30, -0.0, 2.7, -2.7, *edges]).astype(source)
    expected = [saturated(float(v), info) for v in x]
    assert ops.cast(x, target).tolist() == expected
    assert [ops.cast(v, target).item() for v in x] == expected
    assert ml.jit(lambda v: ops.cast(v, target))(x).tolist() == expected
    assert ops.cast(x[:0], target).shape == (0,)


def saturated(value, info):
    """The rule, in Python's integers."""
    ends = {INF: info.max, -INF: info.min, 0.0: 0}
    whole = ends[0.0 if np.isnan(value) else value] if not np.isfinite(value) else int(value)
    return min(max(whole, info.min), info.max)


# Refusals


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ops.sub(True, False), "Sub has no meaning for bool; use the logical operators"),
        (lambda: -ml.Tensor([True]), "Neg has no meaning for bool"),
        (lambda: ops.pow(INTEGERS, -1), "Pow got a negative exponent for int64.*cast x to a float"),
        (lambda: ml.Tensor([1.0]) & 1, "BitwiseAnd needs integer tensors; got float32; compare"),
        (lambda: ~ml.Tensor([1.0]), "BitwiseNot needs integer tensors; got float32; compare"),
        (lambda: ml.Tensor([True]) << True, "LeftShift needs integer tensors; got bool; use the"),
        (lambda: ops.where([1, 0], 1.0, 2.0), "Select needs a bool condition; got int64; compare"),
        (lambda: ops.clip(INTEGERS, 0.5), "Clip got min=0.5 for int64"),
        (
            lambda: ops.clip(1.0, 10**400),
            "Clip got min=an int of about 401 digits for float32, which cannot hold it; leave min "
            "out, or give an infinity",
        ),
        (lambda: ops.clip(1.0, max=-(10**5000)), "Clip got max=an int of about 5001 digits for"),
        (lambda: ops.clip(INTEGERS, 10**5000), "Clip got min=an int of about 5001 digits for"),
        (lambda: ops.add(INTEGERS, 10**5000), "Add got the scalar an int of about 5001 digits"),
        (lambda: ops.add(np.uint64([1]), np.int8([1])), "Add: int8, uint64 have no common integer"),
    ],
)
def test_refusals_say_what_to_do(call, text):
    with pytest.raises(DTypeError, match=text):
        call()


def test_gelu_refuses_other_words():
    for word in ("tan", "exact", None, 1):
        with pytest.raises(AttributeRefusedError, match=f"approximate={word!r}"):
            ops.gelu(1.0, word)
    assert ops.gelu(1.0, "none").item() == ops.gelu(1.0).item() != ops.gelu(1.0, "tanh").item()


# NaN, infinities and signed zeros


def test_nan_passes_through_what_orders():
    x = t([NAN, 1.0])
    for out in (ops.maximum(x, 0), ops.minimum(0, x), ops.relu(x), ops.clip(x, 0, 2), ops.abs(x)):
        assert np.isnan(out.asnumpy()).tolist() == [True, False]
    for out in (ops.leaky_relu(x), ops.elu(x), ops.gelu(x), ops.silu(x), ops.softplus(x)):
        assert np.isnan(out.asnumpy()).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16, ml.float32, ml.float64])
def test_activations_have_their_limits_at_infinity(dtype):
    low, high = [
        {
            "sigmoid": ops.sigmoid(x), "softplus": ops.softplus(x), "silu": ops.silu(x),
            "relu": ops.relu(x), "elu": ops.elu(x), "gelu": ops.gelu(x), "tanh": ops.tanh(x),
            "gelu_tanh": ops.gelu(x, "tanh"), "erfc": ops.erfc(x), "flat": ops.leaky_relu(x, 0.0),
        }
        for x in (t(-INF, dtype), t(INF, dtype))
    ]  # fmt: skip
    limits = {"elu": -1, "tanh": -1, "erfc": 2}
    assert {k: v.item() for k, v in low.items()} == {k: limits.get(k, 0) for k in low}
    limits = {"sigmoid": 1, "tanh": 1, "erfc": 0}
    assert {k: v.item() for k, v in high.items()} == {k: limits.get(k, INF) for k in high}


def test_the_tails_of_activations_are_relatively_accurate():
    x = np.array([-80.0, -40.0, -20.0])
    np.testing.assert_allclose(ops.sigmoid(np.float32(x)), np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(ops.softplus(np.float32(x)), np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(ops.gelu(t(-8.0)).item(), -8 * 6.220960574271785e-16, rtol=1e-12)
    np.testing.assert_allclose(ops.erfc(t(8.0)).item(), 1.1224297172982928e-29, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_elu_of_a_zero_is_that_zero(alpha):
    zeros = np.array([-0.0, 0.0])
    assert np.signbit(ops.elu(zeros, alpha).asnumpy()).tolist() == [True, False]


def test_signed_zeros_keep_their_sign():
    zeros = t([0.0, -0.0])
    for fn in (ops.sin, ops.tan, ops.sqrt, ops.expm1, ops.log1p, ops.floor, ops.round, ops.erf):
        assert np.signbit(fn(zeros).asnumpy()).tolist() == [False, True]
    assert np.signbit(ops.where(True, zeros, 1.0).asnumpy()).tolist() == [False, True]
    assert ops.atan2(zeros, -1.0).tolist() == [np.pi, -np.pi]
    assert (1 / zeros).tolist() == [INF, -INF]


def test_select_moves_bits_as_they_are():
    x = np.array([0x7FF8000000000123, 0x7FF0000000000000], np.uint64).view(np.float64)
    for cond in ([True, False], [False, True]):
        out = ops.where(cond, x, -x).asnumpy().view(np.uint64)
        assert out.tolist() == np.where(cond, x, -x).view(np.uint64).tolist()


@pytest.mark.parametrize("dtype", [ml.float64, ml.float32, ml.float16, ml.bfloat16])
@pytest.mark.parametrize("alpha", [1.0, 1.7, 0.0, -0.5])
def test_elu_has_equal_bits_in_arrays_of_any_size(dtype, alpha):
    """Few elements are selected by branches, many by their bits, transposed ones too."""
    with ml.context(providers=("miniml",)):
        ends = [NAN, INF, -INF, 0.0, -0.0, 1e-7, -1e-7, 80.0, -80.0]
        x = np.resize([*ends, *np.random.default_rng(5).normal(size=91)], (30, 30))
        whole = t(x, dtype)
        parts = np.concatenate([ops.elu(row, alpha).asnumpy() for row in whole])
        bits = f"u{parts.itemsize}"
        found = ops.elu(whole, alpha).asnumpy().reshape(-1).view(bits)
        assert found.tolist() == parts.view(bits).tolist()
        turned = ops.elu(whole.T, alpha).T.asnumpy().reshape(-1).view(bits)
        assert turned.tolist() == parts.view(bits).tolist()


@pytest.mark.parametrize("shape", [(), (3,), (5000,), (70, 70), (100, 33), (9, 5, 100), (0, 7)])
@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.25), (0.0, None)])
def test_clip_repeats_its_bounds_over_arrays_of_any_shape(shape, bounds):
    x = np.random.default_rng(6).normal(size=shape).astype(np.float32)
    x.reshape(-1)[:1] = NAN
    with ml.context(providers=("miniml",)):
        for given in (x, x.T):
            expected = np.clip(given, *bounds)
            np.testing.assert_array_equal(ops.clip(ml.Tensor(given), *bounds).asnumpy(), expected)
            np.testing.assert_array_equal(ml.jit(ops.clip)(given, *bounds).asnumpy(), expected)


def test_numpy_functions_and_operators_are_these_operations():
    x, y = t([0.25, 0.5]), t([2.0, 3.0])
    for name in ("arctan2", "power", "maximum", "floor_divide", "remainder", "less", "true_divide"):
        fn = getattr(np, name)
        came = fn(x, y)
        assert isinstance(came, ml.Tensor)
        np.testing.assert_allclose(came, fn(x.asnumpy(), y.asnumpy()))
    for name in ("arcsinh", "arctanh", "rint", "trunc", "square", "log1p"):
        fn = getattr(np, name)
        assert isinstance(fn(x), ml.Tensor)
        np.testing.assert_allclose(fn(x), fn(x.asnumpy()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bound", [0.5, -np.inf, np.inf, np.nan])
def test_extrema_of_many_elements_and_a_number(dtype, bound):
    x = np.random.default_rng(2).standard_normal((70, 71)).astype(dtype)
    x[:3, 0] = np.nan, np.inf, -np.inf
    for array in (x, x.T):
        for number in (bound, np.full((1, 1), bound, dtype)):
            for name in ("maximum", "minimum"):
                found = getattr(ops, name)(ml.Tensor(array), number).asnumpy()
                np.testing.assert_array_equal(found, getattr(np, name)(array, dtype(bound)))
        low, high = ops.clip(ml.Tensor(array), 0.25), ops.clip(ml.Tensor(array), None, 0.25)
        np.testing.assert_array_equal(low.asnumpy(), np.maximum(array, dtype(0.25)))
        np.testing.assert_array_equal(high.asnumpy(), np.minimum(array, dtype(0.25)))
        np.testing.assert_array_equal(
            ops.relu(ml.Tensor(array)).asnumpy(), np.maximum(array, dtype(0))
        )
