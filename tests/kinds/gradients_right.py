"""Kinds of right gradients that are hard to judge, or where a checker may be too strict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

import miniml as ml
from miniml import nn, ops

from ..faults.functions import Function
from ..faults.natural import Natural, alike, natural, reduced, same
from ..faults.rows import Pair, curve, normal
from .gradients_wrong import CURVES, SIZES, inside, pair
from .kind import Kind, each, kinds_of

RIGHTS: list[Kind] = []
numpy_kind = kinds_of("gradcheck_vjp", RIGHTS)
tensor_kind = kinds_of("gradcheck", RIGHTS)


def fixed(*values: float) -> Any:
    return lambda rng: (rng.permutation(np.array(values, float)),)


# Sizes and units.
@numpy_kind(*each(CURVES, SIZES))
def a_curve_of_n_elements(f: str, n: int) -> Pair:
    return curve("", *CURVES[f], inside(0.1, 2.5, (n,)))


@numpy_kind("exp", "tenth", "arctan")
def a_number_without_axes(f: str) -> Pair:
    return curve("", *CURVES[f], inside(0.1, 2.5, ()))


@numpy_kind(("temperature", 0.1), ("temperature", 30.0), ("gain", 1e4), ("gain", 1e-5))
def a_scalar_of_another_size_beside_a_vector(how: str, size: float) -> Pair:
    f, slopes = {
        "temperature": (
            lambda x, t: np.tanh(x / t),
            lambda x, t, y: ((1 - y * y) / t, -(1 - y * y) * x / t**2),
        ),
        "gain": (lambda x, t: np.sin(x) * t, lambda x, t, y: (t * np.cos(x), np.sin(x))),
    }[how]

    def vjp(x: Any, t: Any, d: Any) -> Any:
        by_x, by_t = slopes(x, t, f(x, t))
        return d * by_x, np.sum(d * by_t)

    of_x = size if how == "temperature" else 1.0
    return pair(f, vjp, lambda rng: (of_x * rng.normal(size=4), size * rng.uniform(0.7, 1.5)))


@numpy_kind((1e-9, 1.0), (1e9, 1.0), (1.0, 1e-20), (1.0, 1e20), (1e-5, 1e8))
def right_whatever_the_units(of_x: float, of_y: float) -> Pair:
    return curve(
        "",
        lambda x: of_y * np.sin(x / of_x),
        lambda x: of_y / of_x * np.cos(x / of_x),
        normal((7,), scale=of_x),
    )


@numpy_kind(1e2, 1e5, 1e8)
def numbers_of_many_sizes_in_one_array(ratio: float) -> Pair:
    sizes = np.array([1.0, 1 / ratio, ratio, 1.0, np.sqrt(ratio)])
    return curve(
        "",
        lambda x: np.sin(x / sizes),
        lambda x: np.cos(x / sizes) / sizes,
        lambda rng: (rng.normal(size=5) * sizes,),
    )


@numpy_kind(1e6, 1e9, 1e12)
def a_small_part_on_a_large_offset(c: float) -> Pair:
    return curve("", lambda x: c + np.sin(x), np.cos, normal((4,)))


# Ties and kinks.
@numpy_kind(
    *each(("sort", "descending", "median", "largest two", "spread"), (2, 3, 4, 5, 3)), ("sort", 6)
)
def a_tied_group_of_k(which: str, k: int) -> Pair:
    """Any order of the tied ones is a right one."""
    n = k + 4 - k % 2

    def places(x: Any) -> Any:
        order = np.argsort(x, kind="stable")
        return {
            "sort": order,
            "descending": order[::-1],
            "median": order[[n // 2]],
            "largest two": order[:-3:-1],
            "spread": order[[0, -1]],
        }[which]

    def vjp(x: Any, d: Any) -> Any:
        g = np.zeros_like(x)
        g[places(x)] = d
        return (g,)

    values = np.r_[np.full(k, 1.0), 2.0, 3.0, 0.0, -1.5][:n]
    return pair(lambda x: x[places(x)], vjp, lambda rng: (rng.permutation(values),))


@numpy_kind(("first", 2), ("last", 3), ("shared", 3), ("shared", 5), ("drawn", 4))
def a_tied_maximum_given_to(whom: str, k: int) -> Pair:
    def vjp(x: Any, d: Any) -> Any:
        tied = np.flatnonzero(x == x.max())
        weights: Any = {
            "first": np.eye(k)[0],
            "last": np.eye(k)[-1],
            "shared": np.full(k, 1 / k),
            "drawn": np.array([0.5, 0.25, 0.125, 0.125])[:k],
        }[whom]
        g = np.zeros_like(x)
        g[tied] = d * weights[: len(tied)]
        return (g,)

    return pair(np.max, vjp, fixed(*[2.0] * k, 0.5, -1.0))


@numpy_kind(("relu", 0.0), ("relu", 1.0), ("relu", 0.3), ("abs", -1.0), ("abs", 0.0), ("clip", 0.5))
def a_slope_between_the_two_sides(which: str, at_kink: float) -> Pair:
    f, slope = {
        "relu": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
        "abs": (np.abs, np.sign),
        "clip": (lambda x: np.clip(x, 0, 2), lambda x: 1.0 * ((x > 0) & (x < 2))),
    }[which]
    return curve("", f, lambda x: np.where(x == 0, at_kink, slope(x)), fixed(0.0, 0.7, 1.3, -1.1))


@numpy_kind(2, 3, 1.5, 4)
def a_power_that_begins_at_zero(p: float) -> Pair:
    return curve(
        "",
        lambda x: np.maximum(x, 0) ** p,
        lambda x: p * np.maximum(x, 0) ** (p - 1),
        fixed(0.0, 0.5, -0.8, 1.2),
    )


@numpy_kind("smooth step", "huber", "spline", "soft shrink")
def pieces_that_meet(which: str) -> Pair:
    f, slope, points = {
        "smooth step": (
            lambda x: np.where(x < 0, 0, np.where(x > 1, 1, x * x * (3 - 2 * x))),
            lambda x: np.where((x < 0) | (x > 1), 0, 6 * x * (1 - x)),
            (0.0, 1.0, 0.4, 1.7),
        ),
        "huber": (
            lambda x: np.where(abs(x) < 1, x * x / 2, abs(x) - 0.5),
            lambda x: np.clip(x, -1, 1),
            (1.0, -1.0, 0.3, 2.0),
        ),
        "spline": (
            lambda x: np.where(x < 1, x**3, 3 * x - 2),
            lambda x: np.where(x < 1, 3 * x * x, 3),
            (1.0, 0.5, 2),
        ),
        "soft shrink": (
            lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0),
            lambda x: 1.0 * (abs(x) > 0.5),
            (0.2, 0.9, -1.4, -0.1),
        ),
    }[which]
    return curve("", f, slope, fixed(*points))


@numpy_kind("floor", "sawtooth", "rounded", "sign")
def steps_away_from_their_edges(which: str) -> Pair:
    f, slope = {
        "floor": (lambda x: np.floor(x) * x, np.floor),
        "sawtooth": (lambda x: x - np.floor(x), lambda x: 1 + 0 * x),
        "rounded": (lambda x: np.round(4 * x) + x * x, lambda x: 2 * x),
        "sign": (lambda x: np.sign(x) * x**2, lambda x: 2 * abs(x)),
    }[which]
    return curve(
        "", f, slope, lambda rng: (rng.integers(-4, 4, 5) / 4 + rng.uniform(0.03, 0.09, 5),)
    )


# Rounding.
@numpy_kind(
    "one less cosine", "exp less one", "x less sine", "log of one more", "difference of roots"
)
def terms_that_cancel(which: str) -> Pair:
    f, slope = {
        "one less cosine": (
            lambda x: (1 - np.cos(x)) / x**2,
            lambda x: np.sin(x) / x**2 - 2 * (1 - np.cos(x)) / x**3,
        ),
        "exp less one": (lambda x: (np.exp(x) - 1) / x, lambda x: (np.exp(x) * (x - 1) + 1) / x**2),
        "x less sine": (lambda x: x - np.sin(x), lambda x: 1 - np.cos(x)),
        "log of one more": (
            lambda x: np.log(1 + x) / x,
            lambda x: 1 / (x * (1 + x)) - np.log(1 + x) / x**2,
        ),
        "difference of roots": (
            lambda x: np.sqrt(1 + x) - np.sqrt(1 - x),
            lambda x: 0.5 / np.sqrt(1 + x) + 0.5 / np.sqrt(1 - x),
        ),
    }[which]
    return curve("", f, slope, inside(0.003, 0.1, (5,)))


@numpy_kind("tanh", "exp", "logistic", "erfc", "log cosh")
def far_out_where_it_is_flat(which: str) -> Pair:
    f, slope = {
        "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
        "exp": (lambda x: np.exp(-(x**2)), lambda x: -2 * x * np.exp(-(x**2))),
        "logistic": (special.expit, lambda x: special.expit(x) * special.expit(-x)),
        "erfc": (special.erfc, lambda x: -2 / np.sqrt(np.pi) * np.exp(-x * x)),
        "log cosh": (lambda x: np.logaddexp(x, -x), np.tanh),
    }[which]
    return curve("", f, slope, inside(5, 15, (4,)))


@numpy_kind(50, 300, 1000, 3000)
def it_bends_over_a_wth_of_x(w: float) -> Pair:
    return curve("", lambda x: np.sin(w * x), lambda x: w * np.cos(w * x), normal((3,)))


@numpy_kind("sine", "product")
def computed_in_float32(which: str) -> Pair:
    def narrow(x: Any) -> Any:
        return x.astype(np.float32)

    f, slope = {
        "sine": (lambda x: np.sin(narrow(x)).astype(float), np.cos),
        "product": (lambda x: (narrow(x) * narrow(x)).astype(float), lambda x: 2 * x),
    }[which]
    return curve("", f, slope, inside(0.3, 1.5, (4,)))


@numpy_kind("root", "log", "arcsine", "entropy", "logit")
def close_to_where_it_ends(which: str) -> Pair:
    f, slope, points = {
        "root": (np.sqrt, lambda x: 0.5 / np.sqrt(x), (1e-8, 1e-3, 1.0)),
        "log": (np.log, lambda x: 1 / x, (1e-9, 1e-4, 2.0)),
        "arcsine": (np.arcsin, lambda x: 1 / np.sqrt(1 - x * x), (1 - 1e-6, -1 + 1e-4, 0.2)),
        "entropy": (lambda x: -x * np.log(x), lambda x: -np.log(x) - 1, (1e-8, 0.3, 0.9)),
        "logit": (special.logit, lambda x: 1 / (x * (1 - x)), (1e-7, 1 - 1e-5, 0.5)),
    }[which]
    return curve("", f, slope, fixed(*points))


# Rows, matrices, recurrences.
def _keep(a: Any) -> Any:
    return a[..., None]


@numpy_kind((3, 1), (1, 4), (1,), (), (3, 4), says="")
def what_was_stretched_is_summed(*of_x: int) -> Pair:
    def to(g: Any, shape: Any) -> Any:
        g = g.sum(tuple(range(g.ndim - len(shape))))
        return g.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)

    return pair(
        lambda x, y: np.exp(x) * y,
        lambda x, y, d: (to(d * np.exp(x) * y, x.shape), d * np.exp(x)),
        normal(of_x, (3, 4)),
    )


@numpy_kind("softmax", "logsumexp", "unit", "normed", "variance", "deviation")
def terms_across_the_row(which: str) -> Pair:
    def centred(x: Any) -> Any:
        return x - x.mean(-1, keepdims=True)

    def normed(x: Any) -> Any:
        return centred(x) / x.std(-1, keepdims=True)

    def length(x: Any) -> Any:
        return np.sqrt((x * x).sum(-1, keepdims=True))

    def soft(x: Any) -> Any:
        return special.softmax(x, -1)

    f, gradient = {
        "softmax": (soft, lambda x, d: soft(x) * (d - (d * soft(x)).sum(-1, keepdims=True))),
        "logsumexp": (lambda x: special.logsumexp(x, -1), lambda x, d: _keep(d) * soft(x)),
        "unit": (
            lambda x: x / length(x),
            lambda x, d: d / length(x) - x * (d * x).sum(-1, keepdims=True) / length(x) ** 3,
        ),
        "normed": (
            normed,
            lambda x, d: (
                (
                    d
                    - d.mean(-1, keepdims=True)
                    - normed(x) * (d * normed(x)).mean(-1, keepdims=True)
                )
                / x.std(-1, keepdims=True)
            ),
        ),
        "variance": (lambda x: x.var(-1), lambda x, d: 2 * _keep(d) * centred(x) / x.shape[-1]),
        "deviation": (lambda x: x.std(-1), lambda x, d: _keep(d) * normed(x) / x.shape[-1]),
    }[which]
    return pair(f, lambda x, d: (gradient(x, d),), normal((3, 5)))


@numpy_kind("det", "inverse", "log det", "square", "triangle", "norm")
def a_matrix_pulled_back(which: str) -> Pair:
    inv = np.linalg.inv
    f, gradient = {
        "det": (np.linalg.det, lambda a, d: d * np.linalg.det(a) * inv(a).T),
        "inverse": (inv, lambda a, d: -inv(a).T @ d @ inv(a).T),
        "log det": (lambda a: np.linalg.slogdet(a)[1], lambda a, d: d * inv(a).T),
        "square": (lambda a: a @ a, lambda a, d: d @ a.T + a.T @ d),
        "triangle": (
            lambda a: np.tril(a) @ np.arange(3.0),
            lambda a, d: np.tril(np.outer(d, np.arange(3.0))),
        ),
        "norm": (np.linalg.norm, lambda a, d: d * a / np.linalg.norm(a)),
    }[which]
    return pair(
        f, lambda a, d: (gradient(a, d),), lambda rng: (rng.normal(size=(3, 3)) + 2 * np.eye(3),)
    )


@numpy_kind(3, 4, 5, 6)
def a_system_of_a_hilbert_matrix(n: int) -> Pair:
    h = 1 / (1 + np.add.outer(np.arange(n), np.arange(n)))
    return pair(
        lambda b: np.linalg.solve(h, b), lambda b, d: (np.linalg.solve(h.T, d),), normal((n,))
    )


@numpy_kind("states", "Newton's root", "products", "powers")
def a_recurrence_pulled_back(which: str) -> Pair:
    def states(x: Any) -> Any:
        found = [0.0]
        for value in x:
            found.append(np.tanh(0.8 * found[-1] + value))
        return np.array(found[1:])

    def back(x: Any, d: Any) -> Any:
        h, g, carried = states(x), np.zeros_like(x), 0.0
        for t in reversed(range(len(x))):
            g[t] = (d[t] + carried) * (1 - h[t] ** 2)
            carried = 0.8 * g[t]
        return g

    def newton(x: Any) -> Any:
        y = np.ones_like(x)
        for _ in range(40):
            y = (y + x / y) / 2
        return y

    f, gradient = {
        "states": (states, back),
        "Newton's root": (newton, lambda x, d: d / (2 * newton(x))),
        "products": (np.cumprod, lambda x, d: np.cumsum((d * np.cumprod(x))[::-1])[::-1] / x),
        "powers": (
            lambda x: sum(x**k for k in range(6)),
            lambda x, d: d * sum(k * x ** (k - 1) for k in range(1, 6)),
        ),
    }[which]
    return pair(f, lambda x, d: (gradient(x, d),), lambda rng: (rng.uniform(0.3, 1.4, 6),))


@numpy_kind("gathered", "scattered", "counted", "masked")
def integers_beside_the_numbers(which: str) -> Pair:
    def add_at(at: Any, d: Any, n: int) -> Any:
        g = np.zeros(n)
        np.add.at(g, at, d)
        return g

    f, gradient = {
        "gathered": (lambda x, at: x[at], lambda x, at, d: add_at(at, d, 5)),
        "scattered": (lambda x, at: add_at(at, x, 7), lambda x, at, d: d[at]),
        "counted": (lambda x, at: x * at, lambda x, at, d: d * at),
        "masked": (
            lambda x, at: np.where(at % 2, x**2, -x),
            lambda x, at, d: d * np.where(at % 2, 2 * x, -1),
        ),
    }[which]
    return pair(
        f,
        lambda x, at, d: (gradient(x, at, d), None),
        lambda rng: (rng.normal(size=5), rng.integers(0, 5, 5)),
    )


@numpy_kind("constant", "times zero", "one of them", "linear")
def little_to_differentiate(which: str) -> Pair:
    w = np.arange(-2.0, 3.0)
    f, gradient = {
        "constant": (lambda x: np.ones(3) + 0 * x.sum(), lambda x, d: 0 * x),
        "times zero": (lambda x: 0 * x, lambda x, d: 0 * d),
        "one of them": (lambda x: x[2] ** 2, lambda x, d: 2 * d * x * (np.arange(5) == 2)),
        "linear": (lambda x: w @ x, lambda x, d: d * w),
    }[which]
    return pair(f, lambda x, d: (gradient(x, d),), normal((5,)))


# Tensors.
@tensor_kind("float16", "bfloat16", "float32")
def kernels_of_one_narrow_dtype_alone(dtype: str) -> Natural:
    """Nothing of it runs in float64."""
    letter = {"float16": "e", "bfloat16": "E", "float32": "f"}[dtype]
    given = ml.dtype.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    made = natural("x", same, np.square, lambda x, out, d: 2.0 * d * x, inside(0.4, 1.6, (4,)))
    return replace(made, letters=letter, given=given)


@tensor_kind(*each(("float32", "float16", "bfloat16"), ("swish", "product", "norm", "sine")))
def given_in_a_narrow_dtype(dtype: str, which: str) -> Function:
    f: Any = {
        "swish": lambda x: x * ops.sigmoid(x),
        "product": lambda x: ops.sum(x * ops.exp(x), -1),
        "norm": lambda x: x / ops.sqrt(ops.sum(x * x, -1, True)),
        "sine": ops.sin,
    }[which]
    given = ml.dtype.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return Function("", f, lambda rng: (rng.uniform(0.3, 1.5, (3, 4)).astype(given),), order=1)


@tensor_kind(("sort", 3), ("sort", 5), ("max", 4), ("median", 3), ("min", 2))
def a_tied_group_in_the_library(which: str, k: int) -> Function:
    f: Any = {
        "sort": lambda x: ops.sort(x, -1),
        "max": lambda x: ops.max(x, -1),
        "min": lambda x: ops.min(x, -1),
        "median": lambda x: ops.sort(x, -1)[..., 2],
    }[which]
    return Function("", f, fixed(*[1.0] * k, 0.0, 2.5, -2.0), order=1)


@tensor_kind("gain", "gain and bias", "used twice")
def a_cell_of_scalar_weights(which: str) -> Function:
    class Net(nn.Cell):
        def __init__(self) -> None:
            self.w, self.b = ml.Parameter(np.array(0.7)), ml.Parameter(np.array(-0.2))

        def construct(self, x: Any) -> Any:
            y = ops.tanh(self.w * x + (self.b if which == "gain and bias" else self.w))
            return y * self.w + self.b if which == "used twice" else y + self.b

    return Function("", Net(), normal((5,)), order=1)


@tensor_kind("softplus", "reciprocal", "row product", "distance", "beside a power")
def right_to_the_second_order(which: str) -> Natural:
    shape, f, gradient, shapes = {
        "softplus": (
            same,
            lambda x: np.logaddexp(0, x),
            lambda x, out, d: d * ops.sigmoid(x),
            [(4,)],
        ),
        "reciprocal": (same, np.reciprocal, lambda x, out, d: -d * out * out, [(3,)]),
        "row product": (
            reduced,
            lambda x: x[..., 0] * x[..., -1],
            lambda x, out, d: (
                ops.expand_dims(d, -1)
                * ops.concat([x[..., 2:], ops.zeros_like(x[..., 1:2]), x[..., :1]], -1)
            ),
            [(2, 3)],
        ),
        "distance": (
            alike,
            lambda x, y: (x - y) ** 2 / 2,
            lambda x, y, out, d: (d * (x - y), d * (y - x)),
            [(3,), (3,)],
        ),
        "beside a power": (
            alike,
            lambda x, y: abs(x) ** y,
            lambda x, y, out, d: (d * y * out / x, d * out * ops.log(ops.abs(x))),
            [(3,), (3,)],
        ),
    }[which]
    return natural("x", shape, f, gradient, inside(0.5, 1.5, *shapes))
