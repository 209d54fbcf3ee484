"""A mistake that the report says it would show is shown, in scalars as in arrays."""

import secrets

import numpy as np
import pytest

from miniml import Primitive, kernel
from miniml.grad import bprop_getters
from miniml.testing import gradcheck, gradcheck_vjp

CURVES = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "0.1 x": (lambda x: 0.1 * x, lambda x: 0.1 * np.ones_like(x)),
    "x^2": (np.square, lambda x: 2 * x),
    "x^3": (lambda x: x**3, lambda x: 3 * x * x),
    "1/x": (lambda x: 1 / x, lambda x: -1 / (x * x)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "sin 5 x": (lambda x: np.sin(5 * x), lambda x: 5 * np.cos(5 * x)),
}
SIZES = (), (1,), (2,), (3,), (5,), (20,), (200,)
TINY = 1e-8  # of one element: far below what finite differences of one step would see
CLEARLY = 4.0  # times what the report says it would show: an element may be smaller than most


class SharpTenth(Primitive):
    """x times float32(0.1); its gradient says 0.1, which is off by 1.5e-8."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("SharpTenth", "cpu", "d->d")
def sharp_tenth_cpu(x, *, out):
    np.multiply(x, np.float64(np.float32(0.1)), out=out)


@bprop_getters.register(SharpTenth)
def get_bprop_sharp_tenth(self):
    return lambda x, out, dout: (0.1 * dout,)


def points(rng, shape):
    """Numbers where none of the curves is flat."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.6, 1.3, shape)


def off_in_one(slope, off, place):
    """A pull-back that is wrong in one element, by a part of it."""

    def vjp(x, dout):
        gradient = np.array(dout * slope(x))
        gradient[place] *= 1 + off
        return (gradient,)

    return vjp


def named(report):
    return [(f.argnum, f.index or ()) for f in report.wrong]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_one_element_off_by_a_hundred_millionth_is_named(curve, shape):
    f, slope = CURVES[curve]
    rng = np.random.default_rng([len(curve), *shape])
    x, place = points(rng, shape), tuple(int(rng.integers(n)) for n in shape)
    report = gradcheck_vjp(f, off_in_one(slope, TINY, place), x, raise_error=False)
    assert named(report) == [(0, place)], str(report)
    assert gradcheck_vjp(f, off_in_one(slope, 0.0, place), x).judged == x.size


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shape", [(), (4,)], ids=["a scalar", "a vector"])
def test_a_scalar_beside_others_is_named(curve, shape):
    """f(x) f(t): the second argument is a scalar, such as a temperature."""
    f, slope = CURVES[curve]
    rng = np.random.default_rng([len(curve), len(shape)])
    x, t = points(rng, shape), points(rng, ())

    def vjp(x, t, dout):
        return dout * slope(x) * f(t), np.sum(dout * f(x) * slope(t)) * (1 + TINY)

    report = gradcheck_vjp(lambda x, t: f(x) * f(t), vjp, x, t, raise_error=False)
    assert named(report) == [(1, ())], str(report)


@pytest.mark.parametrize("shape", SIZES[:-1], ids=str)
def test_a_constant_that_is_rounded_in_the_kernel_alone_is_found(shape):
    x = points(np.random.default_rng(3), shape)
    report = gradcheck(SharpTenth(), x, order=1, raise_error=False)
    assert len(report.wrong) == min(x.size, 8), str(report)


def missed(curve, seed):
    """The report of a mistake of a random size that it should show, None where it did."""
    rng = np.random.default_rng(seed)
    f, slope = CURVES[curve]
    shift = 10.0 ** rng.uniform(-1, 7)  # rounding that hides digits
    shape = () if rng.random() < 0.3 else (int(np.exp(rng.uniform(0, np.log(300)))),)
    place = tuple(int(rng.integers(n)) for n in shape)
    x = points(rng, shape).astype(rng.choice([np.float64, np.float32]))
    x = np.asarray(x)

    def shifted(x):
        return f(x) + x.dtype.type(shift)

    def check(off):
        vjp = off_in_one(slope, off, place)
        return gradcheck_vjp(shifted, vjp, x, raise_error=False, seed=seed)

    right = check(0.0)
    assert right.ok, f"seed {seed}, a right gradient:\n{right}"
    shown = [c.resolution for c in right.checks if c.what.startswith("a random direction")]
    if not shown:
        return None
    least = max(TINY, CLEARLY * max(shown))
    wrong = check(float(np.exp(rng.uniform(np.log(least), np.log(max(0.03, 2 * least))))))
    return None if named(wrong) == [(0, place)] else wrong


@pytest.mark.parametrize("curve", CURVES)
def test_what_the_report_would_show_it_shows(curve):
    for seed in range(3):
        report = missed(curve, seed)
        assert report is None, f"seed {seed}:\n{report}"


@pytest.mark.parametrize("size", [3, 6, 7])
def test_rounding_inside_is_no_mistake(size):
    """Solutions with a matrix and with its transpose, of condition up to 5e8: nobody sees it."""
    i = np.arange(size)
    matrix = 1 / (i[:, None] + i + 1)
    for seed in range(3):
        b = np.random.default_rng(seed).normal(size=size)
        report = gradcheck_vjp(
            lambda b: np.linalg.solve(matrix, b),
            lambda b, dout: np.linalg.solve(matrix.T, dout),
            b,
            raise_error=False,
            seed=seed,
        )
        assert not report.wrong, str(report)


@pytest.mark.parametrize("off", [1e-8, 1e-4, 0.5])
def test_the_factor_is_not_printed_as_one(off):
    report = gradcheck_vjp(
        np.sin, lambda x, d: d * np.cos(x) * (1 + off), np.float64(0.3), raise_error=False
    )
    row = str(report).splitlines()[3].split()
    assert row[4] != row[5], str(report)
    assert not str(report).splitlines()[3].endswith("factor 1"), str(report)


class SharpHalf(SharpTenth):
    """x^2, in float16 alone."""


@kernel("SharpHalf", "cpu", "e->e")
def sharp_half_cpu(x, *, out):
    np.multiply(x, x, out=out)


@bprop_getters.register(SharpHalf)
def get_bprop_sharp_half(self):
    return lambda x, out, dout: (2.0 * x * dout,)


def test_a_function_of_sixteen_bits_alone_is_left_at_few_calls_and_says_why():
    x = points(np.random.default_rng(0), (3, 3)).astype(np.float16)
    report = gradcheck(SharpHalf(), x, raise_error=False)
    assert not report.ok
    assert not report.wrong
    assert report.forward_calls < 60
    assert "with a kernel in float64 beside it (d->d)" in str(report)


@pytest.mark.rates
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("curve", CURVES)
def test_what_the_report_would_show_it_shows_at_fresh_seeds(curve):
    first = secrets.randbits(32)
    reports = {seed: missed(curve, seed) for seed in range(first, first + 100)}
    found = {seed: r for seed, r in reports.items() if r is not None}
    assert not found, "\n\n".join(f"seed {s}:\n{r}" for s, r in found.items())
