"""Reports of the checkers: findings, what was compared, and the verdict, as objects and as text.

In order: what both have in common; the report of gradcheck, a table; the report of opcheck, whose
findings each have a program that shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from ..core.errors import MinimlError

Array = np.ndarray[Any, Any]
Arrays = list[Array]
Finding = TypeVar("Finding")


class Report(Generic[Finding]):
    """Result of a checker: `findings`, the worst first, and whether that is `ok`; printed, all of
    it. A report is true if it is ok."""

    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and something was judged."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return self.ok

    def lines(self) -> list[str]:
        """The text of the report."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines())


class CheckError(MinimlError, AssertionError):
    """A checker found a fault, or nothing that it could judge; `report` has all findings."""

    def __init__(self, report: Report[Any]):
        super().__init__(str(report))
        self.report: Any = report

    def __reduce__(self) -> tuple[type[CheckError], tuple[Report[Any]]]:
        return type(self), (self.report,)


# --- gradcheck ------------------------------------------------------------------------------------


CORRECT = "correct"
WRONG, KINK, NEAR_KINK, UNKNOWN = "wrong", "kink", "too near a kink", "cannot judge"
_RANK = {WRONG: 0, NEAR_KINK: 1, UNKNOWN: 2, KINK: 3}
NAN = float("nan")


class Numbers(NamedTuple):
    """The two sides of one comparison; NaN for numbers that were not measured.

    The numeric side is the interval numeric +- error_bar. left, right: one-sided slopes.
    """

    analytic: float = NAN
    numeric: float = NAN
    error_bar: float = NAN
    left: float = NAN
    right: float = NAN


NOTHING = Numbers()


@dataclass(frozen=True, slots=True)
class GradFinding:
    """One element, or one whole argument, whose gradient is not clearly correct.

    verdict: "wrong", "kink" (a valid subgradient, accepted), "too near a kink" or "cannot judge".
    order: of the derivative. diagnosis: the likely fault, in words. argument: its name; argnum,
    path: its number, and the path to the leaf inside it; None and the weight's name for a weight.
    From order 2 on, arguments after the function's own are cotangents. index: of the element, None
    for the whole argument. The other fields are the Numbers at that element.
    """

    verdict: str
    order: int
    diagnosis: str
    argument: str = ""
    argnum: int | None = None
    path: str = ""
    index: tuple[int, ...] | None = None
    analytic: float = NAN
    numeric: float = NAN
    error_bar: float = NAN
    left: float = NAN
    right: float = NAN

    @property
    def element(self) -> str:
        """The element in readable form: argument and index."""
        return f"{self.argument}{list(self.index)}" if self.index else self.argument


class Verdict(NamedTuple):
    """The verdict on the gradient of some elements, by their positions in the long vector.

    kind: CORRECT, or the verdict of the findings. findings: those to list in the report.
    """

    kind: str
    members: Array
    findings: tuple[GradFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Agreement:
    """One comparison that passed: a direction, or all elements in a narrow dtype."""

    order: int
    what: str
    analytic: float
    numeric: float
    error_bar: float
    resolution: float


@dataclass(slots=True, repr=False)
class GradReport(Report[GradFinding]):
    """The result of a gradient check.

    findings: wrong ones first. checks: the comparisons made; `resolution` is the relative error of
    one typical element that a comparison would have detected. gradients: the analytic gradient of
    each differentiable argument leaf, under the cotangent of the first linearity check.
    forward_calls: how often the function was called. judged: the number of elements judged.
    notes: remarks for the reader, such as the dtype of the numeric side. repeatable: False if
    two equal calls of the function differ by more than a few roundings, so that it has no
    derivative. noise: the relative noise of its float64 values, if that is far more than float64
    explains.
    """

    name: str
    findings: list[GradFinding] = field(default_factory=list)
    checks: list[Agreement] = field(default_factory=list)
    gradients: Arrays = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    forward_calls: int = 0
    judged: int = 0
    repeatable: bool = True
    noise: float = 0.0
    strict: bool = False

    def sort(self) -> None:
        """Put wrong findings first, then by order."""
        self.findings.sort(key=lambda f: (_RANK[f.verdict], f.order))

    @property
    def unjudged(self) -> list[GradFinding]:
        """The points that could not be judged."""
        return [f for f in self.findings if f.verdict in (NEAR_KINK, UNKNOWN)]

    @property
    def wrong(self) -> list[GradFinding]:
        """The points at which the gradient is wrong."""
        return [f for f in self.findings if f.verdict == WRONG]

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and something was judged; with `strict`, everything was."""
        judged = self.judged > 0 and self.repeatable
        return not self.wrong and judged and not (self.strict and self.unjudged)

    def lines(self) -> list[str]:
        lines = [f"gradcheck of {self.name}: {self._summary()}"]
        if self.findings:
            lines += ["", *_table(_FOUND, map(_finding_row, self.findings))]
        if self.checks and not self.wrong:
            lines += ["", *_table(_COMPARED, map(_comparison_row, self.checks))]
        if self.notes:
            lines += ["", *(f"note: {note}" for note in self.notes)]
        return lines

    __repr__ = Report.__str__

    def _summary(self) -> str:
        calls = f"{self.forward_calls} forward calls"
        if self.wrong:
            return f"WRONG ({len(self.wrong)} found; {calls})"
        if not self.repeatable:
            return f"NOT REPEATABLE, so not judged ({calls})"
        if not self.judged:
            return f"NOTHING JUDGED ({calls})"
        if self.strict and self.unjudged:
            return f"NOT ALL JUDGED, and strict=True ({calls})"
        if self.unjudged:
            lines = f"{len(self.unjudged)} lines below say what was not"
            return f"no fault in what was judged ({self.judged} elements; {lines}; {calls})"
        return f"correct ({self.judged} elements judged; {calls})"


_FOUND = ("verdict", "order", "element", "analytic", "numeric", "what it looks like")
_COMPARED = ("order", "compared", "analytic", "numeric", "would show an element off by")


def _finding_row(f: GradFinding) -> tuple[str, ...]:
    slopes = f"left {f.left:.6g}, right {f.right:.6g}" if np.isfinite(f.left + f.right) else ""
    numeric = slopes if slopes and f.verdict == KINK else _interval(f.numeric, f.error_bar)
    looks = "; ".join(t for t in (f.diagnosis, slopes if numeric != slopes else "") if t)
    analytic = f"{f.analytic:.{max(8, _digits(f.numeric, f.error_bar))}g}"
    return f.verdict, str(f.order), f.element, analytic, numeric, looks


def _comparison_row(c: Agreement) -> tuple[str, ...]:
    interval = _interval(c.numeric, c.error_bar)
    return str(c.order), c.what, f"{c.analytic:.10g}", interval, f"{c.resolution:.1g}"


def _interval(value: float, error: float) -> str:
    if not np.isfinite(value):
        return "none"
    if not np.isfinite(error):
        return f"{value:.6g} +- ?"
    return f"{value:.{_digits(value, error)}g} +- {error:.1g}"


def _digits(value: float, error: float) -> int:
    """The number of digits that the error leaves, and one more."""
    if not np.isfinite(value + error):
        return 6
    return 10 if error <= 0 else int(np.clip(np.log10(max(abs(value), error) / error) + 2, 2, 12))


def _table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> list[str]:
    rows = [head, *body]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class GradientError(CheckError):
    """A gradient is wrong, or nothing could be judged; `report` is the GradReport."""

    report: GradReport


# --- opcheck --------------------------------------------------------------------------------------


Severity = Literal["fault", "cannot judge", "warning"]  # the worst first


@dataclass(frozen=True, slots=True)
class OpFinding:
    """One fault, one doubtful property, or the reason why opcheck could judge nothing.

    check: the name of the check, see `CHECKS`. message: what happened, in the smallest call that
    shows it. advice: what to do about it. example: a program that shows it, complete if the
    primitive's source can be found.
    """

    check: str
    severity: Severity
    message: str
    advice: str
    example: str

    def __str__(self) -> str:
        return f"{self.severity} ({self.check}): {self.message}\n    -> {self.advice}"


@dataclass(frozen=True, slots=True, repr=False)
class OpReport(Report[OpFinding]):
    """The result of opcheck; printed, it gives everything, with lines that programs share only
    once.

    ok: no fault was found, and something was judged (warnings leave it True). findings: faults
    first. calls: the number of calls that each check saw. notes: what numbers were compared with,
    and what was not checked and why. samples: lines of an OpInfo to start from, if the drawn inputs
    may not be valid.
    """

    subject: str
    findings: tuple[OpFinding, ...]
    calls: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    samples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when there is no fault, and calls to judge by."""
        return all(f.severity == "warning" for f in self.findings)

    @property
    def faults(self) -> tuple[OpFinding, ...]:
        """The findings that are certainly wrong."""
        return tuple(f for f in self.findings if f.severity == "fault")

    @property
    def warnings(self) -> tuple[OpFinding, ...]:
        """The findings that may be intended."""
        return tuple(f for f in self.findings if f.severity == "warning")

    def lines(self) -> list[str]:
        verdict = _counted(len(self.faults), "fault"), _counted(len(self.warnings), "warning")
        idle = any(f.severity == "cannot judge" for f in self.findings)
        prefix = "cannot judge: " if idle else ""
        lines = [f"opcheck {self.subject}: {prefix}{' and '.join(verdict)} in {self.seconds:.1f} s"]
        programs = [finding.example.splitlines() for finding in self.findings]
        shared = _shared(programs)
        for finding, program in zip(self.findings, programs):
            lines += ["", str(finding), *_indented(program[len(shared) :])]
        if shared:
            after = "" if len(programs) == 1 else ", each of the programs above"
            lines += ["", f"to reproduce{after}, after these lines:", *_indented(shared)]
        if self.samples:
            lines += ["", "should only some numbers be valid, give these:"]
            lines += _indented(self.samples)
        seen = ", ".join(f"{name} {count}" for name, count in self.calls.items())
        lines += ["", f"calls checked: {seen or 'none'}"]
        lines += [f"note: {note}" for note in self.notes]
        return lines

    def __repr__(self) -> str:
        return f"<OpReport of {self.subject}: {'ok' if self.ok else 'not ok'}, {self._brief()}>"

    def _brief(self) -> str:
        return ", ".join(f.check for f in self.findings) or "no findings"


def in_order(findings: Sequence[OpFinding]) -> tuple[OpFinding, ...]:
    """The findings, faults before warnings, otherwise in their order."""
    return tuple(sorted(findings, key=lambda f: get_args(Severity).index(f.severity)))


def _shared(programs: Sequence[Sequence[str]]) -> Sequence[str]:
    """The lines with which all programs begin: imports and the definition."""
    same = 0
    for lines in zip(*programs):
        if len(set(lines)) > 1 or lines[0].startswith(("x0 = ", "opcheck(", "info = ")):
            break
        same += 1
    return programs[0][:same] if same else ()


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


class OpCheckError(CheckError):
    """opcheck found a fault, or nothing that it could judge; `report` is the OpReport."""

    report: OpReport
