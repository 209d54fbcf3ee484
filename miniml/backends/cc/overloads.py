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
from .text import header, headers

_REAL = (float32, float64)
_ANY = (bool_, *INTEGERS, *_REAL)
# The types of A for which a function of `expressions.functions` means something, if not all.
_TYPES = {
    "float_mod": _REAL, "float_floor_div": _REAL, "scaled_sum": _REAL, "int_floor_div": INTEGERS,
    "int_mod": INTEGERS, "int_pow": INTEGERS, "wrapped_quotient": INTEGERS,
}  # fmt: skip
_NAME = "\0"  # stands for the name of a function that is being defined
_OWN = re.compile(r"(?ms)^(\w+) (\w+)\((A [^)]*)\) (\{[^\n]*\}$|\{\n.*?^\}$)").findall
# In the headers: functions of float32 with a namesake of float64, some written by a macro.
_REALS = re.compile(
    r"^static inline \w+ miniml_([a-z]\w*)_float32\(([^)]*)\)|^MINIML_LIBRARY([12])\((\w+)\)",
    re.MULTILINE,
)
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?=\s*\()")
_CAST = re.compile(r"(?<![\w.])(float|double|bool|char|short|int|long|unsigned|signed)(?=\s*\()")


def in_c(text: str, types: Mapping[str, DType]) -> tuple[str, tuple[str, ...]]:
    """An expression in C, and the texts that it needs before it.

    types: the names of types that occur in it. A type before parentheses becomes a cast, a function
    the macro that chooses it by type.
    """
    called = [name for name in _CALL.findall(text) if name in _known()]
    text = _CALL.sub(lambda found: f"{'miniml_' * (found[1] in _known())}{found[1]}", text)
    text = _CAST.sub(r"(\1)", text)
    for name, dtype in types.items():
        text = re.sub(rf"(?<![\w.]){name}(?=\s*\()", f"({C_TYPES[dtype]})", text)
        text = re.sub(rf"(?<![\w.]){name}\b", C_TYPES[dtype], text)
    needed = (part for name in called for part in _definition(name))
    return text, tuple(dict.fromkeys((*header("types"), *needed)))


@cache
def _known() -> dict[str, tuple[str, str, str]]:
    """The functions that C text may call, by name: their parameters, and the name of their header,
    or else the type of their result and their body."""
    known = {}
    for name in headers():
        for plain, takes, arity, made in _REALS.findall(header(name)[-1]):
            known[plain or made] = (takes or "float x, float y"[: 9 * int(arity) - 2], name, "")
    return known | {name: (takes, result, body) for result, name, takes, body in _OWN(FUNCTIONS)}


@cache
def _definition(name: str) -> tuple[str, ...]:
    """The texts that define `miniml_NAME`."""
    takes, where, body = _known()[name]
    parameters = [tuple(x.split()) for x in takes.split(",")]
    names = [x for _, x in parameters]
    if not body:  # an integer beside a real does not decide
        by = " + ".join(f"({x})" for kind, x in parameters if kind == "float")
        return (*header(where), _choice(name, names, by, _REAL))
    types = _TYPES.get(name, _ANY)
    made = [in_c(f"{where} {_NAME}({takes}) {body}\n", {"A": dtype}) for dtype in types]
    texts = (
        f"static inline {text.replace(_NAME, f'miniml_{name}_{dtype.name}')}"
        for (text, _), dtype in zip(made, types, strict=True)
    )
    needed = (part for _, shared in made for part in shared)
    return (*dict.fromkeys(needed), "".join(texts) + _choice(name, names, names[0], types))


def _choice(name: str, names: list[str], by: str, types: Sequence[DType]) -> str:
    """The macro that chooses a function by the type of an expression of its arguments."""
    rows = {C_TYPES[dtype]: dtype.name for dtype in types}
    if int64 in types:  # C has two names for these
        rows |= {"long": "int64", "unsigned long": "uint64"}
    if float32 in types and int64 not in types:  # as in C++, of an integer it is that of a double
        rows["default"] = rows.pop("double")
    given = ", ".join(names)
    picks = ", ".join(f"{c}: miniml_{name}_{dtype}" for c, dtype in rows.items())
    return f"#define miniml_{name}({given}) _Generic({by}, {picks})({given})\n"
