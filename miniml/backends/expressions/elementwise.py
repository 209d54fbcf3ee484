"""Scalar expressions of elementwise primitives: in the dtype T, integers modulo 2^bits.

In order: arithmetic, rounding, bounds and casts; powers, exponentials and trigonometry;
activations; comparisons, logic and selection.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import from_type_code
from ..signature import ANY, FLOAT, INT, NUMBER, SIGNED, UNSIGNED, same
from .table import Expression, TypedCall, computed, express, table

_OF_FLOATS = {
    "Reciprocal": "T(1) / x", "Neg": "-x", "Abs": "fabs(x)", "Sign": "sign(x)", "Square": "x * x",
    "Floor": "floor(x)", "Ceil": "ceil(x)", "Round": "rint(x)", "Trunc": "trunc(x)",
}  # fmt: skip
_OF_TWO_FLOATS = {
    "Add": "x + y", "Sub": "x - y", "Mul": "x * y", "Div": "x / y", "Maximum": "nan_max(x, y)",
    "Minimum": "nan_min(x, y)", "FloorDiv": "float_floor_div(x, y)", "Mod": "float_mod(x, y)",
}  # fmt: skip
_OF_INTS = {
    "Neg": "T(U(0) - U(x))", "Square": "T(U(x) * U(x))", "Floor": "x", "Ceil": "x",
    "Round": "x", "Trunc": "x",
}  # fmt: skip
_OF_SIGNED = {"Abs": "x < 0 ? T(U(0) - U(x)) : x", "Sign": "T(int(x > 0) - int(x < 0))"}
_OF_UNSIGNED = {"Abs": "x", "Sign": "T(x != 0)"}
_OF_TWO_INTS = {
    "Add": "T(U(x) + U(y))", "Sub": "T(U(x) - U(y))", "Mul": "T(U(x) * U(y))",
    "Maximum": "x > y ? x : y", "Minimum": "x < y ? x : y", "FloorDiv": "int_floor_div(x, y)",
    "Mod": "int_mod(x, y)",
}  # fmt: skip
_OF_BOOLS = {"Abs": "x", "Floor": "x", "Ceil": "x", "Round": "x", "Trunc": "x"}
_OF_TWO_BOOLS = {"Add": "x || y", "Mul": "x && y", "Maximum": "x || y", "Minimum": "x && y"}

_ROWS: tuple[tuple[dict[str, str], int, str], ...] = (
    (_OF_FLOATS, 1, FLOAT), (_OF_TWO_FLOATS, 2, FLOAT), (_OF_INTS, 1, INT),
    (_OF_SIGNED, 1, SIGNED), (_OF_UNSIGNED, 1, UNSIGNED), (_OF_TWO_INTS, 2, INT),
    (_OF_BOOLS, 1, "?"), (_OF_TWO_BOOLS, 2, "?"),
)  # fmt: skip

for _texts, _arity, _codes in _ROWS:
    for _name, _text in _texts.items():
        express(_name, _text, *same(_arity, _codes), unit="elementwise")


def bounds(node: TypedCall) -> dict[str, Any]:
    """The bounds of Clip, with the end of the dtype in place of None."""
    dtype = node.inputs[0].dtype
    low, high = node.attrs["min"], node.attrs["max"]
    ends = np.iinfo(dtype) if dtype.kind in "iu" else None
    return {
        "low": low if low is not None else ends.min if ends else -np.inf,
        "high": high if high is not None else ends.max if ends else np.inf,
    }


_CLIP = "nan_min(nan_max(x, low), high)"
for _c in NUMBER:
    _bound = computed(from_type_code(_c))
    _types = (("low", _bound), ("high", _bound))
    express("Clip", _CLIP, f"{_c}->{_c}", unit="elementwise", types=_types, scalars=bounds)
for _from in ANY:  # all casts from a dtype are one unit
    for _to in ANY:
        # Of bools to floats: GCC 12 makes the choice run ten times as fast as the conversion.
        _text = "x ? 1.0f : 0.0f" if _from == "?" and _to in FLOAT else "x"
        table["Cast", f"{_from}->{_to}"] = Expression(_text, f"cast {_from}", types=())

_FUNCTIONS = {
    "Sqrt": "sqrt(x)", "Rsqrt": "T(1) / sqrt(x)", "Exp": "exp(x)", "Expm1": "expm1(x)",
    "Exp2": "exp2(x)", "Log": "log(x)", "Log1p": "log1p(x)", "Log2": "log2(x)",
    "Log10": "log10(x)", "LGamma": "lgamma(x)", "Polygamma": "polygamma(x, T(n))",
}  # fmt: skip

for _name, _text in _FUNCTIONS.items():
    express(_name, _text, *same(1, FLOAT), unit="elementwise")
express("Pow", "pow(x, y)", *same(2, FLOAT), unit="elementwise")
express("Pow", "int_pow(x, y)", *same(2, INT), unit="elementwise")

for _name in "Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh".split():
    express(_name, f"{_name.lower()}(x)", *same(1, FLOAT), unit="elementwise")
express("Atan2", "atan2(x, y)", *same(2, FLOAT), unit="elementwise")

# The least finite float32: x * P(x) has the limit -0 at -inf, where -inf * 0 would give NaN.
_X = "nan_max(x, T(-3.4028234663852886e38))"
_SIGMOID = "T(1) / (T(1) + exp(-x))"
# Rounded as NumPy's kernel rounds it, since the exponential multiplies its rounding error.
_TANH_ARGUMENT = f"(x * x * T(0.044715) + T(1)) * {_X} * T(-1.5957691216057308)"

_OF_ONE = {
    "Erf": "erf(x)",
    "Erfc": "erfc(x)",
    "ErfInv": "erfinv(x)",
    "NormalCDF": "normcdf(x)",
    "ExpNegSquare": "gaussian(x, halved != 0 ? T(0.5) : T(1))",
    "ReLU": "nan_max(x, T(0))",
    "Sigmoid": _SIGMOID,
    "Softplus": "nan_max(x, T(0)) + log1p(exp(-fabs(x)))",
    "SiLU": f"{_X} / (T(1) + exp(-x))",
    "ELU": "x > T(0) ? x : T(alpha) * expm1(x)",
    "GELU": f"approximate != 0 ? {_X} / (T(1) + exp({_TANH_ARGUMENT})) : {_X} * normcdf(x)",
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

_COMPARISONS = {
    "Equal": "x == y", "NotEqual": "x != y", "Less": "x < y", "LessEqual": "x <= y",
    "Greater": "x > y", "GreaterEqual": "x >= y",
}  # fmt: skip
_LOGIC = {"LogicalAnd": "x & y", "LogicalOr": "x | y", "LogicalXor": "x != y"}
_KINDS = {"IsNan": "is_nan(x)", "IsInf": "is_inf(x)", "IsFinite": "x - x == x - x"}

for _name, _text in _COMPARISONS.items():
    express(_name, _text, *same(2, ANY, "?"), unit="compare")
for _name, _text in _LOGIC.items():
    express(_name, _text, "??->?", unit="logic")
express("LogicalNot", "!x", "?->?", unit="logic")
for _name, _text in _KINDS.items():
    express(_name, _text, *same(1, ANY, "?"), unit="compare")
for _c in ANY:
    express("Select", "cond ? x : y", f"?{_c}{_c}->{_c}", unit="select")
