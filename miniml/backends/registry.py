"""The kernel registry: entries by name, device, signature and provider."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from .. import epoch
from ..errors import DeclarationError, DuplicateError
from ..features import checked
from . import declare, edits
from .expressions.table import table as expressions
from .kernel import Body, Expression, KernelEntry, KernelNode, Launch, RawSource
from .kernel import OpSpec as OpSpec
from .rebinding import refuse_rebinding
from .signature import KernelAttr, Signature, parse
from .typecodes import ANY, same

_OWN = (__name__, "miniml.ops.function")  # where users' registrations pass
BUILTIN = "miniml"
NATIVE = "cc"  # the provider of C that is compiled at run time
Spec = str | KernelAttr | Signature
B = TypeVar("B", bound=Body)


specs: dict[str, OpSpec] = {}
table: dict[tuple[str, str], list[KernelEntry]] = {}


def register_spec(spec: OpSpec, redefined: bool = False) -> None:
    """Register the names of a primitive and its inputs; its kernels registered so far are checked
    now.

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
            for entry in [e for e in entries if not _fits_spec(e, spec)]:
                entries.remove(entry)
                expressions.pop((name, str(entry.signature)), None)


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
    requires = checked(requires, device)
    row = partial(
        KernelEntry, provider=provider, requires=requires, priority=priority, inplace=inplace,
        strided=strided, total=total,
    )  # fmt: skip
    return _registering(name, device, signatures, row)


def view_kernel(
    name: str, device: str, *signatures: Spec, of: int = 0, provider: str = BUILTIN
) -> Callable[[B], B]:
    """Decorator: register a function that returns a view of its input `of` and computes nothing.

    It takes arrays by position and attributes by keyword; a Kernel class picks it in `prepare`, as
    `self.call`, which takes the arrays alone. signatures: by default every dtype, for
    one input and one output. name, device, provider, errors: as for `kernel`.
    """
    row = partial(KernelEntry, provider=provider, view=of)
    return _registering(name, device, signatures or tuple(same(1, ANY)), row)


def _registering(
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


def elementwise_kernel(name: str, expression: str, *signatures: Spec) -> None:
    """Register a scalar C expression for an elementwise primitive: its kernel on CUDA, and what it
    is in fused code on the CPU.

    The expression uses the primitive's inputs and numeric attributes by name, as in
    `elementwise_kernel("Snake", "x + sin(alpha * x) / alpha", "f->f", "d->d")`.
    Raises DeclarationError when it names something the primitive does not have.
    """
    declare.check_expression(name, expression)
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
    provider: str = BUILTIN,
    requires: tuple[str, ...] = (),
    priority: int = 0,
) -> None:
    """Register CUDA C text as the CUDA kernel of primitive `name`.

    entry: the `extern "C" __global__` function in `source`; its parameters are inputs, outputs,
    workspace, then the launch's args. `T`, `T_IN0`, `T_OUT0` name the C types. launch: from a
    KernelNode to a Launch, run when the kernel is prepared. defines: extra -D macros. requires,
    priority: as for `kernel`; a text that includes mma.h requires "wmma".
    """
    declare.check_raw(name, entry, source, launch)
    macros = tuple((key, str(value)) for key, value in (defines or {}).items())
    register = kernel(
        name, "cuda", *signatures, provider=provider, requires=requires, priority=priority
    )
    register(RawSource(source, entry, launch, macros))


def forget(name: str) -> None:
    """Take back all kernels of a primitive, which is about to be defined anew."""
    for key in [k for k in table if k[0] == name]:
        table.pop(key)
    for text in [k for k in expressions if k[0] == name]:
        expressions.pop(text)
    epoch.bump("kernels")


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
        declare.check(entry, spec)
    declare.check_arrays(entry)
    entries = table.setdefault((entry.name, entry.device), [])
    for i, other in enumerate(entries):
        if other.key == entry.key:
            if not _same_author(other, entry):
                raise DuplicateError(
                    f"{entry.name} has a kernel {entry.signature} on {entry.device} from provider "
                    f"{entry.provider!r} already, registered at {other.where}; give "
                    "provider='...' of your own and name it in ml.context(providers=...)"
                )
            edits.note(entry, other)
            entries[i] = entry
            break
    else:
        edits.note(entry, None)
        entries.append(entry)
    epoch.bump("kernels")


def _same_author(a: KernelEntry, b: KernelEntry) -> bool:
    """A notebook cell run twice registers the same thing on the same line: that replaces it.

    Text has no name of its own: it counts as the same on the same line, or if one module has two
    files, which are two runs of a cell.
    """
    texts = [isinstance(e.body, (Expression, RawSource)) for e in (a, b)]
    if any(texts):
        two_files = a.where.rpartition(":")[0] != b.where.rpartition(":")[0]
        return all(texts) and (a.where == b.where or (a.owner == b.owner and two_files))
    return a.owner == b.owner and "." in a.owner and not isinstance(a.body, np.ufunc)
