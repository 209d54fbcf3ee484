"""Elementwise primitives over the whole range: eager and compiled agree, and with exact values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.ops import Binary, Unary
from tests.conftest import DEEP, HAS_CC
from tests.frame.completeness import library

pytestmark = [
    pytest.mark.skipif(not HAS_CC, reason="no C compiler"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
DTYPES = (np.float32, np.float64)
UNITS = 4


class Exempt(NamedTuple):
    """Where a result may be off by more than the units of its last digit, and by how much."""

    reason: str
    size: Callable[[Any, Any], Any]  # of x and the result: whose last digit is the unit
    units: float = UNITS


def terms(x, out):
    """The result, or what cancels in it: 1 or log |x|."""
    return np.maximum(np.abs(out), 1 + np.log1p(np.abs(x)))


def terms_below_0(x, out):
    return np.where(x < 0, terms(x, out), np.abs(out))


def where_powers_are_finite(x, out):
    return np.where(np.abs(out) > 1e-280, np.abs(out), np.inf)


def or_of_a_factor(x, out):
    """The result, or x times the smallest normal number, below which a factor has fewer digits."""
    return np.maximum(np.abs(out), np.abs(x) * np.finfo(x.dtype).smallest_normal)


def of_the_exponent(x, out):
    return np.abs(out) * np.maximum(np.abs(1.6 * (x + 0.045 * x**3)), 1)


EXACT = Exempt("", lambda x, out: np.abs(out))
# docs/native.md has this table, too.
GAMMA = "terms cancel next to the roots, which lie below 0 but for those of lgamma at 1 and 2"
EXEMPT = {
    "lgamma": Exempt(GAMMA, terms_below_0, 6),
    "digamma": Exempt(f"{GAMMA}, and of digamma at 1.46", terms, 16),
    # Of order n: each side rounds n products of the power, its inverse, the sum, in which the first
    # term leads, and the product with n!, each by at most one unit: 2 (n + 3), for n up to 5.
    "polygamma": Exempt("of high order: the power of x", where_powers_are_finite, 16),
    "erfinv": Exempt("a sum of both signs in C, beside 3 units of SciPy's", EXACT.size, 8),
    "logaddexp": Exempt(
        "the greater number and a logarithm up to log(2) cancel next to 0",
        lambda x, out: np.maximum(np.abs(out), 0.5),
    ),
    "gelu": Exempt("where the law's probability is no normal number", or_of_a_factor),
}
# Of exact values only: the same rounding is in both.
INEXACT = EXEMPT | {
    "erfinv": EXACT,
    "gelu_tanh": Exempt("the polynomial in the exponent is rounded", of_the_exponent),
}


def apart(got, expected, size):
    """The distance in units of the last digit of `size`; 0 of NaN and NaN."""
    info, same = np.finfo(got.dtype), (got == expected) | np.isnan(got) & np.isnan(expected)
    held = np.clip(np.asarray(size, got.dtype), info.smallest_normal, info.max)
    error = np.abs(got.astype(np.longdouble) - expected) / np.spacing(held)
    error = np.where(np.isinf(size), 0, np.where(np.isnan(error), np.inf, error))
    return np.where(same, 0, error)


def in_one_program(calls):
    """The results of all functions, each of its own arrays, compiled together."""
    with ml.context(providers=("cc",)):
        outs = ml.jit(lambda xs: [f(*x) for (f, _), x in zip(calls, xs, strict=True)])(
            [[ml.Tensor(x) for x in xs] for _, xs in calls]
        )
    return [out.asnumpy() for out in outs]


# Eager and compiled


def drawn(rng, dtype):
    """Numbers with any bits, of ordinary sizes, near 1, spread over the exponents, and special."""
    info, n = np.finfo(dtype), 100_000 if DEEP else 2_000
    kind = np.dtype(f"u{info.dtype.itemsize}")
    special = [0, 1, 2, 0.5, info.max, info.smallest_normal, info.smallest_subnormal, np.inf]
    x = np.concatenate([
        rng.integers(0, np.iinfo(kind).max, n, kind).view(dtype),
        rng.normal(size=n), rng.uniform(-30, 30, n), rng.uniform(-750, 750, n),
        1 + rng.normal(size=n) * np.exp(rng.uniform(-36, 0, n)), np.exp(rng.uniform(-80, 80, n)),
        rng.choice(special, n),
    ]).astype(dtype)  # fmt: skip
    return rng.permutation(x) * rng.choice([-1, 1], x.size).astype(dtype)


ATTRIBUTES = {
    "GELU": [{"approximate": True}, {"approximate": False}],
    "ExpNegSquare": [{"halved": True}, {"halved": False}],
    "Polygamma": [{"n": n} for n in (0, 1, 5)],
    "LeakyReLU": [{}, {"slope": 1.5}],
    "ELU": [{}, {"alpha": 0.3}],
}
# Those of real floats alone; of even order > 0 polygamma cancels below 0, as its docstring says.
NOT_HERE = {"Clip", "LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor", "StopGradient"}
NOT_HERE |= {"Complex", "Conj", "Imag", "Real"}
NOT_HERE |= {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "LeftShift", "RightShift"}
CALLS = [
    (p, attrs)
    for p in library()
    if p.__module__ in ("miniml.ops.elementwise", "miniml.ops.logic")
    if issubclass(p, Unary | Binary) and p.name not in NOT_HERE
    for attrs in ATTRIBUTES.get(p.name, [{}])
]


@pytest.fixture(scope="module", params=DTYPES, ids=lambda d: d.__name__)
def results(request):
    """Of each call the arrays, and what is eager and compiled."""
    rng = np.random.default_rng(0)
    calls = [
        (p(**attrs), [drawn(rng, request.param) for _ in range(1 + issubclass(p, Binary))])
        for p, attrs in CALLS
    ]
    return [
        (xs, function(*xs).asnumpy(), native)
        for (function, xs), native in zip(calls, in_one_program(calls), strict=True)
    ]


@pytest.mark.larger
@pytest.mark.parametrize("at", range(len(CALLS)), ids=[f"{p.name}{a or ''}" for p, a in CALLS])
def test_eager_and_compiled_are_within_four_units(at, results):
    primitive, attrs = CALLS[at]
    xs, eager, native = results[at]
    if eager.dtype == bool:
        np.testing.assert_array_equal(native, eager)
        return
    name = "digamma" if attrs.get("n") == 0 else primitive.name.lower()
    exempt = EXEMPT.get(name, EXACT)
    error = apart(native, eager, exempt.size(xs[0], eager))
    i = int(error.argmax())
    assert error[i] <= exempt.units, (*(float(x[i]) for x in xs), eager[i], native[i])


# Exact values

FUNCTIONS = {
    "trigamma": lambda x: ops.polygamma(1, x),
    "gelu_tanh": lambda x: ops.gelu(x, "tanh"),
    "exp_neg_square": ops.ExpNegSquare(),
    "normal_cdf": ops.NormalCDF(),
    "exp_neg_half_square": ops.ExpNegSquare(halved=True),
}


def exact():
    """Points and values by function, from tails.txt, which `python -m tools.tails` writes."""
    text = Path(__file__).with_name("tails.txt").read_text("utf-8")
    rows = [line.split() for line in text.splitlines()]
    return {
        name: (
            np.array([float(x) for given, x, _ in rows if given == name]),
            np.array([np.longdouble(value) for given, _, value in rows if given == name]),
        )
        for name in dict.fromkeys(row[0] for row in rows)
    }


EXACTLY = exact()


@pytest.fixture(scope="module", params=DTYPES, ids=lambda d: d.__name__)
def found(request):
    """By function the points that the dtype holds, their values, and what is eager and compiled."""
    info, calls, expected = np.finfo(request.param), [], []
    for name, (points, values) in EXACTLY.items():
        x, size = points.astype(request.param), np.abs(values)
        held = (x == points) & (size >= 32 * info.smallest_normal) & (size <= info.max)
        calls.append((FUNCTIONS.get(name) or getattr(ops, name), [x[held]]))
        expected.append(values[held])
    eager = [function(*xs).asnumpy() for function, xs in calls]
    rows = zip([x for _, (x,) in calls], expected, eager, in_one_program(calls), strict=True)
    return dict(zip(EXACTLY, rows, strict=True))


@pytest.mark.parametrize("name", EXACTLY)
def test_values_are_exact_to_four_units(name, found):
    x, values, *results = found[name]
    exempt = INEXACT.get(name, EXACT)
    assert len(x) > 10
    for got in results:
        error = apart(got, values, exempt.size(x, values))
        i = int(error.argmax())
        assert error[i] <= exempt.units, (float(x[i]), got[i], values[i], error[i])
