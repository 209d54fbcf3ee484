"""A backward pass in a narrow dtype against the one in float64, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import DType, float64
from ..tolerance import STEPS, allowed, limits_of, unit_roundoff
from .directions import random_signs, sizes_of
from .maps import Map, WrongGradientForm
from .report import WRONG, Check, Finding, GradReport
from .rounding import Step, off
from .subject import Subject, at_point, without_jumps

Array = np.ndarray[Any, Any]

NEIGHBOURS, ROUNDINGS = 3, 3
FURTHER = 2.0**-9, 2.0**-5


def check_narrow(
    map_: Map, wide: Subject, own: tuple[DType, ...], order: int, rng: np.random.Generator,
    report: GradReport,
) -> None:  # fmt: skip
    """Run the pull-back in the dtypes that the function was given, and compare all its elements.

    An element may be off by what roundings of its dtype explain: some units of itself, and what
    it does to the float64 backward when the inputs, dout, and every operation of the function and
    its backward that can be seen are off by a unit of that dtype. So 1 - out**2 of a tanh near 1
    may be off by a unit of `out`, however small it is itself, and a mistake of 1 % shows wherever
    the dtype holds the gradient to 1 %.
    """
    if all(d == float64 for d in own):
        return
    try:
        subject = at_point(map_, [wide.x[f.part].reshape(f.shape) for f in wide.leaves], own)
        if [s for s, _ in subject.shapes] != [s for s, _ in wide.shapes]:
            return
        v = _held(subject, random_signs(rng, subject.y.size))
        came = subject.pull(v)
    except WrongGradientForm as error:
        leaf = wide.leaves[max(error.leaf, 0)]
        nan = float("nan")
        report.findings.append(
            Finding(
                WRONG, order, leaf.argnum, leaf.path, None, nan, nan, nan,
                f"in {_names(own)}: {error}", leaf.argument,
            )
        )  # fmt: skip
        return
    right = wide.pull(v)
    bars = _bars(wide, subject.y.size, v, own, rng)
    with np.errstate(invalid="ignore"):
        gap = came - right
    for more in (_noise, _far_noise):
        with np.errstate(invalid="ignore"):
            outside = np.isfinite(gap) & (np.abs(gap) > bars)
        if outside.any():
            bars = bars + 4 * more(subject, wide, v, gap, rng)
    report.forward_calls += subject.forward_calls
    for leaf, dtype in zip(wide.leaves, own, strict=True):
        if leaf.size:
            part = leaf.part
            _compare(leaf, came[part], right[part], bars[part], dtype, order, report)


def _bars(
    wide: Subject, outputs: int, v: Array, own: tuple[DType, ...], rng: np.random.Generator
) -> Array:
    """How far each element may be off by roundings of its dtype."""
    narrowest = max(own, key=unit_roundoff)
    right, bars, unit = wide.pull(v), np.zeros(wide.x.size), Step.rounding_to(narrowest)
    moved = [wide.rounded(v, unit, rng) - right for _ in range(ROUNDINGS)]
    spread = np.max([without_jumps(m, unit, wide.x, v, right) for m in moved], axis=0)
    for leaf, dtype in zip(wide.leaves, own, strict=True):
        part = leaf.part
        bars[part] = allowed(right[part], dtype, outputs + wide.x.size, spread[part])
    return bars


def _noise(
    subject: Subject, wide: Subject, v: Array, error: Array, rng: np.random.Generator
) -> Array:
    """How much the error of the narrow backward changes from one point to others next to it.

    Where terms inside the backward cancel, rounding of these terms is all that is left, and it
    is another one at each point; a mistake stays what it is.
    """
    return _change(subject, wide, v, error, 4 * _unit(subject), rng)


def _far_noise(
    subject: Subject, wide: Subject, v: Array, error: Array, rng: np.random.Generator
) -> Array:
    """The same of points further away, which show it where a saturated function hides it.

    There a mistake changes, too, so no more is believed than some roundings of the outputs, over
    the size of the input.
    """
    far = np.fmax(*(_change(subject, wide, v, error, step, rng) for step in FURTHER))
    outputs = float(np.abs(v * np.where(np.isfinite(wide.y), wide.y, 0.0)).max(initial=0.0))
    most = STEPS * _unit(subject) * outputs / sizes_of(wide, uniform=True)
    return np.asarray(np.fmin(far, most))


def _unit(subject: Subject) -> float:
    return max(unit_roundoff(f.dtype) for f in subject.leaves)


def _change(
    subject: Subject, wide: Subject, v: Array, error: Array, step: float, rng: np.random.Generator
) -> Array:
    largest = np.zeros(error.size)
    for _ in range(NEIGHBOURS):
        moved = off(wide.x, Step(step), rng)
        x = np.concatenate([a.reshape(-1).astype(np.float64) for a in subject.arrays(moved)])
        there = subject.pulled(subject.linearize_at(x), v) - wide.pulled(wide.linearize_at(x), v)
        with np.errstate(invalid="ignore"):
            largest = np.fmax(largest, np.abs(there - error))
    return largest


def _held(subject: Subject, v: Array) -> Array:
    """A cotangent rounded to what the outputs' dtypes hold, so that both sides get the same."""
    return np.concatenate([d.reshape(-1).astype(np.float64) for d in subject.cut(v)])


def _names(dtypes: tuple[DType, ...]) -> str:
    return ", ".join(sorted({d.name for d in dtypes}))


def _compare(
    leaf: Any, came: Array, right: Array, bar: Array, dtype: DType, order: int, report: GradReport
) -> None:
    with np.errstate(invalid="ignore"):
        off = np.abs(came - right)
        limit = np.abs(right) > 0.98 * float(limits_of(dtype).max)
        wrong = ~(off <= bar) & np.isfinite(right) & ~limit
    worst = int(np.argmax(np.where(wrong, np.nan_to_num(off / (bar + 1e-300), nan=np.inf), -1.0)))
    if not wrong.any():
        some = right != 0
        relative = float(np.median(bar[some] / np.abs(right[some]))) if some.any() else 0.0
        what = f"{leaf.argument}, {dtype.name} backward against float64, worst of {came.size}"
        k = int(np.argmax(np.nan_to_num(off / (bar + 1e-300), nan=0.0)))
        report.checks.append(
            Check(order, what, float(came[k]), float(right[k]), float(bar[k]), relative)
        )
        return
    many = int(wrong.sum())
    ratio = came[wrong] / np.where(right[wrong] == 0, np.nan, right[wrong])
    said = f"wrong in {dtype.name} only, in {many} of {came.size} elements"
    if (
        many > 1
        and np.isfinite(ratio).any()
        and np.nanmax(ratio) - np.nanmin(ratio) < 0.05 * abs(np.nanmedian(ratio))
    ):
        said += f"; a constant factor {np.nanmedian(ratio):.4g}"
    report.findings.append(
        Finding(
            WRONG, order, leaf.argnum, leaf.path, leaf.index(leaf.start + worst),
            float(came[worst]), float(right[worst]), float(bar[worst]), said, leaf.argument,
        )
    )  # fmt: skip
