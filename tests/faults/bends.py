"""Primitives whose gradients are wrong at ties, zeros, large numbers or other attributes only."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniml import ops

from .planted import PRODUCT, SCALE, TOTAL, WAVE, Planted, Subject, bprop_of, floats, same
from .planted import unary_samples as samples

FD = "fd"


def curve(f: Any, gradient: Any) -> Subject:
    """out = f(x) and gradient(x, out, dout), element by element."""

    def body(x: Any, *, out: Any) -> None:
        out[...] = f(x)

    rule = bprop_of(lambda self, x, out, dout: (gradient(x, out, dout),))
    return Subject({"infer_shape": same, "infer_dtype": floats}, body, rule, f, samples)


def reduction(f: Any, gradient: Any) -> Subject:
    """out = f(x, axis) and gradient(self, x, out with its axis kept, dout likewise)."""

    def body(x: Any, *, axis: int, out: Any) -> None:
        out[...] = f(x, axis)

    def rule(self: Any, x: Any, out: Any, dout: Any) -> Any:
        kept, given = ops.expand_dims(out, self.axis), ops.expand_dims(dout, self.axis)
        return (gradient(self, x, kept, given),)

    return Subject(TOTAL.body, body, bprop_of(rule), f, TOTAL.samples, attrs={"axis": 0})


def attribute(name: str, value: float, f: Any, gradient: Any) -> Subject:
    """out = f(x, attribute) and gradient(x, out, dout), which does not look at the attribute."""

    def body(x: Any, *, out: Any, **given: float) -> None:
        out[...] = f(x, given[name])

    fields = {"__annotations__": {name: float}, name: value, "infer_shape": same}
    rule = bprop_of(lambda self, x, out, dout: (gradient(x, out, dout),))
    return Subject({**fields, "infer_dtype": floats}, body, rule, f, samples, attrs={name: value})


def largest(x: Any, axis: int) -> Any:
    return np.max(x, axis=axis, initial=-np.inf)


def smallest(x: Any, axis: int) -> Any:
    return np.min(x, axis=axis, initial=np.inf)


def all_ties(self: Any, x: Any, out: Any, dout: Any) -> Any:
    return ops.where(x == out, dout, 0.0 * dout)


def both_all(self: Any, x: Any, y: Any, out: Any, dout: Any) -> Any:
    return ops.where(x >= y, dout, 0.0 * dout), ops.where(y >= x, dout, 0.0 * dout)


def maximum(x: Any, y: Any, *, out: Any) -> None:
    np.maximum(x, y, out=out)


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def huber(x: Any, delta: float) -> Any:
    size = np.abs(x)
    return np.where(size < delta, 0.5 * x * x, delta * (size - 0.5 * delta))


def swish(x: Any, beta: float) -> Any:
    return x / (1 + np.exp(-beta * x))


def swish_of_one(x: Any, out: Any, dout: Any) -> Any:
    s = ops.sigmoid(x)
    return dout * (s + x * s * (1.0 - s))


AT_OTHER_NUMBERS = (
    Planted("MaxGivesAllTiesAll", reduction(largest, all_ties), "gradient", "ties", letters=FD),
    Planted("MinGivesAllTiesAll", reduction(smallest, all_ties), "gradient", "ties", letters=FD),
    Planted("MaximumGivesBothAll", PRODUCT, "gradient", "one-sided|ties", fn=maximum,
        bprop=bprop_of(both_all), letters=FD),
    Planted("CumProdByQuotient", reduction(
        lambda x, axis: np.prod(x, axis=axis), lambda self, x, out, dout: dout * out / x),
        "gradient at other numbers", "not finite", letters=FD, severity="warning"),
    Planted("SlopeTwoAtZero", curve(
        np.abs, lambda x, out, dout: dout * ops.where(x == 0.0, x + 2.0, ops.sign(x))),
        "gradient at other numbers", "one-sided", letters=FD),
    Planted("SoftplusStopsAt30", curve(
        softplus, lambda x, out, dout: ops.where(x > 30.0, 0.0 * dout, dout * ops.sigmoid(x))),
        "gradient at other numbers", "zero", letters=FD),
    Planted("PassesBeyondTheCeiling", curve(
        lambda x: np.clip(x, -30, 30), lambda x, out, dout: dout * 1.0),
        "gradient at other numbers", "should be zero|constant factor|0", letters=FD),
    Planted("SlopeOfExpEndsAt25", curve(
        np.exp, lambda x, out, dout: dout * ops.exp(ops.minimum(x, 25.0 + 0.0 * x))),
        "gradient at other numbers", letters=FD),
    Planted("SlopeOfExpTooLargeBelow", curve(  # and hidden by what is large beside it
        np.exp, lambda x, out, dout: dout * ops.exp(x) * ops.where(x < -6.5, 1.5 + 0.0 * x, 1.0)),
        "gradient at other numbers", "constant factor 1.5|1.5 times", letters=FD),
    Planted("GradientOverflowsInFloat16", curve(
        lambda x: (np.float32(1) / (1 + np.exp(-x.astype(np.float32)))).astype(x.dtype)
        if x.dtype.itemsize == 2 else 1 / (1 + np.exp(-x)),
        lambda x, out, dout: dout * ops.exp(-x) / ops.square(1.0 + ops.exp(-x))),
        "gradient at other numbers", letters="efd"),
)  # fmt: skip

ATTRIBUTES = (
    Planted("HuberSlopeForgetsDelta", attribute("delta", 1.0, huber,
        lambda x, out, dout: dout * ops.clip(x, -1.0, 1.0)),
        "gradient with other attributes", "delta=1.75", letters=FD),
    Planted("SwishForgetsBeta", attribute("beta", 1.0, swish, swish_of_one),
        "gradient with other attributes", "beta=1.75", letters=FD),
    Planted("LeakForgetsItsSlope", attribute(
        "alpha", 0.01, lambda x, alpha: np.where(x > 0, x, alpha * x),
        lambda x, out, dout: ops.where(x > 0.0, dout, 0.01 * dout)),
        "gradient with other attributes", letters=FD),
    Planted("ForgetsTheTemperature", attribute(
        "t", 1.0, lambda x, t: np.tanh(x / t), lambda x, out, dout: dout * (1.0 - out * out)),
        "gradient with other attributes", "t=1.75", letters=FD),
    Planted("ScaleOfOne", SCALE, "gradient", bprop=bprop_of(lambda s, x, out, dout: (dout * 2.5,)),
        letters=FD),
)  # fmt: skip

COTANGENTS = (
    Planted("ClipsCotangents", WAVE, "cotangents", "not linear|1024 times",
        bprop=bprop_of(lambda self, x, out, dout:
            (ops.clip(dout, -100.0, 100.0) * ops.cos(x),)), letters=FD),
    Planted("DropsSmallCotangents", WAVE, "cotangents", "not linear",
        bprop=bprop_of(lambda self, x, out, dout:
            (ops.where(ops.abs(dout) < 0.01, 0.0 * dout, dout) * ops.cos(x),)), letters=FD),
)  # fmt: skip

BENDS = AT_OTHER_NUMBERS + ATTRIBUTES + COTANGENTS
