"""A pull-back is linear in its cotangent: checked without any differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .gradreport import WRONG, Finding
from .probe import random_signs, sizes_of
from .subject import Leaf, Subject
from .tolerance import unit_roundoff

Array = np.ndarray[Any, Any]

ROUNDINGS = 256.0


def check_linearity(
    subject: Subject, order: int, rng: np.random.Generator
) -> tuple[Array, list[Finding]]:
    """The gradient for a random cotangent v, and what is not linear.

    pull(2v + w) = 2 pull(v) + pull(w) up to rounding: of the result, of the outputs (whose terms
    may cancel in it), and what moving v by a unit does;
    pull(0) = 0 exactly. One finding per argument, at its worst element.
    """
    m = subject.y.size
    v, w = random_signs(rng, m), random_signs(rng, m)
    pv, pw, both, none = (subject.pull(c) for c in (v, w, 2 * v + w, np.zeros(m)))
    unit = max(unit_roundoff(d) for d in (*(k for _, k in subject.shapes), *subject.dtypes))
    twice, odd = subject.pull(v), _odd_layout(subject, rng, unit)
    near = subject.pull(v * (1 + 2 * unit * rng.choice([-1.0, 1.0], size=m)))
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = 2 * pv + pw
        wiggle = near - pv
    bars = _bars(subject, unit, [both, wanted, pv, pw])
    found = []
    for leaf, rounding in zip(subject.leaves, bars, strict=True):
        if not leaf.size:
            continue
        part, args = leaf.part, (subject, order, leaf)
        bar = rounding + 16 * _largest(wiggle[part])
        if _differ(none[part], np.zeros(leaf.size), 0.0):
            said = "not 0 for dout = 0: a term lacks its factor dout"
            found.append(_at(*args, none, np.zeros_like(none), 0.0, said))
        elif _differ(twice[part], pv[part], rounding):
            said = "not repeatable: two equal calls of the pull-back differ"
            found.append(_at(*args, twice, pv, rounding, said))
        elif odd and _differ(odd[1][part], odd[0][part], bar):
            found.append(_at(*args, odd[1], odd[0], bar, odd[2]))
        elif _differ(both[part], wanted[part], bar):
            finding = _at(*args, both, wanted, bar, _said(pv[part], pw[part], both[part]))
            off = abs(finding.analytic - finding.numeric)
            # At an ill-conditioned point rounding inside the pull-back explains more.
            if off > min(16 * _at_a_unit_away(subject, v, pv, leaf), 0.01 * _largest(both[part])):
                found.append(finding)
    return pv, found


def _bars(subject: Subject, unit: float, gradients: list[Array]) -> list[float]:
    """For each argument what rounding explains: of its gradient, and of outputs that cancel.

    It is that at the element where the first two gradients differ most.
    """
    sizes, bars = sizes_of(subject, uniform=False), []
    natural = float(np.sum(np.abs(subject.y), where=np.isfinite(subject.y)))
    for leaf in subject.leaves:
        largest = max(_largest(g[leaf.part]) for g in gradients)
        size = sizes[_worst(leaf, *gradients[:2])] if leaf.size else 1.0
        bars.append(ROUNDINGS * unit * (largest + natural / size))
    return bars


def _at_a_unit_away(subject: Subject, v: Array, pv: Array, leaf: Leaf) -> float:
    """The largest change of an argument's gradient when the point moves by a unit."""
    unit = 2 * max(unit_roundoff(f.dtype) for f in subject.leaves)
    signs = np.where(np.arange(subject.x.size) % 2, 1.0, -1.0)
    moved = subject.pulled(subject.linearize_at(subject.x * (1 + unit * signs)), v)
    with np.errstate(invalid="ignore"):
        return _largest((moved - pv)[leaf.part])


def _odd_layout(
    subject: Subject, rng: np.random.Generator, unit: float
) -> tuple[Array, Array, str] | None:
    """(dense, laid out otherwise, what to say) of pull-backs that differ in a cotangent's strides.

    Of a strided cotangent, and of a broadcast one with stride 0; the first that differs.
    """
    shapes = [s for s, _ in subject.shapes]
    dense = [random_signs(rng, math.prod(s)).reshape(s) for s in shapes]
    even = [np.full(s, 1.25) for s in shapes]
    for plain, form, said in (
        (dense, _strided, "wrong for a strided, not contiguous cotangent"),
        (even, _broadcast, "wrong for a broadcast cotangent, of stride 0"),
    ):
        wanted = subject.pull(np.concatenate([d.reshape(-1) for d in plain]))
        came = subject.pull_arrays([form(d) for d in plain])
        with np.errstate(invalid="ignore"):
            if (np.abs(came - wanted) > max(1e-6, ROUNDINGS * unit) * _largest(wanted)).any():
                return wanted, came, said
    return None


def _strided(a: Array) -> Array:
    if not a.ndim:
        return a
    large = np.zeros([2 * n for n in a.shape[::-1]]).T
    view = large[tuple(slice(None, None, 2) for _ in a.shape)]
    view[...] = a
    return view


def _broadcast(a: Array) -> Array:
    return np.broadcast_to(a.reshape(-1)[:1].reshape(()), a.shape) if a.size else a


def _differ(came: Array, wanted: Array, bar: float) -> bool:
    with np.errstate(invalid="ignore"):
        apart = np.abs(came - wanted)
    return bool((np.isfinite(apart) & (apart > bar)).any())


def _at(
    subject: Subject, order: int, leaf: Leaf, came: Array, wanted: Array, bar: float, said: str
) -> Finding:
    """A finding at the element of an argument where two gradients differ most."""
    k = _worst(leaf, came, wanted)
    return Finding(
        WRONG, order, leaf.argnum, leaf.path, leaf.index(k), float(came[k]), float(wanted[k]),
        float(bar), said, leaf.argument,
    )  # fmt: skip


def _worst(leaf: Leaf, came: Array, wanted: Array) -> int:
    with np.errstate(invalid="ignore"):
        apart = np.abs(came[leaf.part] - wanted[leaf.part])
    return leaf.start + int(np.argmax(np.where(np.isfinite(apart), apart, -1.0)))


def _said(pv: Array, pw: Array, both: Array) -> str:
    if np.array_equal(pv, pw) and np.array_equal(pv, both):
        return "does not depend on dout: the factor dout is missing"
    return "not linear in dout: pull(2v + w) is not 2 pull(v) + pull(w)"


def _largest(a: Array) -> float:
    return float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
