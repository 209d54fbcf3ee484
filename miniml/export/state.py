"""The state and the constants of an exported program, in C and in files.

First the struct, its first values and the files of it. A file is one of safetensors: the length of
a header, the header in JSON, and the arrays. Which ones is known when the C is written, so saving
and loading are copies. Then types of elements, arrays as initializers, and names in comments.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from ..core.abstract import Abstract
from ..core.dtype import DType
from ..core.errors import ExportError
from ..core.parameter import Parameter
from ..core.tensor import Array
from .plan import Plan, Region


def struct(plan: Plan, name: str, saves: bool) -> Iterator[str]:
    """The lines that define the struct, and the size of a file. saves: of a training step."""
    upper = name.upper()
    if saves:
        yield "/* All that lasts: parameters, what an optimizer keeps, and the random stream. */"
    else:
        yield "/* The parameters. */"
    yield f"typedef struct {name}_state {{"
    for parameter, region in plan.state.values():
        kept = "" if any(p is parameter for p in plan.written) else ", which a step only reads"
        about = f"{said(parameter.name)}: {Abstract(parameter.shape, parameter.dtype)}{kept}"
        member = f"{c_type(parameter.dtype)} {name_of(region)}[{prod(parameter.shape)}];"
        yield f"  {upper}_ALIGNED {member} /* {about} */"
    yield f"}} {name}_state;"
    yield ""
    about = (
        "/* A file of the state, in the format of safetensors (processors are little-endian): "
        f"{f'{name}_save writes it to memory; ' * saves}{name}_load returns 0, or 1, and changes "
        "nothing, where names, shapes or dtypes are not those of this state. */"
    )
    yield textwrap.fill(about, WIDTH, subsequent_indent="   ")
    yield f"#define {upper}_FILE_BYTES {len(_header(plan)) + sum(_sizes(plan))}"


def prototypes(name: str, begins: bool, saves: bool) -> list[str]:
    """The declarations of what makes, saves and loads the state. begins: its first values are in
    the C file."""
    init = f"void {name}_init({name}_state *state)"
    save = f"void {name}_save(const {name}_state *state, void *file)"
    load = f"int {name}_load({name}_state *state, const void *file)"
    return [init] * begins + [save] * saves + [load]


def first_values(plan: Plan, name: str, begins: bool) -> Iterator[str]:
    """The constants that the state begins with, unless they are all zeros; the header of a file."""
    for parameter, region in plan.state.values():
        if begins and _bits(region.array).any():
            note = f"{parameter.name}: {Abstract(parameter.shape, parameter.dtype)}"
            yield defined(region, f"{name}_first_{name_of(region)}", note)
    yield f"static const unsigned char {name}_file_header[] = {{"
    yield f"{literals(np.frombuffer(_header(plan), np.uint8))}}};"
    yield ""


def functions(plan: Plan, name: str, begins: bool, saves: bool) -> Iterator[str]:
    """The functions that make, save and load the state."""
    bodies = [_init(plan, name)] * begins + [_save(plan, name)] * saves + [_load(plan, name)]
    for prototype, body in zip(prototypes(name, begins, saves), bodies, strict=True):
        yield from (f"{prototype} {{", *body, "}", "")


def _init(plan: Plan, name: str) -> list[str]:
    return [
        f"  memcpy(state->{member}, {name}_first_{member}, {array.nbytes});"
        if _bits(array).any()
        else f"  memset(state->{member}, 0, {array.nbytes});"
        for member, array, _ in _members(plan)
    ]


def _save(plan: Plan, name: str) -> list[str]:
    length = len(_header(plan))
    copies = [f"  memcpy(to + {at}, state->{m}, {a.nbytes});" for m, a, at in _members(plan)]
    return [
        f"  char *const to = (char *)file + {length};",
        f"  memcpy(file, {name}_file_header, {length});",
        *copies,
    ]


def _load(plan: Plan, name: str) -> list[str]:
    length = len(_header(plan))
    copies = [f"  memcpy(state->{m}, from + {at}, {a.nbytes});" for m, a, at in _members(plan)]
    return [
        f"  const char *const from = (const char *)file + {length};",
        f"  if (memcmp(file, {name}_file_header, {length})) return 1;",
        *copies,
        "  return 0;",
    ]


def file_of(plan: Plan) -> list[bytes]:
    """A file of the first values, as the state's would be."""
    return [_header(plan), *(array.tobytes() for _, array, _ in _members(plan))]


def _members(plan: Plan) -> Iterator[tuple[str, Array, int]]:
    """Name, array, and offset in the data of a file, of each member."""
    at = 0
    for _, region in plan.state.values():
        yield name_of(region), region.array, at
        at += region.array.nbytes


def _bits(array: Array) -> Array:
    """The bytes of an array: those of -0.0 are not 0."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


# --- The header of a file -------------------------------------------------------------------------

_CODES = {
    "?": "BOOL", "b": "I8", "h": "I16", "i": "I32", "l": "I64", "q": "I64", "B": "U8", "H": "U16",
    "I": "U32", "L": "U64", "Q": "U64", "e": "F16", "f": "F32", "d": "F64",
}  # fmt: skip


def _sizes(plan: Plan) -> list[int]:
    return [region.array.nbytes for _, region in plan.state.values()]


def _header(plan: Plan) -> bytes:
    """The header's length in 8 bytes and the header: data begin at a multiple of 8."""
    entries: dict[str, object] = {}
    at = 0
    for parameter, region in plan.state.values():
        name = _entry(parameter, region, entries)
        code = _CODES.get(parameter.dtype.char, "BF16")
        offsets = [at, at := at + region.array.nbytes]
        entries[name] = {
            "dtype": code, "shape": list(parameter.shape), "data_offsets": offsets,
        }  # fmt: skip
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _entry(parameter: Parameter, region: Region, taken: Mapping[str, object]) -> str:
    """The name of a parameter in the file: its own, or that of the member where two have one."""
    return name_of(region) if parameter.name in taken else parameter.name


# --- Constants: types of elements, arrays as initializers, names in comments ----------------------


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
