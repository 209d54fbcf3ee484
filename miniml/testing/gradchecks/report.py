"""GradReport: what a gradient check found, as an object and as a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import MinimlError

Array = np.ndarray[Any, Any]

WRONG, KINK, NEAR_KINK, UNKNOWN = "wrong", "kink", "too near a kink", "cannot judge"
_RANK = {WRONG: 0, NEAR_KINK: 1, UNKNOWN: 2, KINK: 3}


@dataclass(frozen=True, slots=True)
class Finding:
    """One element, or one whole argument, whose gradient is not plainly correct.

    verdict: "wrong", "kink" (a valid subgradient, accepted), "too near a kink" or "cannot judge".
    order: of the derivative. argnum, path: the argument, and the way to the leaf inside it; None
    and the weight's name for a weight. From order 2 on, arguments after the function's own are
    cotangents, which `argument` names. index: of the element, None where the whole argument is
    meant. analytic, numeric, error_bar: the gradient at that element and the interval numeric +-
    error_bar that differences give. left, right: one-sided slopes, where they were measured.
    diagnosis: what it looks like, in words.
    """

    verdict: str
    order: int
    argnum: int | None
    path: str
    index: tuple[int, ...] | None
    analytic: float
    numeric: float
    error_bar: float
    diagnosis: str
    argument: str = ""
    left: float = float("nan")
    right: float = float("nan")

    @property
    def place(self) -> str:
        """The element as a person would write it: argument and index."""
        at = "" if self.index in (None, ()) else str(list(self.index or ()))
        return f"{self.argument}{at}"


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison that went through: a direction, or all elements in a narrow dtype."""

    order: int
    what: str
    analytic: float
    numeric: float
    error_bar: float
    resolution: float


@dataclass(slots=True)
class GradReport:
    """The result of a gradient check.

    findings: wrong ones first. checks: the comparisons made; `resolution` is the relative error
    of one typical element that a comparison would have shown. gradients: the analytic gradient of
    each differentiable argument leaf, under the cotangent of the first linearity check.
    forward_calls: how often the function was called. judged: the number of elements judged.
    notes: what a reader should know, such as the dtype of the numeric side. repeatable: False if
    two equal calls of the function differ by more than a few roundings, so that it has no
    derivative. noise: how far its float64 values are off, of their size, where that is far more
    than float64 explains.
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    forward_calls: int = 0
    judged: int = 0
    repeatable: bool = True
    noise: float = 0.0
    strict: bool = False

    def sort(self) -> None:
        """Put what is wrong first, then by order."""
        self.findings.sort(key=lambda f: (_RANK[f.verdict], f.order))

    @property
    def unjudged(self) -> list[Finding]:
        """The points that could not be judged."""
        return [f for f in self.findings if f.verdict in (NEAR_KINK, UNKNOWN)]

    @property
    def wrong(self) -> list[Finding]:
        """The points at which the gradient is wrong."""
        return [f for f in self.findings if f.verdict == WRONG]

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and something was judged; with `strict`, everything was."""
        judged = self.judged > 0 and self.repeatable
        return not self.wrong and judged and not (self.strict and self.unjudged)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"gradcheck of {self.name}: {self._summary()}"]
        if self.findings:
            lines += ["", *_table(_HEAD, [_row(f) for f in self.findings])]
        if self.checks and not self.wrong:
            rows: list[tuple[str, ...]] = [
                (str(c.order), c.what, f"{c.analytic:.10g}", _interval(c.numeric, c.error_bar),
                 f"{c.resolution:.1g}")
                for c in self.checks
            ]  # fmt: skip
            head = ("order", "compared", "analytic", "numeric", "would show an element off by")
            lines += ["", *_table(head, rows)]
        if self.notes:
            lines += ["", *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)

    __repr__ = __str__

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


_HEAD = ("verdict", "order", "element", "analytic", "numeric", "what it looks like")


def _row(f: Finding) -> tuple[str, ...]:
    slopes = f"left {f.left:.6g}, right {f.right:.6g}" if np.isfinite(f.left + f.right) else ""
    numeric = slopes if slopes and f.verdict == KINK else _interval(f.numeric, f.error_bar)
    said = "; ".join(t for t in (f.diagnosis, slopes if numeric != slopes else "") if t)
    return f.verdict, str(f.order), f.place, f"{f.analytic:.8g}", numeric, said


def _interval(value: float, error: float) -> str:
    if not np.isfinite(value):
        return "none"
    if not np.isfinite(error):
        return f"{value:.6g} +- ?"
    digits = 10 if error <= 0 else int(np.clip(np.log10(max(abs(value), error) / error) + 2, 2, 12))
    return f"{value:.{digits}g} +- {error:.1g}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


class GradientError(MinimlError, AssertionError):
    """A gradient is wrong, or nothing could be judged; `report` is the GradReport."""

    def __init__(self, report: GradReport):
        super().__init__(str(report))
        self.report = report
