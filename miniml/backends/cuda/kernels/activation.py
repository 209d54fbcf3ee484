"""The activations as scalar expressions in C."""

from __future__ import annotations

from ...typecodes import FLOAT, INT, same
from ..text.registering import express

# The least finite float32: x * P(x) has the limit -0 at -inf, where -inf * 0 would give NaN.
_X = "nan_max(x, T(-3.4028234663852886e38))"
_SIGMOID = "T(1) / (T(1) + exp(-x))"
_TANH_ARGUMENT = f"T(-1.5957691216057308) * {_X} * (T(1) + T(0.044715) * x * x)"

_TEXTS = {
    "Erf": "erf(x)",
    "Erfc": "erfc(x)",
    "Sigmoid": _SIGMOID,
    "Softplus": "nan_max(x, T(0)) + log1p(exp(-fabs(x)))",
    "SiLU": f"{_X} * ({_SIGMOID})",
    "ELU": "x > T(0) ? x : T(alpha) * expm1(x)",
    "GELU": f"approximate != 0 ? {_X} / (T(1) + exp({_TANH_ARGUMENT})) : "
    f"T(0.5) * {_X} * erfc(T(-0.70710678118654752) * x)",
    "LeakyReLU": "x > T(0) ? x : slope == 0 && !is_nan(x) ? T(0) : T(slope) * x",
}
for _name, _text in _TEXTS.items():
    express(_name, _text, *same(1, FLOAT), unit="activation", inplace=(0,))
express("ReLU", "nan_max(x, T(0))", *same(1, FLOAT), unit="activation", inplace=(0,))
express("ReLU", "x > T(0) ? x : T(0)", *same(1, INT), unit="activation", inplace=(0,))
express("ReLUGrad", "x > T(0) ? dout : T(0)", *same(2, FLOAT), unit="activation", inplace=(0, 1))
express(
    "LeakyReLUGrad", "x > T(0) ? dout : T(slope) * dout", *same(2, FLOAT), unit="activation",
    inplace=(0, 1),
)  # fmt: skip
