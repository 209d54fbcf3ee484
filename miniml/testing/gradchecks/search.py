"""From a direction in which something is off down to the elements that are, by bisection."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .derivative import FIRST
from .diagnosis import diagnose, rounded, same_as_other
from .directions import sizes_of
from .element import Numbers, broken, by, consistent, sources_of, valid_kinks
from .isolated import Isolated
from .maps import Leaf
from .probe import Probe, probe
from .report import KINK, NEAR_KINK, UNKNOWN, WRONG, Finding
from .subject import Subject

Array = np.ndarray[Any, Any]

MOST, MANY = 8, 32
CALLS = 1500, 6000  # to spend on what agrees, and on what does not
FINER = 3e-3, 1e-5, 1e-8, 1e-11
VALID = "a valid subgradient"


@dataclass(slots=True)
class Search:
    """Judges the elements of one Subject. `found`: the findings; `judged`: elements judged.

    members: the elements that can be judged. alone: those at isolated values of the function.
    """

    subject: Subject
    order: int
    rng: np.random.Generator
    found: list[Finding] = field(default_factory=list)
    judged: set[int] = field(default_factory=set)
    suspects: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kinks: set[int] = field(default_factory=set)
    alone: list[Isolated] = field(default_factory=list)
    members: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def leaf_of(self, position: int) -> Leaf:
        """The argument that an element belongs to."""
        return next(f for f in self.subject.leaves if f.has(position))

    def examine(self, seen: Probe, blurs: int = 0) -> None:
        """Judge all members of a probe: at once if it is clean, else part by part."""
        members = seen.members
        if members.size == 1:
            self._element(int(members[0]), seen)
            return
        seen = self._repeated(seen)
        if seen.clean:
            self.judged.update(members.tolist())
        elif self._full(seen) or (blurs > 1 and seen.agrees and not seen.kinked):
            self._whole(seen)
        elif seen.sharp and not seen.kinked and not seen.agrees and seen.finite:
            self._descend(seen)
        elif not self._separated(seen):
            blurs += seen.hopeless and seen.agrees and not seen.kinked
            before = len(self.found)
            for half in self._halves(members):
                self.examine(probe(self.subject, half, self.rng, seen.uniform), blurs)
            if len(self.found) == before and not seen.agrees:
                self._joint(seen)

    def _descend(self, seen: Probe) -> None:
        """Go down to the wrong elements of a smooth, sharp probe: one new direction a level.

        The derivative along the left half is measured, along the right half it is the rest.
        """
        gap = seen.analytic - seen.numeric
        stack, before = [(seen.members, seen.parts, gap, seen.bar)], len(self.found)
        while stack and not self._full(seen):
            members, parts, gap, bar = stack.pop()
            if members.size == 1:
                self._element(int(members[0]), probe(self.subject, members, self.rng))
                continue
            left, right = self._halves(members)
            n = left.size
            part = probe(self.subject, left, self.rng, along=(seen.u, seen.v))
            gaps = part.analytic - part.numeric, 0.0
            gaps = gaps[0], gap - gaps[0]
            bars = part.bar, part.bar + bar
            if abs(gaps[1]) > bars[1]:
                stack.append((right, parts[n:], gaps[1], bars[1]))
            if not abs(gaps[0]) <= bars[0]:
                stack.append((left, parts[:n], gaps[0], bars[0]))
        if not any(f.verdict == WRONG for f in self.found[before:]):
            self._joint(seen)

    def _repeated(self, seen: Probe) -> Probe:
        """Joined with other directions, with steps of either kind, as long as that helps."""
        wide = self._wide(seen.members)
        for uniform, first in ((True, wide), (not seen.uniform, FIRST), (seen.uniform, FIRST)):
            if seen.clean or not seen.agrees or self._full(seen):
                break
            if first > FIRST and not seen.blurred:
                continue
            before = int(seen.without.sum())
            seen = seen.joined(probe(self.subject, seen.members, self.rng, uniform, first))
            if int(seen.without.sum()) > before // 2 and not seen.blurred:
                break
        return seen

    def _wide(self, members: Array) -> float:
        """The first step that moves members by FIRST itself, however small they are."""
        sizes = sizes_of(self.subject, uniform=True)[members]
        return FIRST * max(1.0, 1.0 / float(np.median(sizes)))

    def _full(self, seen: Probe) -> bool:
        wrong = sum(f.verdict == WRONG for f in self.found)
        limit = CALLS[1] if seen.sharp and not seen.agrees else CALLS[0]
        return wrong >= MOST or self.subject.forward_calls > limit

    def _separated(self, seen: Probe) -> bool:
        """Judge one by one the elements behind outputs without a derivative, and then the rest.

        False if some such output depends on several elements, or there is none.
        """
        sources = sources_of(self.subject, seen)
        if sources is None:
            return False
        broken = ~np.isfinite(seen.parts)
        apart = np.union1d(sources[sources >= 0], seen.members[broken]).astype(np.int64)
        if not apart.size or apart.size == seen.members.size == 1:
            return False
        valid = set(valid_kinks(self.subject, seen, sources, self.rng).tolist())
        shown = [i for i in apart.tolist() if i in valid]
        self._file_kinks(seen, sources, shown[:MANY])
        vague = np.setdiff1d(apart, shown)
        if vague.size > seen.members.size // 2:
            for i in vague[: MOST + 1].tolist():
                self._element(i, probe(self.subject, np.array([i]), self.rng))
            vague = vague[MOST + 1 :]
        if vague.size:
            self.examine(probe(self.subject, vague, self.rng, not seen.uniform), 1)
        self.judged.update(shown)
        self.kinks.update(shown)
        if len(shown) > MANY:
            self.notes.append(f"{len(shown)} elements lie on kinks; {MANY} of them are listed")
        rest = np.setdiff1d(seen.members, apart)
        if rest.size:
            self.examine(probe(self.subject, rest, self.rng, seen.uniform))
        return True

    def _file_kinks(self, seen: Probe, sources: Array, positions: list[int]) -> None:
        kinks = seen.slopes.kink & (sources >= 0)
        gradient = self.subject.pull(kinks.astype(np.float64))
        for i in positions:
            mine, leaf = kinks & (sources == i), self.leaf_of(i)
            right, left = (
                float(np.sum(e.value[mine])) / float(seen.u[i])
                for e in (seen.slopes.right, seen.slopes.left)
            )
            if seen.u[i] < 0:
                right, left = left, right
            bar = float(np.sum(seen.slopes.right.error[mine])) / abs(float(seen.u[i]))
            self.found.append(
                Finding(
                    KINK, self.order, leaf.argnum, leaf.path, leaf.index(i), float(gradient[i]),
                    (left + right) / 2, abs(right - left) / 2 + bar, VALID, leaf.argument,
                    left, right,
                )
            )  # fmt: skip

    def _halves(self, members: Array) -> tuple[Array, Array]:
        middle = members.size // 2
        leaf = self.leaf_of(int(members[middle]))
        cuts = [np.searchsorted(members, c) for c in (leaf.start, leaf.start + leaf.size)]
        cuts = [c for c in cuts if 0 < c < members.size]
        cut = int(min(cuts, key=lambda c: abs(int(c) - middle))) if cuts else middle
        return members[:cut], members[cut:]

    def _joint(self, seen: Probe) -> None:
        """Every part is right, the whole was not: once more, then say so."""
        again = probe(self.subject, seen.members, self.rng, seen.uniform)
        if again.agrees:
            return
        self._whole(
            again, "every part agrees, all together do not: too noisy, or not differentiable"
        )

    def _whole(self, seen: Probe, why: str = "") -> None:
        leaf = self.leaf_of(int(seen.members[0]))
        if not seen.agrees and seen.sharp and not why:
            self.suspects.append(int(seen.members[0]))
            if any(f.verdict == WRONG for f in self.found):
                return  # enough elements are named
        why = why or self._why(seen)
        self._file(UNKNOWN, leaf, None, seen, f"{seen.members.size} elements: {why}")

    def _file(
        self, verdict: str, leaf: Leaf, index: tuple[int, ...] | None, seen: Probe, said: str
    ) -> None:
        number = Numbers.of(self.subject, seen, self.rng)
        self.found.append(
            Finding(
                verdict, self.order, leaf.argnum, leaf.path, index, number.analytic,
                number.numeric, number.bar, said, leaf.argument, number.left, number.right,
            )
        )  # fmt: skip

    def _why(self, seen: Probe) -> str:
        if self.subject.raised and seen.lost:
            return f"the function raises nearby ({self.subject.raised})"
        if not np.isfinite(seen.parts).all():
            return "the gradient is not finite"
        sided = np.isfinite(seen.slopes.right.value) ^ np.isfinite(seen.slopes.left.value)
        if sided.any():
            return "the edge of the domain: differences exist on one side only"
        if not np.isfinite(seen.slopes.central.value[seen.slopes.central.step > 0]).all():
            return "the function is not finite nearby"
        return "differences do not settle: noise, or rounding hides the derivative"

    def _element(self, position: int, seen: Probe) -> None:
        """The verdict on one element, from several scales."""
        leaf = self.leaf_of(position)
        only = np.array([position])
        tries = [seen]
        wide = self._wide(only) if seen.blurred else FIRST
        settings = ((True, wide), (True, FIRST), *((False, f) for f in FINER), (False, FIRST))
        for uniform, first in settings:
            if tries[-1].clean:
                self.judged.add(position)
                return
            if len(tries) > 1 and all(t.sharp and t.kinked and t.agrees for t in tries):
                break
            tries.append(probe(self.subject, only, self.rng, uniform, first))
        sharp = [t for t in tries if t.sharp]
        index = leaf.index(position)
        if len(sharp) > 1 and consistent(sharp) and not any(t.agrees for t in sharp):
            self.judged.add(position)
            self.suspects.append(position)
            outside = "outside the one-sided slopes" if sharp[0].kinked else ""
            self._file(WRONG, leaf, index, sharp[0], outside)
        elif not tries[0].finite and any(t.settled for t in tries):
            self.judged.add(position)
            self._file(WRONG, leaf, index, next(t for t in tries if t.settled), "")
        elif sharp and sharp[0].kinked and any(t.agrees for t in sharp):
            self.judged.add(position)
            self.kinks.add(position)
            self._file(KINK, leaf, index, sharp[0], VALID)
        elif broken(tries):
            self._file(NEAR_KINK, leaf, index, tries[-1], "slopes change within the smallest step")
        else:
            self._file(UNKNOWN, leaf, index, tries[-1], self._why(tries[-1]))

    def check_ties(self) -> None:
        """Judge the kinks together, too: elements that tie share one subgradient.

        All of them are moved alike, so that ties stay. Where every kink bends the same way, the
        derivative along that direction has to lie between its one-sided slopes.
        """
        bends = {f.right > f.left for f in self.found if f.verdict == KINK}
        if len(bends) != 1 or len(self.kinks) < 2:
            return
        members = np.array(sorted(self.kinks))
        u = np.zeros(self.subject.x.shape)
        u[members] = float(np.median(sizes_of(self.subject, uniform=True)[members]))
        seen = probe(self.subject, members, self.rng, along=(u, np.ones(self.subject.y.size)))
        if seen.sharp and not seen.agrees:
            leaf = self.leaf_of(int(members[0]))
            said = f"{members.size} elements on kinks: one by one valid, not together (ties?)"
            self._file(WRONG, leaf, leaf.index(int(members[0])), seen, said)

    def diagnose(self) -> None:
        """Say of each wrong argument what kind of fault it looks like."""
        if sum(f.verdict == WRONG for f in self.found) >= MOST:
            self.notes.append(f"the search ended with {MOST} wrong elements; there may be more")
        wrong = {self.leaf_of(i) for i in self.suspects}
        said = {}
        for leaf in self.subject.leaves:
            if leaf not in wrong:
                continue
            members = self.members[[leaf.has(i) for i in self.members]]
            probes = [probe(self.subject, members, self.rng) for _ in range(2)]
            text = ""
            if all(p.sharp for p in probes):
                text = diagnose(self.subject, leaf, probes)
            mine = [f for f in self.found if f.verdict == WRONG and f.argument == leaf.argument]
            text = text or rounded([(f.analytic, f.numeric) for f in mine])
            said[leaf.argument] = text or same_as_other(self.subject, leaf, probes[0].v)
        for k, f in enumerate(self.found):
            if f.verdict == WRONG:
                both = (said.get(f.argument) or by(f), f.diagnosis)
                self.found[k] = replace(f, diagnosis="; ".join(t for t in both if t))
