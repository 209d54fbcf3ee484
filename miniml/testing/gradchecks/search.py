"""Group testing: finds the wrong elements of a gradient by probes of ever smaller groups.

A probe compares the pull-back with differences along one random direction, in which only a group
of elements moves. So one probe judges a group of any size:

1. A group gets further probes, with steps of other kinds, as long as they help. If they agree, and
   every output has a sharp derivative in one of them, all its members are correct.
2. Otherwise it is split, and each part is judged in the same way. A sharp and smooth disagreement
   is halved along its own direction: the left half is measured, the right half is the rest.
   Elements that each have outputs without a derivative are separated: those on valid kinks are
   accepted at once, the others are judged alone. Any other group is halved, in new directions.
3. A single element is probed at several scales, until one is conclusive (`judge_element`).
4. A group that disagrees although all its parts agree is probed once more.
5. After MOST wrong elements, or CALLS of the function, the remaining elements are not judged.
   Verdicts are yielded as they are reached, so that those before a time limit are kept.
Diagnosis, at the end: the kind of fault that a wrong gradient looks like, from the numbers alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import ml_dtypes
import numpy as np

from ...core.abstract import float32, float64
from ..report import CORRECT, UNKNOWN, WRONG, Agreement, GradFinding, GradReport, Numbers, Verdict
from ..tolerance import Array, limits_of, unit_roundoff
from .derivative import FIRST
from .probe import (
    MANY,
    Probe,
    as_kinks,
    isolated,
    judge_element,
    noise_of,
    note_on,
    probe,
    removable_jump,
    sources_of,
    valid_kinks,
    why_unjudged,
    wide_step,
)
from .problem import Leaf, Subject

MOST = 8  # wrong elements: enough to show a pattern, and each costs some 200 calls
# Calls to spend on groups that agree, and on groups that do not. A probe takes 20 to 60: 1,500
# judge a few dozen vague groups, 6,000 lead to MOST elements among 100,000.
CALLS = 1500, 6000
AGAIN = 12  # equal calls, where something is amiss: a state may show in few of them
VAGUE = 2  # nested groups in which differences show too little: smaller ones would not help


@dataclass(slots=True)
class Search:
    """Judges the elements of one Subject. wrong: the number found wrong."""

    subject: Subject
    report: GradReport
    wrong: int = 0

    def judge(self, members: Array, seen: Probe | None = None, vague: int = 0) -> Iterator[Verdict]:
        """Verdicts on a group.

        seen: its probe so far. vague: the number of enclosing groups in which differences show too
        little.
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
        """True if the budget is spent; groups that agree get fewer calls."""
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
        """The verdict on a group whose parts all agree, though the whole does not."""
        again = probe(self.subject, seen.members, seen.uniform)
        if not again.agrees:
            message = "every part agrees, all together do not: too noisy, or not differentiable"
            yield self._unjudged(again, message)

    def _given_up(self, seen: Probe) -> Iterator[Verdict]:
        """The verdict on a group left over by the budget; none if enough wrong elements are named
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
        if not all(seen.clean for seen in both):
            self.subject.recall(AGAIN)
            if self.subject.remembers:
                return  # differences of a function that changes show nothing
        alone = self._isolated(members, both)
        if alone is not None:
            yield self._counted(alone)
            rest = np.setdiff1d(members, alone.members)
            if rest.size and self.wrong < MOST:
                yield from self.judge_all(rest)
            return
        self._note_noise(both)
        if self.subject.remembers:
            return
        for seen, what in zip(both, ("steps like the numbers", "equal steps"), strict=True):
            if seen.agrees and seen.sharp:
                self._note(f"a random direction, {what}", seen)
        yield from self.judge(members, both[0].joined(both[1]))

    def _first(self, members: Array, uniform: bool) -> Probe:
        """The probe of a random direction; of another one if the first disagrees by no more than
        chance explains."""
        seen = probe(self.subject, members, uniform)
        return probe(self.subject, members, uniform) if seen.marginal else seen

    def _isolated(self, members: Array, both: list[Probe]) -> Verdict | None:
        """The isolated value that both directions show; one of them if there are several."""
        outputs = removable_jump(both[0].line) & removable_jump(both[1].line)
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
                self.subject.recall(AGAIN)
                self.report.noise = noise
                self.report.notes += [note_on(noise)] * self.subject.repeatable


def _apart(seen: Probe, sources: Array) -> Array:
    """Members each of which alone deprives an output of its derivative, or whose gradient is not
    finite."""
    return np.union1d(sources[sources >= 0], seen.members[~np.isfinite(seen.parts)])


# --- Diagnosis of a wrong gradient ----------------------------------------------------------------


Change = Callable[[Array], Array]

LOWER = (np.float32, np.float16, ml_dtypes.bfloat16)
_ALIKE = 1e-2  # of an error that all elements have: no two roundings are so near to each other
EXACT = 1e-6  # tolerance of a factor: differences give six digits wherever the bar is narrow


def diagnosed(subject: Subject, members: Array, verdicts: list[Verdict]) -> list[Verdict]:
    """The verdicts; wrong elements get the kind of fault that the gradient of their argument has.

    members: the elements that can be judged. Findings without a numeric side need no diagnosis.
    """
    wrong = [f for v in verdicts if v.kind == WRONG for f in v.findings if np.isfinite(f.numeric)]
    kinds = {}
    for leaf in subject.leaves:
        mine = [f for f in wrong if f.argument == leaf.argument]
        if mine:
            probes = [probe(subject, leaf.among(members)) for _ in range(2)]
            kinds[leaf.argument] = (
                (_kind(subject, leaf, probes) if all(p.sharp for p in probes) else "")
                or _constant(mine)
                or _rounded(mine)
                or _other_argument(subject, leaf, probes)
            )

    def explained(f: GradFinding) -> GradFinding:
        if f not in wrong:
            return f
        words = kinds[f.argument] or _alone(f), f.diagnosis
        return replace(f, diagnosis="; ".join(filter(None, words)))

    return [v._replace(findings=tuple(map(explained, v.findings))) for v in verdicts]


def _alone(f: GradFinding) -> str:
    """The error of one element, where the argument as a whole shows no pattern."""
    if not np.isfinite(f.analytic):
        return "not finite, where differences give a number"
    if f.analytic == 0:
        return "zero, but the function depends on this element"
    if np.isfinite(f.left):
        return ""
    if abs(f.numeric) <= f.error_bar:
        return "should be zero"
    return f"{_shown(f.analytic / f.numeric)} times what it should be"


def _kind(subject: Subject, leaf: Leaf, probes: list[Probe]) -> str:
    """A sentence on the gradient of one argument, or "" if no known fault fits.

    probes: random directions in which only this argument moves, as far as it can be judged. A
    kind of fault is named if the gradient, with that fault undone, agrees with all of them.
    """
    whole = [subject.pull(p.v) for p in probes]
    moved = [(p.u != 0)[leaf.part].reshape(leaf.shape) for p in probes]
    own = [np.where(m, g[leaf.part].reshape(leaf.shape), 0) for m, g in zip(moved, whole)]
    if not all(np.isfinite(g).all() for g in own):
        return "not finite"
    if not any(g.any() for g in own):
        return "zero, but the function depends on this argument"
    factor = _factor(probes)
    message = "" if factor is None else _factor_text(factor, subject, leaf)
    if factor is not None and (leaf.size > 1 or _is_round(factor)):
        return message
    one_sided = _unsummed(subject, leaf, probes[0].v, own[0])
    for undone, change in _changes(leaf):
        if all(
            _fits(p, leaf, change(g)) and not np.array_equal(change(g), g)
            for p, g in zip(probes, own, strict=True)
        ):
            return undone
    return one_sided or _other_argument(subject, leaf, probes) or message


def _fits(seen: Probe, leaf: Leaf, gradient: Array) -> bool:
    """True if a gradient of the argument agrees with differences in the probe's direction."""
    return seen.holds(float(np.sum(gradient.reshape(-1) * seen.u[leaf.part])), 2.0)


def _constant(found: list[GradFinding]) -> str:
    """The diagnosis if several elements are off by one amount, and by several factors, else ""."""
    analytic, numeric = np.array([(f.analytic, f.numeric) for f in found]).T
    off, blur = analytic - numeric, 2 * max(f.error_bar for f in found)
    by, factors = float(off.mean()), analytic / np.where(numeric == 0, 1.0, numeric)
    if not blur + np.ptp(off) < _ALIKE * abs(by) or np.ptp(factors) < _ALIKE * abs(factors[0] - 1):
        return ""
    return f"off by {by:.3g} in each element: a constant, or a term of dout alone"


def _rounded(found: list[GradFinding]) -> str:
    """The diagnosis if the two sides of several elements differ by a narrower dtype's rounding,
    else ""."""
    sides = [(f.analytic, f.numeric) for f in found]
    off = [abs(a - n) / abs(n) for a, n in sides if n and np.isfinite(a)]
    if len(off) < max(2, len(found)):
        return ""
    for dtype in LOWER:
        unit = float(limits_of(np.dtype(dtype)).eps)
        if unit / 256 < max(off) < 4 * unit and float(np.median(off)) < unit:
            return f"computed or rounded in {np.dtype(dtype).name}"
    return ""


def _factor(probes: list[Probe]) -> float | None:
    """The factor by which the gradient is too large, if it is the same in every direction."""
    ratios = [(p.analytic / p.numeric, 2 * p.bar / abs(p.numeric)) for p in probes if p.numeric]
    if len(ratios) < len(probes) or not all(r and np.isfinite((r, e)).all() for r, e in ratios):
        return None
    value = min(ratios, key=lambda r: r[1])[0]
    if any(abs(r - value) > e * (1 + abs(r)) for r, e in ratios):
        return None
    return value if max(e for _, e in ratios) <= 0.05 else None


def _is_round(factor: float) -> bool:
    """True for a factor n or 1/n: for a single element any fault is a factor, but seldom a round
    one."""
    if abs(factor) < 1:
        factor = 1 / factor
    return abs(factor - round(factor)) < EXACT * abs(factor)


def _factor_text(value: float, subject: Subject, leaf: Leaf) -> str:
    """A constant factor in words: "a constant factor 15 = n, its number of elements"."""
    if abs(value + 1) < EXACT:
        return "a constant factor -1: the sign"
    counts = {leaf.size: "its number of elements", subject.y.size: "the number of outputs"}
    counts |= {n: f"the extent of its axis {k}" for k, n in enumerate(leaf.shape)}
    for shape, _ in subject.shapes:
        counts |= {n: f"the extent of the output's axis {k}" for k, n in enumerate(shape)}
    for n, what in counts.items():
        if n > 1 and abs(value / n - 1) < EXACT:
            return f"a constant factor {n} = n, {what}"
        if n > 1 and abs(value * n - 1) < EXACT:
            return f"a constant factor {value:.6g} = 1/n, n = {n} {what}"
    return f"a constant factor {_shown(value)}"


def _shown(factor: float) -> str:
    """A factor with enough digits to differ from 1; so near to it, it may be a rounded constant."""
    near = abs(factor - 1)
    if near > EXACT:
        return f"{factor:.6g}"
    rounding = unit_roundoff(float32)
    cause = " (a constant rounded to float32?)" if rounding / 256 < near <= rounding else ""
    return f"1 {'-' if factor < 1 else '+'} {near:.2g}{cause}"


def _changes(leaf: Leaf) -> Iterator[tuple[str, Change]]:
    """Faults that are undone by moving elements of the gradient, each with the function that undoes
    it."""
    shape = leaf.shape
    for i, j in itertools.combinations(range(len(shape)), 2):
        if shape[i] == shape[j]:
            yield (
                f"transposed: axes {i} and {j} are exchanged",
                partial(np.swapaxes, axis1=i, axis2=j),
            )
    if len(shape) == 2 and shape[0] != shape[1]:
        yield "transposed: its elements are in column order", lambda g: g.reshape(shape[::-1]).T
    for axis, extent in enumerate(shape):
        for by in (1, -1, 2, -2) if extent > 2 else (1,):
            yield f"shifted by {by} along axis {axis}", partial(np.roll, shift=-by, axis=axis)
        if extent > 1:
            yield f"reversed along axis {axis}", partial(np.flip, axis=axis)


def _unsummed(subject: Subject, leaf: Leaf, v: Array, gradient: Array) -> str:
    """The diagnosis if only one slice of dout along a broadcast axis reaches the gradient, else
    ""."""
    if len(subject.shapes) != 1:
        return ""
    (out, _), gap = subject.shapes[0], len(subject.shapes[0][0]) - len(leaf.shape)
    for axis, extent in enumerate(out):
        if extent < 2 or (axis >= gap >= 0 and leaf.shape[axis - gap] == extent):
            continue
        for index in (0, extent - 1):
            one = np.zeros(out)
            chosen = tuple(index if k == axis else slice(None) for k in range(len(out)))
            one[chosen] = v.reshape(out)[chosen]
            got = subject.pull(one.reshape(-1))[leaf.part].reshape(leaf.shape)
            if np.array_equal(got, gradient):
                return (
                    f"only dout[{index}] along axis {axis} reaches it: the sum over the broadcast "
                    "axis is missing"
                )
    return ""


def _other_argument(subject: Subject, leaf: Leaf, probes: list[Probe]) -> str:
    """The diagnosis if the gradient is another argument's, or the other way round, else "". Where
    both have the same numbers, gradients may be equal by chance."""
    whole = [subject.pull(p.v) for p in probes]
    own = [g[leaf.part].reshape(leaf.shape) for g in whole]
    for other in subject.leaves:
        if other.shape != leaf.shape or np.array_equal(subject.x[leaf.part], subject.x[other.part]):
            continue
        theirs = [g[other.part].reshape(leaf.shape) for g in whole]
        if own[0].any() and all(map(np.array_equal, own, theirs)):
            return f"the gradient of another input: the same as that of {other.argument}"
        if all(p.sharp and _fits(p, leaf, g) for p, g in zip(probes, theirs, strict=True)):
            return f"swapped: the gradient of {other.argument} is the one of this argument"
    return ""
