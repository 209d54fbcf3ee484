"""What kind of fault a wrong gradient looks like, judged from the data alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np

from ..tolerance import limits_of
from .maps import Leaf
from .probe import Probe, probe
from .report import WRONG, Array, GradFinding, Verdict
from .subject import Subject

Change = Callable[[Array], Array]

LOWER = (np.float32, np.float16, ml_dtypes.bfloat16)
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
    return f"{f.analytic / f.numeric:.6g} times what it should be"


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
    """Whether a gradient of the argument agrees with what differences found in a direction."""
    return seen.holds(float(np.sum(gradient.reshape(-1) * seen.u[leaf.part])), 2.0)


def _rounded(found: list[GradFinding]) -> str:
    """Whether the two sides of several elements differ by a narrower dtype's rounding."""
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
    """The number that the gradient is too large by, the same in every direction."""
    ratios = [(p.analytic / p.numeric, 2 * p.bar / abs(p.numeric)) for p in probes if p.numeric]
    if len(ratios) < len(probes) or not all(r and np.isfinite((r, e)).all() for r, e in ratios):
        return None
    value = min(ratios, key=lambda r: r[1])[0]
    if any(abs(r - value) > e * (1 + abs(r)) for r, e in ratios):
        return None
    return value if max(e for _, e in ratios) <= 0.05 else None


def _is_round(factor: float) -> bool:
    """Whether a number is n or 1/n: for a single element any fault is a factor, but seldom a round
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
    return f"a constant factor {value:.6g}"


def _changes(leaf: Leaf) -> Iterator[tuple[str, Change]]:
    """Faults that are undone by moving elements of the gradient."""
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
    """Whether only one slice of dout along a broadcast axis reaches the gradient."""
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
    """Whether the gradient is another argument's, bit by bit, or the other way round."""
    whole = [subject.pull(p.v) for p in probes]
    own = [g[leaf.part].reshape(leaf.shape) for g in whole]
    for other in subject.leaves:
        if other is leaf or other.shape != leaf.shape:
            continue
        theirs = [g[other.part].reshape(leaf.shape) for g in whole]
        if own[0].any() and all(map(np.array_equal, own, theirs)):
            return f"the gradient of another input: the same as that of {other.argument}"
        if all(p.sharp and _fits(p, leaf, g) for p, g in zip(probes, theirs, strict=True)):
            return f"swapped: the gradient of {other.argument} is the one of this argument"
    return ""
