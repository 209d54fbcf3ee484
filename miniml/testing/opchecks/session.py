"""One run of opcheck: the calls, the clock, and what the checks say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..budget import Stopwatch, lasting_until
from ..calls import Call
from .report import Severity

DOMAIN = "domain"  # the kind of a problem that is one of the numbers; told once
GIVE_DOMAIN = (
    "where only some numbers are valid, give these: opcheck(op, OpInfo(Op, samples, domain=...))"
)


class Problem(NamedTuple):
    """What a check says of a call.

    kind: tells the problems of one check apart; it stays while a call is made smaller.
    call: the call that shows it directly, where that is another one.
    """

    kind: str
    message: str
    advice: str
    severity: Severity = "fault"
    call: Call | None = None


class Difference(NamedTuple):
    """How far two results are apart where both are right: no problem, but worth a line.

    ulp: units in the last place.
    """

    kernel: str
    other: str
    ulp: float
    where: str


Said = Problem | Difference


@dataclass(frozen=True, slots=True)
class Check:
    """One property. run: what there is to say of a call. limit: how many calls it sees at most.

    wants: the calls it is made for. Beyond the limit it still sees every dtype, then every kind
    of numbers, then every rank.
    trusted: where there is an OpInfo, only its samples, because others may leave the domain.
    enough: after how many calls with problems it stops. share: the part of the budget it may take.
    after: a check whose faults leave nothing to be said here.
    """

    name: str
    run: Callable[[Call], Iterator[Said]]
    limit: int = 80
    wants: Callable[[Call], bool] = lambda call: True
    trusted: bool = False
    enough: int = 1000
    share: float = 1.0
    after: str = ""


@dataclass
class Session:
    """What has been found so far: by check and kind, the problem in its smallest call."""

    budget: float
    watch: Stopwatch = field(default_factory=Stopwatch)
    found: dict[tuple[str, str], tuple[Problem, Call]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    differences: dict[tuple[str, str], Difference] = field(default_factory=dict)
    seen: dict[str, list[Call]] = field(default_factory=dict)

    def run(self, check: Check, calls: Sequence[Call]) -> None:
        """Let a check see calls until it has seen enough or time is up."""
        failed = 0
        end = min(self.watch.elapsed() + check.share * self.budget, self.budget)
        for call in chosen(check, calls):
            if failed == check.enough:
                return
            if not self._late(end):
                self.seen.setdefault(check.name, []).append(call)
                failed += self._look(check, call, end)
            if self._late(end):  # the call may have been cut short
                self.unfinished.append(check.name)
                return

    def _look(self, check: Check, call: Call, end: float) -> bool:
        """Let a check see one call, until `end` of the watch; True if it has a problem."""
        with lasting_until(lambda: self._late(end)):
            told = everything(check, call)
        for said in told:
            if isinstance(said, Problem):
                self.note(check.name, said, call)
            else:
                self.compare(said)
        return any(isinstance(said, Problem) for said in told)

    def _late(self, end: float) -> bool:
        return self.watch.elapsed() > end

    def compare(self, said: Difference) -> None:
        """Keep the largest difference between two kernels."""
        key = said.kernel, said.other
        if key not in self.differences or said.ulp > self.differences[key].ulp:
            self.differences[key] = said

    @property
    def counts(self) -> dict[str, int]:
        """How many calls each check saw."""
        return {name: len(calls) for name, calls in self.seen.items()}

    def note(self, name: str, problem: Problem, call: Call) -> None:
        """Keep a problem if it is new, or its call smaller than the one known."""
        if problem.kind == DOMAIN and any(kind == DOMAIN for _, kind in self.found):
            return
        key = name, problem.kind
        shown = problem.call or call
        known = self.found.get(key)
        if known is None or size(shown) < size(known[0].call or known[1]):
            self.found[key] = problem, call

    def has(self, name: str) -> bool:
        """True when a check has found something."""
        return any(check == name for check, _ in self.found)

    def has_fault(self, name: str) -> bool:
        """True when a check has found a fault."""
        found = ((check, problem) for (check, _), (problem, _) in self.found.items())
        return any(check == name and problem.severity == "fault" for check, problem in found)


def chosen(check: Check, calls: Sequence[Call]) -> list[Call]:
    """The calls that a check sees."""
    return spread([c for c in calls if check.wants(c)])[: check.limit]


def problems(check: Check, call: Call) -> list[Problem]:
    """The problems of a call."""
    return [said for said in everything(check, call) if isinstance(said, Problem)]


def everything(check: Check, call: Call) -> list[Said]:
    """What a check says of a call; that it raised is a problem."""
    try:
        return list(check.run(call))
    except np.linalg.LinAlgError as error:
        return [Problem(DOMAIN, f"{call} raises LinAlgError: {error}", GIVE_DOMAIN, "warning")]
    except Exception as error:
        text = str(error).partition("\n")[0]
        kind = type(error).__name__
        return [
            Problem(
                f"raises {kind}",
                f"{call} raises {kind}: {text}",
                f"make the call run, or refuse it in infer_shape or infer_dtype; {GIVE_DOMAIN}",
            )
        ]


def size(call: Call) -> tuple[int, int, int]:
    """How large a call is to read: axes, elements, and ones that are no smooth numbers."""
    axes = sum(a.ndim for a in call.arrays)
    return sum(a.size for a in call.arrays) + axes, axes, len(call.arrays)


def spread(calls: Sequence[Call]) -> list[Call]:
    """The calls, reordered: every combination of dtypes comes early, of each every kind of numbers,
    and of each of these every rank."""
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
    """The calls with an equal key, together; groups and calls in the order in which they came."""
    groups: dict[object, list[Call]] = {}
    for call in calls:
        groups.setdefault(by(call), []).append(call)
    return list(groups.values())


def _interleaved(rows: Iterable[list[Call]]) -> list[Call]:
    """The first of every row, then the second of every row that has one, and so on."""
    ranked = ((i, call) for row in rows for i, call in enumerate(row))
    return [call for _, call in sorted(ranked, key=lambda pair: pair[0])]
