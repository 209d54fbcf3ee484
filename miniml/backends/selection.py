"""Kernel selection: the target, a device and settings, picks the registered kernel of a call.

First the devices of this machine, of which those of CUDA import it when they are first requested;
then the target, its selection and what it reports where no kernel fits; then requests, which rank
the registered kernels for a call and say why each of the others was not chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np

from ..core.abstract import HALVES, PLAIN, DType, bool_, float32, holds, is_complex, type_code
from ..core.errors import DeclarationError, DeviceError, KernelNotFoundError
from ..core.scope import epoch
from . import registry
from .expressions import table as expressions
from .kernel import CPU, Device, KernelEntry

_dtype, _format = attrgetter("dtype"), attrgetter("format")
_CPU = CPU()


def get_device(name: str, sim: str = "check") -> Device:
    """The device of that canonical name; DeviceError, with advice, if it is absent.

    sim: the mode of the simulator of "cuda-sim", "check" or "fast".
    """
    return _CPU if name == "cpu" else _cuda(name, sim if name == "cuda-sim" else "")


@cache
def _cuda(name: str, sim: str) -> Device:
    try:
        device: Device = import_module(".cuda.device", __package__).load(name, sim)
    except ImportError as error:
        raise DeviceError(f"device {name!r} is not available: {error}") from error
    return device


class Typed(Protocol):
    """An input or output of a call, as far as selection needs it."""

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""

    @property
    def format(self) -> str | None:
        """Its memory format; None is its primitive's own layout, "NCHW"."""


DTypes = tuple[DType, ...]
Formats = tuple[str | None, ...]
Arranged = tuple[Formats, Formats | None]  # of the inputs, and of the outputs if they are known


class Selection(NamedTuple):
    """The kernel chosen for a call; `cast` is the dtype all inputs are widened to, if any."""

    entry: KernelEntry
    cast: DType | None
    why: str


class Candidate(NamedTuple):
    """A registered kernel of the primitive, and why it was not chosen: "" for the one that was."""

    entry: KernelEntry
    lost: str

    def __str__(self) -> str:
        return f"{self.entry.describe()} {f'lost: {self.lost}' if self.lost else 'runs'}"


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

    def in_float32(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> Selection | None:
        """The kernel in C for float32 of a call of floats of 16 bits, where the kernel for exactly
        these is the library's of NumPy, which computes in float32, too; else None."""
        return _in_float32(self, name, *_types(inputs, outputs), epoch.now.kernels)

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
        return _ranked(self, name, *_types(inputs, outputs)[:2], epoch.now.kernels)

    def arranging(
        self, name: str, inputs: Sequence[Typed], outputs: Sequence[Typed]
    ) -> list[KernelEntry]:
        """Those among them that declare memory formats and that the device can run."""
        found = self.ranked(name, inputs, outputs)
        return [e for e in found if e.signature.arranged and self.supports(e)]

    def request(self, name: str, takes: DTypes, gives: DTypes | None, formats: Arranged) -> Request:
        """A call on this target, as kernels are judged for it."""
        home, providers = self.home, self.providers
        return Request(name, home, takes, gives, formats, providers, self.has, self.masked)

    def without(self, provider: str) -> Target:
        """The target without that provider in its ranking."""
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
    if target.home != "cpu" and any(map(is_complex, (*takes, *(gives or ())))):
        raise KernelNotFoundError(
            f"{name} has no kernel for complex numbers on {target.device.name}; they are on the "
            "cpu alone: move the tensors with .to('cpu'), or real and imaginary parts as two"
        )
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


@lru_cache(maxsize=4096)
def _in_float32(
    target: Target, name: str, takes: DTypes, gives: DTypes, formats: Arranged, version: int
) -> Selection | None:
    if set(HALVES).isdisjoint(takes) or target.providers[:1] != (registry.NATIVE,):
        return None
    exact = _best(target.request(name, takes, gives, formats))
    if exact is not None and not (
        exact.entry.built_in and exact.entry.provider == registry.BUILTIN
    ):
        return None
    wide = [tuple(float32 if d in HALVES else d for d in dtypes) for dtypes in (takes, gives)]
    found = _best(target.request(name, wide[0], wide[1], formats))
    if found is None or found.entry.provider != registry.NATIVE:
        return None
    return Selection(found.entry, float32, "floats of 16 bits are computed in float32")


def _best(request: Request) -> Selection | None:
    """The kernel for exactly these dtypes that goes first, and why; None if none can serve."""
    lacking: list[str] = []  # features, for want of which others do not go before it
    for entry in ranked(request):
        why = _misfit(entry, request)
        if not why:
            return Selection(entry, None, _reason(entry, lacking))
        lacking += _absent(entry, request) if why == _lacks(entry, request) else []
    return None


def _reason(entry: KernelEntry, lacking: list[str]) -> str:
    """The reason for a choice: dtypes, provider, the deciding features."""
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
        like = _misspelled(name, {n for n, _ in list(registry.table)}, registry.specs)
        instead = f"register one with @kernel({name!r}, ...)"
        return f"{name} has no kernel on {device}; {others}{like}; {instead}"
    register = f"@kernel({name!r}, {home!r}, '{got}->...')"
    of, advice = f"({_names(takes)})", f"cast the inputs, or register one with {register}"
    kept_out = [e for e in entries if _refusal(e, request) == _unusable(e, request)]
    if kept_out:
        entries, advice = kept_out, f"register one that does: {register}"
    elif any(e.signature.arranged and e.signature.accepts(takes) for e in entries):
        of = f"in memory format {', '.join(f or PLAIN for f in request.formats[0])}"
        advice = (
            "programs of ml.jit convert images for their kernels; or register one for this format"
        )
    return f"{name} has no kernel for {got} {of} on {device}; {_listed(entries, request)}; {advice}"


def _misspelled(name: str, registered: Iterable[str], primitives: Collection[str]) -> str:
    """The hint where kernels are registered under a similar name that no primitive has, most likely
    a misspelling; else "". As kernels may be registered before their primitive, this is reported
    only when a kernel is missing."""
    free = {other.lower(): other for other in registered if other not in primitives}
    near = [repr(free[found]) for found in get_close_matches(name.lower(), free, cutoff=0.5)]
    if not near:
        return ""
    return f"; no primitive is called {' or '.join(near)}, for which kernels are registered"


def _listed(entries: Iterable[KernelEntry], request: Request) -> str:
    """The kernels of a primitive as error messages list them, with why some do not run here."""
    judged = [(e, _unusable(e, request)) for e in entries]
    has = ", ".join(e.describe() for e, why in judged if not why) or "none that runs here"
    others = ", ".join(f"{e.describe()}: {why}" for e, why in judged if why)
    return f"it has {has}{f'; not usable here: {others}' if others else ''}"


def _codes(dtypes: DTypes) -> str:
    return "".join(map(type_code, dtypes)) or "no inputs"


def _names(dtypes: DTypes) -> str:
    return ", ".join([d.name for d in dtypes])


@lru_cache(maxsize=4096)
def _ranked(
    target: Target, name: str, takes: DTypes, gives: DTypes | None, version: int
) -> list[KernelEntry]:
    return ranked(target.request(name, takes, gives, ((), None)))


# --- Requests: the kernels that can serve a call, in order, and why others cannot -----------------


class Request(NamedTuple):
    """The call of a primitive that needs a kernel.

    home: the device under which its kernels are registered. takes, gives: the dtypes of inputs and
    of outputs, None where these are not known. providers: as the target ranks them, best first.
    has: true for a feature that the device has and that may be used. masked: those that must not be
    used, whether it has them or not.
    """

    name: str
    home: str
    takes: DTypes
    gives: DTypes | None
    formats: Arranged
    providers: tuple[str, ...]
    has: Callable[[str], bool]
    masked: tuple[str, ...] = ()


def ranked(request: Request) -> list[KernelEntry]:
    """The kernels for exactly these dtypes of providers that are enabled, the first ones first."""
    found = [e for e in _exact(request) if _enabled(e, request)]
    return sorted(found, key=lambda e: _rank(e, request)) if len(found) > 1 else found


def _exact(request: Request) -> Sequence[KernelEntry]:
    """The kernels for exactly these input dtypes, and output dtypes if known."""
    name, home, takes, gives = request[:4]
    rows = _rows(name, home, len(takes), len(gives or ()), epoch.now.kernels)
    if rows is not None:
        return rows.get((takes, gives), ())
    return [
        e
        for e in registry.table[name, home]
        if e.signature.accepts(takes) and (gives is None or e.signature.gives(gives))
    ]


Rows = dict[tuple[object, object], list[KernelEntry]]  # by dtypes of inputs and of outputs


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


def _enabled(entry: KernelEntry, request: Request) -> bool:
    """True for providers that the target ranks and for the built-in one. For a custom operator,
    which has no kernel of the library itself, every provider is, except "cc"."""
    if entry.provider in request.providers or entry.provider == registry.BUILTIN:
        return True
    version = epoch.now.kernels
    return entry.provider != registry.NATIVE and _custom(request.name, request.home, version)


@lru_cache(maxsize=1024)
def _custom(name: str, home: str, version: int) -> bool:
    return not any(e.built_in for e in registry.table.get((name, home), ()))


def _rank(entry: KernelEntry, request: Request) -> tuple[object, ...]:
    """The sort key of a kernel, one value for each of `_BEHIND`. The last one differs for any two,
    so the order of registration decides nothing."""
    s, order = entry.signature, (*request.providers, registry.BUILTIN)
    known = order.index(entry.provider) if entry.provider in order else len(order)
    free = 3 * s.any_dtype + s.repeats_input + s.repeats_output
    formats = (*s.input_formats, *s.output_formats)
    named = sum(f is not None for f in formats)
    text = entry.provider, str(s), entry.requires, tuple(f or "" for f in formats)
    return known, -entry.priority, free, -len(entry.requires), -named, text


_BEHIND = (
    "provider {loser.provider!r} ranks behind {winner.provider!r}",
    "priority {loser.priority}, not {winner.priority}",
    "a more general signature than {winner.signature}",
    "requires fewer features",
    "names fewer formats",
    "an equal, later in the alphabet",
)


def candidates(request: Request) -> tuple[Candidate, ...]:
    """Every kernel of the primitive on the device: the chosen one first, those that could serve
    the call as they rank, then the others; with the reason why each was not chosen."""
    found = registry.table.get((request.name, request.home), ())
    judged = [(e, _refusal(e, request)) for e in found]
    judged.sort(key=lambda row: (bool(row[1]), _rank(row[0], request)))
    first = judged[0][0] if judged and not judged[0][1] else None
    return tuple(
        Candidate(e, why if why or first is None or e is first else _behind(e, first, request))
        for e, why in judged
    )


def _behind(loser: KernelEntry, winner: KernelEntry, request: Request) -> str:
    """The reason why a kernel that could serve a call goes behind another one."""
    ranks = zip(_BEHIND, _rank(loser, request), _rank(winner, request), strict=True)
    return next(text for text, a, b in ranks if a != b).format(loser=loser, winner=winner)


def _refusal(entry: KernelEntry, request: Request) -> str:
    """The reason why a kernel cannot serve a call, as a clause; "" if it can."""
    s = entry.signature
    if not s.accepts(request.takes):
        return "takes other dtypes"
    if request.gives is not None and not s.gives(request.gives):
        return "gives other dtypes"
    return _misfit(entry, request)


def _misfit(entry: KernelEntry, request: Request) -> str:
    """The reason why a kernel of exactly the dtypes of the call is not taken; "" if it is."""
    if not _format_fits(entry, request.formats):
        takes, _ = entry.signature.arrangement(len(request.takes), len(request.gives or ()))
        return f"takes formats {', '.join(f or PLAIN for f in takes)}"
    return _unusable(entry, request)


def _format_fits(entry: KernelEntry, formats: Arranged) -> bool:
    """True where inputs and outputs have the memory formats that the kernel declares; else they are
    row-major, or all alike for a kernel that goes element by element."""
    (takes, gives), signature = formats, entry.signature
    if not signature.arranged:
        plain = all(f in (None, PLAIN) for f in (*takes, *(gives or ())))
        return plain or follows(entry.name)
    needed, given = signature.arrangement(len(takes), len(gives or ()))
    return _alike(needed, takes) and (gives is None or _alike(given, gives))


def follows(name: str) -> bool:
    """True for a primitive whose kernels work in any memory format that all its images share: they
    go element by element, or look at the formats, as those of fused nodes do."""
    spec = registry.specs.get(name)
    if spec is not None and (spec.elementwise or spec.any_format):
        return True
    return _by_elements(name, epoch.now.kernels)


@lru_cache(maxsize=1024)
def _by_elements(name: str, version: int) -> bool:
    found = [e for (n, _), e in expressions.items() if n == name]
    return bool(found) and not any("index" in e.words for e in found)


def _alike(declared: Formats, formats: Formats) -> bool:
    return all((a or PLAIN) == (f or PLAIN) for a, f in zip(declared, formats, strict=False))


def _unusable(entry: KernelEntry, request: Request) -> str:
    """The reason why a kernel serves calls of no dtype here: its provider, or a feature; or ""."""
    if not _enabled(entry, request):
        if entry.provider == registry.NATIVE:
            return "'cc' is not used here: its kernels are compiled for one shape each"
        return f"its provider is not enabled; ml.context(providers={(entry.provider,)!r}) does so"
    return _lacks(entry, request)


def _lacks(entry: KernelEntry, request: Request) -> str:
    absent = _absent(entry, request)
    masked = [f for f in absent if f in request.masked]
    why = f", which without= masks{'' if masked == absent else f': {chr(32).join(masked)}'}"
    return f"lacks {' '.join(absent)}{why if masked else ''}" if absent else ""


def _absent(entry: KernelEntry, request: Request) -> list[str]:
    return [f for f in entry.requires if not request.has(f)]
