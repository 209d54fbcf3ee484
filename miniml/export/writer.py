"""C text of a plan: a header, and a file of constants, kernels and the function that calls them.

Texts: the parts of both files in their order. Functions: the kernels, whose own text is that of
provider "cc", and what calls them. Statements: one for each step of the plan. State: the struct,
its first values and the files of it, of safetensors: the length of a header, the header in JSON,
and the arrays. Which ones is known when the C is written, so saving and loading are copies.
"""

from __future__ import annotations

import json
import platform
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..backends.cc.units import DECLARATIONS, KERNEL, Source
from ..core.abstract import Abstract, DType, float32, float64
from ..core.errors import ExportError
from ..core.parameter import Parameter
from ..core.tensor import Array
from ..graph.ir import Node
from .plan import Address, Choice, Move, Plan, Planned, Region, Repeat, Run
from .quantize import Report

# --- Texts ----------------------------------------------------------------------------------------


class About(NamedTuple):
    """Facts for the comments. what: the kind of the object. flops: of one call. file: the name of
    that of the weights; None where their values are in the C file. stack: bytes, if known."""

    name: str
    what: str
    version: str
    flops: int
    step: bool
    file: str | None
    report: Report | None
    stack: int | None = None

    @property
    def holds(self) -> bool:
        """True where parameters are in a state of the caller."""
        return self.step or self.file is not None


def header(plan: Plan, about: About) -> str:
    """The text of the header."""
    name, upper = about.name, about.name.upper()
    shown = [f"   in{i}: {v.abstract}" for i, v in enumerate(plan.graph.inputs)]
    outs = [*enumerate(v.abstract for v in plan.graph.outputs)]
    shown += [f"   out{i}: {a}" for i, a in outs if i or not _returns(plan, about)]
    contract = (
        f"Arrays are in row-major order. `arena` is {upper}_ARENA_BYTES of memory that begins at a "
        f"multiple of 64; its contents matter during a call only. {_refusals(plan, about)}"
        f"{_stack(about)} */"
    )
    lines = [
        f"/* {name}: {said(about.what)}, written by miniml {about.version}.",
        *shown,
        textwrap.fill(contract, WIDTH, initial_indent="   ", subsequent_indent="   "),
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        f"#define {upper}_ALIGNED alignas(64)",
        'extern "C" {',
        "#else",
        f"#define {upper}_ALIGNED _Alignas(64)",
        "#endif",
        "",
        f"#define {upper}_ARENA_BYTES {max(plan.size, 64)}",
        "",
    ]
    if about.holds:
        lines += [*struct(plan, about.name, about.step), ""]
    lines += [f"{prototype};" for prototype in _prototypes(plan, about)]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _returns(plan: Plan, about: About) -> bool:
    """True for a step whose first output is a number: the function returns it."""
    first = plan.graph.outputs[0].abstract
    return about.step and not first.shape and first.dtype in (float32, float64)


def _refusals(plan: Plan, about: About) -> str:
    if _returns(plan, about):
        return "A label or index out of range makes the step return NaN and change nothing."
    unchanged = ", and the state stays as it was" * about.step
    return (
        f"Where an index is out of range, every byte of the outputs is 255: NaN, or -1{unchanged}."
    )


def _stack(about: About) -> str:
    """The stack that a call needs, as a sentence, where it is known."""
    if about.stack is None:
        return ""
    return (
        f" A call takes up to {about.stack:,} bytes of stack, and libm's own, as gcc -O3 compiles "
        f"it for {platform.machine()}."
    )


def _prototypes(plan: Plan, about: About) -> list[str]:
    name = about.name
    given = [f"const {c_type(r.array.dtype)} *in{i}" for i, r in enumerate(plan.inputs)]
    outs = [f"{c_type(r.array.dtype)} *out{i}" for i, r in enumerate(plan.outputs)]
    held = prototypes(name, about.file is None, about.step) if about.holds else []
    if not about.step:
        taken = [f"const {name}_state *state"] * about.holds + ["void *arena", *given, *outs]
        return [*held, f"void {name}_run({', '.join(taken)})"]
    returns = _returns(plan, about)
    made = c_type(plan.outputs[0].array.dtype) if returns else "void"
    taken = [f"{name}_state *state", "void *arena", *given, *outs[returns:]]
    return [*held, f"{made} {name}_step({', '.join(taken)})"]


def source(plan: Plan, about: About, include: str) -> str:
    """The text of the C file. include: the header's name."""
    runs = kernels(plan.steps, about.name)
    named = {run.source: name for name, run in runs.items()}
    shared = dict.fromkeys(text for kernel in named for text in kernel.shared)
    parts = [
        _comment(plan, about),
        f'#include "{include}"',
        "",
        "#include <stdbool.h>",
        _PRAGMAS,
        DECLARATIONS,
        "" if plan.scratch is None else _ROOM % plan.vector,
        *shared,
        *(defined(region, name_of(region), "a constant") for region in plan.constants),
        *(first_values(plan, about.name, about.file is None) if about.holds else _weights(plan)),
        *(_definition(run, name) for name, run in runs.items()),
        *_whole(plan, about, named),
    ]
    return "\n".join(parts)


_PRAGMAS = """\
#if !(defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12))
#error "this file needs gcc 12 or later, or clang: it uses their vectors"
#endif
/* What follows is one text for every shape: some functions use neither all of their arguments nor
   each other, some loops run zero times, and numbers are compared with themselves to find NaN,
   and unsigned ones with 0. */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#pragma GCC diagnostic ignored "-Wtype-limits"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wpass-failed"
#pragma STDC FP_CONTRACT OFF
#else /* gcc does not see that of a tile just the columns that were computed are read */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Waggressive-loop-optimizations"
#endif
"""


_ROOM = """\
/* Bytes of the widest vectors for which kernels have room in the arena. */
#define MINIML_ROOM_VECTOR %d
"""


def _comment(plan: Plan, about: About) -> str:
    weights = sum(region.array.nbytes for _, region in plan.state.values())
    where = f"in {about.name}_state" if about.holds else "constants"
    where += f", whose values are in {said(about.file)}" if about.file else ""
    about_it = f"{about.name}: {said(about.what)}, written by miniml {about.version}."
    costs = (
        f"{about.flops:,} operations in floating point a call; {weights:,} bytes of parameters "
        f"({where}), {plan.size:,} bytes of arena. Nothing is allocated, and no variable is kept "
        f"between calls.{f' {about.report}.' if about.report else ''} C11 for gcc (12 or later) "
        "and clang; it needs libm alone:"
    )
    lines = [
        textwrap.fill(f"/* {about_it}", WIDTH, subsequent_indent="   "),
        textwrap.fill(costs, WIDTH, initial_indent="   ", subsequent_indent="   "),
        "",
        "       cc -std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -c */",
    ]
    return "\n".join(lines)


def _definition(run: Run, name: str) -> str:
    # On one thread, by a function whose parts are called by name: gcc knows how deep it gets.
    kernel = run.source.constant.replace("miniml.parallel", "miniml_serial")
    # Inlined, its memory on the stack would be the caller's, while the next kernel runs.
    begin = rf"static __attribute__((noinline)) \1 {KERNEL}("
    text = re.sub(rf"^(void|int) {KERNEL}\(", begin, kernel, flags=re.MULTILINE)
    given, made = (
        ", ".join(str(v.abstract) for v in vs) for vs in (run.node.inputs, run.node.outputs)
    )
    about = f"{_note(run.node)}: {said(_operation(run.node))} of {given or 'nothing'}, gives {made}"
    lines = textwrap.fill(about, WIDTH, initial_indent="/* ", subsequent_indent="   ")
    if run.source.room:
        text = f"{_rooms(run)}{text}"
    return f"{lines} */\n{text.replace(KERNEL, name)}"


def _rooms(run: Run) -> str:
    """The macros by which a kernel takes its room from its last operand."""
    at, size = len(run.operands) - 1, run.source.room
    return f"#define {KERNEL}_ROOM_AT {at}\n#define {KERNEL}_ROOM_BYTES {size}\n"


def _weights(plan: Plan) -> Iterator[str]:
    """The parameters as constants."""
    for parameter, region in plan.state.values():
        note = f"{parameter.name}: {Abstract(parameter.shape, parameter.dtype)}"
        yield defined(region, name_of(region), note)


# --- Functions ------------------------------------------------------------------------------------


Named = Mapping[Source, str]


def kernels(steps: Sequence[Planned], prefix: str) -> dict[str, Run]:
    """The first run of each kernel, by a name made of its layer and its operation."""
    found: dict[Source, Run] = {}
    for run in _runs(steps):
        found.setdefault(run.source, run)
    named: dict[str, Run] = {}
    for run in found.values():
        stem = f"{prefix}_{_stem(run.node)}"
        name, number = stem, 1
        while name in named:
            number += 1
            name = f"{stem}_{number}"
        named[name] = run
    return named


def _runs(steps: Sequence[Planned]) -> Iterator[Run]:
    for step in steps:
        if isinstance(step, Run):
            yield step
        elif isinstance(step, Repeat):
            yield from _runs((*step.condition, *step.steps))
        elif isinstance(step, Choice):
            yield from _runs((*step.on_true, *step.on_false))


def _operation(node: Node) -> str:
    body = node.attrs.get("body")
    return node.primitive.name.lower() if body is None else str(body.name)


_LONGEST = 56  # characters of a stem, half of them of a layer: C tells 63 of a name apart


def _stem(node: Node) -> str:
    where = node.where
    layer = "" if where is None else re.sub(r"^layer (\S+) \(.*\)$", r"layer_\1", where.layer)
    parts = [layer[-_LONGEST // 2 :], "grad" * bool(where and where.gradient), _operation(node)]
    stem = re.sub(r"\W+", "_", "_".join(filter(None, parts)), flags=re.ASCII).strip("_")
    return stem[:_LONGEST].rstrip("_")


def _whole(plan: Plan, about: About, named: Named) -> Iterator[str]:
    """The function that calls the kernels, below those of the state."""
    yield from _held(plan, about)
    yield f"{_prototypes(plan, about)[-1]} {{"
    if _returns(plan, about):
        yield f"  {c_type(plan.outputs[0].array.dtype)} out0[1];"
        yield from _body(plan, named, 'return __builtin_nanf("");')
        yield "  return out0[0];"
    else:
        sizes = [r.array.nbytes for r in plan.outputs]
        refused = " ".join(f"memset(out{i}, 255, {size});" for i, size in enumerate(sizes))
        yield from _body(plan, named, f"{{ {refused} return; }}")
    yield "}"
    yield ""


def _held(plan: Plan, about: About) -> Iterator[str]:
    """The functions that make, save and load the state, if there is one."""
    if about.holds:
        yield from functions(plan, about.name, about.file is None, about.step)


def _body(plan: Plan, named: Named, refused: str) -> Iterator[str]:
    lines = [*_statements(plan.steps, named, refused, 1)]
    yield "  char *const a = (char *)arena;"
    if plan.scratch is not None:
        yield f"  char *const scratch = a + {plan.scratch};"
    if not any(re.search(r"\ba\b", line) for line in lines):
        yield "  (void)a;"
    yield from lines


# --- Statements -----------------------------------------------------------------------------------


def _statements(steps: Sequence[Planned], named: Named, refused: str, depth: int) -> Iterator[str]:
    indent, layer = "  " * depth, ""
    for step in steps:
        node = getattr(step, "node", None)
        note = "" if node is None else _note(node)
        if note and note != layer:
            yield f"{indent}/* {note} */"
            layer = note
        match step:
            case Run():
                yield _call(step, named[step.source], refused, indent)
            case Move():
                yield from (indent + line for line in _move(step))
            case Repeat():
                yield from _loop(step, named, refused, depth)
            case Choice():
                yield f"{indent}if (*(const bool *)({text(step.flag)})) {{"
                yield from _statements(step.on_true, named, refused, depth + 1)
                yield f"{indent}}} else {{"
                yield from _statements(step.on_false, named, refused, depth + 1)
                yield f"{indent}}}"


def _loop(step: Repeat, named: Named, refused: str, depth: int) -> Iterator[str]:
    indent = "  " * depth
    ends = "" if step.length is None else f" t < {step.length}"
    yield f"{indent}for (long t = 0;{ends}; ++t) {{"
    for region, start, stride in step.rows:
        yield f"{indent}  char *const {region.text} = {text(start)} + t * {stride}L;"
    yield from _statements(step.condition, named, refused, depth + 1)
    if step.flag is not None:
        yield f"{indent}  if (!*(const bool *)({text(step.flag)})) break;"
    yield from _statements(step.steps, named, refused, depth + 1)
    yield f"{indent}}}"


def _call(run: Run, name: str, refused: str, indent: str) -> str:
    """The statement that calls a kernel; it breaks between operands. A block, so that the operands
    leave the stack with it."""
    given = ", ".join(text(operand).replace(" ", "\0") for operand in run.operands)
    call = f"{name}((char\0*const[]){{{given}}})"
    line = f"if\0({call})\0{refused}" if run.refuses else f"{{\0{call};\0}}"
    made = textwrap.fill(
        line, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return made.replace("\0", " ")


def _note(node: Node) -> str:
    """The layer of a node, or what it computes."""
    where = node.where
    if where is None:
        return node.primitive.name
    layer = said(where.layer or where.called or node.primitive.name)
    return f"gradient of {layer}" if where.gradient else layer


def text(address: Address) -> str:
    """An address as an expression of C."""
    region, offset = address
    return f"{region.text} + {offset}" if offset else region.text


def _move(step: Move) -> Iterator[str]:
    target, source = text(step.target), text(step.source)
    *outer, last = zip(step.extents, step.strides, strict=True)
    if not prod(step.extents):
        return
    together = last[1] == step.itemsize
    if not outer and together:
        if step.target != step.source:
            yield f"memcpy({target}, {source}, {last[0] * step.itemsize});"
        return
    loops = outer if together else [*outer, last]
    size = last[0] * step.itemsize if together else step.itemsize
    extents = [n for n, _ in loops]
    terms = [f"i{k} * {prod(extents[k + 1 :]) * size}L" for k in range(len(loops))]
    reads = [f"i{k} * {stride}L" for k, (_, stride) in enumerate(loops) if stride]
    for k, n in enumerate(extents):
        yield f"{'  ' * k}for (long i{k} = 0; i{k} < {n}; ++i{k})"
    deep = "  " * len(loops)
    yield f"{deep}memcpy({' + '.join([target, *terms])}, {' + '.join([source, *reads])}, {size});"


# --- State ----------------------------------------------------------------------------------------


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
    way = "pass ops.real and ops.imag of it" if dtype.kind == "c" else "cast it to float32 first"
    raise ExportError(f"export_c has no type in C for {dtype.name}; {way}")


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
