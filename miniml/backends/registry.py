"""The kernel registry: entries by primitive, device, signature and provider.

Kernels are registered and the inputs of primitives declared, in either order, and checked against
each other as soon as both are there. Further on: edits, as of a notebook cell that is run again,
which leave the NumPy kernel and the C expression of a primitive in doubt. Last the formats of the
inputs and outputs of a primitive that are images, and the kernels of NumPy.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial, wraps
from types import CodeType
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np

from ..core.abstract import HALVES, PLAIN, KernelAttr, Signature, float32
from ..core.abstract import parse as parse
from ..core.errors import DeclarationError, DuplicateError
from ..core.scope import Scoped, epoch
from ..core.signature import HELD, LOW, WIDE, features, same
from .expressions import C_FUNCTIONS, C_WORDS, unknown_calls
from .expressions import table as expressions
from .kernel import (
    Array,
    Body,
    Formats,
    Kernel,
    KernelEntry,
    KernelNode,
    Launch,
    RawSource,
    check_arrays,
    check_fills,
    keywords,
    refuse_rebinding,
)
from .kernel import Expression as Expression
from .kernel import OpSpec as OpSpec

BUILTIN = "miniml"
NATIVE = "cc"  # the provider of C that is compiled at run time
Spec = str | KernelAttr | Signature
B = TypeVar("B", bound=Body)


specs: dict[str, OpSpec] = {}
table: dict[tuple[str, str], list[KernelEntry]] = {}
# Each gives the kernels of images in other memory formats that follow from a kernel.
arrangements: list[Callable[[KernelEntry], Iterator[KernelEntry]]] = []


# --- Kernels --------------------------------------------------------------------------------------


def kernel(
    name: str,
    device: str,
    *signatures: Spec,
    provider: str = BUILTIN,
    requires: tuple[str, ...] = (),
    priority: int = 0,
    inplace: tuple[int, ...] = (),
    strided: bool = False,
    total: bool = False,
) -> Callable[[B], B]:
    """Decorator: register a function or a Kernel class as the kernel of primitive `name`.

    A function takes arrays by position and attributes by keyword and fills `out=` (a tuple for
    several outputs). If the primitive has dynamic_outputs, so that no array to fill can be
    allocated, it takes no `out` and returns its arrays. A Kernel class prepares for a node. Either
    is launched unless every output is empty; a class may say otherwise (`Kernel.can_run`).

    device: "cpu" or "cuda". signatures: "ff->f" or KernelAttr, at least one.
    provider: whose kernel it is. Contexts rank providers; kernels of one that the context does not
    name serve only primitives that have no kernel of the library's own. requires: features the
    device must have: "avx512f" and the like of a CPU, "cublas" or "wmma" of a GPU. priority: the
    larger wins among equals; `Target.select` has the whole order. inplace: inputs whose memory
    `out` may share. strided: a CUDA kernel takes inputs of any strides. total: it never raises,
    whatever the inputs hold; a built-in one runs no Python either.
    Raises DuplicateError when its key is taken, DeviceError for a feature that nobody knows,
    DeclarationError when it contradicts itself or takes another number of arrays than its
    signature says, or when the function rebinds `out`, which would leave the array unfilled.
    """
    if not signatures:
        raise DeclarationError(f"kernel for {name} has no signature; add one, such as 'f->f'")
    requires = features(requires, device)
    row = partial(
        KernelEntry, provider=provider, requires=requires, priority=priority, inplace=inplace,
        strided=strided, total=total,
    )  # fmt: skip
    return _decorator(name, device, signatures, row)


def view_kernel(
    name: str, device: str, *signatures: Spec, of: int = 0, provider: str = BUILTIN
) -> Callable[[B], B]:
    """Decorator: register a function that returns a view of its input `of` and computes nothing.

    It takes arrays by position and attributes by keyword; a Kernel class picks it in `prepare`, as
    `self.call`, which takes the arrays alone. signatures: by default every dtype, for
    one input and one output. name, device, provider, errors: as for `kernel`.
    """
    row = partial(KernelEntry, provider=provider, view=of)
    return _decorator(name, device, signatures or tuple(same(1, HELD)), row)


def elementwise_kernel(name: str, expression: str, *signatures: Spec) -> None:
    """Register a scalar C expression for an elementwise primitive: its kernel on CUDA, and its code
    in fused kernels on the CPU.

    The expression uses the primitive's inputs and numeric attributes by name, as in
    `elementwise_kernel("Snake", "x + sin(alpha * x) / alpha", "f->f", "d->d")`. It may call the
    functions of `backends.expressions.C_FUNCTIONS`: C's mathematics on any number.
    DeclarationError when it names something the primitive does not have, or calls another function.
    """
    _check_expression(name, expression)
    body = Expression(expression)
    kernel(name, "cuda", *signatures, provider=BUILTIN)(body)
    expressions.update({(name, str(parse(signature))): body for signature in signatures})


def raw_kernel(
    name: str,
    *signatures: Spec,
    entry: str,
    source: str,
    launch: Callable[[KernelNode], Launch],
    defines: dict[str, object] | None = None,
    options: Sequence[str] = (),
    provider: str = BUILTIN,
    requires: tuple[str, ...] = (),
    priority: int = 0,
) -> None:
    """Register CUDA C text as the CUDA kernel of primitive `name`.

    entry: the `extern "C" __global__` function in `source`; its parameters are inputs, outputs,
    workspace, then the launch's args. `T`, `T_IN0`, `T_OUT0` name the C types. launch: from a
    KernelNode to a Launch, run when the kernel is prepared. defines: extra -D macros. options: of
    NVRTC, as "--use_fast_math" or "--maxrregcount=64"; the simulator takes -D, -U and -I, and
    passes over the others. requires, priority: as for `kernel`; a text that includes mma.h
    requires "wmma".
    """
    _check_raw(name, entry, source, launch, options)
    macros = tuple((key, str(value)) for key, value in (defines or {}).items())
    register = kernel(
        name, "cuda", *signatures, provider=provider, requires=requires, priority=priority
    )
    register(RawSource(source, entry, launch, macros, tuple(options)))


def _decorator(
    name: str, device: str, signatures: tuple[Spec, ...], row: Callable[..., KernelEntry]
) -> Callable[[B], B]:
    """The decorator that registers a body, as one entry for each signature."""
    if device not in ("cpu", "cuda"):
        raise DeclarationError(
            f"kernel for {name}: device {device!r} is unknown; register it for 'cpu' or 'cuda' "
            "('cuda-sim' runs the 'cuda' ones)"
        )
    parsed = [parse(s) for s in signatures]
    module, where = _caller()

    def register(body: B) -> B:
        refuse_rebinding(name, body)
        text = isinstance(body, (Expression, RawSource))
        own = f"{getattr(body, '__module__', '')}.{getattr(body, '__qualname__', '')}"
        owner = module if text else own
        for signature in parsed:
            _register(
                row(
                    name=name, device=device, signature=signature, body=body,
                    owner=owner, where=where, module=module,
                )
            )  # fmt: skip
        return body

    return register


_OWN = (__name__, "miniml.interop.custom")  # through which users' registrations pass


def _caller() -> tuple[str, str]:
    """The module that registers a kernel, and the line."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in _OWN and frame.f_back is not None:
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "")
    return module, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _register(entry: KernelEntry) -> None:
    spec = specs.get(entry.name)
    if spec is not None:
        _check_entry(entry, spec)
    check_arrays(entry)
    _file(entry)


def _file(entry: KernelEntry) -> None:
    """Add an entry that was checked, in place of its author's earlier one."""
    entries = table.setdefault((entry.name, entry.device), [])
    for i, other in enumerate(entries):
        if other.key == entry.key:
            if entry.derived and not other.derived:
                return
            replaced = other.derived or other.by_class == "inherited"
            if not (replaced or _same_author(other, entry)):
                _refuse_taken(entry, other)
            _note_edit(entry, other)
            entries[i] = entry
            break
    else:
        _note_edit(entry, None)
        entries.append(entry)
    epoch.bump("kernels")
    register_arranged(entry)


def register_arranged(entry: KernelEntry) -> None:
    """Register the kernels in other memory formats that follow from one of images."""
    spec = specs.get(entry.name)
    if spec is not None and spec.images and not entry.derived:
        for derived in (e for arrange in arrangements for e in arrange(entry)):
            _register(derived)


def _refuse_taken(entry: KernelEntry, other: KernelEntry) -> NoReturn:
    raise DuplicateError(
        f"{entry.name} has a kernel {entry.signature} on {entry.device} from provider "
        f"{entry.provider!r} already, registered at {other.where}; give "
        "provider='...' of your own and name it in ml.context(providers=...)"
    )


def _same_author(a: KernelEntry, b: KernelEntry) -> bool:
    """True where an entry replaces another, as when a notebook cell is run twice.

    A function is known by its name. Text has none: it counts as the same on the same line, or if
    one module has two files, which are two runs of a cell.
    """
    texts = [isinstance(e.body, (Expression, RawSource)) for e in (a, b)]
    if any(texts):
        two_files = a.where.rpartition(":")[0] != b.where.rpartition(":")[0]
        return all(texts) and (a.where == b.where or (a.owner == b.owner and two_files))
    return a.owner == b.owner and "." in a.owner and not isinstance(a.body, np.ufunc)


@contextmanager
def redefinition(name: str, again: bool) -> Iterator[None]:
    """While a primitive and its kernels are defined: without those that it has if it is defined
    `again`. If the definition is refused, what the name had before is put back."""
    kernels = {k: list(entries) for k, entries in table.items() if k[0] == name}
    texts = {k: body for k, body in expressions.items() if k[0] == name}
    spec = specs.get(name)
    if again:
        forget(name)
    try:
        yield
    except Exception:
        forget(name)
        table.update(kernels)
        expressions.update(texts)
        specs.pop(name, None)
        if spec is not None:
            specs[name] = spec
        raise


def forget(name: str) -> None:
    """Unregister all kernels of a primitive."""
    for key in [k for k in table if k[0] == name]:
        table.pop(key)
    for text in [k for k in expressions if k[0] == name]:
        expressions.pop(text)
    epoch.bump("kernels")


# --- Primitives -----------------------------------------------------------------------------------


def register_spec(spec: OpSpec, redefined: bool = False) -> None:
    """Register the names of a primitive and its inputs, and check its kernels registered so far.

    redefined: the class replaces an earlier definition of itself (a notebook cell run
    again), so programs compiled from that one are stale, and kernels that only fitted that one are
    dropped instead of refusing the new one.
    """
    previous = specs.get(spec.name)
    if previous == spec and not redefined:
        return
    epoch.bump("kernels")
    specs[spec.name] = spec
    if redefined:
        for entry in [e for e in _entries(spec.name) if not _fits_spec(e, spec)]:
            table[entry.name, entry.device].remove(entry)
            expressions.pop((entry.name, str(entry.signature)), None)
        return
    try:
        for entry in _entries(spec.name):
            _check_entry(entry, spec)
    except DeclarationError:
        specs.pop(spec.name)
        if previous is not None:
            specs[spec.name] = previous
        raise


def _entries(name: str) -> list[KernelEntry]:
    return [e for device in ("cpu", "cuda") for e in table.get((name, device), ())]


def _fits_spec(entry: KernelEntry, spec: OpSpec) -> bool:
    try:
        _check_entry(entry, spec)
    except DeclarationError:
        return False
    return True


# --- Kernels that a class says itself -------------------------------------------------------------


# By device and signature, a function or an expression; and True if it is a base class that says it,
# so that a kernel registered by name takes its place.
Row = Mapping[tuple[str, str], tuple[Body, bool]]


def register_row(spec: OpSpec, row: Row, module: str, where: str, redefined: bool = False) -> None:
    """Register a primitive as `register_spec` does, and the kernels of its row. Refused as by
    `kernel`, before anything has changed.

    module, where: of the class. redefined: it takes the place of an earlier definition, and its row
    that of the earlier row, and of kernels that its module registered then.
    """
    made = [_of_row(spec, module, where, *key, *said) for key, said in row.items()]
    mine = {(e.device, e.key) for e in made}
    others = _entries(spec.name)
    same = [e for e in others if (e.device, e.key) in mine]
    old = [e for e in others if e.by_class or (redefined and e.module == module and e in same)]
    for entry in same:
        if entry not in old:
            _refuse_taken(entry, entry)
    for entry in old:
        table[entry.name, entry.device].remove(entry)
        if isinstance(entry.body, Expression):
            expressions.pop((entry.name, str(entry.signature)), None)
    register_spec(spec, redefined)
    for entry in made:
        if isinstance(entry.body, Expression):
            expressions[entry.name, str(entry.signature)] = entry.body
        if entry.device == "cpu" or not module.startswith("miniml."):
            _file(entry)  # of the library's expressions `cuda.kernels` makes kernels


def _of_row(
    spec: OpSpec, module: str, where: str, device: str, signature: str, body: Body, inherited: bool
) -> KernelEntry:
    """An entry of a row, checked."""
    parsed, ufunc = parse(signature), isinstance(body, np.ufunc)
    shared = tuple(i for i, d in enumerate(parsed.inputs) if ufunc and d == parsed.outputs[0])
    if isinstance(body, Expression):
        _check_expression(spec.name, body.text)
        family = module.rpartition(".")[2] if module.startswith("miniml.") else ""
        body = replace(body, unit=family and f"{family} {parsed}")
    entry = KernelEntry(
        spec.name, device, parsed, BUILTIN, body, inplace=shared, total=ufunc, where=where,
        owner=f"{module}.{spec.name}", module=module, by_class="inherited" if inherited else "own",
    )  # fmt: skip
    refuse_rebinding(spec.name, inspect.unwrap(body) if callable(body) else body)
    _check_entry(entry, spec)
    check_arrays(entry)
    check_fills(entry)
    return entry


def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel `fn` for float16 and bfloat16: inputs widened to float32, outputs rounded once."""

    @wraps(fn)
    def widened(*inputs: Array, out: Array | tuple[Array | None, ...], **attrs: Any) -> None:
        wide = [a.astype(float32) if a.dtype in HALVES else a for a in inputs]
        outs = out if isinstance(out, tuple) else (out,)
        scratch = tuple(
            o if o is None or o.dtype not in HALVES else np.empty(o.shape, float32) for o in outs
        )
        fn(*wide, **attrs, out=scratch if isinstance(out, tuple) else scratch[0])
        for target, computed in zip(outs, scratch, strict=True):
            if target is not None and target is not computed:
                target[...] = computed

    return widened


# --- Checks of kernels against the declaration of their primitive ---------------------------------


def _check_entry(entry: KernelEntry, spec: OpSpec) -> None:
    """DeclarationError unless the kernel's arity and names agree with the primitive's."""
    s = entry.signature
    if spec.inputs is not None:
        _count(entry, "inputs", len(s.inputs), spec.inputs, s.repeats_input)
    if spec.outputs is not None:
        _count(entry, "outputs", len(s.outputs), spec.outputs, s.repeats_output)
    if spec.dynamic and isinstance(entry.body, (Expression, RawSource, type)):
        raise DeclarationError(
            f"{entry.name} kernel {entry.signature} has to know the shapes of its outputs, which "
            "dynamic_outputs leaves open; give a function that returns fresh arrays"
        )
    if isinstance(entry.body, Expression):
        if entry.body.types is None:  # else its parameters are its own names
            _check_names(entry, entry.body, spec)
    elif not isinstance(entry.body, (RawSource, type)):
        _check_function(entry, entry.body, spec)


def _count(
    entry: KernelEntry, what: str, count: int, names: tuple[str, ...], repeats: bool
) -> None:
    if count != len(names) and not repeats:
        raise DeclarationError(
            f"{entry.name} kernel {entry.signature} has {count} {what}; the primitive has "
            f"{len(names)}: {', '.join(names)}"
        )


def _check_names(entry: KernelEntry, body: Expression, spec: OpSpec) -> None:
    if spec.inputs is None or spec.attributes is None:
        return
    unknown = sorted(body.words - {*spec.inputs, *spec.attributes} - C_WORDS)
    if unknown:
        raise DeclarationError(
            f"{entry.name} expression {body.text!r} names {', '.join(unknown)}; the primitive has "
            f"inputs {', '.join(spec.inputs)} and attributes {', '.join(spec.attributes) or 'none'}"
        )


def _check_function(entry: KernelEntry, body: Any, spec: OpSpec) -> None:
    """DeclarationError unless a function takes exactly the attributes, all by keyword."""
    if isinstance(body, np.ufunc) or spec.attributes is None:
        return
    named = keywords(body)
    if named is None:
        return
    takes, needs = named
    gets = {*spec.attributes, *spec.const_inputs}
    missing = sorted(gets - takes)
    extra = sorted(needs - gets - {"out"})
    if missing or extra:
        expected = ", ".join(sorted(gets)) or "no attributes"
        wrong = [f"does not take {', '.join(missing)}"] * bool(missing)
        wrong += [f"asks for {', '.join(extra)}"] * bool(extra)
        raise DeclarationError(
            f"{entry.name} kernel {getattr(body, '__name__', body)!r} {' and '.join(wrong)}; "
            f"the primitive passes {expected} by keyword, and out="
        )


@lru_cache(maxsize=512)
def _check_expression(name: str, text: str) -> None:
    """DeclarationError unless the text can be one C expression, of functions that are known."""
    if not text.strip() or ";" in text or text.count("(") != text.count(")"):
        raise DeclarationError(
            f"{name} expression {text!r} is not one C expression; it has no ';' and balanced "
            "parentheses"
        )
    unknown = unknown_calls(text)
    if unknown:
        raise DeclarationError(
            f"{name} expression {text!r} calls {', '.join(unknown)}; expressions know "
            f"{', '.join(sorted(C_FUNCTIONS))}; a raw_kernel may call all that CUDA has"
        )


def _check_raw(
    name: str, entry: str, source: str, launch: object, options: Sequence[str] = ()
) -> None:
    """DeclarationError unless the source has the entry point, the launch rule is callable and
    options are options."""
    pattern = rf'extern\s+"C"\s*(?:\{{.*?)?__global__\s+\w[^;{{]*?\b{re.escape(entry)}\s*\('
    if not re.search(pattern, source, re.DOTALL):
        raise DeclarationError(
            f'{name} source has no extern "C" __global__ function {entry!r}; name the one it has '
            "as entry="
        )
    if not callable(launch):
        raise DeclarationError(f"{name} launch must be a function from node to Launch")
    wrong = [options] if isinstance(options, str) else [o for o in options if o[:1] != "-"]
    if wrong:
        raise DeclarationError(
            f"{name} options has {wrong[0]!r}; give a tuple of options of the compiler, as in "
            "('--use_fast_math',)"
        )


# --- Edits of one of the two texts of an elementwise primitive ------------------------------------


Half = Literal["NumPy kernel", "C expression"]
replaced: dict[tuple[str, str], Half] = {}
"""By primitive and signature, the text that was replaced since both were registered."""
believed: Scoped[bool] = Scoped("miniml_edits")  # no doubt: opcheck compares the two itself


def _note_edit(entry: KernelEntry, before: KernelEntry | None) -> None:
    """Note that an entry takes the place of `before`.

    Where one cell of a notebook is run again, one text is replaced and the other may be out of
    date; once both have been replaced, they belong to one edit and no doubt is left.
    """
    if before is None and not replaced:
        return
    half: Half = "C expression" if isinstance(entry.body, Expression) else "NumPy kernel"
    if entry.device != ("cuda" if half == "C expression" else "cpu"):
        return
    key = entry.name, str(entry.signature)
    if replaced.get(key, half) != half:
        del replaced[key]
    elif before is not None and not _same_body(before.body, entry.body):
        replaced[key] = half


def _same_body(a: Any, b: Any) -> bool:
    """True for equal texts, and for functions of equal code that see equal values."""
    if not (hasattr(a, "__code__") and hasattr(b, "__code__")):
        return bool(a == b)
    seen = [_values_seen(a), _values_seen(b)]
    return _without_lines(a.__code__) == _without_lines(b.__code__) and seen[0] == seen[1]


def _without_lines(code: CodeType) -> CodeType:
    """The code without its line numbers."""
    return code.replace(co_firstlineno=1, co_linetable=b"")


def _values_seen(body: Any) -> list[tuple[type, object]]:
    """The closure and defaults of a function: numbers, texts by value, all else by identity."""
    cells = [cell.cell_contents for cell in body.__closure__ or ()]
    given = [*cells, *(body.__defaults__ or ()), *(body.__kwdefaults__ or {}).values()]
    by_value = (bool, int, float, str)
    return [(type(v), v if isinstance(v, by_value) else id(v)) for v in given]


# --- Images in other memory formats ---------------------------------------------------------------


def _ports(name: str) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """For each input and each output, whether it is an image."""
    spec = specs[name]
    takes, gives = spec.inputs or (), spec.outputs or ()
    return tuple(n in spec.images for n in takes), tuple(n in spec.images for n in gives)


def image_formats(name: str, format: str, first: str | None = None) -> tuple[Formats, Formats]:
    """The formats of inputs and outputs: `format` for images, row-major order for the rest; first:
    the format of the first input, if it is another."""
    takes, gives = ([format if image else PLAIN for image in part] for part in _ports(name))
    takes[0] = first or takes[0]
    return tuple(takes), tuple(gives)


def image_format(node: KernelNode) -> str:
    """The format of the first input image that is not row-major, else row-major order."""
    pairs = zip(node.inputs, _ports(node.name)[0], strict=True)
    return next((s.format for s, image in pairs if image and s.format), PLAIN)


def image_attr(
    name: str, signature: Signature, format: str, first: str | None = None
) -> KernelAttr:
    """The signature on images in that format; first: as for `image_formats`."""
    attr, (takes, gives) = KernelAttr(), image_formats(name, format, first)
    for dtype, at in zip(signature.inputs, takes, strict=True):
        attr.add_input_attr(dtype, at)
    for dtype, at in zip(signature.outputs, gives, strict=True):
        attr.add_output_attr(dtype, at)
    return attr


# --- Kernels of NumPy -----------------------------------------------------------------------------


def register(
    name: str, body: Body, *signatures: str, inplace: tuple[int, ...] = (), total: bool = False
) -> None:
    """Register a NumPy function, or a Kernel class, as the CPU kernel of primitive `name`."""
    kernel(name, "cpu", *signatures, inplace=inplace, total=total)(body)


def register_floats(name: str, fn: Callable[..., Any], *signatures: str) -> None:
    """Register `fn` for float32 and float64, and through float32 for float16 and bfloat16.

    signatures: with {} for the float's type code; "{}->{}" where none is given.
    """
    for body, codes in ((fn, WIDE), (in_float32(fn), LOW)):
        register(
            name, body, *[s.replace("{}", c) for s in signatures or ("{}->{}",) for c in codes]
        )


def register_planned(name: str, plan: Callable[..., Any], codes: str = WIDE) -> None:
    """Register the functions fill(x, out=out) that plan(x.shape, out.shape, x.dtype, **attributes)
    gives: prepared once for shapes of these dtypes, and through float32 for floats of 16 bits."""

    def fill(x: Array, *, out: Array, **attrs: Any) -> None:
        plan(x.shape, out.shape, x.dtype, **attrs)(x, out=out)

    class Planned(Kernel):
        anywhere = staticmethod(fill)  # of any memory

        def prepare(self, node: KernelNode) -> None:
            (x,), (out,) = node.inputs, node.outputs
            self.call = plan(x.shape, out.shape, x.dtype, **node.attrs)

    register(name, Planned, *same(1, codes))
    register(name, in_float32(fill), *same(1, LOW))
