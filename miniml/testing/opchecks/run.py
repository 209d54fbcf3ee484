"""Operator check: draws calls, runs the checks on them, and shrinks the failing calls.

In order: `opcheck`; the calls that checks see; the table of checks; findings, each in its smallest
call; containers and counters that the code of a primitive changes from call to call; the notes of a
report, which say what numbers were compared with and what was left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from math import inf
from types import FunctionType
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from ...backends import registry
from ...backends.cc.units import absence
from ...core.abstract import float64, int64, is_float
from ...core.bprop import bprop_getters
from ...core.errors import ArityError, DeclarationError, MinimlError
from ...core.primitive import Primitive
from ...runtime.launch import in_c, program_target
from ..calls import (
    ON_CPU,
    WORDS,
    Array,
    Arrays,
    Call,
    OpInfo,
    Sample,
    TimeIsUpError,
    call_of,
    failure,
    gives_no_number,
    go_on,
    is_layout,
    kernels_of,
    lasting,
    lasting_until,
    launched,
    refused_by_value,
    simpler_layouts,
    time_is_up,
    usual_layouts,
    without_c,
)
from ..report import OpCheckError, OpFinding, OpReport, Severity, in_order
from .devices import (
    across_ranks,
    calls_of_ranks,
    devices,
    is_collective,
    long_on_devices,
    notes_on_devices,
    of_several,
    on_devices,
)
from .draws import ENOUGH, drawn, guesses_of, signatures, why_none
from .gradients import (
    bprop,
    graded,
    gradient,
    gradient_at_other_numbers,
    gradient_of_broadcast_inputs,
    gradient_of_long_inputs,
    gradient_with_other_attributes,
    has_bprop,
    in_float64,
    long,
    narrow,
    stretched,
    unchanged,
)
from .kernels import Canary, CrashError, follow, kernels, memory, remembered, sizes, state
from .numbers import isolated_values, overflow, own_numbers, precision, special
from .operator_calls import is_operator
from .operators import check_operator, known_checks
from .relations import check_in_c, compile_all, counted, related, stated
from .rules import (
    accepted_though_refused,
    attributes,
    kernels_run,
    refusals,
    rules,
    unreached,
    unusual,
)
from .session import (
    DOMAIN,
    ENDS,
    SHRINKING,
    Check,
    Issue,
    Remark,
    Session,
    an_opinfo,
    issues,
    program,
)
from .values import BENT, LONGEST, NEGATIVE, SMOOTH, informed, sampled
from .variants import compilable, pairs

T = TypeVar("T")
BUDGET = 8.0


def opcheck(
    primitive: Primitive | type[Primitive] | Any,
    info: OpInfo | None = None,
    budget: float | None = None,
    raise_error: bool = True,
    *,
    seed: int | None = None,
    checks: Sequence[str] | None = None,
    inputs: tuple[Any, ...] | list[tuple[Any, ...]] | None = None,
    layouts: Sequence[str] = (),
    draws: Literal["all", "samples"] = "all",
) -> OpReport:
    """Check a primitive against everything that its rules, kernels and gradient promise.

    Inputs are drawn from the rules and the kernel table; `info` gives samples where they cannot
    be guessed, an independent reference, and the behaviour with NaN and batches. budget: seconds
    (on a busy machine, seconds of its own work), after which checks that have not run are named in
    the report. seed: other draws; None draws the same each time. checks: some of `CHECKS` only.
    inputs: this call only. layouts: how its inputs, and after them the cotangents of its outputs,
    lie in memory, in the words of findings: "reversed along axis 1", "Fortran-ordered, offset",
    "contiguous". draws: "samples" uses only those of `info`, few of them in slow checks, and
    shrinks no example: for daily tests.

    primitive may be an operator of torch.library too: an overload, a packet of one, or what
    `torch.library.custom_op` returns; then inputs are required, a tuple for one call or a list of
    them, and schema, fake, layouts, determinism, sizes, dtypes, special values and gradient are
    checked; info, layouts and draws do not go with it: ArityError.

    Complex numbers are not drawn; DeclarationError for a primitive whose kernels take or give them
    alone. Raises OpCheckError, with the OpReport as its `report`, if `raise_error` is true and
    there is a fault, or nothing could be judged: no call that the rules accept was found.
    """
    if is_operator(primitive):
        if info is not None or layouts or draws != "all":
            raise ArityError("opcheck of an operator of torch takes inputs, budget, seed, checks")
        return _raised(check_operator(primitive, inputs, budget, seed, checks), raise_error)
    _refuse_arguments(info, draws)
    subject = _instance(primitive, info)
    _refuse_complex(subject)
    session = Session(BUDGET if budget is None else budget, draws == "samples")
    chosen = ("ranks",) if of_several(subject) else _chosen(checks)
    before = marks(subject)
    with without_c(), remembered(), lasting_until(session.over):
        one = None if inputs is None else [_one(subject, info, inputs, layouts)]
        try:
            calls, found = _calls(session, subject, info, seed, one)
        except CrashError as error:
            calls, found, chosen = [], [error.finding], ()
        with lasting_until(session.checked_for_long):
            _run(session, chosen, subject, info, calls)
        beyond = outside(calls) if info is None else Outside(0, 0, 0)
        found += _nothing(subject, session, beyond) + _findings(session, subject)
        session.kept = changed(before, marks(subject)) if found else []
        doubtful = _doubtful(session, calls, found, beyond.few) if info is None else ()
        report = OpReport(
            repr(subject), in_order(found), session.counts,
            tuple(notes(subject, info, beyond, session)), session.watch.seconds(),
            an_opinfo(subject, doubtful),
        )  # fmt: skip
    return _raised(report, raise_error)


def _raised(report: OpReport, raise_error: bool) -> OpReport:
    """The report; OpCheckError instead, where that is asked for and it is not ok."""
    if raise_error and not report.ok:
        raise OpCheckError(report)
    return report


def _refuse_complex(subject: Primitive) -> None:
    if registry.table.get((subject.name, "cpu")) and not signatures(subject):
        raise DeclarationError(
            f"opcheck of {subject.name} draws real numbers, and all of its kernels take or give "
            "complex ones; gradcheck checks its gradient, by real and imaginary parts"
        )


def _refuse_arguments(info: object, draws: str) -> None:
    """ArityError for an `info` that is no OpInfo, and for draws that are not possible."""
    if draws not in ("all", "samples") or (draws == "samples" and info is None):
        raise ArityError(
            f"opcheck(draws={draws!r}) is not possible here; give draws='all', or draws='samples' "
            "and an OpInfo, whose samples these are"
        )
    if not isinstance(info, OpInfo | None):
        raise ArityError(
            f"opcheck takes an OpInfo after the primitive; got {type(info).__name__}; inputs of a "
            "call are inputs=(x, y); without them opcheck draws its own"
        )


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


def _chosen(checks: Sequence[str] | None) -> tuple[str, ...]:
    known = known_checks("opcheck", checks, CHECKS)
    return tuple(name for name in known if name != "in C" or in_c(program_target("cpu")))


def _one(primitive: Primitive, info: OpInfo | None, inputs: object, layouts: Sequence[str]) -> Call:
    if not isinstance(inputs, tuple):
        raise ArityError(
            "opcheck of a primitive takes the inputs of one call, a tuple; "
            f"got a {type(inputs).__name__}"
        )
    unknown = [layout for layout in layouts if not is_layout(layout)]
    if isinstance(layouts, str) or unknown:
        raise ArityError(
            f"opcheck knows no layouts {layouts!r}; they are made of {', '.join(WORDS)}, and "
            "'along axis 0', joined by ', '"
        )
    call = call_of(primitive, Sample(inputs), info, dict(primitive.attributes))
    return replace(call, layouts=(tuple(layouts),) if layouts else ())


def assert_op(
    primitive: Primitive | type[Primitive],
    info: OpInfo | None = None,
    budget: float | None = None,
    seed: int | None = None,
) -> None:
    """Raise OpCheckError, which is an AssertionError, unless opcheck finds no fault: for tests."""
    opcheck(primitive, info, budget, seed=seed)


def _run(
    session: Session,
    chosen: Sequence[str],
    subject: Primitive,
    info: OpInfo | None,
    calls: list[Call],
) -> None:
    """Run the chosen checks."""
    for check in FIRST:
        if check.name in chosen:
            session.run(check, calls)
    sound = list(_while_time(c for c in calls if not any(failure(e, c) for e in kernels_of(c))))
    for check in REST:
        if check.after and session.has(check.after, "fault"):
            continue
        if check.name in chosen and (_hashable(subject) or check.name == "attributes"):
            trusted = [c for c in sound if c.info is not None] if info is not None else sound
            session.run(check, trusted if check.trusted else sound)
            if check.name in SETTLING and session.has(check.name):
                sound = list(_while_time(c for c in sound if not issues(check, c)))


def _hashable(primitive: Primitive) -> bool:
    """False for a primitive that cannot run, because launchers are cached by primitive."""
    return getattr(type(primitive), "__hash__", None) is not None


def _while_time(values: Iterable[T]) -> Iterator[T]:
    """The values until the time is up."""
    with suppress(TimeIsUpError):
        yield from values


def _nothing(primitive: Primitive, session: Session, beyond: Outside) -> list[OpFinding]:
    """The finding that the budget ended before anything was checked, or that there is no number."""
    if session.unfinished and not session.counts:
        check, text = "budget", "nothing was checked before the budget was used up"
        advice = "give more seconds: opcheck(op, budget=10)"
    elif beyond.none == beyond.many > 0:
        check, text = (
            "draws",
            "no drawn call of ordinary numbers gives anything but NaN or infinity",
        )
        advice = "give an OpInfo, whose samples are valid inputs; or correct the kernel"
    else:
        return []
    shown = program(None, None, primitive)
    return [OpFinding(check, "cannot judge", f"{primitive!r}: {text}", advice, shown)]


# --- Calls to check -------------------------------------------------------------------------------


_DRAWING = 0.5  # of the budget at most


def _calls(
    session: Session,
    primitive: Primitive,
    info: OpInfo | None,
    seed: int | None,
    given: list[Call] | None,
) -> tuple[list[Call], list[OpFinding]]:
    """The given calls; or samples, then drawn calls, and findings on the OpInfo, or on too few
    calls to check. CrashError where one of the first ends a child of this process."""
    with Canary(primitive) as canary:
        if given is None:
            return _found(session, primitive, info, seed, canary)
        canary.explore(given)
        return given, []


def _found(
    session: Session, primitive: Primitive, info: OpInfo | None, seed: int | None, canary: Canary
) -> tuple[list[Call], list[OpFinding]]:
    if of_several(primitive):
        return calls_of_ranks(primitive, seed), []
    if info is None:
        found = _drawn(session, primitive, seed, canary)
        lacking = () if session.unfinished else _lacking(primitive, found)
        return found, [*lacking, *_unreached(primitive, found)]
    samples, refused = sampled(primitive, info, seed)
    canary.explore(samples)
    wrong = [("draws", f"a sample of the OpInfo is refused: {text}") for text in refused]
    wrong += [("refusals", text) for text in accepted_though_refused(info)]
    advice = "correct the rules of the primitive, or the OpInfo"
    shown = program(None, None, primitive)
    findings = [OpFinding(check, "fault", text, advice, shown) for check, text in wrong]
    if session.few:
        counts = ((c, len(c.arrays) + len(c.inferred)) for c in samples)
        return [replace(c, layouts=tuple(usual_layouts(n, 1))) for c, n in counts], findings
    guessed = () if primitive.const_inputs else _drawn(session, primitive, seed, canary)
    calls = [*samples, *(informed(call, info) for call in guessed)]
    return calls, [*findings, *_unreached(primitive, calls)]


def _drawn(session: Session, primitive: Primitive, seed: int | None, canary: Canary) -> list[Call]:
    """The calls of `drawn` whose numbers no kernel refuses, for half of the budget at most."""

    def kept(call: Call) -> bool:
        canary.before(call)
        return not refused_by_value(call)

    with lasting_until(lambda: session.watch.elapsed() > _DRAWING * session.budget):
        found = list(_while_time(drawn(primitive, seed, kept)))
        if time_is_up():
            session.unfinished.append("drawing calls")
        return found


def _lacking(primitive: Primitive, calls: list[Call]) -> Iterator[OpFinding]:
    """The finding that too few calls could be drawn, with the reason."""
    if len(calls) >= ENOUGH or primitive.input_names == ():
        return
    severity: Severity = "warning" if calls else "cannot judge"
    if signatures(primitive):
        why, malformed = why_none(primitive)
        advice = "give an OpInfo, whose samples are valid inputs"
        if malformed:
            severity, advice = "fault", "correct the rule"
    else:
        why, severity = "it has no kernel on the CPU", "fault"
        advice = f"register one with @kernel({primitive.name!r}, 'cpu', 'f->f')"
    yield OpFinding(
        "draws",
        severity,
        f"{primitive!r}: cannot draw inputs: {len(calls)} valid calls were found, fewer than "
        f"{ENOUGH}; {why}",
        advice,
        program(None, None, primitive),
    )


def _unreached(primitive: Primitive, calls: Sequence[Call]) -> Iterator[OpFinding]:
    """The findings on kernels that no call reaches."""
    advice = "let infer_dtype accept these dtypes, or do not register the kernel for them"
    for text in unreached(primitive, calls):
        yield OpFinding("rules", "warning", text, advice, program(None, None, primitive))


def _doubtful(
    session: Session, calls: Sequence[Call], found: Sequence[OpFinding], beyond: int
) -> Sequence[Call]:
    """Calls to suggest as samples, simple ones first, if the drawn ones may not be valid.

    beyond: the number of calls that seem to lie outside the domain.
    """
    doubtful = [call for (_, kind), (_, call) in session.found.items() if kind in (DOMAIN, ENDS)]
    if not doubtful and not beyond and not any(f.check == "draws" for f in found):
        return ()
    simple = [c for c in calls if c.kind == "ordinary" and all(a.size > 1 for a in c.arrays)]
    return simple or doubtful or calls


# --- Checks in the order in which they run --------------------------------------------------------


def _floats(call: Call, most: float = inf) -> bool:
    """True for calls with a number in a float input, and at most that many in each."""
    return any(is_float(a.dtype) and a.size for a in call.arrays) and _at_most(call, most)


def _at_most(call: Call, most: float) -> bool:
    return all(a.size <= most for a in call.arrays)


def _small(call: Call) -> bool:
    return _floats(call, 512) and all(a.size for a in call.arrays)


def _bent(call: Call) -> bool:
    """Ties, zeros, large numbers and negative integers in float64; in narrower dtypes, only large
    numbers, which overflow soonest there."""
    usable = _small(call) and call.kind in (*BENT, NEGATIVE)
    return usable and (in_float64(call) or (narrow(call) and call.kind == "large"))


def _plain(call: Call) -> bool:
    return own_numbers(call) and call.kind in SMOOTH and _small(call)


def _batched(call: Call) -> bool:
    """True where the OpInfo claims that the call works row by row."""
    return call.info is not None and call.info.batch_axes is not None and launched(call)


def _narrow_integers(call: Call) -> bool:
    """True for calls of integers alone, some of them narrower than int64, without a reference."""
    narrower = any(d.itemsize < int64.itemsize for d in call.dtypes)
    only = {d.kind for d in call.dtypes} <= set("biu")
    return narrower and only and not call.referenced and launched(call)


def _both(*checks: Callable[[Call], Iterator[Remark]]) -> Callable[[Call], Iterator[Remark]]:
    return lambda call: chain.from_iterable(check(call) for check in checks)


ALL = 10**6  # calls: more than an OpInfo has samples
# These see every call that the rules accept; the others only those that every kernel can run.
FIRST = (
    Check("rules", rules, 200, few=ALL),
    Check("refusals", refusals, 40, few=8),
    Check("kernels run", kernels_run, 200, unusual),
    Check(
        "ranks", across_ranks, 6,
        lambda c: is_collective(c.primitive) and _at_most(c, 64), enough=1, few=1,
    ),
)  # fmt: skip
# In this order causes come before their consequences.
REST = (
    Check("memory", _both(memory, related("memory")), 80, few=ALL),
    Check("repeat", related("repeat"), 80, few=ALL),
    Check("kernels", kernels, 200, trusted=True, few=ALL),
    Check("sizes", sizes, 24, follow, few=8),
    Check("integers", related("integers"), 24, _narrow_integers, trusted=True),
    Check("layouts", related("layouts"), 100, lambda c: c.kind != LONGEST, few=200),
    Check("special", special, 24, _floats, trusted=True, few=12),
    Check("devices", devices, 60, on_devices, trusted=True, enough=12, share=0.35, few=3),
    Check(
        "devices with long inputs", devices, 6, long_on_devices, trusted=True, enough=1, share=0.15,
        after="devices",
    ),
    Check("in C", related("in C"), 6, check_in_c, trusted=True, few=2, first=compile_all),
    Check("infer_value", related("infer_value"), 40, lambda c: type(c.primitive)._infers_value),
    Check("batching", related("batching"), 40, _batched),
    Check("facts", _both(counted, related("facts")), 12, stated, trusted=True, few=8),
    Check("attributes", _both(attributes, related("attributes")), 6, few=2),
    Check("graph", related("graph"), 8, compilable, trusted=True, few=8),
    Check("state", state, 2, few=1),
    Check(
        "threads", related("threads"), 2,
        lambda c: launched(c) and any(1 < a.size <= 64 for a in c.arrays), few=1,
    ),
    Check(
        "one array twice", related("one array twice"), 4,
        lambda c: launched(c) and any(pairs(c)), trusted=True, few=2,
    ),
    Check("precision", precision, 6, _plain, trusted=True, enough=2),
    Check(
        "precision of long inputs", precision, 2, lambda c: own_numbers(c) and c.kind == LONGEST,
        enough=1, after="precision",
    ),
    Check("bprop", bprop, 24, lambda c: graded(c) and _at_most(c, 64), trusted=True, few=8),
    Check(
        "gradient cotangents", _both(unchanged, related("gradient cotangents")), 16,
        lambda c: has_bprop(c) and _at_most(c, 4096), trusted=True, few=4,
    ),
    Check(
        "gradient", gradient, 12, lambda c: c.smooth and in_float64(c) and _small(c), trusted=True,
        enough=2, few=1,
    ),
    Check(
        "gradient of broadcast inputs", gradient_of_broadcast_inputs, 12,
        lambda c: c.smooth and in_float64(c) and _small(c) and stretched(c), trusted=True,
        enough=1, after="gradient", few=2,
    ),
    Check(
        "gradient in narrow dtypes", gradient, 8, lambda c: c.smooth and narrow(c) and _small(c),
        trusted=True, enough=2, after="gradient", few=3,
    ),
    Check(
        "gradient at other numbers", gradient_at_other_numbers, 6, _bent, trusted=True, enough=2,
        after="gradient",
    ),
    Check(
        "gradient with other attributes", gradient_with_other_attributes, 4,
        lambda c: c.smooth and in_float64(c) and _small(c), trusted=True, enough=1,
        after="gradient", few=1,
    ),
    Check(
        "gradient of long inputs", gradient_of_long_inputs, 5,
        lambda c: _floats(c) and in_float64(c) and long(c), after="gradient",
    ),
    Check(
        "overflow", overflow, 6, lambda c: c.kind in SMOOTH and _small(c) and launched(c),
        trusted=True, enough=2,
    ),
    Check("isolated values", isolated_values, 6, _plain, trusted=True, enough=2),
)  # fmt: skip
# A call with an issue of these checks has no outputs for later checks.
SETTLING = ("memory", "repeat")

CHECKS = tuple(check.name for check in (*FIRST, *REST))


# --- Findings in their smallest calls -------------------------------------------------------------


_EARLIER = "the result depends on earlier calls"
_STATELESS = (
    "keep nothing from call to call: no counter, no cache by shape, by id or by some numbers"
)
_SIMPLE = (1.0, 0.0, 2.0)  # numbers that replace others
_FEW = 24  # elements of an array that are replaced one by one


def _findings(session: Session, primitive: Primitive) -> list[OpFinding]:
    """The findings in their smallest calls; each message once, as a fault if it is one."""
    by_name = {check.name: check for check in (*FIRST, *REST)}
    found: dict[str, OpFinding] = {}
    for (name, kind), (issue, call) in session.found.items():
        small, shown = issue, issue.call or call
        if not session.few:
            with lasting(SHRINKING):
                small, shown = _shrunk(by_name[name], kind, issue, call)
        text = program(name, shown, primitive)
        finding = OpFinding(name, small.severity, small.message, small.advice, text)
        known = found.get(small.message)
        if known is None or known.severity != "fault":
            found[small.message] = finding
    return list(found.values())


def _shrunk(check: Check, kind: str, issue: Issue, call: Call) -> tuple[Issue, Call]:
    """The issue in its smallest call, and that call; both unchanged if there is no time left.

    A smaller call of another severity does not count: fewer numbers may make a fault a warning. Nor
    does one that no longer names the cause: of swapped gradients at 1 and 0 one is as wrong as 0.
    """
    found = issue, issue.call or call

    def shows(candidate: Call) -> bool:
        nonlocal found
        alike = (i for i in issues(check, candidate) if i.kind == kind)
        as_much = (i for i in alike if i.severity == issue.severity and i.named >= found[0].named)
        again = next(as_much, None)
        if again is not None:
            found = again, candidate
        return again is not None

    with suppress(TimeIsUpError):
        # An issue may show only after the call that led to it.
        if not shows(issue.call or call) and not shows(call):
            text = f"{issue.message}; the same call alone does not show it: {_EARLIER}"
            return issue._replace(message=text, advice=_STATELESS), found[1]
        _smallest(found[1], shows)
    return found


def _smallest(call: Call, shows: Callable[[Call], bool]) -> Call:
    """A call for which `shows` holds, shrunk as long as that is possible and time is left.

    Extents are cut, axes dropped, numbers replaced by 1, 0 and 2, layouts made contiguous. The
    samples of an OpInfo keep their numbers, because others may leave the domain.
    """
    progress = True
    with suppress(TimeIsUpError):
        while progress:
            progress = False
            for candidate in chain(map(call.on, _smaller(call)), _plainer(call)):
                go_on()
                if _valid(candidate) and shows(candidate):
                    call, progress = candidate, True
                    break
    return call


def _valid(call: Call) -> bool:
    try:
        return bool(call.inferred) and not refused_by_value(call)
    except Exception:  # refused by the rules: not a smaller example of the same issue
        return False


def _smaller(call: Call) -> Iterator[Arrays]:
    arrays = call.arrays
    extents = sorted({n for a in arrays for n in a.shape}, reverse=True)
    for n in extents:
        for m in sorted({0, 1, 2, n // 2, n - n // 16 * 4, n - n // 16, n - 1}):
            if m < n and (m > 0 or n == 1):
                yield tuple(_cut(a, n, m) for a in arrays)
    for i, a in enumerate(arrays):
        for axis, n in enumerate(a.shape):
            for m in sorted({1, 2, n - 1}):
                if 0 < m < n:
                    yield (*arrays[:i], np.take(a, range(m), axis), *arrays[i + 1 :])
    if any(a.shape[:1] > (0,) for a in arrays):
        yield tuple(a[0] if a.shape[:1] > (0,) else a for a in arrays)
    if any(a.shape[-1:] > (0,) for a in arrays):
        yield tuple(a[..., 0] if a.shape[-1:] > (0,) else a for a in arrays)
        for i, a in enumerate(arrays):
            if a.ndim and a.shape[0]:
                yield (*arrays[:i], np.asarray(a[0]), *arrays[i + 1 :])
    if call.info is None:
        yield from _simpler(arrays)


def _cut(a: Array, n: int, m: int) -> Array:
    """The first m along every axis of extent n."""
    return np.array(a[tuple(slice(m) if k == n else slice(None) for k in a.shape)])


def _simpler(arrays: Arrays) -> Iterator[Arrays]:
    for i, a in enumerate(arrays):
        if not is_float(a.dtype) or not a.size:
            continue
        whole = np.ones(a.shape, a.dtype)
        if not np.array_equal(a, whole):
            yield (*arrays[:i], whole, *arrays[i + 1 :])
        for index in range(a.size) if a.size <= _FEW else ():
            was = float(a.reshape(-1)[index])
            for value in _SIMPLE[: _SIMPLE.index(was)] if was in _SIMPLE else _SIMPLE:
                changed = a.copy()
                changed.reshape(-1)[index] = value
                yield (*arrays[:i], changed, *arrays[i + 1 :])


def _plainer(call: Call) -> Iterator[Call]:
    """The call with one simpler layout."""
    if len(call.layouts) != 1:
        return
    (words,) = call.layouts
    for i, layout in enumerate(words):
        for other in simpler_layouts(layout):
            yield replace(call, layouts=((*words[:i], other, *words[i + 1 :]),))


# --- State kept from call to call -----------------------------------------------------------------


_LARGEST = 4096  # elements of an array, or entries of a container, that are compared
Marks = dict[str, object]


def marks(primitive: Primitive) -> Marks:
    """A mark for each container, array and number that kernels and the bprop reach by name: if the
    mark differs later, the value has changed."""
    found: Marks = {}
    functions = list(_functions(primitive))
    for function in functions:  # it grows
        for name, value in _reached(function):
            if isinstance(value, FunctionType) and value not in functions and _own(value):
                functions.append(value)
            mark = _mark(value)
            if mark is not None:
                found[f"{name} of {function.__module__}"] = mark
    return found


def _functions(primitive: Primitive) -> Iterator[FunctionType]:
    bodies: list[Any] = [e.body for e in registry.table.get((primitive.name, "cpu"), ())]
    bodies.append(bprop_getters.find(type(primitive)))
    for body in bodies:
        members = vars(body).values() if isinstance(body, type) else (body,)
        yield from (m for m in members if isinstance(m, FunctionType))


def _own(function: FunctionType) -> bool:
    """False for functions of libraries."""
    return function.__module__.partition(".")[0] not in ("miniml", "numpy", "scipy", "ml_dtypes")


def _reached(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty
            continue
    yield from zip(code.co_varnames, function.__defaults__ or ())
    yield from ((f"{function.__name__}.{name}", value) for name, value in vars(function).items())


def _mark(value: Any) -> object:
    if isinstance(value, (dict, set, list)):
        entries = value.values() if isinstance(value, dict) else value
        if len(value) > _LARGEST:
            return len(value)
        # Compared by their ids, which nothing else gets while a mark holds the entries.
        return tuple(map(id, entries)), tuple(entries)
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.size <= _LARGEST else value.shape
    return value if isinstance(value, (int, float)) else None


def changed(before: Marks, after: Marks) -> list[str]:
    """The names of the values whose marks differ."""
    return [name for name, mark in after.items() if name in before and before[name] != mark]


# --- Notes of a report ----------------------------------------------------------------------------


_LOOKED = 24  # calls at most


def notes(
    primitive: Primitive, info: OpInfo | None, beyond: Outside, session: Session
) -> Iterator[str]:
    """The notes, one sentence each. beyond: the result of `outside` for the calls."""
    if info is not None and info.reference is not None:
        yield "numbers were compared with the OpInfo's reference"
    else:
        yield (
            "numbers were compared with the primitive's own float64 kernel, which is itself "
            "checked only against its gradient; an OpInfo's reference would check it too"
        )
    if session.kept:
        yield (
            f"{', '.join(session.kept[:12])} changed from call to call: a finding may depend "
            "on earlier calls, whatever it speaks of"
        )
    yield from notes_on_devices(primitive, session.seen.get("devices", []))
    lacking = [e for e in registry.table.get((primitive.name, "cpu"), ()) if not ON_CPU.supports(e)]
    if lacking:
        yield f"not checked on this machine: {', '.join(e.describe() for e in lacking)}"
    if absence():
        yield f"not checked: kernels in C, which need a C compiler, and {absence()}"
    if session.unfinished:
        yield f"the budget was used up in {', '.join(session.unfinished)}; give more"
    if beyond.few:
        yield f"{beyond.few} of {beyond.many} drawn calls of ordinary numbers give NaN or infinity"
    if info is None and primitive.const_inputs:
        guesses = guesses_of(primitive)
        for name, guess in zip(primitive.const_inputs, guesses):
            yield f"the const input {name} was drawn as {guess}; an OpInfo gives other values"
        if not guesses:
            yield f"const inputs ({', '.join(primitive.const_inputs)}) cannot be drawn"
    apart = ", ".join(
        f"{d.kernel} from {d.other} {d.ulp:.2g} ({d.where})" for d in session.differences.values()
    )
    if apart:
        yield f"largest differences in units in the last place: {apart}"


class Outside(NamedTuple):
    """Of so many drawn calls of ordinary numbers, those that give NaN or infinity, and those that
    give nothing else: they seem to lie outside the domain."""

    few: int
    many: int
    none: int


def outside(calls: Sequence[Call]) -> Outside:
    """The counts of the first drawn calls, as far as there is time."""
    few, many, none = 0, 0, 0
    with suppress(TimeIsUpError):
        for call in [c for c in calls if c.kind in SMOOTH and launched(c)][:_LOOKED]:
            beyond = gives_no_number(call)
            none += beyond and gives_no_number(call, at_all=True)
            few, many = few + beyond, many + 1
    return Outside(few, many, none)
