"""lgamma, polygamma, erfinv: their errors on the CPU and in C, poles, ends, derivatives."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck
from tests.conftest import HAS_CC

INF, NAN = np.inf, np.nan
PROVIDERS = [
    "miniml",
    pytest.param("cc", marks=pytest.mark.skipif(not HAS_CC, reason="no C compiler")),
]
# Computed with 40 digits by mpmath 1.3.
POINTS = [
    -40.375, -3.3125, -2.46875, -1.0000152587890625, -0.5, -(2.0**-40), 2.0**-60, 0.125,
    1.0000152587890625, 1.4619140625, 1.96875, 3.5, 12.25, 1e6, 1e30,
]  # fmt: skip
EXPECTED = {
    "lgamma": [
        -110.4864646922988, -0.8684742149280832, -0.01710502803221675, 11.090348438090048,
        1.2655121234846454, 27.725887222398338, 41.58883083359672, 2.0194183575537963,
        -8.807420580197905e-06, -0.12148625208507322, -0.01289502598016741, 1.2009736023470743,
        18.115669505710894, 12815504.569147611, 6.807755278982137e31,
    ],
    0: [
        5.011833849841145, 3.4402635107530886, 1.40219963566838, 65536.42274397657,
        0.03648997397857652, 1099511627775.4227, -1.152921504606847e18, -8.388492663295855,
        -0.5771905654794569, 0.00027276858695440815, 0.40243027626744043, 1.103156640645243,
        2.464154655185369, 13.815510057964191, 69.07755278982137,
    ],
    1: [
        11.538497193982694, 14.015188857803654, 9.631571245481766, 4294967298.64494,
        8.934802200544679, 1.2089258196146292e24, 1.329227995784916e36, 65.38813344498803,
        1.6448973837387528, 0.9674226616682716, 0.6578083966452627, 0.3303577561002349,
        0.0850551429881632, 1.0000005000001667e-06, 9.999999999999999e-31,
    ],
    2: [
        30.092938676406945, 59.86719234134169, 6.056516769531754, 562949953421311.6,
        -0.82879664423432, 2.658455991569832e36, -3.064991081731778e54, -1025.7533381181356,
        -2.404014719564735, -0.8850892405887202, -0.419992989220824, -0.1082040516417274,
        -0.007230035788993344, -1.0000010000005e-12, -1e-60,
    ],
    7: [
        13104819.918668631, 55517026.68920578, 2957027.961842026, 1.71502312928153e42,
        2580680.218185598, 1.0765374661041387e100, 1.57336126935926e148, 84557170617.06169,
        5059.933447514993, 245.59699830359847, 23.26620317127543, 0.26222195252313135,
        2.289830562545907e-05, 7.2000252000336e-40, 7.199999999999999e-208,
    ],
}  # fmt: skip


def function(name):
    return ops.lgamma if name == "lgamma" else lambda x: ops.polygamma(name, x)


def units(got, expected, at_least=1.0):
    """The largest error in units of the last digit of the result, or of 1 if that is more."""
    rounded = expected.astype(got.dtype)
    same = (got == rounded) | ((rounded == 0) & (got == 0))
    size = np.maximum(np.abs(rounded), np.asarray(at_least, got.dtype))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got.astype(np.float64) - expected) / np.spacing(size)
    return np.max(np.where(same, 0, apart))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_errors_are_as_documented(provider):
    with ml.context(providers=(provider,)):
        for name, values in EXPECTED.items():
            compiled, expected = ml.jit(function(name)), np.array(values)
            assert units(compiled(np.array(POINTS)).asnumpy(), expected) <= 12, name
            narrow = np.array(POINTS, np.float32)
            exact = narrow == POINTS
            with np.errstate(over="ignore"):
                got = compiled(narrow).asnumpy()[exact]
                assert units(got, expected[exact]) <= (2 if name == "lgamma" else 1), name


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_inverse_of_erf(provider):
    x = np.array([
        -1 + 2.0**-50, -0.75, -(2.0**-30), 2.0**-200, 0.0625, 0.5, 0.96875, 1 - 2.0**-24,
        -1, 1, 1.5, -INF, NAN,
    ])  # fmt: skip
    expected = np.array([
        -5.686128441310391, -0.8134198475976185, -8.253631419062224e-10, 5.5150036967444205e-61,
        0.05544594877278202, 0.4769362762044699, 1.523019401996956, 3.832506856900711,
        -INF, INF, NAN, NAN, NAN,
    ])  # fmt: skip
    with ml.context(providers=(provider,)):
        got = ml.jit(ops.erfinv)(x).asnumpy()
        assert units(got[:8], expected[:8], 0.0) <= 4
        np.testing.assert_array_equal(got[8:], expected[8:])
        zeros = ml.jit(ops.erfinv)(np.array([-0.0, 0.0])).asnumpy()
    assert np.signbit(zeros).tolist() == [True, False]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_poles_and_ends(provider):
    x = np.array([0.0, -0.0, -1.0, -7.0, INF, -INF, NAN])
    with ml.context(providers=(provider,)):
        far = ml.jit(ops.digamma)(np.array([-1e9 - 0.5])).item()  # in as few steps as near 0
        assert abs(far - np.log(1e9)) < 1e-8
        assert ml.jit(function(1))(np.array([-1e9 - 0.5])).item() == pytest.approx(np.pi**2)
        for name, expected in {
            "lgamma": [INF] * 6 + [NAN],
            0: [-INF, INF, NAN, NAN, INF, NAN, NAN],
            1: [INF] * 4 + [0, NAN, NAN],
            2: [-INF] * 4 + [0, NAN, NAN],
        }.items():
            got = ml.jit(function(name))(x).asnumpy()
            np.testing.assert_array_equal(got, expected, err_msg=str(name))


def test_derivatives_on_both_sides_of_0():
    x = np.array([-2.6, -0.7, 0.3, 1.9, 6.2])
    for fn in (ops.lgamma, ops.digamma, lambda v: ops.polygamma(3, v)):
        assert gradcheck(fn, x, order=2).ok
    assert gradcheck(ops.erfinv, np.array([-0.9, -0.1, 0.0, 0.4, 0.99]), order=2).ok
    assert grad(ops.erfinv)(np.float64(1)).item() == INF


def test_what_they_take():
    assert ops.digamma(np.array([1, 2])).dtype == ml.float32
    assert ops.lgamma(np.zeros((0, 3))).shape == (0, 3)
    turned = np.linspace(0.5, 4, 6).reshape(2, 3)
    np.testing.assert_array_equal(ops.lgamma(turned.T).asnumpy(), ops.lgamma(turned).asnumpy().T)
    for n in (-1, 21):
        with pytest.raises(ValueRefusedError, match=f"Polygamma got n={n}; expected an int"):
            ops.polygamma(n, 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lgamma_of_denormals_is_minus_their_logarithm(dtype):
    small = np.finfo(dtype).smallest_subnormal * np.array([1, 3, -1, 1000], dtype)
    expected = -np.log(np.abs(small.astype(np.float64)))
    np.testing.assert_allclose(ops.lgamma(small).asnumpy(), expected, rtol=np.finfo(dtype).eps)
