"""Arithmetic, rounding and casts as scalar expressions: in T, integers modulo 2^bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import from_type_code
from ..typecodes import ANY, FLOAT, INT, NUMBER, SIGNED, UNSIGNED, same
from .table import Expression, TypedCall, express, table
from .types import computed

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
    """The bounds of Clip; one of None becomes the end of the dtype."""
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
        # Of bools to floats: GCC 12 makes the choice ten times as fast as the conversion.
        _text = "x ? 1.0f : 0.0f" if _from == "?" and _to in FLOAT else "x"
        table["Cast", f"{_from}->{_to}"] = Expression(_text, f"cast {_from}", types=())
