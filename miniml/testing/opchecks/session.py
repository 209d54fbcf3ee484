"""One run of opcheck: the calls, the clock, and the issues found."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..budget import Stopwatch, TimeIsUpError, go_on, lasting_until
from ..calls import Call
from ..report import Severity

SHRINKING = 0.8  # seconds at most for the smallest example of one issue
DOMAIN = "domain"  # the kind of an issue with the numbers
ENDS = "out of range"  # the same with numbers at the ends of the range of their dtype
_RAISES = "raises "  # the prefix of the kinds of issues that are exceptions
_LIBRARIES = str(Path(__file__).parents[2]) + os.sep, str(Path(np.__file__).parent) + os.sep


class Issue(NamedTuple):
    """An issue that a check finds in a call.

    kind: tells the issues of one check apart; it stays while a call is made smaller.
    call: the call that shows it directly, where that is another one.
    """

    kind: str
    message: str
    advice: str
    severity: Severity = "fault"
    call: Call | None = None


class Difference(NamedTuple):
    """The difference between two right results: not an issue, but worth a line.

    ulp: units in the last place.
    """

    kernel: str
    other: str
    ulp: float
    where: str


Remark = Issue | Difference


@dataclass(frozen=True, slots=True)
class Check:
    """One property.

    run: yields the issues of a call. wants: the calls it applies to. limit: the number of calls it
    sees at most; few: the limit for samples alone, if that differs. It sees every dtype first, then
    every kind of numbers, then every rank. trusted: with an OpInfo it only sees samples, because
    other calls may leave the domain. enough: the number of calls with faults after which it stops.
    share: the part of the budget it may take. after: a check whose faults leave nothing to remark
    here. first: runs on all these calls before the first one is seen.
    """

    name: str
    run: Callable[[Call], Iterator[Remark]]
    limit: int = 80
    wants: Callable[[Call], bool] = lambda call: True
    trusted: bool = False
    enough: int = 1000
    share: float = 1.0
    after: str = ""
    few: int = 0
    first: Callable[[Sequence[Call]], None] = lambda calls: None


@dataclass
class Session:
    """The findings so far: by check and kind, the issue in its smallest call.

    kept: the names of what the code of the primitive has kept from call to call.
    """

    budget: float
    few: bool = False
    watch: Stopwatch = field(default_factory=Stopwatch)
    found: dict[tuple[str, str], tuple[Issue, Call]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    differences: dict[tuple[str, str], Difference] = field(default_factory=dict)
    seen: dict[str, list[Call]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def run(self, check: Check, calls: Sequence[Call]) -> None:
        """Let a check see calls until it has seen enough or time is up."""
        end = self.watch.elapsed() + check.share * self.budget
        with lasting_until(lambda: self.watch.elapsed() > end):
            try:
                self._see(check, chosen(check, calls, self.few))
                go_on()  # the last call may have been cut short
            except TimeIsUpError:
                self.unfinished.append(check.name)

    def _see(self, check: Check, calls: Sequence[Call]) -> None:
        go_on()
        check.first(calls)
        failed = 0
        for call in calls:
            if failed == check.enough:
                return
            go_on()
            self.seen.setdefault(check.name, []).append(call)
            failed += self._look(check, call)

    def _look(self, check: Check, call: Call) -> bool:
        """Let a check see one call; True if it has a fault: a warning may stand before one."""
        any_fault = False
        for remark in _remarks(check, call):
            if isinstance(remark, Issue):
                any_fault |= remark.severity == "fault"
                self.note(check.name, remark, call)
            else:
                self.compare(remark)
        return any_fault

    def checked_for_long(self) -> bool:
        """True when the time for checks is up: the rest is for smaller examples."""
        kept = min(len(self.found) * SHRINKING, self.budget / 4) if not self.few else 0.0
        return self.watch.elapsed() > self.budget - kept

    def over(self) -> bool:
        """True when the budget is used up."""
        return self.watch.elapsed() > self.budget

    def compare(self, remark: Difference) -> None:
        """Keep the largest difference between two kernels."""
        key = remark.kernel, remark.other
        if key not in self.differences or remark.ulp > self.differences[key].ulp:
            self.differences[key] = remark

    @property
    def counts(self) -> dict[str, int]:
        """The number of calls that each check saw."""
        return {name: len(calls) for name, calls in self.seen.items()}

    def note(self, name: str, issue: Issue, call: Call) -> None:
        """Keep an issue if it is new, or its call smaller than the one known; a fault before any
        warning.

        Exceptions of one line, and numbers outside the domain, count once, whichever check finds
        them.
        """
        key = name, issue.kind
        once = issue.kind in (DOMAIN, ENDS) or issue.kind.startswith(_RAISES)
        if once and any(kind == issue.kind and check != name for check, kind in self.found):
            return
        known = self.found.get(key)
        if known is None or _rank(issue, call) < _rank(*known):
            self.found[key] = issue, call

    def has(self, name: str, *severities: Severity) -> bool:
        """True when a check has found an issue; with severities, one of these."""
        return any(
            check == name and (not severities or issue.severity in severities)
            for (check, _), (issue, _) in self.found.items()
        )


def _rank(issue: Issue, call: Call) -> tuple[bool, tuple[int, int, int]]:
    return issue.severity != "fault", size(issue.call or call)


def chosen(check: Check, calls: Sequence[Call], few: bool = False) -> list[Call]:
    """The calls that a check sees."""
    limit = check.few or check.limit if few else check.limit
    return _spread([c for c in calls if check.wants(c)])[:limit]


def issues(check: Check, call: Call) -> list[Issue]:
    return [remark for remark in _remarks(check, call) if isinstance(remark, Issue)]


def _remarks(check: Check, call: Call) -> Iterator[Remark]:
    """The remarks of a check on a call; an exception is an issue, too. TimeIsUpError when the time
    of the check is up."""
    try:
        yield from check.run(call)
    except np.linalg.LinAlgError as error:
        advice = "where only some numbers are valid, give these in an OpInfo"
        yield Issue(DOMAIN, f"{call} raises {first_line(error)}", advice, "warning")
    except Exception as error:
        yield Issue(
            f"{_RAISES}{type(error).__name__} {_line(error)}",
            f"{call} raises {first_line(error)}",
            "make the call run, or refuse it in infer_shape or infer_dtype; where only some "
            "numbers are valid, give these in an OpInfo",
        )


def first_line(error: Exception) -> str:
    """The type and the first line of an exception."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _line(error: Exception) -> str:
    """The line that raised an exception: the last one outside this package and libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES)] or frames[-1:]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def size(call: Call) -> tuple[int, int, int]:
    """The size of a call for a reader: axes and elements, axes, inputs."""
    axes = sum(a.ndim for a in call.arrays)
    return sum(a.size for a in call.arrays) + axes, axes, len(call.arrays)


def _spread(calls: Sequence[Call]) -> list[Call]:
    """The calls, reordered: every combination of dtypes comes early, with each every kind of
    numbers, and with each of these every rank."""
    return _interleaved(
        _interleaved(
            _interleaved(_grouped(kind, lambda c: (_ranks(c), repr(c.primitive))))
            for kind in _grouped(alike, lambda c: c.kind)
        )
        for alike in _grouped(calls, lambda c: c.dtypes)
    )


def _ranks(call: Call) -> tuple[tuple[int, bool], ...]:
    return tuple((a.ndim, a.size == 0) for a in call.arrays)


def _grouped(calls: Sequence[Call], by: Callable[[Call], object]) -> list[list[Call]]:
    """The calls with an equal key, together; groups and calls in the order of the first."""
    groups: dict[object, list[Call]] = {}
    for call in calls:
        groups.setdefault(by(call), []).append(call)
    return list(groups.values())


def _interleaved(rows: Iterable[list[Call]]) -> list[Call]:
    """The first of every row, then the second of every row that has one, and so on."""
    ranked = ((i, call) for row in rows for i, call in enumerate(row))
    return [call for _, call in sorted(ranked, key=lambda pair: pair[0])]
