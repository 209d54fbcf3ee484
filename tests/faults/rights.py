"""Correct primitives as users write them, on which no checker was tuned."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniml import ops

from .natural import Natural, across, alike, both, inside, natural, numbers, pair, same
from .rights_shaped import SHAPED_RIGHTS


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def smooth_plus(x: Any) -> Any:
    return np.logaddexp(0, x)


def mish_gradient(x: Any, out: Any, dout: Any) -> Any:
    t, s = ops.tanh(ops.softplus(x)), ops.sigmoid(x)
    return dout * (t + x * s * (1.0 - t * t))


def swish_gradient(x: Any, out: Any, dout: Any, beta: float) -> Any:
    s = ops.sigmoid(beta * x)
    return dout * (s + beta * out * (1.0 - s))


def huber(x: Any, y: Any, delta: float) -> Any:
    off = np.abs(x - y)
    return np.where(off < delta, 0.5 * off * off, delta * (off - 0.5 * delta))


def huber_gradient(x: Any, y: Any, out: Any, dout: Any, delta: float) -> Any:
    slope = dout * ops.clip(x - y, -delta, delta)
    return slope, -slope


def gated_gradient(x: Any, y: Any, out: Any, dout: Any) -> Any:
    s = ops.sigmoid(y)
    return dout * s, dout * x * s * (1.0 - s)


def swiglu_gradient(x: Any, y: Any, out: Any, dout: Any) -> Any:
    s = ops.sigmoid(x)
    return dout * y * (s + x * s * (1.0 - s)), dout * x * s


def polar(r: Any, t: Any) -> Any:
    return r * np.cos(t), r * np.sin(t)


def polar_gradient(r: Any, t: Any, out: Any, dout: Any) -> Any:
    (x, y), (dx, dy) = out, dout
    return dx * ops.cos(t) + dy * ops.sin(t), x * dy - y * dx


def angle_gradient(y: Any, x: Any, out: Any, dout: Any) -> Any:
    square = x * x + y * y
    return dout * x / square, -dout * y / square


def focal_gradient(x: Any, out: Any, dout: Any, gamma: float) -> Any:
    p, q = ops.sigmoid(x), ops.sigmoid(-x)
    return dout * q**gamma * (-gamma * p * ops.softplus(-x) - q)


CURVES = (
    natural("OwnTanh", same, np.tanh, lambda x, out, d: d * (1.0 - out * out), numbers(few=True)),
    natural("OwnSigmoid", same, logistic, lambda x, out, d: d * out * (1.0 - out),
        numbers(few=True)),
    natural("OwnElu", same, lambda x: np.where(x > 0, x, np.expm1(x)),
        lambda x, out, d: ops.where(x > 0.0, d, d * (out + 1.0)), numbers(few=True)),
    natural("OwnSoftplus", same, smooth_plus, lambda x, out, d: d * ops.sigmoid(x), numbers()),
    natural("SoftplusByItsOutput", same, smooth_plus, lambda x, out, d: d * (1.0 - ops.exp(-out)),
        numbers(few=True)),
    natural("Mish", same, lambda x: x * np.tanh(smooth_plus(x)), mish_gradient, numbers()),
    natural("OwnSwish", same, lambda x, beta: x * logistic(beta * x), swish_gradient, numbers(),
        beta=1.5),
    natural("SoftSign", same, lambda x: x / (1 + np.abs(x)),
        lambda x, out, d: d / ops.square(1.0 + ops.abs(x)), numbers()),
    natural("SoftSignByItsOutput", same, lambda x: x / (1 + np.abs(x)),
        lambda x, out, d: d * ops.square(1.0 - ops.abs(out)), numbers(few=True)),
    natural("LogCosh", same, lambda x: np.logaddexp(x, -x) - np.log(2.0),
        lambda x, out, d: d * ops.tanh(x), numbers()),
    natural("Bell", same, lambda x: np.exp(-x * x), lambda x, out, d: -2.0 * d * x * out,
        numbers()),
    natural("OwnRoot", same, np.sqrt, lambda x, out, d: 0.5 * d / out, across(0.0, 4.0)),
    natural("RecipRoot", same, lambda x: 1 / np.sqrt(x), lambda x, out, d: -0.5 * d * out / x,
        across(0.0, 4.0)),
    natural("ArcSine", same, np.arcsin, lambda x, out, d: d / ops.sqrt(1.0 - x * x),
        across(-1.0, 1.0)),
    natural("ArcCosh", same, np.arccosh, lambda x, out, d: d / ops.sqrt(x * x - 1.0),
        across(1.0, 5.0)),
    natural("XLogX", same, lambda x: x * np.log(x), lambda x, out, d: d * (ops.log(x) + 1.0),
        across(0.0, 3.0)),
    natural("HalfCircle", same, lambda x: np.sqrt(1 - x * x), lambda x, out, d: -d * x / out,
        across(-1.0, 1.0)),
    natural("PowerOf", same, lambda x, p: x**p, lambda x, out, d, p: p * d * x ** (p - 1.0),
        across(0.0, 3.0), p=1.7),
    natural("PowerByItsOutput", same, lambda x, p: x**p, lambda x, out, d, p: p * d * out / x,
        across(0.0, 3.0), p=1.7),
    natural("Logit", same, lambda x: np.log(x / (1 - x)),
        lambda x, out, d: d / (x * (1.0 - x)), across(0.0, 1.0)),
    natural("GumbelOfUniform", same, lambda x: -np.log(-np.log(x)),
        lambda x, out, d: -d / (x * ops.log(x)), across(0.0, 1.0)),
    natural("LogOfAbs", same, lambda x: np.log(np.abs(x)), lambda x, out, d: d / x, numbers()),
    natural("Focal", same, lambda x, gamma: logistic(-x) ** gamma * smooth_plus(-x),
        focal_gradient, numbers(), gamma=2.0),
    natural("SineOfThree", same, lambda x, w: np.sin(w * x),
        lambda x, out, d, w: d * w * ops.cos(w * x), numbers(), w=3.0),
    natural("Reciprocal2", same, lambda x: 1 / (1 + x * x),
        lambda x, out, d: -2.0 * d * x * out * out, numbers()),
    natural("SixRelu", same, lambda x: np.clip(x, 0, 6),
        lambda x, out, d: ops.where(ops.logical_and(x > 0.0, x < 6.0), d, 0.0 * d), numbers()),
)  # fmt: skip

PAIRS = (
    natural("LogisticLoss", alike, lambda x, y: smooth_plus(x) - x * y,
        lambda x, y, out, d: (d * (ops.sigmoid(x) - y), -d * x), numbers(2)),
    natural("Huber", alike, huber, huber_gradient, numbers(2), delta=1.0),
    natural("PoissonLoss", alike, lambda x, y: np.exp(x) - y * x,
        lambda x, y, out, d: (d * (ops.exp(x) - y), -d * x), numbers(2)),
    natural("Hinge", alike, lambda x, y: np.maximum(0, 1 - x * y),
        lambda x, y, out, d: (ops.where(out > 0.0, -d * y, 0.0 * d),
                              ops.where(out > 0.0, -d * x, 0.0 * d)), numbers(2)),
    natural("Gated", alike, lambda x, y: x * logistic(y), gated_gradient, numbers(2)),
    natural("SwiGLU", alike, lambda x, y: x * logistic(x) * y, swiglu_gradient, numbers(2)),
    natural("Hypotenuse", alike, np.hypot, lambda x, y, out, d: (d * x / out, d * y / out),
        numbers(2)),
    natural("Angle", alike, np.arctan2, angle_gradient, numbers(2)),
    natural("PowerOfBoth", both, lambda x, y: x**y,
        lambda x, y, out, d: (d * y * x ** (y - 1.0), d * out * ops.log(x)), across(0.0, 3.0, 2)),
    natural("LogOfTwoExponentials", both, np.logaddexp,
        lambda x, y, out, d: (d * ops.exp(x - out), d * ops.exp(y - out)), numbers(2)),
    natural("OwnQuotient", both, np.divide, lambda x, y, out, d: (d / y, -d * out / y),
        numbers(2)),
    natural("RelativeError", alike, lambda x, y: np.abs(x - y) / np.abs(y),
        lambda x, y, out, d: (d * ops.sign(x - y) / ops.abs(y),
                              -d * ops.sign(x - y) * x / (ops.abs(y) * y)), numbers(2)),
    natural("BinaryEntropy", alike, lambda p, y: -y * np.log(p) - (1 - y) * np.log(1 - p),
        lambda p, y, out, d: (d * (p - y) / (p * (1.0 - p)), d * (ops.log(1.0 - p) - ops.log(p))),
        across(0.0, 1.0, 2)),
    natural("Polar", pair, polar, polar_gradient, inside(0.0, 3.0, 2), outs="{0}{0}"),
)  # fmt: skip

RIGHTS: tuple[Natural, ...] = CURVES + PAIRS + SHAPED_RIGHTS
