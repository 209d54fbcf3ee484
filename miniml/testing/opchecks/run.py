"""opcheck itself: calls are drawn, every check sees them, and what fails is made small."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import registry
from ...backends.kernel import KernelEntry
from ...dtype import float64
from ...errors import ArityError, MinimlError
from ...primitive import Primitive
from ..budget import Stopwatch
from ..calls import ON_CPU, Call, call_of
from ..opinfo import OpInfo, Sample
from .checks import simulated
from .checks.launches import failure, gives_no_number, launched, refused_by_value
from .checks.state import remembered
from .draws.calls import ENOUGH, drawn, signatures, why_none
from .draws.layouts import WORDS, known
from .draws.samples import informed, sampled
from .draws.values import SMOOTH
from .report import Finding, OpCheckError, OpReport, in_order
from .reproduce import program
from .session import GIVE_DOMAIN, Check, Problem, Session, problems
from .shrink import smallest
from .suite import CHECKS, FIRST, REST, SETTLING

BUDGET = 8.0
_LISTED = 12
_LOOKED = 24
_SHRINKING = 4.0  # seconds for all findings
_SHRINKING_ONE = 0.8


def opcheck(
    primitive: Primitive | type[Primitive],
    info: OpInfo | None = None,
    budget: float | None = None,
    raise_error: bool = True,
    *,
    seed: int | None = None,
    checks: Sequence[str] | None = None,
    inputs: tuple[Any, ...] | None = None,
    layouts: Sequence[str] = (),
) -> OpReport:
    """Check a primitive in everything that its rules, kernels and gradient promise.

    Inputs are drawn from the rules and the kernel table; `info` gives samples where they cannot
    be guessed, an independent reference, and what NaN and batches do. budget: seconds (on a busy
    machine those in which it ran), after which what has not run is named in the report. seed:
    other draws; None draws the same each time. checks: some of `CHECKS` only. inputs: this call
    only. layouts: how its inputs, and after them the cotangents of its outputs, lie in memory, as
    findings say it: "reversed along axis 1", "Fortran-ordered, offset", "contiguous".

    Raises OpCheckError, whose `report` is what is returned otherwise, when there is a fault and
    `raise_error` is true.
    """
    with remembered():
        report = _report(_instance(primitive, info), info, budget, seed, checks, inputs, layouts)
    if raise_error and not report.ok:
        raise OpCheckError(report)
    return report


def _report(
    subject: Primitive,
    info: OpInfo | None,
    budget: float | None,
    seed: int | None,
    checks: Sequence[str] | None,
    inputs: tuple[Any, ...] | None,
    layouts: Sequence[str],
) -> OpReport:
    session = Session(BUDGET if budget is None else budget)
    wanted = CHECKS if checks is None else _known(checks)
    calls = (
        [_one(subject, info, inputs, layouts)]
        if inputs is not None
        else _calls(subject, info, seed)
    )
    lacking = [] if inputs is not None else _lacking(subject, calls, info)
    for check in FIRST:
        if check.name in wanted:
            session.run(check, calls)
    sound = [c for c in calls if _runs(c)]
    for check in REST:
        if check.after and session.has_fault(check.after):
            continue
        if check.name in wanted and (_hashable(subject) or check.name == "attributes"):
            trusted = [c for c in sound if c.info is not None] if info is not None else sound
            session.run(check, trusted if check.trusted else sound)
            if check.name in SETTLING and session.has(check.name):
                sound = [c for c in sound if not problems(check, c)]
    lacking += _nothing(subject, session)
    findings = in_order([*lacking, *_findings(session, subject)])
    notes = _notes(subject, info, calls, session)
    return OpReport(repr(subject), findings, session.counts, notes, session.watch.seconds())


def assert_op(
    primitive: Primitive | type[Primitive],
    info: OpInfo | None = None,
    budget: float | None = None,
    seed: int | None = None,
) -> None:
    """For tests: raise OpCheckError, which is an AssertionError, unless opcheck finds no fault."""
    opcheck(primitive, info, budget, seed=seed)


def _instance(primitive: Primitive | type[Primitive], info: OpInfo | None) -> Primitive:
    """The primitive; of a class the one of the first sample, or the one with its defaults."""
    if isinstance(primitive, Primitive):
        return primitive
    if not inspect.isclass(primitive):
        raise ArityError(f"opcheck takes a Primitive; got {primitive!r}; give one, as Snake(0.5)")
    sample = next(iter(info.samples(np.random.default_rng(0), float64)), None) if info else None
    try:
        return primitive(**(sample.attrs if sample is not None else {}))
    except MinimlError as error:
        raise ArityError(
            f"opcheck takes a Primitive with its attributes; {primitive.__name__}() is refused: "
            f"{error}"
        ) from None


def _known(checks: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in checks if name not in CHECKS]
    if isinstance(checks, str) or unknown:
        raise ArityError(f"opcheck knows no checks {checks!r}; they are {', '.join(CHECKS)}")
    return tuple(checks)


def _one(
    primitive: Primitive, info: OpInfo | None, inputs: tuple[Any, ...], layouts: Sequence[str]
) -> Call:
    unknown = [layout for layout in layouts if not known(layout)]
    if isinstance(layouts, str) or unknown:
        raise ArityError(
            f"opcheck knows no layouts {layouts!r}; they are made of {', '.join(WORDS)}, and "
            "'along axis 0', joined by ', '"
        )
    call = call_of(primitive, Sample(inputs), info, dict(primitive.attributes))
    return replace(call, layouts=(tuple(layouts),) if layouts else ())


def _calls(primitive: Primitive, info: OpInfo | None, seed: int | None) -> list[Call]:
    """Samples, smaller ones first, then drawn calls."""
    found = drawn(primitive, seed, lambda call: not refused_by_value(call))
    if info is None:
        return found
    return [*sampled(primitive, info, seed), *(informed(call, info) for call in found)]


def _hashable(primitive: Primitive) -> bool:
    """False for a primitive that nothing can run, because launchers are kept by primitive."""
    return getattr(type(primitive), "__hash__", None) is not None


def _runs(call: Call) -> bool:
    return not launched(call) or not any(failure(e, call) for e in call.entries())


def _lacking(primitive: Primitive, calls: list[Call], info: OpInfo | None) -> list[Finding]:
    """The finding that there was too little to check, and why."""
    if len(calls) >= ENOUGH or info is not None or primitive.input_names == ():
        return []
    if not signatures(primitive):
        why = "it has no kernel on the CPU"
        advice = f"register one with @kernel({primitive.name!r}, 'cpu', 'f->f')"
    else:
        why = why_none(primitive)
        advice = "give an OpInfo, whose samples are valid inputs: opcheck(op, OpInfo(Op, samples))"
    return [
        Finding(
            "draws",
            "warning" if calls else "fault",
            f"{primitive!r}: cannot draw inputs: {len(calls)} valid calls were found, fewer than "
            f"{ENOUGH}; {why}",
            advice,
            program(None, None, primitive),
        )
    ]


def _nothing(primitive: Primitive, session: Session) -> list[Finding]:
    """The finding that the budget ended before anything was checked."""
    if session.counts or not session.unfinished:
        return []
    return [
        Finding(
            "budget",
            "fault",
            f"{primitive!r}: nothing was checked before the budget was used up",
            "give more seconds: opcheck(op, budget=10)",
            program(None, None, primitive),
        )
    ]


def _findings(session: Session, primitive: Primitive) -> list[Finding]:
    by_name = {check.name: check for check in (*FIRST, *REST)}
    found = []
    watch = Stopwatch()
    for (name, kind), (problem, call) in session.found.items():
        left = min(_SHRINKING - watch.elapsed(), _SHRINKING_ONE)
        small, shown = _shrunk(by_name[name], kind, problem, call, left)
        text = program(name, shown, primitive)
        found.append(Finding(name, small.severity, small.message, small.advice, text))
    return found


def _shrunk(
    check: Check, kind: str, problem: Problem, call: Call, seconds: float
) -> tuple[Problem, Call]:
    """The problem in its smallest call, and that call."""

    def of(candidate: Call) -> Problem | None:
        return next((p for p in problems(check, candidate) if p.kind == kind), None)

    start = problem.call or call
    if of(start) is None:
        start = call  # the problem shows only beside the call that led to it
    small = smallest(start, lambda c: of(c) is not None, seconds)
    return of(small) or problem, small


def _notes(
    primitive: Primitive, info: OpInfo | None, calls: list[Call], session: Session
) -> tuple[str, ...]:
    notes = []
    if info is not None and info.reference is not None:
        notes.append("numbers were compared with the OpInfo's reference")
    else:
        notes.append(
            "numbers were compared with the primitive's own float64 kernel, which is itself "
            "checked only against its gradient; an OpInfo's reference would check it too"
        )
    notes += _on_devices(primitive, session)
    lacking = [e for e in registry.table.get((primitive.name, "cpu"), ()) if not ON_CPU.supports(e)]
    if lacking:
        notes.append(f"not checked on this machine: {', '.join(e.describe() for e in lacking)}")
    if session.unfinished:
        notes.append(f"the budget was used up in {', '.join(session.unfinished)}; give more")
    notes += _of_domain(info, calls)
    if info is None and primitive.const_inputs:
        notes.append(f"const inputs ({', '.join(primitive.const_inputs)}) cannot be drawn")
    apart = ", ".join(
        f"{d.kernel} from {d.other} {d.ulp:.2g} ({d.where})" for d in session.differences.values()
    )
    return (
        (*notes, f"largest differences in units in the last place: {apart}") if apart else (*notes,)
    )


def _of_domain(info: OpInfo | None, calls: list[Call]) -> Iterator[str]:
    """That many of the drawn numbers lie outside the domain, if they seem to."""
    plain = [c for c in calls if c.kind in SMOOTH and launched(c)][:_LOOKED]
    strange = sum(map(gives_no_number, plain))
    if info is None and strange:
        yield (
            f"{strange} of {len(plain)} drawn calls of ordinary numbers give NaN or infinity; "
            f"{GIVE_DOMAIN}"
        )


def _on_devices(primitive: Primitive, session: Session) -> Iterator[str]:
    """Which CUDA kernels ran, and which did not, and why."""
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
