"""The kernel table: what is filed under (name, device, signature, provider), and its selection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..dtype import DType, letter
from ..errors import DeclarationError, DuplicateError, KernelNotFoundError
from . import declare
from .device import machine_features as machine_features
from .fitting import best, features_of, format_fits, reason, widenings
from .fitting import supported as supported
from .kernel import Body, Expression, KernelEntry, KernelNode, Launch, RawSource
from .misnamed import misnamed
from .rebinding import refuse_rebinding
from .signature import KernelAttr, Signature, parse

BUILTIN = "miniml"
Spec = str | KernelAttr | Signature
B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What the kernel side knows of a primitive: names only.

    `inputs` excludes const inputs; it is None for a variable number. `attributes` is None where
    the primitive declares them only when it is made (the classic spelling).
    """

    name: str
    inputs: tuple[str, ...] | None
    const_inputs: tuple[str, ...]
    outputs: tuple[str, ...] | None
    attributes: tuple[str, ...] | None


specs: dict[str, OpSpec] = {}
table: dict[tuple[str, str], list[KernelEntry]] = {}
version = 0


def file_spec(spec: OpSpec, redefined: bool = False) -> None:
    """File what a primitive is called and what it takes; kernels filed earlier are checked now.

    redefined: the class took the place of an earlier definition of itself (a notebook cell run
    again), so what was compiled from that one is stale, and kernels that fitted only that one are
    dropped instead of refusing the new one.
    """
    global version
    previous = specs.get(spec.name)
    if previous == spec and not redefined:
        return
    version += 1
    specs[spec.name] = spec
    if redefined:
        _drop_misfits(spec)
        return
    try:
        for (name, _), entries in list(table.items()):
            for entry in entries if name == spec.name else ():
                declare.check(entry, spec)
    except DeclarationError:
        specs.pop(spec.name)
        if previous is not None:
            specs[spec.name] = previous
        raise


def _drop_misfits(spec: OpSpec) -> None:
    for (name, _), entries in list(table.items()):
        if name == spec.name:
            entries[:] = [e for e in entries if _fits_spec(e, spec)]


def _fits_spec(entry: KernelEntry, spec: OpSpec) -> bool:
    try:
        declare.check(entry, spec)
    except DeclarationError:
        return False
    return True


def kernel(
    name: str,
    device: str,
    *signatures: Spec,
    provider: str = BUILTIN,
    requires: tuple[str, ...] = (),
    priority: int = 0,
    inplace: tuple[int, ...] = (),
    view: int | None = None,
    strided: bool = False,
    specialize: Callable[[KernelNode], Callable[..., Any]] | None = None,
) -> Callable[[B], B]:
    """Decorator: file a function or a Kernel class as the kernel of primitive `name`.

    A function takes arrays by position and attributes by keyword and fills `out=` (a tuple for
    several outputs). device: "cpu" or "cuda". signatures: "ff->f" or KernelAttr, at least one.
    provider: whose kernel it is; contexts rank providers. requires: features the device must have:
    "avx512f" and the like of a CPU, "cublas" or "wmma" of a GPU. priority: the larger wins among
    equals. inplace: inputs whose memory `out` may share. view: the function returns a view of that
    input instead of filling `out`. specialize: from a node to the function that is called for it,
    as `fn(*arrays, out=out)` without attributes; by default the kernel itself.
    Raises DuplicateError when the place is taken, DeclarationError when it contradicts itself, or
    when the function rebinds `out`, which would leave the array unfilled.
    """
    if device not in ("cpu", "cuda"):
        raise DeclarationError(
            f"kernel for {name}: device {device!r} is unknown; file it under 'cpu' or 'cuda' "
            "('cuda-sim' runs the 'cuda' ones)"
        )
    if not signatures:
        raise DeclarationError(f"kernel for {name} has no signature; add one, such as 'f->f'")
    parsed = [parse(s) for s in signatures]
    module, where = _caller()

    def register(body: B) -> B:
        refuse_rebinding(name, body)
        if isinstance(body, (Expression, RawSource)):
            owner = module
        else:
            owner = f"{getattr(body, '__module__', '')}.{getattr(body, '__qualname__', '')}"
        for signature in parsed:
            entry = KernelEntry(
                name, device, signature, provider, body, requires, priority, inplace, view,
                strided, specialize, owner, where, module,
            )  # fmt: skip
            _file(entry)
        return body

    return register


def elementwise_kernel(name: str, expression: str, *signatures: Spec) -> None:
    """File a scalar C expression as the CUDA kernel of an elementwise primitive.

    The expression speaks of the primitive's inputs and numeric attributes by name, as in
    `elementwise_kernel("Snake", "x + sin(alpha * x) / alpha", "f->f", "d->d")`.
    Raises DeclarationError when it names something the primitive does not have.
    """
    declare.check_expression(name, expression)
    kernel(name, "cuda", *signatures, provider=BUILTIN)(Expression(expression))


def raw_kernel(
    name: str,
    *signatures: Spec,
    entry: str,
    source: str,
    launch: Callable[[KernelNode], Launch],
    defines: dict[str, object] | None = None,
    provider: str = BUILTIN,
    requires: tuple[str, ...] = (),
    priority: int = 0,
) -> None:
    """File CUDA C text as the CUDA kernel of primitive `name`.

    entry: the `extern "C" __global__` function in `source`; its parameters are inputs, outputs,
    workspace, then the launch's args. `T`, `T_IN0`, `T_OUT0` name the C types. launch: from a
    KernelNode to a Launch, run when the kernel is prepared. defines: extra -D macros. requires,
    priority: as for `kernel`; a text that includes mma.h requires "wmma".
    """
    declare.check_raw(name, entry, source, launch)
    macros = tuple((key, str(value)) for key, value in (defines or {}).items())
    file = kernel(
        name, "cuda", *signatures, provider=provider, requires=requires, priority=priority
    )
    file(RawSource(source, entry, launch, macros))


def _caller() -> tuple[str, str]:
    """The module that files a kernel, and the place in it."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back or frame
    module = frame.f_globals.get("__name__", "")
    return module, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _file(entry: KernelEntry) -> None:
    global version
    spec = specs.get(entry.name)
    if spec is not None:
        declare.check(entry, spec)
    entries = table.setdefault((entry.name, entry.device), [])
    for i, other in enumerate(entries):
        if other.place == entry.place:
            if not _same_author(other, entry):
                raise DuplicateError(
                    f"{entry.name} has a kernel {entry.signature} on {entry.device} from provider "
                    f"{entry.provider!r} already, filed at {other.where}; give provider='...' of "
                    "your own and name it in ml.context(providers=...)"
                )
            entries[i] = entry
            break
    else:
        entries.append(entry)
    version += 1


def _same_author(a: KernelEntry, b: KernelEntry) -> bool:
    """A notebook cell run twice files the same thing from the same place: that replaces it.

    Text has no name of its own: it is the same on the same line, and where one module has two
    files, which are two runs of a cell.
    """
    texts = [isinstance(e.body, (Expression, RawSource)) for e in (a, b)]
    if any(texts):
        two_files = a.where.rpartition(":")[0] != b.where.rpartition(":")[0]
        return all(texts) and (a.where == b.where or (a.owner == b.owner and two_files))
    return a.owner == b.owner and "." in a.owner and not isinstance(a.body, np.ufunc)


@dataclass(frozen=True, slots=True)
class Selection:
    """The kernel chosen for a call; `cast` is the dtype all inputs are widened to, if any."""

    entry: KernelEntry
    cast: DType | None
    why: str


def select(
    name: str,
    device: str,
    dtypes: tuple[DType, ...],
    providers: tuple[str, ...] = (),
    outputs: tuple[DType, ...] | None = None,
    formats: tuple[str | None, ...] = (),
) -> Selection:
    """Choose the kernel of `name` for inputs of `dtypes` on `device`.

    In this order: the device; memory formats (an array without one is in its primitive's own
    layout, "NCHW"); exact input (and, where given, output) dtypes; providers as the context ranks
    them; priority; of these the first whose required features the device has. If no kernel takes
    the inputs exactly, the first lossless widening of all inputs to one dtype. KernelNotFoundError
    lists what exists and what came, or names a provider that has filed nothing at all.
    """
    home = "cuda" if device.startswith("cuda") else "cpu"
    _known_providers(name, providers)
    entries = [e for e in table.get((name, home), ()) if format_fits(e, formats)]
    has = features_of(device)
    exact = best(entries, dtypes, outputs, providers, has)
    if exact is not None:
        return Selection(exact[0], None, reason("exact dtypes", *exact))
    other = best(entries, dtypes, None, providers, has)
    if other is not None and outputs is not None:
        raise DeclarationError(
            f"{name} infer_dtype gives {', '.join(d.name for d in outputs)} for inputs "
            f"{', '.join(d.name for d in dtypes)}; the kernel {other[0].describe()} gives "
            f"{other[0].signature}; make the rule and the signature agree"
        )
    for wide in widenings(dtypes):
        found = best(entries, (wide,) * len(dtypes), None, providers, has)
        if found is not None:
            came = "".join(map(letter, dtypes))
            return Selection(
                found[0], wide, f"no kernel takes {came}; inputs widened to {wide.name}"
            )
    raise KernelNotFoundError(_not_found(name, device, home, dtypes))


def _known_providers(name: str, providers: tuple[str, ...]) -> None:
    """KernelNotFoundError for a provider that has filed no kernel for anything."""
    if not providers:
        return
    known = {BUILTIN, *(e.provider for entries in list(table.values()) for e in entries)}
    unknown = [p for p in providers if p not in known]
    if unknown:
        raise KernelNotFoundError(
            f"{name} got providers={providers!r}, but {unknown[0]!r} has filed no kernel; those "
            f"that have are {', '.join(sorted(known))}"
        )


def _not_found(name: str, device: str, home: str, dtypes: tuple[DType, ...]) -> str:
    came = "".join(map(letter, dtypes)) or "no inputs"
    names = ", ".join(d.name for d in dtypes)
    here = table.get((name, home), [])
    if not here:
        devices = sorted({d for (n, d) in list(table) if n == name})
        others = f"it has kernels on {', '.join(devices)}" if devices else "it has none anywhere"
        like = misnamed(name, {n for n, _ in list(table)}, specs)
        instead = f"file one with @kernel({name!r}, ...)"
        return f"{name} has no kernel on {device}; {others}{like}; {instead}"
    has = ", ".join(e.describe() for e in here if supported(e, device))
    absent = ", ".join(e.describe() for e in here if not supported(e, device))
    tail = f"; not on this machine: {absent}" if absent else ""
    return (
        f"{name} has no kernel for {came} ({names}) on {device}; it has {has}{tail}; "
        f"cast the inputs, or file one with @kernel({name!r}, {home!r}, '{came}->...')"
    )
