"""Correct elementwise pairs: every scale, tails, edges of domains, and points on kinks."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from scipy import special

from .rows import Array, Pair, between, curve, exactly, in_dtype, normal, signed


def gelu(x: Array) -> Array:
    return x * special.ndtr(x)


def gelu_slope(x: Array) -> Array:
    return special.ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def sinc(x: Array) -> Array:
    """sin(x) / x, 1 at 0."""
    return np.sinc(x / np.pi)


def sinc_slope(x: Array) -> Array:
    """(x cos x - sin x) / x^2; near 0 by its series, where the formula cancels."""
    near = np.abs(x) < 1e-2
    safe = np.where(near, 1.0, x)
    return np.where(near, -x / 3 + x**3 / 30, (safe * np.cos(safe) - np.sin(safe)) / safe**2)


def logistic_map(x: Array) -> Array:
    """Twelve rounds of 3.7 x (1 - x), whose derivative grows from round to round."""
    for _ in range(12):
        x = 3.7 * x * (1 - x)
    return x


def logistic_map_vjp(x: Array, dout: Array) -> tuple[Array]:
    slope = np.ones_like(x)
    for _ in range(12):
        slope = slope * 3.7 * (1 - 2 * x)
        x = 3.7 * x * (1 - x)
    return (dout * slope,)


def huber(x: Array) -> Array:
    return np.where(np.abs(x) <= 1, x * x / 2, np.abs(x) - 0.5)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def relu_slope(at_zero: float) -> Callable[[Array], Array]:
    return lambda x: np.where(x > 0, 1.0, np.where(x == 0, at_zero, 0.0))


def flat(x: Array) -> Array:
    """exp(-1 / x^2): every derivative is 0 at 0."""
    with np.errstate(divide="ignore"):
        return np.exp(-1 / (x * x))


def flat_slope(x: Array) -> Array:
    safe = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 0.0, 2 / safe**3 * np.exp(-1 / (safe * safe)))


def sigmoid_slope(x: Array) -> Array:
    s = special.expit(x)
    return s * (1 - s)


V = ((5,),)
ZEROS = np.array([-1.3, 0.0, 0.7, 0.0, 2.1])

SMOOTH = (
    curve("sin", np.sin, np.cos, normal((3, 4))),
    curve("sin(2000 x)", lambda x: np.sin(2000 * x), lambda x: 2000 * np.cos(2000 * x),
        normal((30,)),
        scales="it bends over 1/2000 of x"),
    curve("exp(20 x)", lambda x: np.exp(20 * x), lambda x: 20 * np.exp(20 * x), normal((30,))),
    curve("1e18 x^3", lambda x: 1e18 * x**3, lambda x: 3e18 * x * x, normal((30,))),
    curve("tanh(exp(x))", lambda x: np.tanh(np.exp(x)),
        lambda x: np.exp(x) / np.cosh(np.minimum(np.exp(x), 300.0)) ** 2, normal((30,))),
    curve("log(|x| + 2)", lambda x: np.log(np.abs(x) + 2), lambda x: np.sign(x) / (np.abs(x) + 2),
        signed(0.1, 3, (30,))),
    curve("exp at large values", np.exp, np.exp, between(600, 700, *V)),
    curve("tanh saturated", np.tanh, lambda x: 1 / np.cosh(x) ** 2,
        exactly([-40.0, -9.0, 0.0, 7.0, 30.0])),
    curve("sigmoid tails", special.expit, sigmoid_slope, exactly([-700.0, -30.0, 0.1, 20.0])),
    curve("softplus", lambda x: np.logaddexp(x, 0), special.expit,
        exactly([-50.0, -1.0, 0.0, 3.0, 800.0])),
    curve("erf", special.erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x), normal(*V)),
    curve("erfc tail", special.erfc, lambda x: -2 / np.sqrt(np.pi) * np.exp(-x * x),
        between(4, 20, *V)),
    curve("gelu tails", gelu, gelu_slope, exactly([-9.0, -4.0, -0.1, 0.0, 0.8, 6.0])),
    curve("log near 0", np.log, np.reciprocal, between(1e-9, 1e-6, *V)),
    curve("log over 200 decades", np.log, np.reciprocal,
        exactly([1e-100, 1e-10, 1.0, 1e10, 1e100]),
        scales="inputs from 1e-100 to 1e100 in one array"),
    curve("sqrt near 0", np.sqrt, lambda x: 0.5 / np.sqrt(x), between(1e-10, 1e-8, *V)),
    curve("1 / x near 0", np.reciprocal, lambda x: -1 / (x * x), signed(1e-8, 1e-6, *V)),
    curve("log1p of small values", np.log1p, lambda x: 1 / (1 + x), signed(1e-12, 1e-9, *V)),
    curve("expm1 of small values", np.expm1, np.exp, signed(1e-12, 1e-9, *V)),
    curve("asin near its edge", np.arcsin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
        between(0.999, 0.99999, *V),
        scales="the edge is 1e-5 to 1e-3 away"),
    curve("tan near its pole", np.tan, lambda x: 1 + np.tan(x) ** 2, between(1.56, 1.565, *V),
        scales="the pole is 1e-2 to 5e-3 away"),
    curve("log gamma", special.gammaln, special.digamma, between(0.1, 30, *V)),
    curve("square at 0", np.square, lambda x: 2 * x, exactly(ZEROS)),
    curve("cube at 0", lambda x: x**3, lambda x: 3 * x * x, exactly(ZEROS)),
    curve("|x|^1.5 near 0", lambda x: np.abs(x) ** 1.5,
        lambda x: 1.5 * np.sign(x) * np.sqrt(np.abs(x)), signed(1e-5, 1e-2, (8,))),
    curve("|x|^1.5 ever nearer 0", lambda x: np.abs(x) ** 1.5,
        lambda x: 1.5 * np.sign(x) * np.sqrt(np.abs(x)),
        lambda rng: (rng.choice([-1, 1], 8) * 10 ** rng.uniform(-9, -1, 8),),
        scales="it bends over distances from 1e-9 to 0.1"),
    curve("|x|^1.5 at 0", lambda x: np.abs(x) ** 1.5,
        lambda x: 1.5 * np.sign(x) * np.sqrt(np.abs(x)), exactly(ZEROS), kink=True),
    curve("sin(x) / x at 0", sinc, sinc_slope, exactly([0.0, 1e-3, 0.5, 3.0])),
    curve("exp(-1 / x^2) at 0", flat, flat_slope, exactly([0.0, 0.05, 0.4, -2.0]),
        scales="all derivatives are 0 at 0, values down to 1e-174 beside it"),
    Pair("logistic map", logistic_map, logistic_map_vjp, between(0.1, 0.9, *V),
        scales="twelve rounds: it bends over 1/1000 of x"),
    curve("huber at its joint", huber, lambda x: np.clip(x, -1, 1), exactly([-1.0, 0.2, 1.0, 3.0]),
        kink=True),
    curve("floor", np.floor, np.zeros_like, between(0.2, 0.8, *V)),
    curve("round", np.round, np.zeros_like, between(0.7, 1.3, *V)),
    curve("constant", np.ones_like, np.zeros_like, normal(*V)),
    curve("identity", np.copy, np.ones_like, normal(*V)),
    curve("1e8 + x", lambda x: 1e8 + x, np.ones_like, normal(*V)),
    curve("outputs of 1e-30", lambda x: 1e-30 * np.sin(x), lambda x: 1e-30 * np.cos(x), normal(*V)),
    curve("outputs of 1e30", lambda x: 1e30 * np.sin(x), lambda x: 1e30 * np.cos(x), normal(*V)),
    curve("inputs of 1e-30", np.square, lambda x: 2 * x, normal(*V, scale=1e-30)),
    curve("inputs of 1e30", np.square, lambda x: 2 * x, normal(*V, scale=1e30)),
    curve("inputs of 1e15 in a quotient", lambda x: x / (1 + np.abs(x)),
        lambda x: 1 / (1 + np.abs(x)) ** 2, signed(1e3, 1e5, *V)),
    curve("scales mixed in one input", np.sin, np.cos, exactly([1e-20, 1e-5, 1.0, 30.0, 1e4])),
    curve("0-d", np.sin, np.cos, normal(())),
    curve("size 1", np.sin, np.cos, normal((1, 1))),
    curve("100,000 elements", np.sin, np.cos, normal((100_000,))),
    curve("a Fortran-ordered input", np.sin, np.cos,
        lambda rng: (np.asfortranarray(rng.normal(size=(4, 3))),)),
    curve("an input with negative strides", np.sin, np.cos,
        lambda rng: (rng.normal(size=(4, 3))[::-1, ::-1],)),
    curve("float32", np.sin, np.cos, in_dtype(np.float32, normal((30,)))),
    curve("float32 exp(5 x)", lambda x: np.exp(5 * x), lambda x: 5 * np.exp(5 * x),
        in_dtype(np.float32, normal((30,)))),
    curve("float16", np.tanh, lambda x: 1 - np.tanh(x) ** 2, in_dtype(np.float16, normal((30,)))),
    curve("bfloat16", np.tanh, lambda x: 1 - np.tanh(x) ** 2,
        in_dtype(ml_dtypes.bfloat16, normal((30,)))),
    curve("float32, 100,000 elements", np.sin, np.cos, in_dtype(np.float32, normal((100_000,)))),
)  # fmt: skip

KINKS = (
    curve("relu", relu, relu_slope(0.0), signed(0.1, 2, (30,))),
    curve("relu at 0, slope 0", relu, relu_slope(0.0), exactly(ZEROS), kink=True),
    curve("relu at 0, slope 1/2", relu, relu_slope(0.5), exactly(ZEROS), kink=True),
    curve("relu at 0, slope 1", relu, relu_slope(1.0), exactly(ZEROS), kink=True),
    curve("relu near 0", relu, relu_slope(0.0), exactly([1e-7, -1e-7, 0.5, -2.0]), kink=True),
    curve("relu on 10,000 points", relu, relu_slope(0.0), normal((10_000,)), kink=True),
    curve("abs at 0", np.abs, np.sign, exactly(ZEROS), kink=True),
    curve("leaky relu at 0", lambda x: np.where(x > 0, x, 0.01 * x),
        lambda x: np.where(x > 0, 1.0, 0.01), exactly(ZEROS), kink=True),
    curve("clip at its edges", lambda x: np.clip(x, -1, 1), lambda x: 1.0 * (np.abs(x) <= 1),
        exactly([-1.0, -0.2, 1.0, 3.0]), kink=True),
    curve("hinge", lambda x: np.maximum(1 - x, 0), lambda x: -1.0 * (x < 1),
        exactly([-1.0, 1.0, 3.0]), kink=True),
)  # fmt: skip
