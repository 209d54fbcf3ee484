"""Primitives with a fault in their gradient, which gradcheck has to find at natural points."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniml import ops

from .natural import Natural, alike, both, inside, natural, numbers, pair, reduced, rows, same
from .rights import huber, huber_gradient, logistic, polar, smooth_plus
from .rows import exactly
from .wrongs_shaped import SHAPED_WRONGS

ZERO_AND_ONE = exactly([1.0, 0.0, 2.0, -0.5])
FAR = exactly([20.0, 35.0, 41.0])


def piece(condition: Any, yes: Any, no: Any) -> Any:
    return ops.where(condition, yes, no)


def by_quotient(x: Any, out: Any, dout: Any) -> Any:
    return ops.cumsum(dout * out, -1, reverse=True) / x


def half_below(x: Any, out: Any, dout: Any) -> Any:
    return dout * ops.cos(x) * piece(x < -1.0, 0.5, 1.0)


def rounded_to(dtype: str) -> Any:
    return lambda x, out, d: d * ops.cast(ops.cast(ops.cos(x), dtype), x.dtype)


def sinc(x: Any) -> Any:
    safe = np.where(x == 0, 1, x)
    return np.where(x == 0, 0, np.sin(safe) / safe)


def sinc_gradient(x: Any, out: Any, dout: Any) -> Any:
    safe = piece(x == 0.0, 1.0, x)
    return dout * piece(x == 0.0, 0.0, (ops.cos(safe) - ops.sin(safe) / safe) / safe)


def sine(name: str, gradient: Any, says: str, draw: Any = None, **more: Any) -> Natural:
    """sin with another gradient than d cos(x)."""
    return natural(name, same, np.sin, gradient, draw or numbers(), says=says, **more)


VALUES = (
    natural("SincIsZeroAtZero", same, sinc, sinc_gradient, ZERO_AND_ONE, says="isolated.*0 here"),
    natural("WrongAtExactlyOne", same, lambda x: np.where(x == 1, 1.5, x * x),
        lambda x, out, d: 2.0 * x * d, ZERO_AND_ONE, says="isolated.*1.5 here"),
    natural("OneForZero", same, lambda x: np.where(x == 0, 1, x * x),
        lambda x, out, d: 2.0 * x * d, ZERO_AND_ONE, says="isolated.*1 here"),
    natural("EntropyIsOneAtZero", same, lambda x: np.where(x == 0, 1, x * np.log(np.abs(x) + 1e-3)),
        lambda x, out, d: d * (ops.log(ops.abs(x) + 1e-3) + ops.abs(x) / (ops.abs(x) + 1e-3)),
        ZERO_AND_ONE, says="isolated"),
    natural("SquaresDifferAtTies", alike, lambda x, y: np.where(x == y, 0.25, (x - y) ** 2),
        lambda x, y, out, d: (2.0 * d * (x - y), -2.0 * d * (x - y)),
        exactly([1.0, 2.0, 3.0], [0.5, 2.0, -1.0]), says="isolated"),
)  # fmt: skip
TIES = (
    natural("MaxGivesAllTiesAll", reduced, lambda x: x.max(-1),
        lambda x, out, d: ops.where(x == out[..., None], d[..., None], 0.0 * x),
        exactly([[1.0, 3.0, 3.0]]), says="ties"),
    natural("MaximumGivesBothAll", alike, np.maximum,
        lambda x, y, out, d: (piece(x >= y, d, 0.0 * d), piece(y >= x, d, 0.0 * d)),
        exactly([1.0, 2.0, 3.0], [0.5, 2.0, 3.0]), says="ties"),
    natural("AbsGivesTwoAtZero", same, np.abs,
        lambda x, out, d: d * piece(x == 0.0, 2.0, ops.sign(x)), ZERO_AND_ONE, says="one-sided"),
    natural("CumProdByQuotient", rows, lambda x: np.cumprod(x, -1), by_quotient,
        exactly([2.0, 0.0, 3.0]), says="not finite"),
    natural("NormIsNaNAtZero", same, lambda x: np.sqrt(x * x + 1e-30) * x,
        lambda x, out, d: d * 2.0 * x * x / ops.abs(x), ZERO_AND_ONE, says="not finite"),
)  # fmt: skip
BRANCHES = (
    natural("SoftplusStopsAt30", same, smooth_plus,
        lambda x, out, d: d * piece(x > 30.0, 0.0, ops.sigmoid(x)), FAR, says="zero"),
    natural("HuberSlopeForgetsDelta", alike, huber,
        lambda x, y, out, d, delta: huber_gradient(x, y, out, d, 1.0),
        exactly([3.0, 1.7, 0.2], [0.0, 0.0, 0.0]), says="wrong", delta=2.5),
    sine("HalfBelowMinusOne", half_below, "0.5 times", exactly([-2.0, 0.5, 1.0, -0.3])),
    sine("WrongForLongRows", lambda x, out, d: d * ops.cos(x) * (1.0 if x.shape[-1] < 5 else 0.9),
        "factor 0.9", exactly(np.linspace(-1.0, 1.0, 7))),
    natural("WrongSlopeAtOne", same, np.square,
        lambda x, out, d: d * piece(x == 1.0, 3.0, 2.0 * x), ZERO_AND_ONE,
        says=r"0\[0\].*1.5 times"),
    natural("PowerForgetsSign", same, lambda x: x**3, lambda x, out, d: 3.0 * d * x * ops.abs(x),
        exactly([1.0, -2.0, 0.7]), says=r"0\[1\]"),
    natural("EluKeepsItsSlope", same, lambda x: np.where(x > 0, x, np.expm1(x)),
        lambda x, out, d: d * piece(x > -1.0, 1.0, out + 1.0), exactly([1.0, -0.5, -2.0]),
        says=r"0\[1\]"),
    natural("LeakyTheOtherWay", same, lambda x: np.where(x > 0, x, 0.1 * x),
        lambda x, out, d: d * piece(x > 0.0, 0.1, 1.0), exactly([1.0, -0.5, -2.0]), says="wrong"),
)  # fmt: skip
COTANGENTS = (
    sine("ClipsItsCotangent", lambda x, out, d: ops.clip(d, -100.0, 100.0) * ops.cos(x),
        "not linear"),
    sine("DropsSmallCotangents",
        lambda x, out, d: piece(ops.abs(d) < 0.01, 0.0 * d, d) * ops.cos(x), "not linear"),
    sine("AddsToItsCotangent", lambda x, out, d: (d + 1e-3) * ops.cos(x), "not 0 for dout = 0"),
    sine("TakesTheSizeOfDout", lambda x, out, d: ops.abs(d) * ops.cos(x), "linear"),
    sine("IsTheSecondDerivative", lambda x, out, d: -d * out, "wrong"),
    sine("RoundsItsCotangent", lambda x, out, d: ops.round(d * 1000.0) / 1000.0 * ops.cos(x),
        "wrong"),
    natural("PolarMixesItsOutputs", pair, polar,
        lambda r, t, out, d: (d[0] * ops.cos(t) + d[1] * ops.sin(t), out[0] * d[0] - out[1] * d[1]),
        inside(0.5, 1.5, 2), outs="{0}{0}", says="argument 1"),
)  # fmt: skip
PRECISION = (
    sine("GradientInFloat32", rounded_to("float32"), "float32", exactly([0.3, 1.0, 2.0, 0.7])),
    sine("GradientInFloat16", rounded_to("float16"), "float16", exactly([0.3, 1.0, 2.0, 0.7])),
    natural("GradientOverflowsInFloat16", same, lambda x: 1 / (1 + x * x),
        lambda x, out, d: -2.0 * d * x / ops.square(1.0 + x * x), exactly([1.0, 20.0, -40.0]),
        says="float16 only", given=np.float16),
    sine("DoublesInFloat16Only",
        lambda x, out, d: d * ops.cos(x) * (2.0 if x.dtype.name == "float16" else 1.0),
        "float16 only", given=np.float16),
    sine("ClipsInFloat16Only",
        lambda x, out, d: (ops.clip(d, -100.0, 100.0) if x.dtype.name == "float16" else d)
        * ops.cos(x), "in float16: not linear", given=np.float16),
    sine("DropsSmallOnesInFloat32Only",
        lambda x, out, d: (piece(ops.abs(d) < 0.01, 0.0 * d, d) if x.dtype.name == "float32" else d)
        * ops.cos(x), "in float32: not linear", given=np.float32),
    sine("PiIsShort", lambda x, out, d: d * ops.sin(3.1415 / 2.0 - x), "wrong"),
)  # fmt: skip
ORDER_TWO = (
    sine("StopsItsSecondGradient", lambda x, out, d: d * ops.stop_gradient(ops.cos(x)),
        "wrong +2 "),
    natural("SquareForgetsItself", same, np.square,
        lambda x, out, d: 2.0 * d * ops.stop_gradient(x), numbers(), says="wrong +2 "),
    natural("ProductStopsOneFactor", both, np.multiply,
        lambda x, y, out, d: (d * y, d * ops.stop_gradient(x)), numbers(2), says="wrong +2 "),
)  # fmt: skip
FORMULAS = (
    natural("SwishForgetsBeta", same, lambda x, beta: x * logistic(beta * x),
        lambda x, out, d, beta: d * (ops.sigmoid(beta * x) + out * (1.0 - ops.sigmoid(beta * x))),
        exactly([-1.5, 0.2, 2.0]), says="wrong", beta=2.0),
    natural("TargetHasNoGradient", alike, lambda x, y: smooth_plus(x) - x * y,
        lambda x, y, out, d: (d * (ops.sigmoid(x) - y), None), numbers(2), says="argument 1"),
    natural("QuotientForgetsSquare", both, np.divide, lambda x, y, out, d: (d / y, -d * x / y),
        inside(0.5, 0.9, 2), says="argument 1"),
    natural("PowerWithoutLogarithm", both, lambda x, y: x**y,
        lambda x, y, out, d: (d * y * x ** (y - 1.0), d * out), inside(1.2, 2.0, 2),
        says="argument 1"),
    natural("ReluOfTheWrongInput", alike, lambda x, y: np.maximum(x, 0) * y,
        lambda x, y, out, d: (piece(y > 0.0, d * y, 0.0 * d), d * ops.maximum(x, 0.0)),
        exactly([1.0, -0.5, 2.0], [-1.0, 2.0, 0.5]), says="argument 0"),
)  # fmt: skip

WRONGS: tuple[Natural, ...] = (
    *VALUES, *TIES, *BRANCHES, *COTANGENTS, *PRECISION, *ORDER_TWO, *FORMULAS, *SHAPED_WRONGS
)  # fmt: skip
