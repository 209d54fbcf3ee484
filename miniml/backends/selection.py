"""Target: the device and settings to compile for, which select the kernel of a call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np

from .. import epoch
from ..dtype import DType, bool_, holds, type_code
from ..errors import DeclarationError, KernelNotFoundError
from ..formats import PLAIN
from . import registry
from .device import Device
from .expressions.table import follows
from .kernel import KernelEntry
from .misnamed import misnamed

DTypes = tuple[DType, ...]
Formats = tuple[str | None, ...]
Arranged = tuple[Formats, Formats | None]  # of the inputs, and of the outputs if they are known
_dtype, _format = attrgetter("dtype"), attrgetter("format")


class Typed(Protocol):
    """An input or output of a call, as far as selection needs it."""

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""

    @property
    def format(self) -> str | None:
        """Its memory format; None is its primitive's own layout, "NCHW"."""


class Selection(NamedTuple):
    """The kernel chosen for a call; `cast` is the dtype all inputs are widened to, if any."""

    entry: KernelEntry
    cast: DType | None
    why: str


class Target(NamedTuple):
    """The target for which a program, or an eager call, is compiled.

    providers: those whose kernels go before others, best first. Kernels of "cc", which have to be
    compiled, are used only where it is among them. formats: memory formats of images whose kernels
    go before others, best first.
    """

    device: Device
    providers: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    def select(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed] | None = None
    ) -> Selection:
        """Choose the kernel of primitive `name`; repeated calls return the same Selection.

        In this order: the device; memory formats; exact input dtypes (and output dtypes, unless
        they are not known); providers as the target ranks them; priority; of these the first whose
        required features the device has. If no kernel takes the inputs exactly, the first lossless
        widening of all inputs to one dtype. KernelNotFoundError lists the existing kernels and the
        inputs, or names a provider that has registered nothing at all; DeclarationError where the
        dtypes that the primitive's rule gives are not those of the kernel.
        """
        gives = None if outputs is None else tuple(map(_dtype, outputs))
        given = None if outputs is None else tuple(map(_format, outputs))
        takes, formats = tuple(map(_dtype, inputs)), (tuple(map(_format, inputs)), given)
        return _selected(self, name, takes, gives, formats, epoch.now.kernels)

    def candidates(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> Sequence[KernelEntry]:
        """The kernels for exactly these dtypes, best provider first."""
        return _ranked(self, name, tuple(map(_dtype, inputs)), tuple(map(_dtype, outputs)))

    def arranging(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> list[KernelEntry]:
        """The kernels for exactly these dtypes that declare memory formats, best provider first."""
        gives, takes = tuple(map(_dtype, outputs)), tuple(map(_dtype, inputs))
        return _arranging(self, name, takes, gives, epoch.now.kernels)

    def without(self, provider: str) -> Target:
        """The same target, which does not rank that provider."""
        return self._replace(providers=tuple(p for p in self.providers if p != provider))

    def supports(self, entry: KernelEntry) -> bool:
        """True when the device has every feature the kernel requires."""
        return all(map(self.device.has, entry.requires))

    @property
    def home(self) -> str:
        """The device under which its kernels are registered: "cpu" or "cuda"."""
        return "cuda" if self.device.name.startswith("cuda") else "cpu"


@lru_cache(maxsize=4096)
def _selected(
    target: Target, name: str, takes: DTypes, gives: DTypes | None, formats: Arranged, version: int
) -> Selection:
    _check_providers(name, target.providers)
    exact = _best(target, name, takes, gives, formats)
    if exact is not None:
        return exact
    other = _best(target, name, takes, None, formats) if gives is not None else None
    if other is not None:
        raise DeclarationError(
            f"{name} infer_dtype gives {_names(gives or ())} for inputs {_names(takes)}; the "
            f"kernel {other.entry.describe()} gives {other.entry.signature}; make the rule and "
            "the signature agree"
        )
    for wide in widenings(takes):
        found = _best(target, name, (wide,) * len(takes), None, formats)
        if found is not None:
            why = f"no kernel takes {_codes(takes)}; inputs widened to {wide.name}"
            return Selection(found.entry, wide, why)
    raise KernelNotFoundError(_not_found(target, name, takes, formats))


def _best(
    target: Target, name: str, takes: DTypes, gives: DTypes | None, formats: Arranged
) -> Selection | None:
    """The kernel for exactly these dtypes that ranks first among those the device can run."""
    lacking: dict[str, None] = {}
    for entry in _ranked(target, name, takes, gives):
        if not _format_fits(entry, formats):
            continue
        absent = [f for f in entry.requires if not target.device.has(f)]
        if not absent:
            return Selection(entry, None, _reason(entry, [*lacking]))
        lacking.update(dict.fromkeys(absent))
    return None


def _ranked(
    target: Target, name: str, takes: DTypes, gives: DTypes | None
) -> Sequence[KernelEntry]:
    """The kernels for exactly these dtypes, best provider first."""
    found = _exact(name, target.home, takes, gives)
    if registry.NATIVE not in target.providers:
        found = [e for e in found if e.provider != registry.NATIVE]
    if len(found) > 1:
        ranks = {p: i for i, p in reversed([*enumerate(target.providers)])}
        last = len(ranks) + 1
        found = sorted(found, key=lambda e: (ranks.get(e.provider, last), -e.priority))
    return found


@lru_cache(maxsize=4096)
def _arranging(
    target: Target, name: str, takes: DTypes, gives: DTypes, version: int
) -> list[KernelEntry]:
    found = _ranked(target, name, takes, gives)
    return [e for e in found if e.signature.arranged and target.supports(e)]


def _reason(entry: KernelEntry, lacking: list[str]) -> str:
    """Why a kernel was chosen: dtypes, provider, the deciding features."""
    if entry.view is not None:
        return "a view: no copy"
    has = f", has {' '.join(entry.requires)}" if entry.requires else ""
    lacks = f", lacks {' '.join(lacking)}" if lacking else ""
    return f"exact dtypes, provider {entry.provider!r}{has}{lacks}"


def _format_fits(entry: KernelEntry, formats: Arranged) -> bool:
    """True where inputs and outputs have the memory formats that the kernel declares; else they are
    row-major, or all alike for a kernel that goes element by element."""
    (takes, gives), signature = formats, entry.signature
    if not signature.arranged:
        plain = all(f in (None, PLAIN) for f in (*takes, *(gives or ())))
        return plain or follows(entry.name)
    asked, given = signature.arrangement(len(takes), len(gives or ()))
    return _alike(asked, takes) and (gives is None or _alike(given, gives))


def _alike(declared: Formats, formats: Formats) -> bool:
    return all((a or PLAIN) == (f or PLAIN) for a, f in zip(declared, formats, strict=False))


Rows = dict[tuple[object, object], list[KernelEntry]]  # by dtypes of inputs and of outputs


def _exact(name: str, home: str, takes: DTypes, gives: DTypes | None) -> Sequence[KernelEntry]:
    """The kernels for exactly these input dtypes, and output dtypes if known, in the order of
    registration."""
    rows = _rows(name, home, len(takes), len(gives or ()), epoch.now.kernels)
    if rows is not None:
        return rows.get((takes, gives), ())
    return [
        e
        for e in registry.table[name, home]
        if e.signature.accepts(takes) and (gives is None or e.signature.gives(gives))
    ]


@lru_cache(maxsize=1024)
def _rows(name: str, home: str, inputs: int, outputs: int, version: int) -> Rows | None:
    """The kernels for that many inputs and outputs by their dtypes, and by the inputs' dtypes
    alone; None if one takes any dtype."""
    rows: Rows = {}
    for entry in registry.table.get((name, home), ()):
        s = entry.signature
        if s.any_dtype:
            return None
        varies = s.repeats_input or s.repeats_output
        takes, gives = s.expanded(inputs, outputs) if varies else (s.inputs, s.outputs)
        rows.setdefault((takes, gives), []).append(entry)
        rows.setdefault((takes, None), []).append(entry)
    return rows


_WIDER_INTEGERS, _WIDER_FLOATS = "bhil", "efd"


def widenings(dtypes: DTypes) -> list[DType]:
    """Dtypes that hold every value of every input, the narrowest first.

    Floats could hold bool, too, but a truth value among floats is more likely a mistake.
    """
    if not dtypes:
        return []
    wider = _WIDER_INTEGERS + ("" if bool_ in dtypes else _WIDER_FLOATS)
    return [w for w in map(np.dtype, wider) if all(holds(w, d) for d in dtypes)]


def _check_providers(name: str, providers: tuple[str, ...]) -> None:
    """KernelNotFoundError for a provider that has registered no kernel for anything."""
    if not providers:
        return
    known = _known_providers(epoch.now.kernels)
    unknown = [p for p in providers if p not in known]
    if unknown:
        raise KernelNotFoundError(
            f"{name} got providers={providers!r}, but {unknown[0]!r} has registered no kernel; "
            f"those that have are {', '.join(sorted(known))}"
        )


@lru_cache(maxsize=1)
def _known_providers(version: int) -> frozenset[str]:
    entries = (e for rows in list(registry.table.values()) for e in rows)
    return frozenset((registry.BUILTIN, registry.NATIVE, *(e.provider for e in entries)))


def _not_found(target: Target, name: str, takes: DTypes, formats: Arranged) -> str:
    device, home = target.device.name, target.home
    got = _codes(takes)
    entries = registry.table.get((name, home), [])
    if not entries:
        devices = sorted({d for (n, d) in list(registry.table) if n == name})
        others = f"it has kernels on {', '.join(devices)}" if devices else "it has none anywhere"
        like = misnamed(name, {n for n, _ in list(registry.table)}, registry.specs)
        instead = f"register one with @kernel({name!r}, ...)"
        return f"{name} has no kernel on {device}; {others}{like}; {instead}"
    has = ", ".join(e.describe() for e in entries if target.supports(e))
    absent = ", ".join(e.describe() for e in entries if not target.supports(e))
    tail = f"; not on this machine: {absent}" if absent else ""
    if any(e.signature.arranged and e.signature.accepts(takes) for e in entries):
        lie = ", ".join(f or PLAIN for f in formats[0])
        return (
            f"{name} has no kernel for {got} in memory format {lie} on {device}; it has {has}"
            f"{tail}; programs of ml.jit convert images for their kernels; or register one for "
            "this format"
        )
    return (
        f"{name} has no kernel for {got} ({_names(takes)}) on {device}; it has {has}{tail}; "
        f"cast the inputs, or register one with @kernel({name!r}, {home!r}, '{got}->...')"
    )


def _codes(dtypes: DTypes) -> str:
    return "".join(map(type_code, dtypes)) or "no inputs"


def _names(dtypes: DTypes) -> str:
    return ", ".join([d.name for d in dtypes])
