"""Candidates: which registered kernels can serve a call, which of those goes first, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from .. import epoch
from ..dtype import DType
from ..formats import PLAIN
from . import registry
from .expressions.table import follows
from .kernel import KernelEntry

DTypes = tuple[DType, ...]
Formats = tuple[str | None, ...]
Arranged = tuple[Formats, Formats | None]  # of the inputs, and of the outputs if they are known
Rows = dict[tuple[object, object], list[KernelEntry]]  # by dtypes of inputs and of outputs


class Candidate(NamedTuple):
    """A registered kernel of the primitive, and why it was not chosen: "" for the one that was."""

    entry: KernelEntry
    lost: str

    def __str__(self) -> str:
        return f"{self.entry.describe()} {f'lost: {self.lost}' if self.lost else 'runs'}"


class Request(NamedTuple):
    """The call of a primitive for which a kernel is wanted.

    home: the device under which its kernels are registered. takes, gives: the dtypes of inputs and
    of outputs, None where these are not known. providers: as the target ranks them, best first.
    has: whether the device has a feature that may be used. masked: those that it has, perhaps, and
    that must not be used.
    """

    name: str
    home: str
    takes: DTypes
    gives: DTypes | None
    formats: Arranged
    providers: tuple[str, ...]
    has: Callable[[str], bool]
    masked: tuple[str, ...] = ()


def best(request: Request) -> tuple[KernelEntry, list[str]] | None:
    """The kernel for exactly these dtypes that goes first, and the features for lack of which
    others do not go before it; None where none can serve."""
    lacking: list[str] = []
    for entry in ranked(request):
        why = refusal(entry, request)
        if not why:
            return entry, lacking
        lacking += _absent(entry, request) if why == _lacks(entry, request) else []
    return None


def ranked(request: Request) -> list[KernelEntry]:
    """The kernels for exactly these dtypes of providers that are enabled, the first ones first."""
    found = [e for e in _exact(request) if _enabled(e, request)]
    return sorted(found, key=lambda e: _rank(e, request)) if len(found) > 1 else found


def candidates(request: Request) -> tuple[Candidate, ...]:
    """Every kernel of the primitive on the device: the chosen one first, those that could serve
    the call as they rank, then the others; with the reason why each was not chosen."""
    found = registry.table.get((request.name, request.home), ())
    judged = [(e, refusal(e, request)) for e in found]
    judged.sort(key=lambda row: (bool(row[1]), _rank(row[0], request)))
    first = judged[0][0] if judged and not judged[0][1] else None
    return tuple(
        Candidate(e, why if why or first is None or e is first else _behind(e, first, request))
        for e, why in judged
    )


def refusal(entry: KernelEntry, request: Request) -> str:
    """Why a kernel cannot serve a call, as a clause; "" where it can."""
    s = entry.signature
    if not s.accepts(request.takes):
        return "takes other dtypes"
    if request.gives is not None and not s.gives(request.gives):
        return "gives other dtypes"
    if not _format_fits(entry, request.formats):
        takes, _ = s.arrangement(len(request.takes), len(request.gives or ()))
        return f"takes formats {', '.join(f or PLAIN for f in takes)}"
    return unusable(entry, request)


def unusable(entry: KernelEntry, request: Request) -> str:
    """Why a kernel cannot serve calls of any dtype here: its provider, or what it requires."""
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
    """What orders kernels, the smallest first, one value for each of `_BEHIND`. The last one
    differs for any two, so the order of registration decides nothing."""
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


def _behind(loser: KernelEntry, winner: KernelEntry, request: Request) -> str:
    """Why a kernel that could serve a call goes behind another one."""
    ranks = zip(_BEHIND, _rank(loser, request), _rank(winner, request), strict=True)
    clause = next(text for text, a, b in ranks if a != b)
    return clause.format(loser=loser, winner=winner)


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


def listed(entries: Iterable[KernelEntry], request: Request) -> str:
    """The kernels of a primitive as error messages show them, with what keeps some from running."""
    judged = [(e, unusable(e, request)) for e in entries]
    has = ", ".join(e.describe() for e, why in judged if not why) or "none that runs here"
    others = ", ".join(f"{e.describe()}: {why}" for e, why in judged if why)
    return f"it has {has}{f'; not usable here: {others}' if others else ''}"
