"""The activations as scalar expressions."""

from __future__ import annotations

from ..typecodes import FLOAT, INT, same
from .table import express

# The least finite float32: x * P(x) has the limit -0 at -inf, where -inf * 0 would give NaN.
_X = "nan_max(x, T(-3.4028234663852886e38))"
_SIGMOID = "T(1) / (T(1) + exp(-x))"
_TANH_ARGUMENT = f"T(-1.5957691216057308) * {_X} * (T(1) + T(0.044715) * x * x)"

_OF_ONE = {
    "Erf": "erf(x)",
    "Erfc": "erfc(x)",
    "ErfInv": "erfinv(x)",
    "ReLU": "nan_max(x, T(0))",
    "Sigmoid": _SIGMOID,
    "Softplus": "nan_max(x, T(0)) + log1p(exp(-fabs(x)))",
    "SiLU": f"{_X} * ({_SIGMOID})",
    "ELU": "x > T(0) ? x : T(alpha) * expm1(x)",
    "GELU": f"approximate != 0 ? {_X} / (T(1) + exp({_TANH_ARGUMENT})) : "
    f"T(0.5) * {_X} * erfc(T(-0.70710678118654752) * x)",
    "LeakyReLU": "x > T(0) ? x : slope == 0 && !is_nan(x) ? T(0) : T(slope) * x",
}
_OF_TWO = {
    "ReLUGrad": "x > T(0) ? dout : T(0)",
    "LeakyReLUGrad": "x > T(0) ? dout : T(slope) * dout",
}
for _arity, _texts in enumerate((_OF_ONE, _OF_TWO), 1):
    for _name, _text in _texts.items():
        express(_name, _text, *same(_arity, FLOAT), unit="activation")
express("ReLU", "x > T(0) ? x : T(0)", *same(1, INT), unit="activation")
