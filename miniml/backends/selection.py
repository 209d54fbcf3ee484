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
from .candidates import (
    Arranged,
    Candidate,
    DTypes,
    Request,
    best,
    candidates,
    listed,
    ranked,
    refusal,
    unusable,
)
from .device import Device
from .kernel import KernelEntry
from .misnamed import misnamed

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

    providers: those whose kernels go before others, best first; then comes the built-in one.
    Another provider's kernels are used for custom operators alone, which have no kernel of the
    library itself. Kernels of "cc", which have to be compiled, are used only where it is among the
    providers. masked: features of the device that are not to be used. formats: memory formats of
    images whose kernels go before others, best first.
    """

    device: Device
    providers: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    def select(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed] | None = None
    ) -> Selection:
        """Choose the kernel of primitive `name`; repeated calls return the same Selection.

        A kernel can serve a call on this device if it takes exactly the dtypes of the inputs (and
        gives those of the outputs, unless they are not known) and their memory formats, its
        provider is enabled and the device has the features that it requires. Of these goes first,
        whatever the order of registration: the provider as the target ranks them; the higher
        priority; the more specific signature ("ff->f" before "f*->f" before ".->."); the one that
        requires more features; that names more formats; then the first by provider, signature and
        features in alphabetical order. If no kernel takes the inputs exactly, the first lossless
        widening of all inputs to one dtype. KernelNotFoundError lists the existing kernels, with
        what those lack that cannot run here, and the inputs, or names a provider that has
        registered nothing at all; DeclarationError where the dtypes that the primitive's rule gives
        are not those of the kernel.
        """
        return _selected(self, name, *_types(inputs, outputs), epoch.now.kernels)

    def candidates(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed] | None = None
    ) -> tuple[Candidate, ...]:
        """Every kernel of primitive `name` on this device, the one for exactly these dtypes that is
        selected first, if there is one, and why each of the others is not it."""
        return candidates(self.request(name, *_types(inputs, outputs)))

    def ranked(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> list[KernelEntry]:
        """The kernels for exactly these dtypes, in whatever formats, the first ones first."""
        return ranked(self.request(name, *_types(inputs, outputs)))

    def arranging(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> list[KernelEntry]:
        """Those among them that declare memory formats and that the device can run."""
        return _arranging(self, name, *_types(inputs, outputs)[:2], epoch.now.kernels)

    def request(self, name: str, takes: DTypes, gives: DTypes | None, formats: Arranged) -> Request:
        """A call on this target, as kernels are judged for it."""
        home, providers = self.home, self.providers
        return Request(name, home, takes, gives, formats, providers, self.has, self.masked)

    def without(self, provider: str) -> Target:
        """The same target, which does not rank that provider."""
        return self._replace(providers=tuple(p for p in self.providers if p != provider))

    def has(self, feature: str) -> bool:
        """True for a feature that the device has and that may be used."""
        return feature not in self.masked and self.device.has(feature)

    def supports(self, entry: KernelEntry) -> bool:
        """True when the device has every feature the kernel requires."""
        return all(map(self.has, entry.requires))

    @property
    def home(self) -> str:
        """The device under which its kernels are registered: "cpu" or "cuda"."""
        return "cuda" if self.device.name.startswith("cuda") else "cpu"


def _types(
    inputs: Sequence[Typed], outputs: Sequence[Typed] | None
) -> tuple[DTypes, DTypes | None, Arranged]:
    """Dtypes of inputs, dtypes of outputs, formats of both."""
    takes, formats = tuple(map(_dtype, inputs)), tuple(map(_format, inputs))
    if outputs is None:
        return takes, None, (formats, None)
    return takes, tuple(map(_dtype, outputs)), (formats, tuple(map(_format, outputs)))


@lru_cache(maxsize=4096)
def _selected(
    target: Target, name: str, takes: DTypes, gives: DTypes | None, formats: Arranged, version: int
) -> Selection:
    _check_providers(name, target.providers)
    request = target.request(name, takes, gives, formats)
    exact = _best(request)
    if exact is not None:
        return exact
    other = _best(request._replace(gives=None)) if gives is not None else None
    if other is not None:
        raise DeclarationError(
            f"{name} infer_dtype gives {_names(gives or ())} for inputs {_names(takes)}; the "
            f"kernel {other.entry.describe()} gives {other.entry.signature}; make the rule and "
            "the signature agree"
        )
    for wide in widenings(takes):
        found = _best(request._replace(takes=(wide,) * len(takes), gives=None))
        if found is not None:
            why = f"no kernel takes {_codes(takes)}; inputs widened to {wide.name}"
            return Selection(found.entry, wide, why)
    raise KernelNotFoundError(_not_found(target, request))


def _best(request: Request) -> Selection | None:
    """The kernel for exactly these dtypes that goes first, and why."""
    found = best(request)
    if found is None:
        return None
    entry, lacking = found
    return Selection(entry, None, _reason(entry, lacking))


@lru_cache(maxsize=4096)
def _arranging(
    target: Target, name: str, takes: DTypes, gives: DTypes | None, version: int
) -> list[KernelEntry]:
    found = ranked(target.request(name, takes, gives, ((), None)))
    return [e for e in found if e.signature.arranged and target.supports(e)]


def _reason(entry: KernelEntry, lacking: list[str]) -> str:
    """Why a kernel was chosen: dtypes, provider, the deciding features."""
    if entry.view is not None:
        return "a view: no copy"
    has = f", has {' '.join(entry.requires)}" if entry.requires else ""
    lacks = f", lacks {' '.join(dict.fromkeys(lacking))}" if lacking else ""
    return f"exact dtypes, provider {entry.provider!r}{has}{lacks}"


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


def _not_found(target: Target, request: Request) -> str:
    name, device, home, takes = request.name, target.device.name, target.home, request.takes
    got = _codes(takes)
    entries = registry.table.get((name, home), [])
    if not entries:
        devices = sorted({d for (n, d) in list(registry.table) if n == name})
        others = f"it has kernels on {', '.join(devices)}" if devices else "it has none anywhere"
        like = misnamed(name, {n for n, _ in list(registry.table)}, registry.specs)
        instead = f"register one with @kernel({name!r}, ...)"
        return f"{name} has no kernel on {device}; {others}{like}; {instead}"
    kept_out = [e for e in entries if refusal(e, request) == unusable(e, request)]
    if kept_out:
        return (
            f"{name} has no kernel for {got} ({_names(takes)}) on {device}; "
            f"{listed(kept_out, request)}; register one that does: "
            f"@kernel({name!r}, {home!r}, '{got}->...')"
        )
    if any(e.signature.arranged and e.signature.accepts(takes) for e in entries):
        lie = ", ".join(f or PLAIN for f in request.formats[0])
        return (
            f"{name} has no kernel for {got} in memory format {lie} on {device}; "
            f"{listed(entries, request)}; programs of ml.jit convert images for their kernels; or "
            "register one for this format"
        )
    return (
        f"{name} has no kernel for {got} ({_names(takes)}) on {device}; "
        f"{listed(entries, request)}; "
        f"cast the inputs, or register one with @kernel({name!r}, {home!r}, '{got}->...')"
    )


def _codes(dtypes: DTypes) -> str:
    return "".join(map(type_code, dtypes)) or "no inputs"


def _names(dtypes: DTypes) -> str:
    return ", ".join([d.name for d in dtypes])
