"""Kinds of faulty primitives: in numbers, state, attributes, extents, memory, rules, gradients."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from miniml import int64, ops
from miniml.ops.checks import normal_axis

from ..faults.natural import Natural, alike, both, natural, numbers, reduced, rows, same
from .kind import Kind, kinds_of

FAULTS: list[Kind] = []
GRADIENT = "gradient.*|bprop"
kind = kinds_of("opcheck", FAULTS)


def unary(f: Callable[..., Any], slope: Callable[..., Any], **attrs: Any) -> Natural:
    """f(x) and d slope(x), element by element."""
    return natural("x", same, f, lambda x, out, d, **own: d * slope(x, **own), numbers(), **attrs)


def sine(f: Callable[..., Any] = np.sin, slope: Callable[..., Any] = ops.cos) -> Natural:
    return unary(f, slope)


def quiet(f: Callable[..., Any], arity: int = 1, **body: Any) -> Natural:
    """Without a gradient."""
    made = natural("x", same if arity == 1 else alike, f, lambda *xs: None, numbers(arity))
    return replace(made, bprop="none", body={"differentiable": False, **body})


def filling(fn: Callable[..., None], subject: Natural | None = None) -> Natural:
    """A kernel fn(x, *, out) of sin."""
    return replace(subject or sine(), fn=fn)


def wide(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype.itemsize < 4 else x


def beside(subject: Natural, letter: str, f: Callable[..., Any], letters: str = "efdE") -> Natural:
    """The kernel of one dtype is f; the others are right."""

    def body(x: Any, *, out: Any) -> None:
        out[...] = f(x)

    def right(x: Any, *, out: Any, fn: Any = subject.subject.fn) -> None:
        mine = np.empty(out.shape, wide(out).dtype)
        fn(wide(x), out=mine)
        out[...] = mine

    return replace(subject, fn=right, others=((body, letter, {}),), letters=letters)


# Numbers.
@kind(
    ("E", 1.03),
    ("E", 0.97),
    ("e", 1.005),
    ("e", 0.992),
    ("E", 1.06),
    ("f", 1.00002),
    says="kernels",
)
def a_narrow_kernel_is_biased_by(letter: str, factor: float) -> Natural:
    subject = unary(lambda x: np.sin(3 * x), lambda x: 3.0 * ops.cos(3.0 * x))
    return beside(subject, letter, lambda x: np.sin(3 * x.astype(float)) * factor)


@kind(("E", 3), ("e", 4), ("f", 8), ("E", 4), says="kernels")
def a_narrow_kernel_drops_its_last_bits(letter: str, bits: int) -> Natural:
    def cut(x: Any) -> Any:
        y = np.tanh(x.astype(float)).astype(x.dtype)
        as_ints = y.view({2: np.uint16, 4: np.uint32}[y.dtype.itemsize])
        return (as_ints >> bits << bits).view(y.dtype)

    return beside(unary(np.tanh, lambda x: 1.0 - ops.square(ops.tanh(x))), letter, cut)


@kind(("e", "cosine"), ("E", "cosine"), ("f", "line"), ("e", "constant"), says="kernels")
def one_dtype_computes_another_formula(letter: str, what: str) -> Natural:
    another: Any = {
        "cosine": np.cos,
        "line": lambda x: x - x**3 / 6 + x**5 / 120,
        "constant": lambda x: np.sin(x) + 0.01,
    }[what]
    return beside(sine(), letter, lambda x: another(x.astype(float)))


@kind(("e", "sum"), ("E", "sum"), ("E", "squares"), says="kernels")
def a_row_is_added_in_16_bits(letter: str, what: str) -> Natural:
    def total(x: Any) -> Any:
        values = {"sum": x, "mean": x / x.dtype.type(x.shape[-1]), "squares": x * x}[what]
        return np.add.accumulate(values, axis=-1, dtype=x.dtype)[..., -1]

    def exact(x: Any) -> Any:
        return {"sum": x.sum(-1), "mean": x.sum(-1) / x.shape[-1], "squares": (x * x).sum(-1)}[what]

    def gradient(x: Any, out: Any, d: Any) -> Any:
        g = ops.broadcast_to(ops.expand_dims(d, -1), x.shape)
        return {"sum": g, "mean": g / float(x.shape[-1]), "squares": 2.0 * x * g}[what]

    return beside(natural("x", reduced, exact, gradient, numbers()), letter, total)


@kind("a constant", "its logarithm", says="precision|gradient")
def float64_computed_in_float32(where: str) -> Natural:
    narrow = np.float32
    f, slope = {
        "a constant": (lambda x: x * x.dtype.type(narrow(0.1)), lambda x: 0.1 + 0.0 * x),
        "its logarithm": (
            lambda x: np.log((1 + x * x).astype(narrow)).astype(x.dtype),
            lambda x: 2.0 * x / (1.0 + x * x),
        ),
    }[where]
    return unary(f, slope)


@kind("swish", "ratio of exponentials", "gated", "log of a sum", says="overflow", level="warning")
def a_number_far_out_becomes_nan(which: str) -> Natural:
    return quiet(
        {
            "swish": lambda x: x * np.exp(x) / (1 + np.exp(x)),
            "ratio of exponentials": lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)),
            "gated": lambda x: np.exp(-x) * x / (1 + np.exp(-x)),
            "log of a sum": lambda x: np.log(np.exp(2 * x) + np.exp(-x)),
        }[which]
    )


@kind((0, 1.0), (1, 0.0), (-1, 5.0), (2, 0.0), says="isolated values|gradient.*")
def another_value_at_one_plain_number(at: float, value: float) -> Natural:
    return unary(lambda x: np.where(x == at, value, x * x + 3), lambda x: 2.0 * x)


@kind("positive part", "largest", "sign", says="special", level="warning")
def a_nan_goes_in_and_a_number_comes_out(which: str) -> Natural:
    f: Any = {
        "positive part": lambda x: np.where(x > 0, x, 0),
        "largest": lambda x: np.fmax(x, 0.5),
        "sign": lambda x: np.where(x < 0, -1.0, 1.0),
    }[which]
    return quiet(f)


@kind("negated", "difference", "square", "average", says="integers")
def a_narrow_integer_wraps(which: str) -> Natural:
    """int64 is right; int8 and uint8 wrap before the result is widened."""
    f: Any = {
        "negated": lambda x, y: -x,
        "difference": lambda x, y: x - y,
        "square": lambda x, y: x * y,
        "average": lambda x, y: (x + y) // np.array(2, x.dtype),
    }[which]

    def body(x: Any, y: Any, *, out: Any) -> None:
        out[...] = f(x, y)

    rule = {"infer_dtype": lambda self, x, y: int64}
    made = quiet(f, 2, **rule)
    return replace(made, letters="bBl", outs="l", fn=body)


# Broadcasting.
@kind(
    ("mean", "any"),
    ("first", "any"),
    ("last", "the first axis"),
    ("largest", "the last axis"),
    ("mean", "the last axis"),
    ("first", "an axis of x"),
    ("mean", "both"),
    ("last", "an axis of y"),
    says=GRADIENT,
)
def a_stretched_axis_is_reduced_wrongly(how: str, where: str) -> Natural:
    """x y, whose bprop sums what broadcasting added in front, but not axes of extent 1."""

    def last(g: Any, axis: int, keep: bool) -> Any:
        return ops.take(g, np.array([g.shape[axis] - 1]), axis)

    instead: Any = {
        "mean": ops.mean,
        "largest": ops.max,
        "last": last,
        "first": lambda g, axis, keep: ops.take(g, np.array([0]), axis),
    }[how]

    def to(g: Any, shape: Any, of: str, crossed: bool) -> Any:
        while len(g.shape) > len(shape):
            g = ops.sum(g, 0)
        for axis, n in enumerate(shape):
            if n == 1 != g.shape[axis]:
                wrong = {
                    "any": True,
                    "the first axis": axis == 0,
                    "the last axis": axis == len(shape) - 1,
                    "both": crossed,
                    "an axis of x": of == "x",
                    "an axis of y": of == "y",
                }[where]
                g = (instead if wrong else ops.sum)(g, axis, True)
        return g

    def gradient(x: Any, y: Any, out: Any, d: Any) -> Any:
        crossed = out.shape not in (x.shape, y.shape)
        return to(d * y, x.shape, "x", crossed), to(d * x, y.shape, "y", crossed)

    return natural("x", both, np.multiply, gradient, numbers(2))


# State.
@kind("shape", "anything", "the value, by shape", says=".*")
@cache
def the_backward_reads_what_the_last_forward_saved(by: str) -> Natural:
    kept: dict[Any, Any] = {}

    def key(x: Any) -> Any:
        return 0 if by == "anything" else (x.shape, x.dtype)

    def f(x: Any) -> Any:
        kept[key(x)] = x > 0 if by != "the value, by shape" else np.cos(x)
        return np.sin(x) if by == "the value, by shape" else np.maximum(x, 0)

    def saved(d: Any) -> Any:
        found = kept[key(d)]
        return d * (found if np.shape(found) == d.shape else np.resize(found, d.shape)).astype(
            d.dtype
        )

    slope = ops.custom(
        saved,
        bprop=lambda d, out, dd: (slope(dd),),
        name="Saved" + "".join(by.split())[:8].strip(","),
    )
    return natural("x", same, f, lambda x, out, d: slope(d), numbers())


@kind("id", "ends", "shape", "first", "dtype and size", says=".*")
def the_result_is_cached_by_its(key: str) -> Natural:
    kept: dict[Any, Any] = {}

    def f(x: Any) -> Any:
        flat = x.reshape(-1)
        name = {
            "id": lambda: id(x),
            "shape": lambda: (x.shape, x.dtype),
            "dtype and size": lambda: (x.dtype, x.size),
            "ends": lambda: (x.shape, x.dtype, *flat[[0, -1]].tolist()) if x.size else 0,
            "first": lambda: (x.shape, x.dtype, *flat[:1].tolist()),
        }[key]()
        found = kept.setdefault(name, np.sin(x))
        return np.resize(found, x.shape)

    return sine(f)


@kind(2, 5, 11, says="repeat|state|.*")
def every_kth_call_gives_something_else(k: int) -> Natural:
    calls = iter(range(10**9))
    return sine(lambda x: np.sin(x) * (1.001 if next(calls) % k == k - 1 else 1))


@kind("random numbers", "Python's random numbers", "environment", says="state")
def it_changes_what_the_program_shares(what: str) -> Natural:
    def change() -> None:
        if what == "random numbers":
            np.random.seed(7)  # noqa: NPY002
        elif what == "Python's random numbers":
            random.random()
        else:
            os.environ["OMP_WAIT"] = str(len(os.environ.get("OMP_WAIT", "")))

    def f(x: Any) -> Any:
        change()
        return np.sin(x)

    return sine(f)


@kind("a buffer", "a list", says="threads")
def threads_share(what: str) -> Natural:
    buffer, kept = np.empty(2**18), []

    def body(x: Any, *, out: Any) -> None:
        if what == "a buffer" and x.size <= buffer.size:
            own = buffer[: x.size].reshape(x.shape)
            own[...] = x
            np.sin(own, out=own)
            out[...] = own
        else:
            kept.append(x)
            y = np.sin(kept[-1])
            kept.clear()
            out[...] = y

    return filling(body)


# Attributes.
@kind(
    "its magnitude",
    "its square root of a square",
    "no less than zero",
    "one instead of zero",
    says=GRADIENT,
    level="warning",
)
def right_for_one_sign_of_an_attribute(how: str) -> Natural:
    """y = |x|^p + p x, as the bprop has it for p > 0."""
    taken: Any = {
        "its magnitude": abs,
        "its square root of a square": lambda p: (p * p) ** 0.5,
        "no less than zero": lambda p: max(p, 0.0),
        "one instead of zero": lambda p: p if p > 0 else 1.0,
    }[how]
    return unary(
        lambda x, p: p * x + np.sin(p * x),
        lambda x, p: taken(p) * (1.0 + ops.cos(taken(p) * x)),
        p=2.0,
    )


def _of_axis(self: Any, x: Any) -> Any:
    axis = normal_axis(self.name, self.axis, len(x))
    return (*x[:axis], *x[axis + 1 :])


@kind("axis", "flag", "count", "mode", says=GRADIENT)
def right_for_one_value_of_an_attribute(which: str) -> Natural:
    """The bprop is that of the value given, whatever the attribute is."""
    if which == "axis":

        def spread(x: Any, out: Any, d: Any, axis: int) -> Any:
            return ops.broadcast_to(ops.expand_dims(d, 0), x.shape) * ops.cos(x)

        return natural(
            "x", _of_axis, lambda x, axis: np.sin(x).sum(axis), spread, numbers(), axis=0
        )
    if which == "flag":
        return unary(lambda x, plus: np.sin(x) + plus * x, lambda x, plus: ops.cos(x), plus=False)
    if which == "count":
        return unary(lambda x, k: np.sin(k * x), lambda x, k: 2.0 * ops.cos(2.0 * x), k=2)

    def known(self: Any, x: Any) -> Any:
        if self.mode not in ("sine", "cosine"):
            raise ValueError(f"{self.name} knows sine and cosine; got {self.mode}; use one")
        return x

    def either(x: Any, mode: str) -> Any:
        return np.sin(x) if mode == "sine" else np.cos(x)

    made = unary(either, lambda x, mode: ops.cos(x), mode="sine")
    return replace(made, body={"infer_shape": known})


@kind("delta", "beta", "temperature", says="gradient with other attributes")
def the_backward_forgets(name: str) -> Natural:
    made = {
        "delta": lambda: unary(
            lambda x, delta: np.clip(x, -delta, delta),
            lambda x, delta: ops.where(ops.abs(x) < 1.0, 1.0, 0.0),
            delta=1.0,
        ),
        "beta": lambda: unary(
            lambda x, beta: np.tanh(x * beta),
            lambda x, beta: 1.0 - ops.square(ops.tanh(x * beta)),
            beta=1.0,
        ),
        "temperature": lambda: unary(
            lambda x, t: np.arctan(x / t), lambda x, t: 1.0 / (1.0 + x * x), t=1.0
        ),
    }[name]
    return made()


# Extents.
@kind(
    "the middle of odd ones",
    "the last of odd ones",
    "the tail of eight",
    says=GRADIENT,
)
def long_extents_have_a_wrong_gradient(which: str) -> Natural:
    def gradient(x: Any, out: Any, d: Any) -> Any:
        n = x.shape[-1]
        place = np.arange(n)
        wrong = {
            "the middle of odd ones": (place == n // 2) & (n % 2 == 1),
            "the last of odd ones": (place == n - 1) & (n % 2 == 1),
            "the tail of eight": place >= n - n % 8,
        }[which] & (n >= 33)
        return d * ops.cos(x) * ops.where(wrong, 2.0, 1.0)

    return natural("x", rows, np.sin, gradient, numbers())


@kind(2, 3, says=".*")
def another_path_for_extents_that_are_multiples_of(k: int) -> Natural:
    def f(x: Any) -> Any:
        return np.sin(x) + (1e-3 * x if x.shape and x.shape[-1] and x.shape[-1] % k == 0 else 0)

    return sine(f)


@kind(1000, 4096, 10_000, says=GRADIENT)
def what_is_beyond_the_first_is_left(n: int) -> Natural:
    def f(x: Any) -> Any:
        return np.where(np.arange(x.size).reshape(x.shape) < n, np.sin(x), x)

    return sine(f)


# Memory.
@kind("the last", "odd places", "the last row", "the diagonal", says="memory")
def some_of_the_output_is_not_written(which: str) -> Natural:
    def body(x: Any, *, out: Any) -> None:
        y = np.sin(x)
        if which == "the last":
            out.reshape(-1)[:-1] = y.reshape(-1)[:-1]
        elif which == "odd places":
            out.reshape(-1)[::2] = y.reshape(-1)[::2]
        elif which == "the last row" and x.ndim > 1:
            out[:-1] = y[:-1]
        elif which == "the diagonal" and x.ndim > 1:
            n = min(x.shape[:2])
            mask = np.ones(x.shape, bool)
            mask[np.arange(n), np.arange(n)] = False
            np.copyto(out, y, where=mask)
        else:
            out[...] = y

    return filling(body)


@kind("sorted", "clipped", "shifted", says="memory")
def an_input_is_written(how: str) -> Natural:
    def f(x: Any) -> Any:
        if how == "sorted" and x.ndim:
            kept = x.copy()
            x.sort(-1)
            return np.sin(kept)
        if how == "shifted":
            x += 1
            return np.sin(x - 1)
        if how == "clipped":
            return np.sin(np.clip(x, -1, 1, out=x))
        return np.sin(x)

    return sine(f)


@kind("ravel", "transposed", "its first stride", says="layouts|memory")
def the_strides_of_an_input_are_not_followed(how: str) -> Natural:
    def f(x: Any) -> Any:
        if how == "ravel":
            return np.sin(x.ravel("K")).reshape(x.shape)
        if how == "transposed":
            return np.sin(x.T.copy("K")).reshape(x.shape) if x.flags.f_contiguous else np.sin(x)
        if how == "its first stride" and x.ndim > 1 and x.size and x.strides[-1] > 0:
            return np.sin(
                np.lib.stride_tricks.as_strided(x, x.shape, x.strides[:-1] + (x.itemsize,))
            )
        return np.sin(x)

    return sine(f)


@kind("same object", "same memory", says="one array twice|memory|layouts")
def one_array_given_twice_goes_wrong(how: str) -> Natural:
    def f(x: Any, y: Any) -> Any:
        twice = x is y if how == "same object" else np.shares_memory(x, y)
        return x if twice else x * y

    return natural("x", alike, f, lambda x, y, out, d: (d * y, d * x), numbers(2))


# Rules.
@kind("rank three", "an extent of 2", says="rules|kernels run|refusals")
def the_shape_rule_is_wrong_for(which: str) -> Natural:
    def rule(self: Any, x: Any) -> Any:
        if which == "rank three":
            return reduced(self, x) if len(x) != 3 else x[:1]
        return x[1:] if x and x[0] == 2 else reduced(self, x)

    def gradient(x: Any, out: Any, d: Any) -> Any:
        return ops.broadcast_to(ops.expand_dims(d, -1), x.shape)

    return natural("x", rule, lambda x: x.sum(-1), gradient, numbers())


@kind("equal", "hash", "pickle", says="attributes")
def attributes_are_no_part_of_it(which: str) -> Natural:
    made = unary(lambda x, p: np.sin(p * x), lambda x, p: p * ops.cos(p * x), p=2.0)
    body: Any = {
        "equal": {"__eq__": lambda s, o: type(s) is type(o), "__hash__": lambda s: 3},
        "hash": {"__hash__": None},
        "pickle": {"__reduce__": lambda s: (type(s), ())},
    }[which]
    return replace(made, body={**made.body, **body})


# Gradients.
@kind("a term", "a sign", "swapped", "an input", "the cotangent", "twice", says=GRADIENT)
def the_gradient_of_two_inputs_lacks(what: str) -> Natural:
    """x sin(y) + y"""

    def gradient(x: Any, y: Any, out: Any, d: Any) -> Any:
        by_x, by_y = ops.sin(y), x * ops.cos(y) + 1.0
        return {
            "a term": (d * by_x, d * x * ops.cos(y)),
            "a sign": (d * by_x, d * (1.0 - x * ops.cos(y))),
            "swapped": (d * by_y, d * by_x),
            "an input": (d * by_x, None),
            "the cotangent": (by_x + 0.0 * d, d * by_y),
            "twice": (d * d * by_x, d * by_y),
        }[what]

    return natural("x", alike, lambda x, y: x * np.sin(y) + y, gradient, numbers(2))


@kind("magnitude", "clipped", "small ones", "its mean", says=GRADIENT)
def the_backward_is_not_linear_in_its_cotangent(how: str) -> Natural:
    taken: Any = {
        "magnitude": ops.abs,
        "clipped": lambda d: ops.clip(d, -50.0, 50.0),
        "small ones": lambda d: ops.where(ops.abs(d) < 0.005, 0.0, d),
        "its mean": lambda d: d + ops.mean(d),
    }[how]
    return natural("x", same, np.sin, lambda x, out, d: taken(d) * ops.cos(x), numbers())


@kind("all to all", "smallest as well", "sorted the other way", says=GRADIENT)
def ties_are_pulled_back_wrongly(which: str) -> Natural:
    def gradient(x: Any, out: Any, d: Any) -> Any:
        if which == "sorted the other way":
            return ops.take_along_axis(d, ops.argsort(-x, -1), -1)
        kept, given = ops.expand_dims(out, -1), ops.expand_dims(d, -1)
        return ops.where(x == kept, given, 0.0)

    if which == "sorted the other way":
        return natural("x", rows, lambda x: np.sort(x, -1), gradient, numbers())
    f: Any = np.max if which == "all to all" else np.min
    return natural("x", reduced, lambda x: f(x, -1), gradient, numbers())


@kind(30.0, 15.0, says=GRADIENT)
def the_slope_ends_at(far: float) -> Natural:
    """asinh(x), whose gradient stops where its author thought that it is flat."""
    return unary(np.arcsinh, lambda x: ops.where(ops.abs(x) > far, 0.0, ops.rsqrt(1.0 + x * x)))


@kind("float32", "float16", "bfloat16", says=GRADIENT)
def the_gradient_is_wrong_in(dtype: str) -> Natural:
    made = unary(np.sin, lambda x: ops.cos(x) * (1.2 if x.dtype.name == dtype else 1.0))
    return beside(made, "d", np.sin)


@kind("an angle", "first", "both", says=GRADIENT)
def of_two_outputs(which: str) -> Natural:
    """Sine and cosine of x + y, or what a gradient makes of them."""

    def gradient(x: Any, y: Any, out: Any, d: Any) -> Any:
        s, c = out
        by = {"an angle": d[0] * c + d[1] * s, "first": d[0] * c, "both": d[0] * s - d[1] * c}[
            which
        ]
        return by, by

    shape: Any = lambda self, x, y: (alike(self, x, y),) * 2  # noqa: E731
    return natural(
        "x", shape, lambda x, y: (np.sin(x + y), np.cos(x + y)), gradient, numbers(2), outs="{0}{0}"
    )
