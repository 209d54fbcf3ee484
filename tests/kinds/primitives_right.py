"""Kinds of right primitives that opcheck may be too strict with."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from scipy import special

import miniml as ml
from miniml import ops
from miniml.ops.checks import normal_axis

from ..faults.natural import (
    Natural,
    alike,
    both,
    matrices,
    natural,
    numbers,
    pair,
    reduced,
    refuse,
    rows,
    same,
    square,
    system,
)
from .kind import Kind, kinds_of
from .primitives_wrong import quiet, sine, unary, wide

RIGHTS: list[Kind] = []
kind = kinds_of("opcheck", RIGHTS)


def in_all_floats(made: Natural) -> Natural:
    """16 bits are computed in float64 and rounded once."""
    own = made.subject.fn

    def body(*xs: Any, out: Any, **attrs: Any) -> None:
        found = np.empty(out.shape, wide(out).dtype)
        own(*map(wide, xs), out=found, **attrs)
        out[...] = found

    return replace(made, fn=body, letters="efdE")


def row_of(f: Callable[..., Any], gradient: Callable[..., Any], shape: Any = rows) -> Natural:
    return natural("x", shape, f, gradient, numbers())


def constant(a: Any, like: Any) -> Any:
    return ml.Tensor(a.astype(np.float64), dtype=like.dtype)


# Shapes that rules want.
@kind(2, 3, 4, 6, 8, 16)
def the_last_extent_must_be(k: int) -> Natural:
    def rule(self: Any, x: Any) -> Any:
        return x if x[-1:] == (k,) else refuse(self, f"rows of {k} numbers", x)

    w = np.cos(np.arange(k))
    return row_of(lambda x: x * w, lambda x, out, d: d * constant(w, d), rule)


@kind(("multiple", 4), ("multiple", 6), ("odd", 2), ("more", 5), ("power of two", 2))
def the_extents_must_be(what: str, k: int) -> Natural:
    def fits(n: int) -> bool:
        return {
            "multiple": n % k == 0 < n,
            "odd": n % 2 == 1,
            "more": n > k,
            "power of two": n > 0 and n & (n - 1) == 0,
        }[what]

    def rule(self: Any, x: Any) -> Any:
        return x if x and fits(x[-1]) else refuse(self, f"rows of another length ({what} {k})", x)

    return row_of(lambda x: x - x[..., ::-1], lambda x, out, d: d - ops.flip(d, -1), rule)


@kind(1, 2, 3, 4)
def the_rank_must_be(rank: int) -> Natural:
    def rule(self: Any, x: Any) -> Any:
        return x if len(x) == rank else refuse(self, f"a rank of {rank}", x)

    return row_of(np.sin, lambda x, out, d: d * ops.cos(x), rule)


@kind((3, 5), (2, 8))
def a_matrix_must_have(m: int, n: int) -> Natural:
    def rule(self: Any, x: Any) -> Any:
        return x[:-2] if x[-2:] == (m, n) else refuse(self, f"matrices of {m} by {n}", x)

    def gradient(x: Any, out: Any, d: Any) -> Any:
        return 2.0 * x * ops.reshape(d, (*d.shape, 1, 1))

    return row_of(lambda x: (x * x).sum((-1, -2)), gradient, rule)


# Attributes.
@kind("rows", "odd width", "a probability", "a mode", "a type", "not negative")
def other_values_of_an_attribute_are_refused(which: str) -> Natural:
    """By a ValueError or TypeError of its author's."""

    def rule(self: Any, x: Any) -> Any:
        if which == "rows" and x[:1] != (self.n,):
            raise ValueError(f"{self.name} is for {self.n} rows; got {x}; reshape it")
        if which == "odd width" and self.n % 2 == 0:
            raise ValueError(f"{self.name} needs an odd width, got {self.n}; add one")
        if which == "a probability" and not 0 <= self.p < 1:
            raise ValueError(f"{self.name}: p is in [0, 1), got {self.p}; give a probability")
        if which == "a mode" and self.mode not in ("sine", "line"):
            raise ValueError(f"{self.name} knows sine and line, got {self.mode}; use one of them")
        if which == "a type" and self.n != 3:
            raise TypeError(f"{self.name} takes 3, got {self.n}; give 3")
        if which == "not negative" and self.p < 0:
            raise ValueError(f"{self.name} needs p >= 0, got {self.p}; give another")
        return x

    given: dict[str, Any] = {
        "a mode": {"mode": "sine"},
        "a probability": {"p": 0.5},
        "not negative": {"p": 2.0},
    }
    attrs = given.get(which, {"n": 3})
    factor = float(attrs.get("p", 1.0))
    return (
        natural(
            "x",
            rule,
            lambda x, **own: x * own.get("p", 1.0),
            lambda x, out, d, **own: d * own.get("p", 1.0),
            numbers(),
            **attrs,
        )
        if factor
        else sine()
    )


@kind("float", "axis", "flag", "count", "mode", "tuple")
def right_for_every_value_of_an_attribute(which: str) -> Natural:
    if which == "axis":

        def rule(self: Any, x: Any) -> Any:
            axis = normal_axis(self.name, self.axis, len(x))
            return (*x[:axis], *x[axis + 1 :])

        def spread(x: Any, out: Any, d: Any, axis: int) -> Any:
            return ops.broadcast_to(ops.expand_dims(d, axis % len(x.shape)), x.shape) * ops.cos(x)

        return natural("x", rule, lambda x, axis: np.sin(x).sum(axis), spread, numbers(), axis=0)
    made: Any = {
        "float": lambda: unary(lambda x, p: np.sin(p * x), lambda x, p: p * ops.cos(p * x), p=1.5),
        "flag": lambda: unary(
            lambda x, plus: np.sin(x) + plus * x,
            lambda x, plus: ops.cos(x) + float(plus),
            plus=True,
        ),
        "count": lambda: unary(
            lambda x, k: np.sin(k * x), lambda x, k: float(k) * ops.cos(float(k) * x), k=2
        ),
        "mode": lambda: unary(
            lambda x, mode: np.sin(x) if mode == "sine" else np.cos(x),
            lambda x, mode: ops.cos(x) if mode == "sine" else -ops.sin(x),
            mode="sine",
        ),
        "tuple": lambda: unary(
            lambda x, c: c[0] * x + c[1] * x * x, lambda x, c: c[0] + 2.0 * c[1] * x, c=(0.5, 2.0)
        ),
    }[which]
    return made()


# Ties, kinks, steps.
@kind("ascending", "descending", "median", "largest", "smallest", "second")
@cache
def an_order_of_rows(which: str) -> Natural:
    places: Any = {
        "ascending": lambda o: o,
        "descending": lambda o: o[..., ::-1],
        "largest": lambda o: o[..., -1:],
        "median": lambda o: o[..., o.shape[-1] // 2 :][..., :1],
        "smallest": lambda o: o[..., :1],
        "second": lambda o: o[..., -2:][..., :1],
    }[which]

    def at(x: Any) -> Any:
        return places(np.argsort(x, -1, kind="stable"))

    def rule(self: Any, x: Any) -> Any:
        return rows(self, x) if "scending" in which else (*rows(self, x)[:-1], 1)

    def put(x: Any, d: Any) -> Any:
        g = np.zeros_like(x)
        np.put_along_axis(g, at(x), d, -1)
        return g

    def taken(x: Any, d: Any) -> Any:
        return np.take_along_axis(d, at(x), -1)

    name = which.capitalize()
    back = ops.custom(put, bprop=lambda x, d, out, dd: (None, forth(x, dd)), name=f"Put{name}")
    forth = ops.custom(
        taken,
        shape=lambda x, d: rule(None, x),
        bprop=lambda x, d, out, dd: (None, back(x, dd)),
        name=f"Take{name}",
    )
    return row_of(lambda x: np.take_along_axis(x, at(x), -1), lambda x, out, d: back(x, d), rule)


@kind("hinge", "clip", "shrink", "leaky", "absolute", "step between")
def a_kink(which: str) -> Natural:
    f, slope = {
        "hinge": (lambda x: np.maximum(1 - x, 0), lambda x: ops.where(x < 1.0, -1.0, 0.0)),
        "clip": (
            lambda x: np.clip(x, -1, 2),
            lambda x: ops.where(ops.logical_and(x > -1.0, x < 2.0), 1.0, 0.0),
        ),
        "shrink": (
            lambda x: np.sign(x) * np.maximum(abs(x) - 1, 0),
            lambda x: ops.where(ops.abs(x) > 1.0, 1.0, 0.0),
        ),
        "leaky": (lambda x: np.maximum(x, x / 8), lambda x: ops.where(x > 0.0, 1.0, 0.125)),
        "absolute": (np.abs, ops.sign),
        "step between": (
            lambda x: np.minimum(np.maximum(x, 0), 1) ** 2,
            lambda x: ops.where(ops.logical_and(x > 0.0, x < 1.0), 2.0 * x, 0.0),
        ),
    }[which]
    return unary(f, slope)


@kind("floor", "sawtooth", "rounded", "sign", level="warning")
def a_step(which: str) -> Natural:
    f, slope = {
        "floor": (np.floor, lambda x: 0.0 * x),
        "sawtooth": (lambda x: x - np.floor(x), lambda x: 1.0 + 0.0 * x),
        "rounded": (np.round, lambda x: 0.0 * x),
        "sign": (np.sign, lambda x: 0.0 * x),
    }[which]
    return unary(f, slope)


# Rounding.
def series(x: Any, *coefficients: float) -> Any:
    """A polynomial of the numbers up to 0.01, of the others its constant; the first is that of
    the highest power."""
    where = np.where if isinstance(x, np.ndarray | np.generic) else ops.where
    near, found = where(abs(x) > 0.01, 0.0 * x, x), 0.0 * x
    for c in coefficients:
        found = found * near + c
    return found


# Taylor series of (exp(x) - 1) / x and its slope: eight terms leave 1e-21 at 0.01, so that what is
# close to it in float64 is right on both sides.
EXPM1_BY_X = tuple(1 / math.factorial(k + 1) for k in reversed(range(8)))
ITS_SLOPE = tuple(k / math.factorial(k + 1) for k in reversed(range(1, 9)))


@kind(
    "exp less one",
    "one less cosine",
    "x less sine",
    "square less one",
    "log of a ratio",
    "root less root",
)
def terms_that_cancel(which: str) -> Natural:
    """In the last places of which layouts differ, since NumPy's loops over strides do."""
    f, slope = {
        "exp less one": (
            lambda x: np.where(
                abs(x) > 0.01,
                (np.exp(x) - 1) / np.where(x == 0, 1, x),
                series(x, *EXPM1_BY_X),
            ),
            lambda x: ops.where(
                ops.abs(x) > 0.01,
                (ops.exp(x) * (x - 1.0) + 1.0) / ops.where(x == 0.0, 1.0, x * x),
                series(x, *ITS_SLOPE),
            ),
        ),
        "one less cosine": (lambda x: 1 - np.cos(x), ops.sin),
        "x less sine": (lambda x: x - np.sin(x), lambda x: 1.0 - ops.cos(x)),
        "square less one": (lambda x: x * x - 1, lambda x: 2.0 * x),
        "log of a ratio": (
            lambda x: np.log1p(x * x) - 2 * np.log(1 + abs(x)),
            lambda x: 2.0 * x / (1.0 + x * x) - 2.0 * ops.sign(x) / (1.0 + ops.abs(x)),
        ),
        "root less root": (
            lambda x: np.sqrt(x * x + 1) - abs(x),
            lambda x: x / ops.sqrt(x * x + 1.0) - ops.sign(x),
        ),
    }[which]
    return unary(f, slope)


CURVES: dict[str, Any] = {
    "sine of three": (lambda x: np.sin(3 * x), lambda x: 3.0 * ops.cos(3.0 * x)),
    "tanh": (np.tanh, lambda x: 1.0 - ops.square(ops.tanh(x))),
    "logistic": (special.expit, lambda x: ops.sigmoid(x) * ops.sigmoid(-x)),
    "arctan": (np.arctan, lambda x: 1.0 / (1.0 + x * x)),
    "bell": (lambda x: np.exp(-x * x), lambda x: -2.0 * x * ops.exp(-x * x)),
    "swish": (
        lambda x: x * special.expit(x),
        lambda x: ops.sigmoid(x) * (1.0 + x * ops.sigmoid(-x)),
    ),
}


@kind(*CURVES)
def all_floats_rounded_once(which: str) -> Natural:
    return in_all_floats(unary(*CURVES[which]))


@kind("cube", "square and itself", "a half", "product of three", "a quotient")
def some_roundings_in_16_bits(which: str) -> Natural:
    """Each operation rounds; none cancels."""
    f, slope = {
        "cube": (lambda x: x * x * x, lambda x: 3.0 * x * x),
        "square and itself": (lambda x: x * x + abs(x), lambda x: 2.0 * x + ops.sign(x)),
        "a half": (lambda x: x / x.dtype.type(2) + x.dtype.type(1), lambda x: 0.5 + 0.0 * x),
        "product of three": (lambda x: x * (x * x + x.dtype.type(1)), lambda x: 3.0 * x * x + 1.0),
        "a quotient": (
            lambda x: x / (x * x + x.dtype.type(1)),
            lambda x: (1.0 - x * x) / ops.square(1.0 + x * x),
        ),
    }[which]
    return replace(unary(f, slope), letters="efdE")


@kind("e", "E", "f", "eE")
def kernels_of_few_dtypes(letters: str) -> Natural:
    made = unary(lambda x: x * x, lambda x: 2.0 * x)
    return replace(made, letters=letters)


@kind("sum", "mean", "norm", "logsumexp", "softmax", "normed")
def rows_in_all_floats(which: str) -> Natural:
    def keep(a: Any) -> Any:
        return ops.expand_dims(a, -1)

    def spread(x: Any, d: Any) -> Any:
        return ops.broadcast_to(keep(d), x.shape)

    def normed(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)

    def from_normed(x: Any, out: Any, d: Any) -> Any:
        r = ops.rsqrt(ops.var(x, -1, keepdims=True) + 1e-3)
        return r * (d - ops.mean(d, -1, True) - out * ops.mean(d * out, -1, True))

    shape, f, gradient = {
        "sum": (reduced, lambda x: x.sum(-1), lambda x, out, d: spread(x, d)),
        "mean": (
            reduced,
            lambda x: x.mean(-1),
            lambda x, out, d: spread(x, d) / float(x.shape[-1]),
        ),
        "norm": (
            reduced,
            lambda x: np.sqrt(1 + (x * x).sum(-1)),
            lambda x, out, d: x * spread(x, d / out),
        ),
        "logsumexp": (
            reduced,
            lambda x: special.logsumexp(x, -1),
            lambda x, out, d: ops.exp(x - keep(out)) * keep(d),
        ),
        "softmax": (
            rows,
            lambda x: special.softmax(x, -1),
            lambda x, out, d: out * (d - ops.sum(out * d, -1, True)),
        ),
        "normed": (rows, normed, from_normed),
    }[which]
    return in_all_floats(row_of(f, gradient, shape))


@kind(1e30, 1e-30, 1e12, 200.0)
def numbers_of_unusual_size(c: float) -> Natural:
    return replace(
        unary(
            lambda x: np.tanh(c * x) if c == 200 else c * x,
            lambda x: c * (1.0 - ops.square(ops.tanh(c * x)) if c == 200 else 1.0 + 0.0 * x),
        ),
        letters="d",
    )


# Domains and values.
@kind("log", "root", "arcosh", "logit", "entropy")
def part_of_the_line(which: str) -> Natural:
    f, slope = {
        "log": (np.log, lambda x: 1.0 / x),
        "root": (np.sqrt, lambda x: 0.5 / ops.sqrt(x)),
        "arcosh": (np.arccosh, lambda x: 1.0 / ops.sqrt(x * x - 1.0)),
        "logit": (special.logit, lambda x: 1.0 / (x * (1.0 - x))),
        "entropy": (lambda x: -special.xlogy(x, x), lambda x: -ops.log(x) - 1.0),
    }[which]
    return unary(f, slope)


@kind("sine by x", "log of one more by x", "x log x")
def a_hole_that_is_filled(which: str) -> Natural:
    def near(x: Any, f: Any, at_zero: float) -> Any:
        return np.where(x == 0, at_zero, f(np.where(x == 0, 1, x)))

    f: Any = {
        "sine by x": lambda x: near(x, lambda s: np.sin(s) / s, 1.0),
        "log of one more by x": lambda x: near(abs(x), lambda s: np.log1p(s) / s, 1.0),
        "x log x": lambda x: special.xlogy(abs(x), abs(x)),
    }[which]
    return quiet(f)


@kind("a number", "another input", "a window", "a mask", level="warning")
def a_factor_that_is_zero(which: str) -> Natural:
    """An infinity times 0 is NaN, as NumPy has it: no formula is to blame."""
    if which == "another input":
        return natural("x", alike, np.multiply, lambda x, w, out, d: (d * w, d * x), numbers(2))
    weigh: Any = {
        "a number": lambda n: 0.0,
        "a window": lambda n: np.arange(n) % 2.0,
        "a mask": lambda n: np.arange(n) > 0,
    }[which]
    return row_of(
        lambda x: x * weigh(x.shape[-1]),
        lambda x, out, d: d * constant(np.broadcast_to(weigh(x.shape[-1]), x.shape), d),
    )


@kind("zeroed", "largest", "counted")
def nan_is_handled(which: str) -> Natural:
    f: Any = {
        "zeroed": np.nan_to_num,
        "largest": lambda x: np.fmax(x, 0),
        "counted": lambda x: 1.0 * np.isnan(x),
    }[which]
    return quiet(f)


@kind("bits", "hash", "gray", "clipped", "parity")
def integers_that_wrap_as_meant(which: str) -> Natural:
    f: Any = {
        "bits": lambda x: np.bitwise_count(x).astype(x.dtype),
        "hash": lambda x: (x ^ (x >> x.dtype.type(3))) * x.dtype.type(5),
        "gray": lambda x: x ^ (x >> x.dtype.type(1)),
        "clipped": lambda x: np.clip(x, 0, 100),
        "parity": lambda x: x & x.dtype.type(1),
    }[which]
    return replace(
        quiet(f),
        letters="LI" if which in ("hash", "gray", "bits") else "bil",
        body={"differentiable": False, "infer_dtype": same},
    )


# State that is none.
@kind("content", "extent", "attribute", "thread")
def a_table_kept_by(key: str) -> Natural:
    kept: dict[Any, Any] = {}
    own = threading.local()

    def f(x: Any) -> Any:
        if key == "content":
            name = (x.shape, x.dtype.str, x.tobytes())
            return kept.setdefault(name, np.sin(x)).copy()
        if key == "extent":
            n = x.shape[-1] if x.ndim else 1
            return x * kept.setdefault((n, x.dtype), np.cos(np.arange(n)).astype(x.dtype)).reshape(
                (n,) if x.ndim else ()
            )
        if key == "thread":
            scratch = getattr(own, "buffer", None)
            if scratch is None or scratch.shape != x.shape or scratch.dtype != x.dtype:
                scratch = own.buffer = np.empty(x.shape, x.dtype)
            scratch[...] = x
            return np.sin(scratch)
        return np.sin(x) * kept.setdefault("half", 0.5)

    def slope(x: Any) -> Any:
        n = x.shape[-1] if x.shape else 1
        if key == "extent":
            table = constant(np.cos(np.arange(n)), x)
            return (table if x.shape else table[0]) + 0.0 * x
        return ops.cos(x) * (0.5 if key == "attribute" else 1.0)

    return unary(f, slope)


@kind(0.25, 0.5)
def a_random_mask_of_a_fixed_seed(p: float) -> Natural:
    def mask(shape: Any) -> Any:
        return np.random.default_rng(5).random(shape) >= p

    return unary(
        lambda x: x * mask(x.shape),
        lambda x: constant(1.0 * mask(x.shape), x) + 0.0 * x,
    )


SLOPE = ops.custom(
    lambda d, y: d * (1 - y * y),
    bprop=lambda d, y, out, dd: (dd * (1.0 - y * y), -2.0 * dd * d * y),
    name="SlopeOfTanh",
)


@kind("its output", "its input", "a helper")
def the_backward_uses(what: str) -> Natural:
    def gradient(x: Any, out: Any, d: Any) -> Any:
        return {
            "its output": lambda: d * (1.0 - out * out),
            "its input": lambda: d * (1.0 - ops.square(ops.tanh(x))),
            "a helper": lambda: SLOPE(d, out),
        }[what]()

    return natural("x", same, np.tanh, gradient, numbers())


# Memory and form.
@kind("order kept", "strides", "a copy", "blocks", "bytes")
def strides_are_followed_by(how: str) -> Natural:
    def f(x: Any) -> Any:
        if how == "order kept":
            return np.sin(np.array(x, order="K"))
        if how == "strides" and x.ndim:
            return np.stack([np.sin(row) for row in x]) if len(x) else np.sin(x)
        if how == "a copy":
            return np.sin(np.ascontiguousarray(x).reshape(-1)).reshape(x.shape)
        if how == "blocks":
            flat = x.reshape(-1)
            parts = [np.sin(flat[k : k + 64]) for k in range(0, flat.size, 64)]
            return np.concatenate(parts).reshape(x.shape) if parts else np.sin(x)
        return np.sin(np.frombuffer(x.tobytes(), x.dtype)).reshape(x.shape)

    return sine(f)


@kind("multiply", "add", "hypotenuse", "quotient", "largest", "summed by itself")
def broadcasting(which: str) -> Natural:
    def to(g: Any, shape: Any) -> Any:
        while len(g.shape) > len(shape):
            g = ops.sum(g, 0)
        for axis, n in enumerate(shape):
            g = ops.sum(g, axis, True) if n == 1 != g.shape[axis] else g
        return g

    f, gradient = {
        "multiply": (np.multiply, lambda x, y, out, d: (d * y, d * x)),
        "add": (np.add, lambda x, y, out, d: (d, d)),
        "hypotenuse": (
            lambda x, y: np.sqrt(1 + x * x + y * y),
            lambda x, y, out, d: (d * x / out, d * y / out),
        ),
        "quotient": (
            lambda x, y: x / (1 + y * y),
            lambda x, y, out, d: (d / (1.0 + y * y), -2.0 * d * y * out / (1.0 + y * y)),
        ),
        "largest": (
            np.maximum,
            lambda x, y, out, d: (ops.where(x >= y, d, 0.0), ops.where(x >= y, 0.0, d)),
        ),
        "summed by itself": (
            np.multiply,
            lambda x, y, out, d: (to(d * y, x.shape), to(d * x, y.shape)),
        ),
    }[which]
    return natural("x", both, f, gradient, numbers(2))


@kind("sine and cosine", "sum and difference", "parts")
def two_outputs(which: str) -> Natural:
    f, gradient = {
        "sine and cosine": (
            lambda x, y: (np.sin(x + y), np.cos(x + y)),
            lambda x, y, out, d: (d[0] * out[1] - d[1] * out[0],) * 2,
        ),
        "sum and difference": (
            lambda x, y: (x + y, x - y),
            lambda x, y, out, d: (d[0] + d[1], d[0] - d[1]),
        ),
        "parts": (lambda x, y: (x * y, x), lambda x, y, out, d: (d[0] * y + d[1], d[0] * x)),
    }[which]
    return natural("x", pair, f, gradient, numbers(2), outs="{0}{0}")


@kind("product", "solve", "inverse", "trace")
def matrices_as_numpy_has_them(which: str) -> Natural:
    def turned(a: Any) -> Any:
        return ops.swapaxes(a, -1, -2)

    if which == "product":
        return natural(
            "x",
            matrices,
            np.matmul,
            lambda x, w, out, d: (d @ turned(w), turned(x) @ d),
            numbers(2),
        )
    if which == "solve":
        return natural(
            "x",
            system,
            np.linalg.solve,
            lambda a, b, out, d: (
                -ops.expand_dims(ops.solve(turned(a), d), 1) * out,
                ops.solve(turned(a), d),
            ),
            numbers(2),
        )
    if which == "inverse":
        return row_of(np.linalg.inv, lambda a, out, d: -(turned(out) @ d @ turned(out)), square)
    return row_of(
        lambda a: np.trace(a @ a),
        lambda a, out, d: 2.0 * d * turned(a),
        lambda self, a: square(self, a)[:0],
    )


@kind("running sums", "differences", "reversed", "running product", "moving average")
def along_the_row(which: str) -> Natural:
    def moving(x: Any) -> Any:
        return (x + np.roll(x, 1, -1) + np.roll(x, -1, -1)) / 3

    f, gradient = {
        "running sums": (
            lambda x: np.cumsum(x, -1),
            lambda x, out, d: ops.cumsum(d, -1, reverse=True),
        ),
        "differences": (lambda x: x - np.roll(x, 1, -1), lambda x, out, d: d - ops.roll(d, -1, -1)),
        "reversed": (
            lambda x: np.sin(x[..., ::-1]),
            lambda x, out, d: ops.flip(d, -1) * ops.cos(x),
        ),
        "running product": (
            lambda x: np.cumprod(np.tanh(x) + 2, -1),
            lambda x, out, d: (
                ops.cumsum(d * out, -1, reverse=True)
                / (ops.tanh(x) + 2.0)
                * (1.0 - ops.square(ops.tanh(x)))
            ),
        ),
        "moving average": (
            moving,
            lambda x, out, d: (d + ops.roll(d, 1, -1) + ops.roll(d, -1, -1)) / 3.0,
        ),
    }[which]
    return row_of(f, gradient)
