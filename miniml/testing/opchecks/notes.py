"""The notes of a report: what numbers were compared with, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...backends import registry
from ...backends.cc.compiler import absence
from ...backends.kernel import KernelEntry
from ...primitive import Primitive
from ..calls import ON_CPU, Call
from ..opinfo import OpInfo
from .checks import simulated
from .checks.launches import gives_no_number, launched
from .draws.values import SMOOTH
from .session import Session

_LISTED = 12
_LOOKED = 24


def notes(
    primitive: Primitive, info: OpInfo | None, calls: Sequence[Call], session: Session
) -> Iterator[str]:
    """One sentence each."""
    if info is not None and info.reference is not None:
        yield "numbers were compared with the OpInfo's reference"
    else:
        yield (
            "numbers were compared with the primitive's own float64 kernel, which is itself "
            "checked only against its gradient; an OpInfo's reference would check it too"
        )
    yield from _on_devices(primitive, session)
    lacking = [e for e in registry.table.get((primitive.name, "cpu"), ()) if not ON_CPU.supports(e)]
    if lacking:
        yield f"not checked on this machine: {', '.join(e.describe() for e in lacking)}"
    if absence():
        yield f"not checked: kernels in C, which need a C compiler, and {absence()}"
    if session.unfinished:
        yield f"the budget was used up in {', '.join(session.unfinished)}; give more"
    few, many = outside(calls) if info is None else (0, 0)
    if few:
        yield f"{few} of {many} drawn calls of ordinary numbers give NaN or infinity"
    if info is None and primitive.const_inputs:
        yield f"const inputs ({', '.join(primitive.const_inputs)}) cannot be drawn"
    apart = ", ".join(
        f"{d.kernel} from {d.other} {d.ulp:.2g} ({d.where})" for d in session.differences.values()
    )
    if apart:
        yield f"largest differences in units in the last place: {apart}"


def outside(calls: Sequence[Call]) -> tuple[int, int]:
    """How many drawn calls of ordinary numbers seem to lie outside the domain, and of how many."""
    plain = [c for c in calls if c.kind in SMOOTH and launched(c)][:_LOOKED]
    return sum(map(gives_no_number, plain)), len(plain)


def _on_devices(primitive: Primitive, session: Session) -> Iterator[str]:
    """Which CUDA kernels ran, which did not, and why."""
    entries = simulated.registered(primitive)
    why = simulated.available() if entries else ""
    seen = session.seen.get("devices", [])
    ran = [e for e in entries if any(e in simulated.entries(call) for call in seen)]
    others = [e for e in entries if e not in ran]
    if ran:
        yield f"checked in the simulator of CUDA, not on a GPU: {_listed(ran)}"
    if others:
        yield f"not checked{f', because {why}' if why else ''}: {_listed(others)}"


def _listed(entries: Sequence[KernelEntry]) -> str:
    rest = f" and {len(entries) - _LISTED} more" if len(entries) > _LISTED else ""
    return ", ".join(f"{e.device} {e.describe()}" for e in entries[:_LISTED]) + rest
