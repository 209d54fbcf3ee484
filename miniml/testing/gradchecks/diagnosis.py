"""What kind of fault a wrong gradient looks like, judged from the data alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ..tolerance import limits_of
from .maps import Leaf
from .probe import Probe
from .subject import Subject

Array = np.ndarray[Any, Any]
Change = Callable[[Array], Array]

LOWER = (np.float32, np.float16, ml_dtypes.bfloat16)


def diagnose(subject: Subject, leaf: Leaf, probes: list[Probe]) -> str:
    """A sentence on the gradient of one argument, or "" where nothing known fits.

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
    said = "" if factor is None else factor_text(factor, subject, leaf)
    if factor is not None and (leaf.size > 1 or _round(factor)):
        return said
    one_sided = _unsummed(subject, leaf, probes[0].v, own[0])
    for undone, change in _changes(leaf):
        if all(
            fits(p, leaf, change(g)) and not np.array_equal(change(g), g)
            for p, g in zip(probes, own, strict=True)
        ):
            return undone
    return one_sided or _other_argument(subject, leaf, probes, whole) or said


def fits(seen: Probe, leaf: Leaf, gradient: Array) -> bool:
    """Whether a gradient of the argument agrees with what differences found in a direction."""
    along = float(np.sum(gradient.reshape(-1) * seen.u[leaf.part]))
    return seen.low - 2 * seen.bar <= along <= seen.high + 2 * seen.bar


def rounded(found: list[tuple[float, float]]) -> str:
    """Whether (analytic, numeric) of several elements differ by a narrower dtype's rounding."""
    off = [abs(a - n) / abs(n) for a, n in found if n and np.isfinite(a)]
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


def _round(factor: float) -> bool:
    """Whether a number is n or 1/n: of one element any fault is a factor, seldom a round one."""
    if abs(factor) < 1:
        factor = 1 / factor
    return abs(factor - round(factor)) < 1e-6 * abs(factor)


def factor_text(value: float, subject: Subject, leaf: Leaf) -> str:
    """A constant factor in words: "a constant factor 15 = n, its number of elements"."""
    if abs(value + 1) < 1e-6:
        return "a constant factor -1: the sign"
    counts = {leaf.size: "its number of elements", subject.y.size: "the number of outputs"}
    counts |= {n: f"the extent of its axis {k}" for k, n in enumerate(leaf.shape)}
    for shape, _ in subject.shapes:
        counts |= {n: f"the extent of the output's axis {k}" for k, n in enumerate(shape)}
    for n, said in counts.items():
        if n > 1 and abs(value / n - 1) < 1e-6:
            return f"a constant factor {n} = n, {said}"
        if n > 1 and abs(value * n - 1) < 1e-6:
            return f"a constant factor {value:.6g} = 1/n, n = {n} {said}"
    return f"a constant factor {value:.6g}"


def _changes(leaf: Leaf) -> Iterator[tuple[str, Change]]:
    """Faults that are undone by moving elements of the gradient."""
    shape = leaf.shape
    for i, j in itertools.combinations(range(len(shape)), 2):
        if shape[i] == shape[j]:
            yield f"transposed: axes {i} and {j} are exchanged", _swap(i, j)
    if len(shape) == 2 and shape[0] != shape[1]:
        yield "transposed: its elements are in column order", lambda g: g.reshape(shape[::-1]).T
    for axis, extent in enumerate(shape):
        for by in (1, -1, 2, -2) if extent > 2 else (1,):
            yield f"shifted by {by} along axis {axis}", _roll(-by, axis)
        if extent > 1:
            yield f"reversed along axis {axis}", _flip(axis)


def _swap(i: int, j: int) -> Change:
    return lambda g: g.swapaxes(i, j)


def _roll(by: int, axis: int) -> Change:
    return lambda g: np.roll(g, by, axis)


def _flip(axis: int) -> Change:
    return lambda g: np.flip(g, axis)


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
            place = tuple(index if k == axis else slice(None) for k in range(len(out)))
            one[place] = v.reshape(out)[place]
            came = subject.pull(one.reshape(-1))[leaf.part].reshape(leaf.shape)
            if np.array_equal(came, gradient):
                return (
                    f"only dout[{index}] along axis {axis} reaches it: the sum over the broadcast "
                    "axis is missing"
                )
    return ""


def _other_argument(subject: Subject, leaf: Leaf, probes: list[Probe], whole: list[Array]) -> str:
    """Whether another argument was given the gradient of this one, or this one its."""
    for other in subject.leaves:
        if other is leaf or other.shape != leaf.shape:
            continue
        theirs = [g[other.part].reshape(leaf.shape) for g in whole]
        if all(fits(p, leaf, g) for p, g in zip(probes, theirs, strict=True)):
            ours = [g[leaf.part].reshape(leaf.shape) for g in whole]
            if all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
                return ""
            return f"swapped: the gradient of {other.argument} is the one of this argument"
    return ""


def same_as_other(subject: Subject, leaf: Leaf, v: Array) -> str:
    """Whether the gradient is, bit by bit, that of another argument."""
    g = subject.pull(v)
    for other in subject.leaves:
        if other is leaf or other.shape != leaf.shape:
            continue
        if g[leaf.part].any() and np.array_equal(g[leaf.part], g[other.part]):
            return f"the gradient of another input: the same as that of {other.argument}"
    return ""
