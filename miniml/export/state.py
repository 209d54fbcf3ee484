"""The state of an exported program: the struct, its first values, and files of it.

A file is one of safetensors: the length of a header, the header in JSON, and the arrays. Which ones
is known when the C is written, so saving and loading are copies.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from ..core.abstract import Abstract
from ..core.parameter import Parameter
from ..core.tensor import Array
from .literals import WIDTH, c_type, defined, literals, name_of, said
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
