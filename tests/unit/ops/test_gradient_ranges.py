"""Every gradient rule of one or two floats over the whole range, against long double."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from miniml import ops
from miniml.grad import vjp
from tests.conftest import DEEP
from tests.frame.completeness import library
from tests.opinfo.elementwise import BINARY_SLOPES as BINARY
from tests.opinfo.elementwise import UNARY_SLOPES as UNARY

FUNCTIONS = {name: getattr(ops, name) for name in (*UNARY, *BINARY) if hasattr(ops, name)}
FUNCTIONS["exp_neg_square"] = ops.ExpNegSquare()
FUNCTIONS["normal_cdf"] = ops.NormalCDF()
FUNCTIONS["polygamma"] = ops.digamma
FUNCTIONS["gelu_tanh"] = lambda x: ops.gelu(x, "tanh")

# Elementwise primitives that are not here: they hand dout on as it is, a part of it, or times an
# attribute.
OF_COMPLEX = {"Complex", "Conj", "Imag", "Real"}
MOVING = {"Cast", "Clip", "LeakyReLUGrad", "ReLUGrad", "Select", *OF_COMPLEX}

COTANGENTS = (1.0, 1024.0, 2.0**-10)  # as losses are scaled, and as means of many share
UNITS = 6  # of rounding: a rule is a few operations


class Case(NamedTuple):
    """One rule at many points: the inputs, the output, the true slope, the cotangent."""

    dtype: Any
    xs: tuple
    out: Any
    slope: Any
    dout: float

    def unusual(self, *values):
        """Where one of the values is neither 0 nor a normal number of the dtype."""
        info = np.finfo(self.dtype)
        sizes = [np.abs(np.asarray(v, np.longdouble)) for v in values]
        normal = [(s >= info.smallest_normal) & (s <= info.max) | (s == 0) for s in sizes]
        return ~np.all(normal, axis=0)


class Listed(NamedTuple):
    """Where a rule may be wrong though the true value can be represented, and why it stays so."""

    reason: str
    where: Callable[[Case], Any]


def slope_and(*more):
    """Where the slope is no normal number of the dtype, or one of the values that `more` give."""
    return lambda case: case.unusual(case.slope, *(f(case) for f in more))


OUT = Listed(
    "it is made of the output, which is rounded there", lambda c: c.unusual(c.out) | (c.out == 0)
)
SLOPE = Listed("it needs the slope, and only with the cotangent is it in the range", slope_and())
SATURATED = Listed(
    "1 - out cancels in the output's last digits; exact ways cost every network an exponential in "
    "its backward pass",
    lambda c: np.abs(c.xs[0]) > 1,
)
FLUSHED = Listed(
    "sigmoid is 0 where exp(-x) overflows, below -88 in float32", lambda c: c.xs[0] < -8
)


def ratio(case):
    small, large = np.sort(np.abs(np.asarray(case.xs, np.longdouble)), axis=0)
    return small / large


def quotient(case):
    return case.xs[0] / np.asarray(case.xs[1], np.longdouble)


def reciprocal(case):
    return case.dout / np.asarray(case.xs[1], np.longdouble)


def power(case):
    """x^(y - 1), and 1 % for the rounding of the exponent."""
    x, y = (np.asarray(v, np.longdouble) for v in case.xs)
    return np.power(x, y - 1) * 1.01


def coarse(y):
    """Where y is so large that the next float is another whole number or further."""
    return np.abs(y) >= 1 / np.finfo(y.dtype).eps


LISTED: dict[str, Listed] = {
    "exp": OUT,
    "exp2": OUT,
    "exp_neg_square": Listed(
        OUT.reason, lambda c: np.abs(c.out) < 16 * np.finfo(c.dtype).smallest_normal
    ),
    "tanh": SATURATED,
    "sigmoid": SATURATED,
    "silu": Listed(
        f"{SLOPE.reason}; {FLUSHED.reason}", lambda c: SLOPE.where(c) | FLUSHED.where(c)
    ),
    "gelu_tanh": Listed(
        f"{SLOPE.reason}; {FLUSHED.reason}", lambda c: SLOPE.where(c) | FLUSHED.where(c)
    ),
    **dict.fromkeys(
        "expm1 sinh cosh elu erf erfc softplus gelu normal_cdf mod_y lgamma polygamma hypot_x "
        "hypot_y".split(),
        SLOPE,
    ),
    "div_y": Listed(
        "of x / y^2 it makes x / y or dout / y first, and either may leave the normal numbers",
        lambda c: (c.xs[0] != 0) & slope_and(quotient, reciprocal)(c),
    ),
    "pow_x": Listed(
        "y x^(y - 1): the power alone leaves the range where x is next to nothing and y too, and "
        "of large y the exponent y - 1 is rounded to an even number, which a negative x shows",
        lambda c: (c.xs[1] != 0) & slope_and(power)(c) | (c.xs[0] < 0) & coarse(c.xs[1]),
    ),
    "pow_y": Listed(
        f"{SLOPE.reason}; {OUT.reason}", lambda c: (c.xs[0] > 0) & slope_and(lambda c: c.out)(c)
    ),
    "logaddexp_x": Listed(
        f"{SLOPE.reason}; an exponential magnifies the rounding of x - y",
        lambda c: SLOPE.where(c) | (np.abs(np.subtract(*c.xs, dtype=np.longdouble)) > 8),
    ),
    "atan2_x": Listed(
        "the ratio of x and y, or its product with dout, is next to 0",
        slope_and(ratio, lambda c: ratio(c) * c.dout),
    ),
}
LISTED["atan2_y"], LISTED["logaddexp_y"] = LISTED["atan2_x"], LISTED["logaddexp_x"]
LISTED["xlogy_y"] = LISTED["xlog1py_y"] = SLOPE


# Points


def all_of(dtype):
    """All numbers of float16; of the others those spread over the exponents, and near 0 and 1."""
    if dtype == np.float16:
        x = np.arange(0, 65536, 1 if DEEP else 11).astype(np.uint16).view(np.float16)
        return x[~np.isnan(x)]
    info, count = np.finfo(dtype), 20_000 if DEEP else 500
    spread = np.exp2(np.linspace(np.log2(info.smallest_normal), np.log2(info.max), count)[:-1])
    near = 1 + np.arange(-count // 4, count // 4) * 3 * info.eps
    x = np.concatenate([spread, near, np.linspace(0, 100, count), special(dtype)]).astype(dtype)
    return np.concatenate([x, -x])


def special(dtype):
    info = np.finfo(dtype)
    ends = [info.max, info.smallest_normal, info.smallest_subnormal, np.inf]
    return np.array([0, 0.5, 1, 2, 3, 1e-3, 100, *ends], dtype)


def pairs_of(dtype):
    """Two arrays: of any exponent, near 1, and special, each with each."""
    rng, info, n = np.random.default_rng(0), np.finfo(dtype), 40_000 if DEEP else 3_000
    low = np.log2(float(info.smallest_subnormal if dtype == np.float16 else info.smallest_normal))

    def drawn():
        spread = np.exp2(rng.uniform(low, np.log2(float(info.max)), n))
        parts = [spread, np.exp2(rng.normal(0, 3, n)), rng.choice(special(dtype), n)]
        sizes = np.concatenate(parts).clip(0, None).astype(dtype)
        return rng.permutation(sizes) * rng.choice([-1, 1], len(sizes)).astype(dtype)

    return drawn(), drawn()


# What is compared


def wrong(case, got, size):
    """Where the true value is in the range, and `got` is not it to rounding."""
    info = np.finfo(case.dtype)
    true = case.slope * case.dout
    least = info.smallest_subnormal if case.dtype == np.float16 else info.smallest_normal
    size = np.fmax(np.abs(case.slope), size)  # which may be NaN at infinity
    bound = UNITS * info.eps * size * case.dout + 4 * np.longdouble(least)
    return (np.abs(true) + bound <= info.max) & ~(np.abs(got.astype(np.longdouble) - true) <= bound)


def check(name, case, got, size):
    """No faults but where they are listed; how many those are."""
    faults = wrong(case, got, size)
    listed = LISTED[name].where(case) if name in LISTED else np.zeros_like(faults)
    surprising = np.nonzero(faults & ~listed)[0]
    worst = [
        f"at {tuple(float(x[i]) for x in case.xs)}: {got[i]}, not {case.slope[i] * case.dout:.6g}"
        for i in surprising[:: max(len(surprising) // 5, 1)]
    ]
    assert not worst, f"{name}, {case.dtype.__name__}, dout {case.dout}: {worst}"
    return faults.sum()


def checked(name, xs, slopes, dtype):
    """All cotangents of one function at the points; by name of the gradient, faults listed."""
    wide = [x.astype(np.longdouble) for x in xs]
    out, pull = vjp(FUNCTIONS[name], *xs)
    found = {}
    with np.errstate(all="ignore"):
        true = slopes(*wide) if len(xs) > 1 else (slopes(*wide),)
        for dout in COTANGENTS:
            gradients = pull(np.full_like(xs[0], dout))
            for letter, got, slope in zip("xy", gradients, true):
                slope, size = slope if isinstance(slope, tuple) else (slope, slope)
                key = f"{name}_{letter}" if len(xs) > 1 else name
                case = Case(dtype, xs, out.asnumpy(), slope, dout)
                found[key] = found.get(key, 0) + check(key, case, got.asnumpy(), size)
    return found


DTYPES = (np.float16, np.float32, np.float64)


@pytest.mark.larger
@pytest.mark.parametrize("name", UNARY)
def test_slopes_of_one_float_over_the_whole_range(name):
    found = [checked(name, (all_of(d),), UNARY[name], d)[name] for d in DTYPES]
    assert any(found) == (name in LISTED), f"{found} faults; the list says otherwise"


@pytest.mark.larger
@pytest.mark.parametrize("name", BINARY)
def test_slopes_of_two_floats_over_the_whole_range(name):
    found = [checked(name, pairs_of(d), BINARY[name], d) for d in DTYPES]
    for key in found[0]:
        assert any(f[key] for f in found) == (key in LISTED), f"{key}: the list says otherwise"


def test_every_elementwise_rule_is_held_to_a_closed_form():
    known = {name.replace("_", "") for name in (*UNARY, *BINARY)}
    missing = [
        p.name
        for p in library()
        if p.__module__ in ("miniml.ops.elementwise", "miniml.ops.logic")
        and p.differentiable
        and p.name.lower() not in known
    ]
    assert set(missing) == MOVING


@pytest.mark.larger
@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_saturated_slopes_are_off_by_the_rounding_of_one_at_most(name, dtype):
    x = all_of(dtype)
    got = vjp(FUNCTIONS[name], x)[1](np.ones_like(x))[0].asnumpy()
    with np.errstate(all="ignore"):
        error = np.abs(got - UNARY[name](x.astype(np.longdouble)))
    assert error.max() <= 2 * np.finfo(dtype).eps
