"""C's mathematics and the functions of `expressions.functions` in C, chosen by type as in C++.

`miniml_NAME(x, ...)` is a macro that picks `miniml_NAME_DTYPE` by the type of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from ...dtype import INTEGERS, DType, bool_, float32, float64, int64
from ..expressions.functions import FUNCTIONS
from ..expressions.types import C_TYPES
from .text import header

_REAL = (float32, float64)
_ANY = (bool_, *INTEGERS, *_REAL)
# Functions of float32 and float64 by header and parameters, of which n is an int.
_REALS = (
    ("exp", "x", "exp exp2 expm1"), ("log", "x", "log log2 log1p"), ("tanh", "x", "tanh"),
    ("erf", "x", "erf erfc"), ("erfinv", "x", "erfinv"), ("circular", "x", "sin cos"),
    ("pow", "xy", "pow"), ("hardware", "x", "sqrt rsqrt fabs floor ceil rint round trunc"),
    ("hardware", "x", "isnan isinf isfinite signbit"), ("hardware", "xy", "copysign fmin fmax"),
    ("hardware", "xyz", "fma"), ("library", "xn", "ldexp"),
    ("library", "xy", "atan2 hypot fmod nextafter"), ("library", "x", "tan sinh cosh log10 cbrt"),
    ("library", "x", "asin acos atan asinh acosh atanh lgamma tgamma"),
)  # fmt: skip
# C++'s functions of numbers of any type, as those of `expressions.functions` are written.
_NUMBERS = """
A abs(A x) { return x <= A(0) ? A(0) - x : x; }
A min(A x, A y) { return x < y || y != y ? x : y; }
A max(A x, A y) { return x > y || y != y ? x : y; }
"""
# The types of A for which a function of `expressions.functions` means something, if not all.
_TYPES = {
    "polygamma": _REAL, "polygamma_above": (float64,),
    "float_mod": _REAL, "float_floor_div": _REAL, "scaled_sum": _REAL, "int_floor_div": INTEGERS,
    "int_mod": INTEGERS, "int_pow": INTEGERS, "wrapped_quotient": INTEGERS,
}  # fmt: skip
_NAME = "\0"  # stands for the name of a function that is being defined
_DEFINITIONS = re.compile(r"(?ms)^(\w+) (\w+)\((A [^)]*)\) (\{[^\n]*\}$|\{\n.*?^\}$)")
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?=\s*\()")
_CAST = re.compile(r"(?<![\w.])(float|double|bool|char|short|int|long|unsigned|signed)(?=\s*\()")


def in_c(text: str, types: Mapping[str, DType]) -> tuple[str, tuple[str, ...]]:
    """An expression in C, and the texts that it needs before it.

    types: the names of types that occur in it. A type before parentheses becomes a cast, a function
    the macro that chooses it by type.
    """
    called = [name for name in _CALL.findall(text) if name in _texts()]
    text = _CALL.sub(lambda found: f"{'miniml_' * (found[1] in _texts())}{found[1]}", text)
    text = _CAST.sub(r"(\1)", text)
    for name, dtype in types.items():
        text = re.sub(rf"(?<![\w.]){name}(?=\s*\()", f"({C_TYPES[dtype]})", text)
        text = re.sub(rf"(?<![\w.]){name}\b", C_TYPES[dtype], text)
    needed = (part for name in called for part in definition(name))
    return text, tuple(dict.fromkeys((*header("types"), *needed)))


@cache
def definition(name: str) -> tuple[str, ...]:
    """The texts that define `miniml_NAME`."""
    where, parameters, body = _texts()[name]
    if not body:  # all reals decide: of a float and a double both are doubles
        by = " + ".join(f"({x})" for x in parameters if x != "n")
        return (*header(where), _choice(name, parameters, by, _REAL))
    given, types = re.findall(r"A (\w+)", parameters), _TYPES.get(name, _ANY)
    made = [in_c(f"{where} {_NAME}({parameters}) {body}\n", {"A": dtype}) for dtype in types]
    texts = (
        f"static inline {text.replace(_NAME, f'miniml_{name}_{dtype.name}')}"
        for (text, _), dtype in zip(made, types, strict=True)
    )
    by = " + ".join(f"({x})" for x in given) if f" {name}(" in _NUMBERS else given[0]
    needed = (part for _, shared in made for part in shared)
    return (*dict.fromkeys(needed), "".join(texts) + _choice(name, given, by, types))


def names() -> frozenset[str]:
    """The functions that C text may call."""
    return frozenset(_texts())


@cache
def _texts() -> dict[str, tuple[str, str, str]]:
    """The functions that C text may call, by name: header, parameters and ""; or the type of the
    result, parameters and body."""
    reals = {name: (where, takes, "") for where, takes, names in _REALS for name in names.split()}
    found = _DEFINITIONS.findall(FUNCTIONS + _NUMBERS)
    return reals | {name: (result, takes, body) for result, name, takes, body in found}


def _choice(name: str, parameters: Sequence[str], by: str, types: Sequence[DType]) -> str:
    """The macro that chooses a function by the type of an expression of its arguments."""
    rows = {C_TYPES[dtype]: dtype.name for dtype in types}
    if int64 in types:  # C has two names for these
        rows |= {"long": "int64", "unsigned long": "uint64"}
    elif float32 in types:  # as in C++, of an integer it is that of a double
        rows["default"] = rows.pop("double")
    given = ", ".join(parameters)
    picks = ", ".join(f"{c}: miniml_{name}_{dtype}" for c, dtype in rows.items())
    return f"#define miniml_{name}({given}) _Generic({by}, {picks})({given})\n"
