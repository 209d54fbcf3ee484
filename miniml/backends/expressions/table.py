"""The table of scalar expressions, the library's and users', by primitive and signature.

Elementwise classes say theirs themselves. Then the C types in which elements are stored, computed
and summed; bounds and casts; tensors made from numbers alone, by index; and the reductions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import isinf
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...core.dtype import (
    FLOATS,
    INTEGERS,
    REAL,
    DType,
    bool_,
    float32,
    float64,
    from_type_code,
    int8,
    int16,
    int32,
    int64,
    type_code,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..signature import ANY, FLOAT, NUMBER, ArraySpec, Signature

WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class TypedCall(Protocol):
    """The part of a KernelNode on which the scalar arguments of an expression depend."""

    @property
    def inputs(self) -> tuple[ArraySpec, ...]: ...
    @property
    def outputs(self) -> tuple[ArraySpec, ...]: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar C expression in the names of a primitive's inputs and attributes.

    Besides these it may name `index`, the index of the element; T, the type in which the first
    input (or else the output) is computed; and U, the unsigned type in which T wraps around. The
    output is stored as by Cast.
    unit: expressions that name the same unit are compiled together; "" for a user's. types,
    scalars: the names and dtypes of its scalar arguments and their values for a node, if they are
    not simply the attributes it names.
    """

    text: str
    unit: str = ""
    types: tuple[tuple[str, DType], ...] | None = None
    scalars: Callable[[TypedCall], Mapping[str, Any]] | None = None

    @property
    def words(self) -> set[str]:
        """The names that occur in the text."""
        return _words(self.text)

    def scalar_types(self, signature: Signature, attributes: tuple[str, ...]) -> dict[str, DType]:
        """The scalar arguments and their dtypes: by default the attributes that the text names, in
        the dtype in which its first float input is computed, else float64."""
        if self.types is not None:
            return dict(self.types)
        first = next((d for d in signature.inputs if d is not None and d.kind in "fV"), float64)
        return {name: computed(first) for name in attributes if name in self.words}

    def scalar_values(self, node: TypedCall, types: Mapping[str, DType]) -> list[Any]:
        """The scalar arguments for a node."""
        given: Mapping[str, Any] = node.attrs if self.scalars is None else self.scalars(node)
        return [dtype.type(given[name]) for name, dtype in types.items()]


@cache
def _words(text: str) -> set[str]:
    return set(WORDS.findall(text))


table: dict[tuple[str, str], Expression] = {}


def express(
    name: str,
    text: str,
    *signatures: str,
    unit: str,
    types: tuple[tuple[str, DType], ...] | None = None,
    scalars: Callable[[TypedCall], Mapping[str, Any]] | None = None,
) -> None:
    """Register an expression of the library, compiled with those of its unit and signature."""
    for signature in signatures:
        table[name, signature] = Expression(text, f"{unit} {signature}", types, scalars)


def bounds(node: TypedCall) -> dict[str, Any]:
    """The bounds of Clip, with the end of the dtype in place of None."""
    dtype = node.inputs[0].dtype
    low, high = node.attrs["min"], node.attrs["max"]
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    return {
        "low": low if low is not None else limits.min if limits else -np.inf,
        "high": high if high is not None else limits.max if limits else np.inf,
    }


# --- C types --------------------------------------------------------------------------------------


# Without the floats of 16 bits, for which each compiler has its own names.
C_TYPES: dict[DType, str] = {
    bool_: "bool", int8: "signed char", int16: "short", int32: "int", int64: "long long",
    uint8: "unsigned char", uint16: "unsigned short", uint32: "unsigned int",
    uint64: "unsigned long long", float32: "float", float64: "double",
}  # fmt: skip


def computed(dtype: DType) -> DType:
    """The dtype in which single elements are computed: float32 for floats of 16 bits."""
    return float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def accumulation(dtype: DType) -> DType:
    """The dtype in which sums and products of many elements are taken; integers wrap around."""
    return uint64 if dtype.kind in "biu" else computed(dtype)


def identity(mode: str, dtype: DType) -> float | int:
    """The number of the dtype that changes no other one by mode "mul", "min" or "max"."""
    if mode == "mul":
        return 1
    if dtype.kind not in "iu":
        return np.inf if mode == "min" else -np.inf
    limits = np.iinfo(dtype)
    return int(limits.max if mode == "min" else limits.min)


def unsigned(dtype: DType) -> DType:
    """The dtype in which integers wrap around without undefined behaviour; else `computed`.

    At least 32 bits: C would promote narrower ones to int, which may overflow.
    """
    if dtype.kind not in "iub":
        return computed(dtype)
    return uint64 if dtype.itemsize == 8 else uint32


def ends(dtype: DType) -> tuple[str, str]:
    """The least and the greatest number of a dtype, as C expressions."""
    if dtype.kind == "b":
        return "false", "true"
    if dtype.kind not in "iu":
        return "-INFINITY", "INFINITY"
    c, bits = C_TYPES[dtype], 8 * dtype.itemsize
    if dtype.kind == "u":
        return f"({c})0", f"({c})~({c})0"
    top = f"({c})0x{2 ** (bits - 1) - 1:x}LL"
    return f"({c})(-{top} - 1)", top


# --- Expressions whose scalars, or unit, are not as in the rows of the classes --------------------


for _c in NUMBER:
    _types = tuple((name, computed(from_type_code(_c))) for name in ("low", "high"))
    _CLIP = "nan_min(nan_max(x, low), high)"
    express("Clip", _CLIP, f"{_c}->{_c}", unit="elementwise", types=_types, scalars=bounds)
for _from in ANY:  # all casts from a dtype are one unit
    for _to in ANY:
        # Of bools to floats: GCC 12 makes the choice run ten times as fast as the conversion.
        _text = "x ? 1.0f : 0.0f" if _from == "?" and _to in FLOAT else "x"
        table["Cast", f"{_from}->{_to}"] = Expression(_text, f"cast {_from}", types=())


# --- Tensors made from numbers alone, by the index of the element ---------------------------------


def given(node: TypedCall) -> Mapping[str, Any]:
    return node.attrs


def filled(node: TypedCall) -> dict[str, Any]:
    """The value of Full, rounded to the output's dtype."""
    return {"value": np.asarray(node.attrs["value"]).astype(node.outputs[0].dtype)[()]}


def spaced(node: TypedCall) -> dict[str, Any]:
    """The start and step of Linspace, halved if the distance of the ends overflows float64."""
    start, stop, num = (node.attrs[name] for name in ("start", "stop", "num"))
    scale = 2.0 if isinf(float(stop) - float(start)) else 1.0
    step = (stop / scale - start / scale) / max(num - 1, 1)
    end = num - 1 if num > 1 else -1  # the index of the element that is `stop` itself
    return {"start": start / scale, "stop": stop, "step": step, "scale": scale, "end": end}


def whole_steps(node: TypedCall) -> dict[str, Any]:
    """The start and step of Linspace of integers."""
    start, stop, num = (int(node.attrs[name]) for name in ("start", "stop", "num"))
    return modular(start, (stop - start) // max(num - 1, 1))


def counted(node: TypedCall) -> dict[str, Any]:
    """The start and step of Arange of integers."""
    return modular(int(node.attrs["start"]), int(node.attrs["step"]))


def modular(start: int, step: int) -> dict[str, Any]:
    return {"start": start % 2**64, "step": step % 2**64}


_SPACED = (*((n, float64) for n in ("start", "stop", "step", "scale")), ("end", int64))
_COUNT, _COUNTED = (
    "T(start + (unsigned long long)index * step)",
    (("start", uint64), ("step", uint64)),
)
_STEPS, _STEPPED = "T(start + double(index) * step)", (("start", float64), ("step", float64))
_LINE = "T(index == end ? stop : (start + double(index) * step) * scale)"
_ROWS = (
    *(("Full", "value", d, (("value", computed(d)),), filled) for d in REAL),
    *(("Eye", "T(index / m == index % m)", d, (("m", int64),), given) for d in REAL),
    *(("Arange", _COUNT, d, _COUNTED, counted) for d in INTEGERS),
    *(("Arange", _STEPS, d, _STEPPED, given) for d in FLOATS),
    *(("Linspace", _COUNT, d, _COUNTED, whole_steps) for d in INTEGERS),
    *(("Linspace", _LINE, d, _SPACED, spaced) for d in FLOATS),
)
for _name, _text, _dtype, _types, _scalars in _ROWS:
    express(_name, _text, f"->{type_code(_dtype)}", unit="create", types=_types, scalars=_scalars)


# --- Reductions: their identity, element, combination and final step in C -------------------------


class Row(NamedTuple):
    """A reduction in C. x is an element, i its index among the n elements that are reduced; a and b
    are accumulators: `value`, and `other` where a reduction keeps two.

    identity, element, combine: value and other of an accumulator. finish: the result from a.
    value, other: their types; "C" is that in which an element is computed, "S" that of sums.
    LOWEST and HIGHEST are the ends of the elements' dtype.
    """

    identity: tuple[str, ...]
    element: tuple[str, ...]
    combine: tuple[str, ...]
    finish: str
    value: str = "C"
    other: str = "int"


_ARG = "0x7fffffffffffffffLL"
_SUM = Row(("S(0)",), ("S(x)",), ("a.value + b.value",), "a.value", "S")
_MAX = Row(("LOWEST",), ("x",), ("nan_max(a.value, b.value)",), "a.value")
_MIN = Row(("HIGHEST",), ("x",), ("nan_min(a.value, b.value)",), "a.value")
_BETTER = (
    "(b.value {0} a.value || (is_nan(b.value) && !is_nan(a.value)) || (!(a.value {0} b.value) && "
    "(is_nan(a.value) == is_nan(b.value)) && b.other < a.other))"
)


def _arg(row: Row, relation: str) -> Row:
    wins = _BETTER.format(relation)
    combine = (f"{wins} ? b.value : a.value", f"{wins} ? b.other : a.other")
    return Row((*row.identity, _ARG), ("x", "i"), combine, "a.other", "C", "long long")


ROWS: dict[str, Row] = {
    "Sum": _SUM,
    "SumTo": _SUM,
    "Mean": _SUM._replace(finish="a.value / S(n)"),
    "Prod": Row(("S(1)",), ("S(x)",), ("a.value * b.value",), "a.value", "S"),
    "Max": _MAX,
    "Min": _MIN,
    "Any": Row(("0",), ("x != C(0)",), ("a.value | b.value",), "a.value != 0", "int"),
    "All": Row(("1",), ("x != C(0)",), ("a.value & b.value",), "a.value != 0", "int"),
    "ArgMax": _arg(_MAX, ">"),
    "ArgMin": _arg(_MIN, "<"),
    # value: the largest x; other: the sum of exp(x - value)
    "LogSumExp": Row(
        ("-INFINITY", "C(0)"),
        ("x", "C(1)"),
        ("nan_max(a.value, b.value)", "scaled_sum(a.value, a.other, b.value, b.other)"),
        "is_inf(a.value) ? a.value : a.value + log(a.other)",
        "C",
        "C",
    ),
}
