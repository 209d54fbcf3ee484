"""Schedules: learning rates as functions of the number of updates before this one.

A schedule takes that number, 0 at first, and gives the learning rate, made of `ops`, so that it is
computed inside the step. So is any function of yours: `lambda step: 0.1 / (1 + 0.01 * step)`.
All here compute in float64; outside of the steps they are for, they stay at their last value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from .. import ops
from ..dtype import float64
from ..errors import MinimlError
from ..tensor import Tensor
from ..tracebacks import hides_frames
from .arguments import Schedule, count, in_range


@hides_frames
def step_decay(lr: float, every: int, factor: float = 0.1) -> Schedule:
    """lr * factor^floor(step / every), as PyTorch's StepLR.

    >>> [round(float(step_decay(0.1, every=10)(step)), 6) for step in (0, 9, 10, 20)]
    [0.1, 0.1, 0.01, 0.001]
    """
    who = "step_decay"
    parts = in_range(who, "lr", lr), count(who, "every", every), in_range(who, "factor", factor)
    return partial(_step_decay, *parts)


def _step_decay(lr: float, every: int, factor: float, step: Any) -> Tensor:
    return ops.mul(lr, ops.pow(factor, ops.floor(ops.div(_at(step), every))))


@hides_frames
def cosine(lr: float, steps: int, end: float = 0.0) -> Schedule:
    """end + (lr - end) * (1 + cos(pi * step / steps)) / 2. Source: Loshchilov, Hutter 2017, "SGDR",
    without restarts, as PyTorch's CosineAnnealingLR.

    >>> [round(float(cosine(0.1, steps=100)(step)), 6) for step in (0, 50, 100, 200)]
    [0.1, 0.05, 0.0, 0.0]
    """
    lr, end = in_range("cosine", "lr", lr), in_range("cosine", "end", end)
    return partial(_cosine, lr, count("cosine", "steps", steps), end)


def _cosine(lr: float, steps: float, end: float, step: Any) -> Tensor:
    share = ops.clip(ops.div(_at(step), steps), 0.0, 1.0)
    return ops.add(end, ops.mul((lr - end) / 2.0, ops.add(1.0, ops.cos(ops.mul(math.pi, share)))))


@hides_frames
def polynomial(lr: float, steps: int, power: float = 1.0, end: float = 0.0) -> Schedule:
    """end + (lr - end) * (1 - step / steps)^power: linear decay by default. With end 0
    it is PyTorch's PolynomialLR.

    >>> [round(float(polynomial(0.1, steps=100)(step)), 6) for step in (0, 50, 100, 200)]
    [0.1, 0.05, 0.0, 0.0]
    """
    lr, end = in_range("polynomial", "lr", lr), in_range("polynomial", "end", end)
    power = in_range("polynomial", "power", power)
    return partial(_polynomial, lr, count("polynomial", "steps", steps), power, end)


def _polynomial(lr: float, steps: int, power: float, end: float, step: Any) -> Tensor:
    left = ops.sub(1.0, ops.minimum(ops.div(_at(step), steps), 1.0))
    return ops.add(end, ops.mul(lr - end, ops.pow(left, power)))


@hides_frames
def warmup(steps: int, then: float | Schedule) -> Schedule:
    """then(0) * (step + 1) / (steps + 1) for that many steps, and after them then(step - steps).

    then: a schedule, or a number, which stays. The first update has a rate above 0 already, as in
    PyTorch's LinearLR with start_factor 1 / (steps + 1).

    >>> [round(float(warmup(4, cosine(0.1, steps=10))(step)), 6) for step in (0, 3, 4, 9)]
    [0.02, 0.08, 0.1, 0.05]
    """
    return partial(_warmup, count("warmup", "steps", steps), _schedule("warmup", then))


def _warmup(steps: int, then: Schedule, step: Any) -> Tensor:
    t = _at(step)
    factor = ops.minimum(ops.div(ops.add(t, 1.0), steps + 1), 1.0)
    return ops.mul(then(ops.maximum(ops.sub(t, steps), 0.0)), factor)


@hides_frames
def one_cycle(
    lr: float,
    steps: int,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Half a cosine from lr / div_factor up to lr, at step pct_start * steps - 1, and another down
    to lr / div_factor / final_div_factor, at step steps - 1.

    Source: Smith, Topin 2017, "Super-convergence", with PyTorch's OneCycleLR for the formula.
    MinimlError unless pct_start * steps > 1 and 0 < pct_start < 1.

    >>> [round(float(one_cycle(0.1, steps=11, pct_start=0.5)(step)), 6) for step in (0, 10)]
    [0.004, 0.0]
    """
    lr, steps = in_range("one_cycle", "lr", lr), count("one_cycle", "steps", steps)
    peak = in_range("one_cycle", "pct_start", pct_start, 1.0) * steps - 1.0
    if peak <= 0.0:
        raise MinimlError(
            f"one_cycle got pct_start={pct_start} of steps={steps}, which is {peak + 1.0:g} steps "
            "to rise in; expected more than 1"
        )
    start = lr / _positive("one_cycle", "div_factor", div_factor)
    end = start / _positive("one_cycle", "final_div_factor", final_div_factor)
    return partial(_one_cycle, partial(_cosine, start, peak, lr), lr, steps - 1.0, peak, end)


def _one_cycle(
    rise: Schedule, lr: float, last: float, peak: float, end: float, step: Any
) -> Tensor:
    t = _at(step)
    fall = _cosine(lr, last - peak, end, ops.sub(t, peak))
    return ops.where(ops.less(t, peak), rise(t), fall)


@hides_frames
def chained(schedules: Sequence[float | Schedule], milestones: Sequence[int]) -> Schedule:
    """The first schedule up to the first milestone, a number of updates, then the next one from
    its beginning, and so on, as PyTorch's SequentialLR. A number stays.

    >>> rate = chained([0.1, cosine(0.1, steps=10), 0.001], milestones=[5, 15])
    >>> [round(float(rate(step)), 6) for step in (0, 5, 10, 15)]
    [0.1, 0.1, 0.05, 0.001]
    """
    starts = [0, *(count("chained", "milestones", m) for m in milestones)]
    if len(schedules) != len(starts) or any(a >= b for a, b in pairwise(starts)):
        raise MinimlError(
            f"chained got {len(schedules)} schedules and milestones={list(milestones)}; expected "
            "one milestone fewer than schedules, each larger than the one before"
        )
    parts = [_schedule("chained", schedule) for schedule in schedules]
    return partial(_chained, tuple(zip(starts, parts, strict=True)))


def _chained(parts: Sequence[tuple[int, Schedule]], step: Any) -> Tensor:
    t = _at(step)
    (_, first), *rest = parts
    rate: Tensor = first(t)
    for start, schedule in rest:
        since = ops.maximum(ops.sub(t, start), 0.0)
        rate = ops.where(ops.less(t, start), rate, schedule(since))
    return rate


def _at(step: Any) -> Tensor:
    return ops.cast(step, float64)


def _constant(lr: float, step: Any) -> Tensor:
    return ops.full_like(_at(step), lr)


def _schedule(owner: str, schedule: float | Schedule) -> Schedule:
    if callable(schedule):
        return schedule
    return partial(_constant, in_range(owner, "a schedule", schedule))


def _positive(owner: str, name: str, value: Any) -> float:
    found = in_range(owner, name, value)
    if found == 0.0:
        raise MinimlError(f"{owner} got {name}={value!r}; expected a number > 0")
    return found
