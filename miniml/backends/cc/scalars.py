"""Scalar expressions as C functions of one element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtype import INTEGERS, DType, bfloat16, bool_, float16, float32, uint8
from ..expressions.table import Expression
from ..expressions.types import C_TYPES, computed, unsigned
from .overloads import in_c
from .text import header

_HALVES = (float16, bfloat16)
# The C types of arrays' elements. GCC 12 does not vectorize a loop that loads bools, but one that
# loads bytes.
STORED = C_TYPES | dict.fromkeys(_HALVES, "uint16_t") | {bool_: C_TYPES[uint8]}


class ScalarFunction(NamedTuple):
    """A `static inline` C function; its unit needs the texts of `shared` before it."""

    name: str
    text: str
    shared: tuple[str, ...]


def value_type(dtype: DType) -> str:
    """The C type that holds a value of a dtype outside arrays: float for floats of 16 bits."""
    return C_TYPES[computed(dtype)]


def loaded(dtype: DType, element: str) -> str:
    """The value of an array's element, in C with the header "convert"."""
    if dtype == bool_:
        return f"({element} != 0)"
    return f"miniml_load_{dtype.name}({element})" if dtype in _HALVES else element


def stored(dtype: DType, value: str) -> str:
    """What an array's element is set to, from a value of its dtype."""
    return f"miniml_store_{dtype.name}({value})" if dtype in _HALVES else value


def scalar_function(
    expression: Expression,
    name: str,
    inputs: Sequence[tuple[str, DType]],
    out: DType,
    scalars: Mapping[str, Any],
) -> ScalarFunction:
    """An expression as the C function `name(inputs..., long long index)`.

    inputs: their names and dtypes; each is passed as a value of its dtype. The result is the value
    of dtype `out` that Cast makes of the expression's: of 16 bits, rounded to them. scalars: NumPy
    scalars by the names of the scalar arguments; they become constants.
    """
    first = inputs[0][1] if inputs else out
    text, shared = in_c(expression.text, {"T": computed(first), "U": unsigned(first)})
    takes = [f"{value_type(dtype)} {x}" for x, dtype in inputs]
    constants = "".join(
        f"  const {C_TYPES[value.dtype]} {x} = {literal(value)};\n" for x, value in scalars.items()
    )
    body = f"{constants}  return {converted(out, text)};\n"
    head = f"static inline {value_type(out)} {name}({', '.join([*takes, 'long long index'])})"
    shared = (*header("convert"), *shared)
    return ScalarFunction(name, f"{head} {{\n{body}}}\n", tuple(dict.fromkeys(shared)))


def converted(dtype: DType, text: str) -> str:
    """A C expression of any type as a value of a dtype, as by Cast."""
    if dtype in INTEGERS or dtype in _HALVES:
        return f"MINIML_TO({text}, miniml_{dtype.name})"
    return f"({value_type(dtype)})({text})"


def literal(value: Any) -> str:
    """A NumPy scalar in C, exactly."""
    if value.dtype.kind in "iub":
        number = int(value)
        if number == -(2**63):
            return f"({number + 1}LL - 1)"
        return f"{number}{'ULL' if number >= 2**63 else 'LL'}"
    if not np.isfinite(value):
        return "NAN" if np.isnan(value) else "-INFINITY" if value < 0 else "INFINITY"
    return f"{float(value).hex()}{'f' if value.dtype == float32 else ''}"
