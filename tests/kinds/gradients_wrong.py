"""Kinds of wrong gradients: of NumPy functions, of functions of tensors, of primitives."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from scipy import special

import miniml as ml
from miniml import nn, ops

from ..faults.functions import Function
from ..faults.natural import Natural, alike, natural, reduced, same
from ..faults.rows import Pair, curve, normal
from .kind import Kind, each, kinds_of

FAULTS: list[Kind] = []
numpy_kind = kinds_of("gradcheck_vjp", FAULTS)
tensor_kind = kinds_of("gradcheck", FAULTS)

CURVES: dict[str, Any] = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "tenth": (lambda x: 0.1 * x, lambda x: 0.1 + 0 * x),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "logistic": (special.expit, lambda x: special.expit(x) * special.expit(-x)),
    "arctan": (np.arctan, lambda x: 1 / (1 + x * x)),
}


def pair(f: Any, vjp: Any, draw: Any) -> Pair:
    return Pair("", f, vjp, draw)


def off(f: str, factor: Any, draw: Any) -> Pair:
    """A curve whose slope is times factor(x)."""
    value, slope = CURVES[f]
    return curve("", value, lambda x: slope(x) * factor(x), draw)


def inside(low: float, high: float, *shapes: Any) -> Any:
    """Numbers of either sign between two magnitudes."""
    return lambda rng: tuple(rng.choice([-1.0, 1.0], s) * rng.uniform(low, high, s) for s in shapes)


SIZES, ERRORS = (1, 2, 3, 5, 20, 200), (1e-8, 1e-6, 1e-3)


# One place.
@numpy_kind(
    *each(("sin", "exp", "tenth", "square", "logistic", "arctan"), SIZES, (1e-8,)),
    *each(("tenth", "square", "sin"), (1, 2, 1, 2, 1, 2), ERRORS),
    says="times|factor",
)
def one_of_n_elements_is_off_by_e(f: str, n: int, e: float) -> Pair:
    def factor(x: Any) -> Any:
        return 1 + e * (np.arange(n) == n // 2)

    return off(f, factor, inside(0.3, 1.2, (n,)))


@numpy_kind(*each(("sin", "tenth", "exp"), ERRORS))
def a_number_without_axes_is_off_by_e(f: str, e: float) -> Pair:
    return off(f, lambda x: 1 + e, inside(0.3, 1.2, ()))


@numpy_kind(*each(("temperature", "gain", "power", "gain"), (1e-3, 1e-6, 1e-8, 1e-5)))
def a_scalar_beside_a_vector_is_off_by_e(how: str, e: float) -> Pair:
    f, slopes = {
        "temperature": (
            lambda x, t: np.tanh(x / t),
            lambda x, t, y: ((1 - y * y) / t, -(1 - y * y) * x / t**2),
        ),
        "gain": (lambda x, t: x * t, lambda x, t, y: (t, x)),
        "power": (lambda x, t: x**t, lambda x, t, y: (t * x ** (t - 1), y * np.log(x))),
    }[how]

    def vjp(x: Any, t: Any, dout: Any) -> Any:
        by_x, by_t = slopes(x, t, f(x, t))
        return dout * by_x, (1 + e) * np.sum(dout * by_t)

    return pair(f, vjp, lambda rng: (rng.uniform(0.4, 2, 4), rng.uniform(0.7, 1.5)))


@numpy_kind(*ERRORS)
def one_of_two_scalars_is_off_by_e(e: float) -> Pair:
    return pair(
        lambda a, b: np.sin(a) * np.exp(b),
        lambda a, b, d: (d * np.cos(a) * np.exp(b), (1 + e) * d * np.sin(a) * np.exp(b)),
        lambda rng: tuple(rng.uniform(0.3, 1.2, 2)),
    )


@numpy_kind((1e-6, 1.0), (1e6, 1.0), (1.0, 1e-12), (1.0, 1e12), (1e4, 1e-9))
def one_is_off_whatever_the_units(of_x: float, of_y: float) -> Pair:
    def slope(x: Any) -> Any:
        return of_y / of_x * np.cos(x / of_x) * (1 + 1e-6 * (np.arange(7) == 4))

    return curve("", lambda x: of_y * np.sin(x / of_x), slope, inside(0.3 * of_x, 1.2 * of_x, (7,)))


@numpy_kind(*each((-2, -1, 0, 1), (2.0, 0.5)))
def wrong_on_one_side_of_a_threshold(low: float, factor: float) -> Pair:
    x0 = np.array([-2.6, -1.4, -0.6, 0.4, 0.7, 1.5, 2.2])
    return off(
        "arctan",
        lambda x: np.where(x > low, 1, factor),
        lambda rng: (x0 + rng.uniform(-0.1, 0.1, 7),),
    )


# What was broadcast.
@numpy_kind(
    ("mean", (3, 1), (3, 4)),
    ("first", (1, 4), (3, 4)),
    ("last", (3, 1), (1, 4)),
    ("largest", (1,), (5,)),
    ("mean", (2, 1, 3), (2, 4, 3)),
    ("first", (), (4,)),
)
def a_stretched_axis_is_not_summed(how: str, of_x: Any, of_y: Any) -> Pair:
    instead: Any = {
        "mean": np.mean,
        "first": lambda g, axis, keepdims: g[(slice(None),) * axis + (slice(1),)],
        "last": lambda g, axis, keepdims: g[(slice(None),) * axis + (slice(-1, None),)],
        "largest": np.max,
    }[how]

    def to(g: Any, shape: Any, sums: Any) -> Any:
        padded = (1,) * (g.ndim - len(shape)) + tuple(shape)
        for axis, (have, want) in enumerate(zip(g.shape, padded)):
            g = sums(g, axis=axis, keepdims=True) if have != want else g
        return g.reshape(shape)

    return pair(
        lambda x, y: x * y,
        lambda x, y, d: (to(d * y, x.shape, instead), to(d * x, y.shape, np.sum)),
        inside(0.3, 2, of_x, of_y),
    )


# Terms and constants.
@numpy_kind(("pi", 4), ("pi", 6), ("root of 2 pi", 5), ("log of 2", 4), ("log of 10", 7))
def a_constant_has_few_digits(name: str, digits: int) -> Pair:
    c = {
        "pi": np.pi,
        "root of 2 pi": np.sqrt(2 * np.pi),
        "log of 2": np.log(2),
        "log of 10": np.log(10),
    }[name]
    short = round(c, digits)
    return curve(
        "", lambda x: np.sin(c * x), lambda x: short * np.cos(c * x), inside(0.05, 0.3, (4,))
    )


@numpy_kind(*each((2, 3, 1.5), (1.001, 1.1, 1 + 1e-6)))
def the_inner_factor_is_forgotten_in_part(a: float, e: float) -> Pair:
    return curve(
        "",
        lambda x: np.tanh(a * x),
        lambda x: a / e * (1 - np.tanh(a * x) ** 2),
        inside(0.1, 0.6, (3, 2)),
    )


def _soft(x: Any) -> Any:
    return special.softmax(x, -1)


def _unit(x: Any) -> Any:
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


def _normed(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _scaled(x: Any, d: Any) -> Any:
    return d / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@numpy_kind("softmax", "logsumexp", "unit", "norm mean", "norm spread", "log softmax")
def a_term_across_the_row_is_missing(which: str) -> Pair:
    f, vjp = {
        "softmax": (_soft, lambda x, d: d * _soft(x) * (1 - _soft(x))),
        "logsumexp": (
            lambda x: special.logsumexp(x, -1),
            lambda x, d: d[..., None] * np.full(x.shape, 1 / x.shape[-1]),
        ),
        "unit": (_unit, lambda x, d: d / np.sqrt((x * x).sum(-1, keepdims=True))),
        "norm mean": (
            _normed,
            lambda x, d: _scaled(x, d - _normed(x) * (d * _normed(x)).mean(-1, keepdims=True)),
        ),
        "norm spread": (_normed, lambda x, d: _scaled(x, d - d.mean(-1, keepdims=True))),
        "log softmax": (lambda x: special.log_softmax(x, -1), lambda x, d: d - _soft(x) * d),
    }[which]
    return pair(f, lambda x, d: (vjp(x, d),), normal((3, 4)))


@numpy_kind("mean of all", "variance", "deviation", "root mean square", "padded mean")
def divided_by_another_count(which: str) -> Pair:
    def spread(d: Any, x: Any) -> Any:
        return np.broadcast_to(d[..., None], x.shape)

    f, slope = {
        "mean of all": (lambda x: x.mean(-1), lambda x, d: d / x.size),
        "variance": (
            lambda x: x.var(-1, ddof=1),
            lambda x, d: 2 * d * (x - x.mean(-1, keepdims=True)) / x.shape[-1],
        ),
        "deviation": (
            lambda x: x.std(-1),
            lambda x, d: (
                d * (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) / (x.shape[-1] - 1)
            ),
        ),
        "root mean square": (
            lambda x: np.sqrt((x * x).mean(-1)),
            lambda x, d: d * x / np.sqrt((x * x).mean(-1, keepdims=True)) / x.shape[0],
        ),
        "padded mean": (lambda x: x.sum(-1) / 8, lambda x, d: d / x.shape[-1]),
    }[which]
    return pair(f, lambda x, d: (slope(x, spread(d, x)),), normal((2, 5)))


@numpy_kind("degrees", "log2", "exp2", "decibels", "percent")
def in_the_wrong_unit(which: str) -> Pair:
    f, slope = {
        "degrees": (lambda x: np.sin(np.radians(x)), lambda x: np.cos(np.radians(x))),
        "log2": (np.log2, lambda x: 1 / x),
        "exp2": (np.exp2, np.exp2),
        "decibels": (lambda x: 20 * np.log10(x), lambda x: 10 / (x * np.log(10))),
        "percent": (lambda x: 100 * x / (1 + x), lambda x: 1 / (1 + x) ** 2),
    }[which]
    return curve("", f, slope, lambda rng: (rng.uniform(0.5, 3, 5),))


# Order and place.
def _convolve(x: Any, w: Any) -> Any:
    return np.convolve(x, w, "valid")


@numpy_kind("not flipped", "shifted", "edge", "only the middle")
def a_convolution_pulled_back_wrongly(how: str) -> Pair:
    def by_x(w: Any, d: Any) -> Any:
        full = np.convolve(d, w[::-1], "full")
        changed: Any = {
            "not flipped": lambda: np.convolve(d, w, "full"),
            "shifted": lambda: np.roll(full, 1),
            "edge": lambda: np.where(np.arange(full.size) == full.size - 1, 0, full),
            "only the middle": lambda: np.pad(d, len(w) // 2) * w[len(w) // 2],
        }[how]
        return changed()

    return pair(
        _convolve,
        lambda x, w, d: (by_x(w, d), np.convolve(x, d[::-1], "valid")[::-1]),
        normal((9,), (3,)),
    )


@numpy_kind("det", "inverse", "trace", "triangle", "symmetric", "product")
def a_matrix_pulled_back_wrongly(which: str) -> Pair:
    f, vjp = {
        "det": (np.linalg.det, lambda a, d: d * np.linalg.det(a) * np.linalg.inv(a)),
        "inverse": (np.linalg.inv, lambda a, d: -np.linalg.inv(a) @ d @ np.linalg.inv(a)),
        "trace": (lambda a: np.trace(a @ a), lambda a, d: 2 * d * a),
        "triangle": (
            lambda a: np.tril(a) @ np.ones(3),
            lambda a, d: np.triu(np.outer(d, np.ones(3))),
        ),
        "symmetric": (lambda a: a + a.T, lambda a, d: 2 * d),
        "product": (lambda a: a @ a, lambda a, d: d @ a.T + a @ d),
    }[which]
    return pair(
        f, lambda a, d: (vjp(a, d),), lambda rng: (rng.normal(size=(3, 3)) + 2 * np.eye(3),)
    )


@numpy_kind(
    "reversed", "rolled by 1", "rolled by -2", "transposed", "rows swapped", "halves swapped"
)
def the_right_numbers_in_the_wrong_order(how: str) -> Pair:
    moved: Any = {
        "reversed": lambda g: g[::-1],
        "rolled by 1": lambda g: np.roll(g, 1, 0),
        "rolled by -2": lambda g: np.roll(g, -2, 1),
        "transposed": lambda g: g.T,
        "rows swapped": lambda g: g[[1, 0, 2, 3]],
        "halves swapped": lambda g: np.hsplit(g, 2)[::-1],
    }[how]
    return pair(
        np.sin,
        lambda x, d: (
            (np.concatenate(list(moved(d * np.cos(x)))).reshape(x.shape),)
            if how == "halves swapped"
            else (moved(d * np.cos(x)),)
        ),
        normal((4, 4)),
    )


@numpy_kind("overwritten", "by another index", "counted from the end", "divided by the count")
def what_is_gathered_comes_back_wrongly(how: str) -> Pair:
    def by_x(x: Any, at: Any, d: Any) -> Any:
        g = np.zeros_like(x)
        if how == "overwritten":
            g[at] = d
        else:
            np.add.at(
                g, {"by another index": (at + 1) % 5, "counted from the end": -at}.get(how, at), d
            )
        return (
            g / np.maximum(np.bincount(at, minlength=5), 1) if how == "divided by the count" else g
        )

    return pair(
        lambda x, at: x[at],
        lambda x, at, d: (by_x(x, at, d), None),
        lambda rng: (rng.normal(size=5), np.array([0, 2, 2, 4, 1, 2])),
    )


@numpy_kind("sum forwards", "one step short", "two steps back", "the last state alone")
def a_recurrence_pulled_back_in_part(how: str) -> Pair:
    """h = tanh(0.8 h + x) along the row, all states."""

    def states(x: Any) -> Any:
        h, found = 0.0, []
        for value in x:
            h = np.tanh(0.8 * h + value)
            found.append(h)
        return np.array(found)

    def vjp(x: Any, d: Any) -> Any:
        h, g, carried = states(x), np.zeros_like(x), 0.0
        for t in reversed(range(len(x))):
            slope = (d[t] + carried) * (1 - h[t] ** 2)
            g[t] = slope
            kept = {
                "one step short": t > 1,
                "two steps back": t % 3 != 0,
                "the last state alone": False,
            }.get(how, True)
            carried = 0.8 * slope * kept
        return (np.cumsum(d * (1 - h * h)) if how == "sum forwards" else g,)

    return pair(states, vjp, inside(0.1, 0.8, (6,)))


# Cotangents.
@numpy_kind(
    "magnitude",
    "clipped",
    "in float32",
    "in the order of memory",
    "its first row",
    "its sign kept",
    "squared",
)
def a_cotangent_is_not_taken_as_it_is(how: str) -> Pair:
    taken: Any = {
        "magnitude": abs,
        "clipped": lambda d: np.clip(d, -100, 100),
        "in float32": lambda d: d.astype(np.float32).astype(d.dtype),
        "in the order of memory": lambda d: d.ravel("K").reshape(d.shape),
        "its first row": lambda d: np.broadcast_to(d[:1], d.shape),
        "its sign kept": lambda d: np.maximum(d, 0),
        "squared": lambda d: d * np.abs(d),
    }[how]
    return pair(np.sin, lambda x, d: (taken(d) * np.cos(x),), normal((3, 4)))


@numpy_kind("shape", "size", "nothing")
def the_slope_was_saved_by_the_last_call_of_the_same(key: str) -> Pair:
    saved: dict[Any, Any] = {}

    def name(x: Any) -> Any:
        return {"shape": x.shape, "size": x.size}.get(key)

    def f(x: Any) -> Any:
        saved[name(x)] = np.cos(x)
        return np.sin(x)

    return pair(f, lambda x, d: (d * saved[name(x)],), normal((5,)))


@numpy_kind(2, 3, 7, 11, says="REPEATABLE|differ|again|repeat")
def every_kth_call_gives_something_else(k: int) -> Pair:
    calls = iter(range(10**9))

    def f(x: Any) -> Any:
        return np.sin(x) * (1.001 if next(calls) % k == k - 1 else 1)

    return pair(f, lambda x, d: (d * np.cos(x),), normal((9,)))


# Kinks and ties.
@numpy_kind(("relu", 2.0), ("relu", -0.5), ("abs", 3.0), ("clip", -1.0))
def no_slope_between_the_two_sides(which: str, at_kink: float) -> Pair:
    f, slope = {
        "relu": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
        "abs": (np.abs, np.sign),
        "clip": (lambda x: np.clip(x, 0, 2), lambda x: 1.0 * ((x > 0) & (x < 2))),
    }[which]
    return curve(
        "",
        f,
        lambda x: np.where(x == 0, at_kink, slope(x)),
        lambda rng: (np.append(rng.uniform(0.5, 1.5, 3), 0.0),),
    )


@numpy_kind(("all to all", 2), ("twice the first", 3), ("none", 2), ("all to all", 4))
def a_tied_maximum_is_shared_wrongly(how: str, k: int) -> Pair:
    def vjp(x: Any, d: Any) -> Any:
        tied = x == x.max()
        first = np.arange(len(x)) == np.argmax(x)
        return (d * {"all to all": tied, "twice the first": 2 * first, "none": 0 * first}[how],)

    return pair(np.max, vjp, lambda rng: (rng.permutation([3.0] * k + [1.0, 0.0, -1.0]),))


@numpy_kind(("mirrored", 3), ("doubled", 4), ("doubled", 2))
def a_tied_group_of_a_sort_gets_another_sum(how: str, k: int) -> Pair:
    def vjp(x: Any, d: Any) -> Any:
        order, g = np.argsort(x, kind="stable"), np.zeros_like(x)
        g[order] = {
            "mirrored": d[::-1],
            "doubled": np.r_[2 * d[:k], d[k:]],
        }[how]
        return (g,)

    return pair(np.sort, vjp, lambda rng: (rng.permutation(np.r_[np.full(k, 1.0), 2.0, 4.5, 7.0]),))


# Functions of tensors, primitives, cells.
@tensor_kind("input", "half of the slope", "output")
def the_second_order_stops(where: str) -> Natural:
    def gradient(x: Any, out: Any, d: Any) -> Any:
        kept = ops.stop_gradient(x)
        return {
            "input": 2.0 * kept * d,
            "half of the slope": (kept + x) * d,
            "output": d * ops.sqrt(ops.stop_gradient(out)) * 2.0 * ops.sign(kept),
        }[where]

    return natural("x", same, np.square, gradient, inside(0.4, 2, (4,)))


@tensor_kind(("gain", 1e-3), ("bias", 1e-2), ("gain", 1e-6))
@cache
def the_weight_of_a_cell_is_off_by_e(which: str, e: float) -> Function:
    """A cell of one scalar weight, whose gradient a primitive gets wrong."""
    f: Any = {"gain": lambda x, w: x * w, "bias": lambda x, w: np.tanh(x + w)}[which]
    slopes: Any = {
        "gain": lambda x, w, out: (w, x),
        "bias": lambda x, w, out: (1.0 - out * out,) * 2,
    }[which]

    def bprop(x: Any, w: Any, out: Any, d: Any) -> Any:
        by_x, by_w = slopes(x, w, out)
        return d * by_x, (1 + e) * ops.sum(d * by_w)

    one = ops.custom(
        f, shape=lambda x, w: x, bprop=bprop, name=f"{which.capitalize()}OffBy{-np.log10(e):.0f}"
    )

    class Net(nn.Cell):
        def __init__(self) -> None:
            self.w = ml.Parameter(np.array(0.7))

        def construct(self, x: Any) -> Any:
            return one(ops.sin(x), self.w)

    return Function("", Net(), inside(0.3, 1.2, (5,)), order=1)


@tensor_kind(
    ("float32", 1e-3),
    ("float16", 0.03),
    ("bfloat16", 0.3),
    ("float32", 1e-4),
    says="float|factor|times",
)
def wrong_in_one_narrow_dtype(dtype: str, e: float) -> Natural:
    def gradient(x: Any, out: Any, d: Any) -> Any:
        return d * ops.cos(x) * (1.0 + e if x.dtype.name == dtype else 1.0)

    made = natural("x", same, np.sin, gradient, inside(0.3, 1.2, (6,)))
    return replace(
        made, letters="efdE", given=ml.dtype.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    )


@tensor_kind("shape", "all", says="earlier|call|differ|another|wrong")
@cache
def a_mask_of_the_last_forward(by: str) -> Natural:
    kept: dict[Any, Any] = {}

    def f(x: Any) -> Any:
        kept[x.shape if by == "shape" else 0] = x > 0
        return np.maximum(x, 0)

    slope = ops.custom(
        lambda d: d * kept[d.shape if by == "shape" else 0],
        bprop=lambda d, out, dd: (slope(dd),),
        name=f"MaskBy{by.capitalize()}",
    )
    return natural("x", same, f, lambda x, out, d: slope(d), inside(0.3, 1.2, (6,)))


@tensor_kind("x", "y", "all")
def a_term_is_cut_off(which: str) -> Natural:
    """x^2 y + sin(y), with a gradient that forgets where a factor comes from."""

    def gradient(x: Any, y: Any, out: Any, d: Any) -> Any:
        return {
            "x": (d * x * y, d * (x * x + ops.cos(y))),
            "y": (2.0 * d * x * y, d * x * x),
            "all": (2.0 * d * x * y, d * (x + ops.cos(y))),
        }[which]

    return natural(
        "x", alike, lambda x, y: x * x * y + np.sin(y), gradient, inside(0.4, 1.6, (3,), (3,))
    )


@tensor_kind((2, "mean"), (3, "last"), (5, "first"))
def a_reduction_gives_its_gradient_to_some(n: int, how: str) -> Natural:
    def gradient(x: Any, out: Any, d: Any) -> Any:
        spread = ops.broadcast_to(ops.expand_dims(d, -1), x.shape)
        place = {
            "mean": np.full(n, 1 / n),
            "last": np.arange(n) == n - 1,
            "first": np.arange(n) == 0,
        }[how]
        return 2.0 * x * spread * ml.Tensor(place.astype(x.dtype.name))

    return natural("x", reduced, lambda x: (x * x).sum(-1), gradient, inside(0.4, 1.6, (2, n)))
