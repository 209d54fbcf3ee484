"""Constants in C: types of elements, arrays as initializers, and names in comments."""

from __future__ import annotations

import re

import numpy as np

from ..core.dtype import DType
from ..core.errors import ExportError
from ..core.tensor import Array
from .plan import Region


def defined(region: Region, name: str, note: str) -> str:
    """The definition of a constant array."""
    c, values = c_type(region.array.dtype), literals(region.array)
    return f"/* {said(note)} */\nstatic const _Alignas(64) {c} {name}[] = {{\n{values}}};\n"


def name_of(region: Region) -> str:
    """The name of a constant, or of a member of the state."""
    return region.text.removeprefix("(char *)").removeprefix("state->")


def said(text: str) -> str:
    """A text of others, such as a name in a file, that cannot end the comment it stands in."""
    return re.sub(r"/(?=\*)|\*(?=/)", r"\g<0> ", re.sub(r"[^ -~\u00a0-\uffff]|\\", "?", text))


_TYPES = {
    "?": "uint8_t", "b": "int8_t", "h": "int16_t", "i": "int32_t", "l": "int64_t", "q": "int64_t",
    "B": "uint8_t", "H": "uint16_t", "I": "uint32_t", "L": "uint64_t", "Q": "uint64_t",
    "f": "float", "d": "double",
}  # fmt: skip


def c_type(dtype: DType) -> str:
    """The type of an element in C: floats of 16 bits are their bits."""
    if dtype.char in _TYPES:
        return _TYPES[dtype.char]
    if dtype.itemsize == 2:
        return "uint16_t"
    raise ExportError(f"export_c has no type in C for {dtype.name}; cast it to float32 first")


WIDTH = 98


def literals(array: Array) -> str:
    """The elements as lines of an initializer; every number is exact."""
    flat = np.ascontiguousarray(array).reshape(-1)
    words = _words(flat.view(np.uint16) if c_type(flat.dtype) == "uint16_t" else flat)
    lines, line = [], " "
    for word in words:
        if len(line) + len(word) + 2 > WIDTH:
            lines.append(line)
            line = " "
        line += f" {word},"
    return "\n".join([*lines, line, ""])


def _words(flat: Array) -> list[str]:
    if flat.dtype.kind == "f":
        suffix = "f" if flat.dtype.itemsize == 4 else ""
        return [_real(word, suffix) for word in flat.astype("U32").tolist()]
    end = "U" * (flat.dtype.kind == "u") + "LL" * (flat.dtype.itemsize == 8)
    return [_integer(n, end) for n in flat.astype(object).tolist()]


def _real(word: str, suffix: str) -> str:
    special = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN", "-nan": "NAN"}
    return special.get(word) or word + suffix


def _integer(number: int, end: str) -> str:
    lowest = -(2**63)
    return "(-9223372036854775807LL - 1)" if number == lowest else f"{int(number)}{end}"
