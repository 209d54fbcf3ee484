"""The findings of opcheck, the report that holds them, and the error that carries it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...errors import MinimlError

Severity = Literal["fault", "warning"]


@dataclass(frozen=True, slots=True)
class OpFinding:
    """One fault, or one doubtful property.

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


@dataclass(frozen=True, slots=True)
class OpReport:
    """The result of opcheck; printed, it gives everything, with lines that programs share only
    once.

    ok: no fault was found (warnings leave it True). findings: faults first. calls: how many calls
    each check saw. notes: what numbers were compared with, and what was not checked and why.
    samples: lines of an OpInfo to start from, if the drawn inputs may not be valid.
    """

    subject: str
    findings: tuple[OpFinding, ...]
    calls: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    samples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when there is no fault."""
        return not self.faults

    @property
    def faults(self) -> tuple[OpFinding, ...]:
        """The findings that are certainly wrong."""
        return tuple(f for f in self.findings if f.severity == "fault")

    @property
    def warnings(self) -> tuple[OpFinding, ...]:
        """The findings that may be intended."""
        return tuple(f for f in self.findings if f.severity == "warning")

    def __str__(self) -> str:
        verdict = _counted(len(self.faults), "fault"), _counted(len(self.warnings), "warning")
        lines = [f"opcheck {self.subject}: {' and '.join(verdict)} in {self.seconds:.1f} s"]
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
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<OpReport of {self.subject}: {'ok' if self.ok else 'not ok'}, {self._brief()}>"

    def _brief(self) -> str:
        return ", ".join(f.check for f in self.findings) or "no findings"


class OpCheckError(MinimlError, AssertionError):
    """opcheck found a fault; `report` has all findings."""

    def __init__(self, report: OpReport):
        super().__init__(str(report))
        self.report = report

    def __reduce__(self) -> tuple[type[OpCheckError], tuple[OpReport]]:
        return OpCheckError, (self.report,)


def in_order(findings: Sequence[OpFinding]) -> tuple[OpFinding, ...]:
    """Faults before warnings, otherwise in their order."""
    return tuple(sorted(findings, key=lambda f: f.severity != "fault"))


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
