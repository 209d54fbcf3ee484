"""opcheck: calls are drawn, every check sees them, and failing calls are made small."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ...dtype import float64
from ...errors import ArityError, MinimlError
from ...primitive import Primitive
from ...runtime.launch import program_target
from ...runtime.lowering.native import in_c
from ..budget import Stopwatch
from ..calls import Call, call_of, without_c
from ..layouts import WORDS, known, usual
from ..opinfo import OpInfo, Sample
from .checks.launches import failure, kernels_of, refused_by_value
from .checks.rules import accepted_though_refused, unreached
from .checks.state import remembered
from .draws.calls import ENOUGH, drawn, signatures, why_none
from .draws.samples import informed, sampled
from .notes import notes, outside
from .report import OpCheckError, OpFinding, OpReport, in_order
from .reproduce import an_opinfo, program
from .session import DOMAIN, ENDS, Check, Issue, Session, issues
from .shrink import smallest
from .suite import CHECKS, FIRST, REST, SETTLING

BUDGET = 8.0
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
    draws: Literal["all", "samples"] = "all",
) -> OpReport:
    """Check a primitive against everything that its rules, kernels and gradient promise.

    Inputs are drawn from the rules and the kernel table; `info` gives samples where they cannot
    be guessed, an independent reference, and what NaN and batches do. budget: seconds (on a busy
    machine, seconds of its own work), after which checks that have not run are named in the report.
    seed: other draws; None draws the same each time. checks: some of `CHECKS` only. inputs: this
    call only. layouts: how its inputs, and after them the cotangents of its outputs, lie in memory,
    as findings say it: "reversed along axis 1", "Fortran-ordered, offset", "contiguous". draws:
    "samples" uses only those of `info`, few of them in slow checks, and makes no example smaller:
    for daily tests.

    Raises OpCheckError, with the OpReport as its `report`, if there is a fault and `raise_error` is
    true.
    """
    if draws not in ("all", "samples") or (draws == "samples" and info is None):
        raise ArityError(
            f"opcheck(draws={draws!r}) is not possible here; give draws='all', or draws='samples' "
            "and an OpInfo, whose samples these are"
        )
    subject = _instance(primitive, info)
    session = Session(BUDGET if budget is None else budget, draws == "samples")
    chosen = CHECKS if checks is None else _known(checks)
    found: list[OpFinding] = []
    if not in_c(program_target("cpu")):
        chosen = tuple(name for name in chosen if name != "in C")
    with without_c(), remembered():
        if inputs is not None:
            calls = [_one(subject, info, inputs, layouts)]
        else:
            calls, found = _calls(subject, info, seed, session.few)
        _run(session, chosen, subject, info, calls)
        found += _nothing(subject, session) + _findings(session, subject)
        lines = an_opinfo(subject, _doubtful(session, calls, found) if info is None else ())
        report = OpReport(
            repr(subject), in_order(found), session.counts,
            tuple(notes(subject, info, calls, session)), session.watch.seconds(), lines,
        )  # fmt: skip
    if raise_error and not report.ok:
        raise OpCheckError(report)
    return report


def _run(
    session: Session,
    chosen: Sequence[str],
    subject: Primitive,
    info: OpInfo | None,
    calls: list[Call],
) -> None:
    """Run the checks of these names."""
    for check in FIRST:
        if check.name in chosen:
            session.run(check, calls)
    sound = [c for c in calls if not any(failure(e, c) for e in kernels_of(c))]
    for check in REST:
        if check.after and session.has(check.after, "fault"):
            continue
        if check.name in chosen and (_hashable(subject) or check.name == "attributes"):
            trusted = [c for c in sound if c.info is not None] if info is not None else sound
            session.run(check, trusted if check.trusted else sound)
            if check.name in SETTLING and session.has(check.name):
                sound = [c for c in sound if not issues(check, c)]


def assert_op(
    primitive: Primitive | type[Primitive],
    info: OpInfo | None = None,
    budget: float | None = None,
    seed: int | None = None,
) -> None:
    """For tests: raise OpCheckError, which is an AssertionError, unless opcheck finds no fault."""
    opcheck(primitive, info, budget, seed=seed)


def _instance(primitive: Primitive | type[Primitive], info: OpInfo | None) -> Primitive:
    """The primitive; for a class the one of the first sample, or the one with its defaults."""
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


def _calls(
    primitive: Primitive, info: OpInfo | None, seed: int | None, few: bool
) -> tuple[list[Call], list[OpFinding]]:
    """Samples, smaller ones first, then drawn calls; and issues with the OpInfo, or with too few
    calls to check."""
    if info is None:
        found = drawn(primitive, seed, lambda call: not refused_by_value(call))
        return found, [*_lacking(primitive, found), *_unreached(primitive, found)]
    samples, refused = sampled(primitive, info, seed)
    wrong = [("draws", f"a sample of the OpInfo is refused: {text}") for text in refused]
    wrong += [("refusals", text) for text in accepted_though_refused(info)]
    advice = "correct the rules of the primitive, or the OpInfo"
    shown = program(None, None, primitive)
    findings = [OpFinding(check, "fault", text, advice, shown) for check, text in wrong]
    if few:
        counts = ((c, len(c.arrays) + len(c.inferred)) for c in samples)
        return [replace(c, layouts=tuple(usual(n, 1))) for c, n in counts], findings
    more = drawn(primitive, seed, lambda call: not refused_by_value(call))
    calls = [*samples, *(informed(call, info) for call in more)]
    return calls, [*findings, *_unreached(primitive, calls)]


def _doubtful(
    session: Session, calls: Sequence[Call], found: Sequence[OpFinding]
) -> Sequence[Call]:
    """Calls to suggest as samples, simple ones first, if the drawn ones may not be valid."""
    doubtful = [call for (_, kind), (_, call) in session.found.items() if kind in (DOMAIN, ENDS)]
    if not doubtful and not outside(calls)[0] and not any(f.check == "draws" for f in found):
        return ()
    simple = [c for c in calls if c.kind == "ordinary" and all(a.size > 1 for a in c.arrays)]
    return simple or doubtful or calls


def _hashable(primitive: Primitive) -> bool:
    """False for a primitive that cannot run, because launchers are cached by primitive."""
    return getattr(type(primitive), "__hash__", None) is not None


def _lacking(primitive: Primitive, calls: list[Call]) -> Iterator[OpFinding]:
    """The finding that there was too little to check, and why."""
    if len(calls) >= ENOUGH or primitive.input_names == ():
        return
    if signatures(primitive):
        why, advice = why_none(primitive), "give an OpInfo, whose samples are valid inputs"
    else:
        why = "it has no kernel on the CPU"
        advice = f"register one with @kernel({primitive.name!r}, 'cpu', 'f->f')"
    yield OpFinding(
        "draws",
        "warning" if calls else "fault",
        f"{primitive!r}: cannot draw inputs: {len(calls)} valid calls were found, fewer than "
        f"{ENOUGH}; {why}",
        advice,
        program(None, None, primitive),
    )


def _unreached(primitive: Primitive, calls: Sequence[Call]) -> Iterator[OpFinding]:
    """The findings that kernels are there for nothing."""
    advice = "let infer_dtype accept these dtypes, or do not register the kernel for them"
    for text in unreached(primitive, calls):
        yield OpFinding("rules", "warning", text, advice, program(None, None, primitive))


def _nothing(primitive: Primitive, session: Session) -> list[OpFinding]:
    """The finding that the budget ended before anything was checked."""
    text = f"{primitive!r}: nothing was checked before the budget was used up"
    advice, shown = "give more seconds: opcheck(op, budget=10)", program(None, None, primitive)
    idle = session.unfinished and not session.counts
    return [OpFinding("budget", "fault", text, advice, shown)] if idle else []


def _findings(session: Session, primitive: Primitive) -> list[OpFinding]:
    by_name = {check.name: check for check in (*FIRST, *REST)}
    found = []
    watch = Stopwatch()
    for (name, kind), (issue, call) in session.found.items():
        left = min(_SHRINKING - watch.elapsed(), _SHRINKING_ONE)
        small, shown = issue, issue.call or call
        if not session.few:
            small, shown = _shrunk(by_name[name], kind, issue, call, left)
        text = program(name, shown, primitive)
        found.append(OpFinding(name, small.severity, small.message, small.advice, text))
    return found


def _shrunk(
    check: Check, kind: str, issue: Issue, call: Call, seconds: float
) -> tuple[Issue, Call]:
    """The issue in its smallest call, and that call."""

    def of(candidate: Call) -> Issue | None:
        return next((i for i in issues(check, candidate) if i.kind == kind), None)

    start = issue.call or call
    if of(start) is None:
        start = call  # the issue shows only after the call that led to it
    small = smallest(start, lambda c: of(c) is not None, seconds)
    return of(small) or issue, small
