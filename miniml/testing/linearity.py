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
    units = [unit_roundoff(d) for _, d in subject.shapes] + [
        unit_roundoff(f.dtype) for f in subject.leaves
    ]
    unit = max(units)
    twice, odd = subject.pull(v), _odd_layout(subject, rng, unit)
    near = subject.pull(v * (1 + 2 * unit * rng.choice([-1.0, 1.0], size=m)))
    sizes = sizes_of(subject, uniform=False)
    natural = float(np.sum(np.abs(subject.y), where=np.isfinite(subject.y)))
    found = []
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = 2 * pv + pw
        error = np.abs(both - wanted)
        wiggle = near - pv
    for leaf in subject.leaves:
        if not leaf.size:
            continue
        part = leaf.part
        size = max(_largest(g[part]) for g in (pv, pw, both))
        spread = _largest(wiggle[part])
        position = leaf.start + _worst(error[part])
        rounding = ROUNDINGS * unit * (size + natural / sizes[position])
        bar = rounding + 16 * spread
        off = none[part]
        if np.any(np.isfinite(off) & (off != 0)):
            k = leaf.start + _worst(np.abs(off))
            said = "not 0 for dout = 0: a term lacks its factor dout"
            found.append(_finding(subject, order, k, leaf, none[k], 0.0, 0.0, said))
        elif _differ(twice[part], pv[part], rounding):
            said = "not repeatable: two equal calls of the pull-back differ"
            found.append(_at(subject, order, leaf, twice, pv, rounding, said))
        elif odd and _differ(odd[1][part], odd[0][part], bar):
            found.append(_at(subject, order, leaf, odd[1], odd[0], bar, odd[2]))
        elif np.isfinite(error[position]) and error[position] > bar:
            if error[position] <= min(16 * _at_a_unit_away(subject, v, pv, leaf), 0.01 * size):
                continue  # an ill-conditioned point: rounding inside the pull-back explains it
            said = _said(pv[part], pw[part], both[part])
            found.append(
                _finding(
                    subject, order, position, leaf, both[position], wanted[position], bar, said
                )
            )
    return pv, found


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
        return bool((np.abs(came - wanted) > bar).any())


def _at(
    subject: Subject, order: int, leaf: Leaf, came: Array, wanted: Array, bar: float, said: str
) -> Finding:
    """A finding at the element of an argument where two gradients differ most."""
    with np.errstate(invalid="ignore"):
        k = leaf.start + _worst(np.abs(came[leaf.part] - wanted[leaf.part]))
    return _finding(subject, order, k, leaf, came[k], wanted[k], bar, said)


def _said(pv: Array, pw: Array, both: Array) -> str:
    if np.array_equal(pv, pw) and np.array_equal(pv, both):
        return "does not depend on dout: the factor dout is missing"
    return "not linear in dout: pull(2v + w) is not 2 pull(v) + pull(w)"


def _largest(a: Array) -> float:
    return float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))


def _worst(error: Array) -> int:
    return int(np.argmax(np.where(np.isfinite(error), error, -1.0)))


def _finding(
    subject: Subject, order: int, position: int, leaf: Leaf, analytic: float, numeric: float,
    bar: float, said: str,
) -> Finding:  # fmt: skip
    return Finding(
        WRONG, order, leaf.argnum, leaf.path, leaf.index(position), float(analytic),
        float(numeric), float(bar), said, leaf.argument,
    )  # fmt: skip
