"""Group testing: from a direction in which something is off down to the wrong elements.

A probe compares the pull-back with differences along one random direction, in which only a group
of elements moves. So one probe judges a group of any size:

1. A group gets further probes, with steps of other kinds, as long as they help. If they agree, and
   every output has a sharp derivative in one of them, all its members are correct.
2. Otherwise it is split, and each part is judged in the same way. A sharp and smooth disagreement
   is halved along its own direction: the left half is measured, the right half is the rest.
   Elements that each have outputs without a derivative are separated: those on valid kinks are
   accepted at once, the others are judged alone. Any other group is halved, in new directions.
3. A single element is probed at several scales, until one is conclusive (`element`).
4. A group that disagrees although all its parts agree is probed once more.
5. The budget: after MOST wrong elements, or CALLS of the function, the remaining elements are not
judged.
   Verdicts are yielded as they are reached, so that those reached before a time limit are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...dtype import float64
from .derivative import FIRST
from .element import judge_element, why_unjudged, wide_step
from .isolated import isolated, lonely
from .kinks import MANY, as_kinks, sources_of, valid_kinks
from .noise import noise_of, note_on
from .probe import Probe, probe
from .report import CORRECT, UNKNOWN, WRONG, Agreement, Array, GradReport, Numbers, Verdict
from .subject import Subject

MOST = 8  # wrong elements: enough to show a pattern, and each costs some 200 calls
# Calls to spend on groups that agree, and on groups that do not. A probe takes 20 to 60: 1,500
# judge a few dozen vague groups, 6,000 lead to MOST elements among 100,000.
CALLS = 1500, 6000
VAGUE = 2  # nested groups in which differences see too little: smaller ones would not help


@dataclass(slots=True)
class Search:
    """Judges the elements of one Subject. wrong: the number found wrong."""

    subject: Subject
    report: GradReport
    wrong: int = 0

    def judge(self, members: Array, seen: Probe | None = None, vague: int = 0) -> Iterator[Verdict]:
        """Verdicts on a group.

        seen: its probe so far. vague: in how many enclosing groups differences saw too little.
        """
        seen = self._repeated(seen or probe(self.subject, members))
        if seen.clean:
            yield Verdict(CORRECT, members)
        elif members.size == 1:
            yield self._counted(judge_element(self.subject, seen))
        elif self._spent(seen) or (vague >= VAGUE and seen.agrees and not seen.kinked):
            yield from self._given_up(seen)
        else:
            found = False
            for verdict in self._split(seen, vague):
                found |= bool(verdict.findings)
                yield verdict
            if not found and not seen.agrees:
                yield from self._asked_again(seen)

    def _repeated(self, seen: Probe) -> Probe:
        """The probe joined with other directions, with steps of either kind, as long as that
        helps."""
        wide = wide_step(self.subject, seen.members) if seen.blurred else FIRST
        kinds = [(True, wide)] if wide > FIRST else []
        for uniform, first in (*kinds, (not seen.uniform, FIRST), (seen.uniform, FIRST)):
            if seen.clean or not seen.agrees or self._spent(seen) or seen.members.size == 1:
                break
            before = int(seen.without.sum())
            seen = seen.joined(probe(self.subject, seen.members, uniform, first))
            if int(seen.without.sum()) > before // 2 and not seen.blurred:
                break
        return seen

    def _split(self, seen: Probe, vague: int) -> Iterator[Verdict]:
        """Verdicts on the parts of a group."""
        if seen.smoothly_wrong:
            left, _ = self._halves(seen.members)
            part = probe(self.subject, left, along=(seen.u, seen.v))
            rest = seen.rest(part)
            for group, known in (left, part), (rest.members, rest):
                yield from self.judge(group, known if group.size > 1 else None, vague)
            return
        sources = sources_of(self.subject, seen)
        if sources is not None and (apart := _apart(seen, sources)).size:
            yield from self._separated(seen, sources, apart)
            return
        vague += seen.hopeless and seen.agrees and not seen.kinked
        for half in self._halves(seen.members):
            yield from self.judge(half, None, vague)

    def _separated(self, seen: Probe, sources: Array, apart: Array) -> Iterator[Verdict]:
        """Verdicts on elements that each have outputs without a derivative, and on the rest."""
        valid = np.intersect1d(apart, valid_kinks(self.subject, seen, sources))
        if valid.size:
            yield as_kinks(self.subject, seen, sources, valid)
        if valid.size > MANY:
            self.report.notes.append(
                f"{valid.size} elements lie on kinks; {MANY} of them are listed"
            )
        others = np.setdiff1d(apart, valid)
        singly, more = np.split(others, [MOST + 1])
        for i in singly:
            yield from self.judge(np.array([i]))
        for group, vague in (more, VAGUE - 1), (np.setdiff1d(seen.members, apart), 0):
            if group.size:
                yield from self.judge(group, None, vague)

    def _halves(self, members: Array) -> tuple[Array, Array]:
        """Two halves, cut between two arguments if there are several."""
        middle = members.size // 2
        leaf = self.subject.leaf_of(int(members[middle]))
        cuts = [int(np.searchsorted(members, c)) for c in (leaf.start, leaf.start + leaf.size)]
        cuts = [c for c in cuts if 0 < c < members.size]
        cut = min(cuts, key=lambda c: abs(c - middle), default=middle)
        return members[:cut], members[cut:]

    def _spent(self, seen: Probe) -> bool:
        """Whether the budget is spent; groups that agree get fewer calls."""
        limit = CALLS[seen.sharp and not seen.agrees]
        return self.wrong >= MOST or self.subject.forward_calls > limit

    def _counted(self, verdict: Verdict) -> Verdict:
        self.wrong += verdict.kind == WRONG
        if self.wrong == MOST and verdict.kind == WRONG:
            self.report.notes.append(
                f"the search ended with {MOST} wrong elements; there may be more"
            )
        return verdict

    def _asked_again(self, seen: Probe) -> Iterator[Verdict]:
        """A group whose parts all agree, though the whole did not."""
        again = probe(self.subject, seen.members, seen.uniform)
        if not again.agrees:
            message = "every part agrees, all together do not: too noisy, or not differentiable"
            yield self._unjudged(again, message)

    def _given_up(self, seen: Probe) -> Iterator[Verdict]:
        """A group left over by the budget; no verdict if enough wrong elements are named
        already."""
        if not (self.wrong and seen.sharp and not seen.agrees):
            yield self._unjudged(seen, why_unjudged(self.subject, seen))

    def _unjudged(self, seen: Probe, why: str) -> Verdict:
        leaf = self.subject.leaf_of(int(seen.members[0]))
        numbers = Numbers(seen.analytic, seen.numeric, seen.bar)
        message = f"{seen.members.size} elements: {why}"
        finding = leaf.finding(UNKNOWN, self.subject.map.order, message, None, numbers)
        return Verdict(UNKNOWN, seen.members, (finding,))

    def judge_all(self, members: Array) -> Iterator[Verdict]:
        """Verdicts on all elements, from two directions with steps of either kind.

        An element at an isolated value of the function is wrong, and the rest is judged without it.
        """
        both = [self._first(members, uniform) for uniform in (False, True)]
        alone = self._isolated(members, both)
        if alone is not None:
            yield self._counted(alone)
            rest = np.setdiff1d(members, alone.members)
            if rest.size and self.wrong < MOST:
                yield from self.judge_all(rest)
            return
        self._note_noise(both)
        for seen, what in zip(both, ("steps like the numbers", "equal steps"), strict=True):
            if seen.agrees and seen.sharp:
                self._note(f"a random direction, {what}", seen)
        yield from self.judge(members, both[0].joined(both[1]))

    def _first(self, members: Array, uniform: bool) -> Probe:
        """A random direction; another one if the first disagrees by no more than chance
        explains."""
        seen = probe(self.subject, members, uniform)
        return probe(self.subject, members, uniform) if seen.marginal else seen

    def _isolated(self, members: Array, both: list[Probe]) -> Verdict | None:
        """The isolated value that both directions show; one of them if there are several."""
        outputs = lonely(both[0].line) & lonely(both[1].line)
        if not outputs.any() or not self.subject.repeatable:
            return None
        u, step = both[1].u, min(both[1].line.steps)
        return isolated(self.subject, members, u, step, outputs)

    def _note(self, what: str, seen: Probe) -> None:
        order, numbers = self.subject.map.order, (seen.analytic, seen.numeric, seen.bar)
        self.report.checks.append(Agreement(order, what, *numbers, seen.resolution))

    def _note_noise(self, both: list[Probe]) -> None:
        if self.subject.repeatable and all(d == float64 for d in self.subject.dtypes):
            noise = noise_of(self.subject, both)
            if noise > self.report.noise:
                self.report.noise = noise
                self.report.notes.append(note_on(noise))


def _apart(seen: Probe, sources: Array) -> Array:
    """Members that alone make an output lack its derivative, or whose gradient is not a number."""
    return np.union1d(sources[sources >= 0], seen.members[~np.isfinite(seen.parts)])
