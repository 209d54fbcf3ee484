"""A pull-back is linear in its cotangent, in any layout: checked without any differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..tolerance import unit_roundoff
from .directions import random_signs, sizes_of
from .maps import Leaf
from .report import WRONG, Finding
from .subject import Subject, without_jumps

Array = np.ndarray[Any, Any]

ROUNDINGS, INSIDE = 256.0, 16.0
GROSS = 1e-6  # a layout that is read wrongly changes more than this
SCALES = 2.0**10, 2.0**-10, -1.0


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Two gradients that have to be equal, to a relative error, and what it means if not.

    exact: they come from the same operations on the same digits.
    """

    got: Array
    expected: Array
    relative: float
    said: str
    exact: bool = False


def check_linearity(
    subject: Subject, order: int, rng: np.random.Generator
) -> tuple[Array, list[Finding]]:
    """The gradient for a random cotangent v, and what is not linear.

    pull(2v + w) = 2 pull(v) + pull(w), pull(1024 v) = 1024 pull(v), pull(-v) = -pull(v), and
    pull(v) = pull(v) again, in whatever layout v is; pull(0) = 0 exactly. The others hold up to
    rounding: of the result, of the outputs (whose terms may cancel in it), and of every operation
    inside the pull-back.
    One finding per argument, at its worst element.
    """
    v = random_signs(rng, subject.y.size)
    pv = subject.pull(v)
    rounding, found = _Rounding(subject, v, pv, rng), list[Finding]()
    checks = list(_comparisons(subject, v, pv, rng, rounding.unit))
    for leaf in subject.leaves:
        finding = next(
            (f for c in checks if (f := _judged(subject, order, leaf, c, rounding))), None
        )
        found += [finding] if finding else []
    return pv, found


def _comparisons(
    subject: Subject, v: Array, pv: Array, rng: np.random.Generator, unit: float
) -> Iterator[_Comparison]:
    none = subject.pull(np.zeros(v.size))
    fine, gross = ROUNDINGS * unit, max(GROSS, ROUNDINGS * unit)
    yield _Comparison(
        none, np.zeros(pv.size), 0.0, "not 0 for dout = 0: a term lacks its factor dout"
    )
    said = "not repeatable: two equal calls of the pull-back differ"
    yield _Comparison(subject.pull(v), pv, fine, said, exact=True)
    dense = [d.astype(np.float64) for d in subject.cut(v)]
    for form, said in LAYOUTS.items():
        views = [form(d) for d in dense]
        if any(not a.flags.c_contiguous for a in views):
            plain = np.concatenate([a.reshape(-1) for a in views])
            expected = pv if np.array_equal(plain, v) else subject.pull(plain)
            yield _Comparison(subject.pull_arrays(views), expected, gross, said)
    w = random_signs(rng, v.size)
    pw, both = subject.pull(w), subject.pull(2 * v + w)
    with np.errstate(invalid="ignore", over="ignore"):
        yield _Comparison(both, 2 * pv + pw, fine, _said(pv, pw, both))
        for scale in SCALES:
            said = f"not linear in dout: pull({scale:g} v) is not {scale:g} pull(v)"
            yield _Comparison(subject.pull(scale * v) / scale, pv, fine, said, exact=True)


def _judged(
    subject: Subject, order: int, leaf: Leaf, check: _Comparison, rounding: _Rounding
) -> Finding | None:
    """The finding for one argument, None where rounding explains the difference."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(check.got - check.expected)[leaf.part]
    apart = np.where(np.isfinite(apart), apart, 0.0)
    if not apart.any():
        return None
    k = int(np.argmax(apart))
    bar = check.relative * rounding.scale(leaf, leaf.start + k, check.got, check.expected)
    if apart[k] > bar > 0.0 and not check.exact:
        bar += rounding.inside(leaf, check.got)
    if not apart[k] > bar:
        return None
    place = leaf.start + k
    return Finding(
        WRONG, order, leaf.argnum, leaf.path, leaf.index(place), float(check.got[place]),
        float(check.expected[place]), float(bar), check.said, leaf.argument,
    )  # fmt: skip


@dataclass(frozen=True)
class _Rounding:
    """What rounding does to pull(v): of its largest elements, of outputs, of operations inside."""

    subject: Subject
    v: Array
    pv: Array
    rng: np.random.Generator

    @property
    def unit(self) -> float:
        """The roundoff of the widest step that is taken."""
        subject = self.subject
        return max(unit_roundoff(d) for d in (*(k for _, k in subject.shapes), *subject.dtypes))

    def scale(self, leaf: Leaf, place: int, *gradients: Array) -> float:
        """The size of what is rounded: gradients of the argument, outputs that cancel in them."""
        largest = max(_largest(g[leaf.part]) for g in (*gradients, self.pv))
        outputs = float(np.sum(np.abs(self.subject.y), where=np.isfinite(self.subject.y)))
        return largest + outputs / float(sizes_of(self.subject, uniform=False)[place])

    def inside(self, leaf: Leaf, gradient: Array) -> float:
        """How far the argument's gradient moves when all that is computed is off by a unit.

        At an ill-conditioned point it moves further than any rounding of numbers of its size:
        believed as far as it is small beside the gradient.
        """
        with np.errstate(invalid="ignore"):
            moved = [g - self.pv for g in self._moved]
        step, numbers = self.subject.step, (self.subject.x, self.v, self.pv)
        smooth = max(_largest(without_jumps(m, step, *numbers)[leaf.part]) for m in moved)
        rough = INSIDE * max(_largest(m[leaf.part]) for m in moved)
        return max(INSIDE * smooth, min(rough, 0.01 * _largest(gradient[leaf.part])))

    @cached_property
    def _moved(self) -> list[Array]:
        step = self.subject.step._replace(own=True)
        return [self.subject.rounded(self.v, step, self.rng) for _ in range(3)]


def _strided(a: Array) -> Array:
    if not a.ndim:
        return a
    large = np.zeros([2 * n for n in a.shape[::-1]]).T
    view = large[tuple(slice(None, None, 2) for _ in a.shape)]
    view[...] = a
    return view


def _reversed(a: Array) -> Array:
    return np.flip(np.flip(a).copy())


def _broadcast(a: Array) -> Array:
    return np.broadcast_to(a.reshape(-1)[:1].reshape(()), a.shape) if a.size else a


def _along(axis: int) -> Callable[[Array], Array]:
    def form(a: Array) -> Array:
        return np.broadcast_to(a.take([0], axis), a.shape) if a.ndim > 1 and a.size else a

    return form


LAYOUTS = {
    _strided: "wrong for a strided, not contiguous cotangent",
    _reversed: "wrong for a reversed cotangent, of negative strides, not contiguous",
    _broadcast: "wrong for a broadcast cotangent, of stride 0",
    _along(0): "wrong for a cotangent that is broadcast along its first axis, of stride 0",
    _along(-1): "wrong for a cotangent that is broadcast along its last axis, of stride 0",
}


def _said(pv: Array, pw: Array, both: Array) -> str:
    if np.array_equal(pv, pw) and np.array_equal(pv, both):
        return "does not depend on dout: the factor dout is missing"
    return "not linear in dout: pull(2v + w) is not 2 pull(v) + pull(w)"


def _largest(a: Array) -> float:
    return float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
