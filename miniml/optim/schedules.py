"""Schedules: learning rates as functions of the number of updates before this one.

A schedule takes that number, 0 at first, and gives the learning rate, made of `ops`, so that it is
computed inside the step. Any function of yours can be one: `lambda step: 0.1 / (1 + 0.01 * step)`.
All of these compute in float64; past their last step they stay at their last value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .. import ops
from ..core.abstract import float64
from ..core.errors import MinimlError, ValueRefusedError
from ..core.hints import hides_frames
from ..core.options import count, number
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from ..nn import Cell
from ..runtime.eager import together
from .optimizer import Schedule

__all__ = [
    "OnPlateau", "chained", "cosine", "cyclic", "one_cycle", "polynomial", "step_decay",
    "warm_restarts", "warmup",
]  # fmt: skip


@hides_frames
def step_decay(lr: float, every: int, factor: float = 0.1) -> Schedule:
    """lr * factor^floor(step / every), as PyTorch's StepLR.

    >>> [round(float(step_decay(0.1, every=10)(step)), 6) for step in (0, 9, 10, 20)]
    [0.1, 0.1, 0.01, 0.001]
    """
    who = "step_decay"
    parts = number(who, "lr", lr, 0), count(who, "every", every), number(who, "factor", factor, 0)
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
    lr, end = number("cosine", "lr", lr, 0), number("cosine", "end", end, 0)
    return partial(_cosine, lr, count("cosine", "steps", steps), end)


def _cosine(lr: float, steps: float, end: float, step: Any) -> Tensor:
    share = ops.clip(ops.div(_at(step), steps), 0.0, 1.0)
    return ops.add(end, ops.mul((lr - end) / 2.0, ops.add(1.0, ops.cos(ops.mul(math.pi, share)))))


@hides_frames
def polynomial(lr: float, steps: int, power: float = 1.0, end: float = 0.0) -> Schedule:
    """end + (lr - end) * (1 - step / steps)^power: linear decay by default; with end 0,
    as PyTorch's PolynomialLR.

    >>> [round(float(polynomial(0.1, steps=100)(step)), 6) for step in (0, 50, 100, 200)]
    [0.1, 0.05, 0.0, 0.0]
    """
    lr, end = number("polynomial", "lr", lr, 0), number("polynomial", "end", end, 0)
    power = number("polynomial", "power", power, 0)
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
    return partial(_warmup, count("warmup", "steps", steps), _schedule("warmup", "then", then))


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
    """A rate along half a cosine from lr / div_factor up to lr, at step pct_start * steps - 1, and
    another down to lr / div_factor / final_div_factor, at step steps - 1.

    Source: Smith, Topin 2017, "Super-convergence", with PyTorch's OneCycleLR for the formula.
    ValueRefusedError unless pct_start * steps > 1 and 0 < pct_start < 1.

    >>> [round(float(one_cycle(0.1, steps=11, pct_start=0.5)(step)), 6) for step in (0, 10)]
    [0.004, 0.0]
    """
    lr, steps = number("one_cycle", "lr", lr, 0), count("one_cycle", "steps", steps)
    peak = number("one_cycle", "pct_start", pct_start, 0, below=1) * steps - 1.0
    if peak <= 0.0:
        raise ValueRefusedError(
            f"one_cycle got pct_start={pct_start} of steps={steps}, which is {peak + 1.0:g} steps "
            "to rise in; expected more than 1"
        )
    start = lr / number("one_cycle", "div_factor", div_factor, above=0)
    end = start / number("one_cycle", "final_div_factor", final_div_factor, above=0)
    return partial(_one_cycle, partial(_cosine, start, peak, lr), lr, steps - 1.0, peak, end)


def _one_cycle(
    rise: Schedule, lr: float, last: float, peak: float, end: float, step: Any
) -> Tensor:
    t = _at(step)
    fall = _cosine(lr, last - peak, end, ops.sub(t, peak))
    return ops.where(ops.less(t, peak), rise(t), fall)


@hides_frames
def warm_restarts(lr: float, steps: int, factor: float = 1.0, end: float = 0.0) -> Schedule:
    """`cosine(lr, steps, end)`, which begins anew after that many steps, and again, each time with
    `factor` times as many. Source: Loshchilov, Hutter 2017, "SGDR", as PyTorch's
    CosineAnnealingWarmRestarts.

    >>> rate = warm_restarts(0.1, steps=10, factor=2)
    >>> [round(float(rate(step)), 6) for step in (0, 5, 10, 20, 30)]
    [0.1, 0.05, 0.1, 0.05, 0.1]
    """
    who = "warm_restarts"
    lr, end = number(who, "lr", lr, 0), number(who, "end", end, 0)
    parts = lr, count(who, "steps", steps), number(who, "factor", factor, 1), end
    return partial(_warm_restarts, *parts)


def _warm_restarts(lr: float, steps: int, factor: float, end: float, step: Any) -> Tensor:
    periods = ops.div(_at(step), steps)  # of the first length
    if factor == 1.0:
        share = ops.sub(periods, ops.floor(periods))
    else:
        grown = ops.add(ops.mul(periods, factor - 1.0), 1.0)
        whole = ops.floor(ops.add(ops.div(ops.log(grown), math.log(factor)), 1e-10))  # rounding
        length = ops.pow(factor, whole)
        share = ops.div(ops.sub(periods, ops.div(ops.sub(length, 1.0), factor - 1.0)), length)
    return _cosine(lr, 1, end, share)


@hides_frames
def cyclic(
    low: float, high: float, up: int, down: int | None = None, factor: float = 1.0
) -> Schedule:
    """From low to high in `up` steps along a line, back in `down`, by default as many, and again.

    factor: of the height of each cycle to that of the one before: 0.5 is PyTorch's "triangular2".
    Source: Smith 2017, "Cyclical learning rates for training neural networks".

    >>> rate = cyclic(0.1, 0.5, up=2, factor=0.5)
    >>> [round(float(rate(step)), 6) for step in (0, 1, 2, 3, 4, 6)]
    [0.1, 0.3, 0.5, 0.3, 0.1, 0.3]
    """
    low, high = number("cyclic", "low", low, 0), number("cyclic", "high", high, 0)
    up = count("cyclic", "up", up)
    down = up if down is None else count("cyclic", "down", down)
    return partial(_cyclic, low, high, up, down, number("cyclic", "factor", factor, 0, 1))


def _cyclic(low: float, high: float, up: int, down: int, factor: float, step: Any) -> Tensor:
    at = _at(step)
    cycle = ops.floor(ops.div(ops.add(at, 0.5), float(up + down)))  # far from its jumps
    done = ops.sub(at, ops.mul(cycle, float(up + down)))
    share = ops.minimum(ops.div(done, float(up)), ops.div(ops.sub(up + down, done), float(down)))
    height = ops.mul(high - low, ops.pow(factor, cycle)) if factor < 1.0 else high - low
    return ops.add(low, ops.mul(height, share))


@hides_frames
def chained(schedules: Sequence[float | Schedule], milestones: Sequence[int]) -> Schedule:
    """The first schedule up to the first milestone, a number of updates, then the next one from
    its beginning, and so on, as PyTorch's SequentialLR. A number stays. ValueRefusedError unless
    there is one milestone fewer than schedules, each larger than the one before.

    >>> rate = chained([0.1, cosine(0.1, steps=10), 0.001], milestones=[5, 15])
    >>> [round(float(rate(step)), 6) for step in (0, 5, 10, 15)]
    [0.1, 0.1, 0.05, 0.001]
    """
    starts = [0, *(count("chained", f"milestones[{i}]", m) for i, m in enumerate(milestones))]
    if len(schedules) != len(starts) or any(a >= b for a, b in pairwise(starts)):
        raise ValueRefusedError(
            f"chained got {len(schedules)} schedules and milestones={list(milestones)}; expected "
            "one milestone fewer than schedules, each larger than the one before"
        )
    parts = [_schedule("chained", f"schedules[{i}]", s) for i, s in enumerate(schedules)]
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


def _schedule(owner: str, name: str, schedule: float | Schedule) -> Schedule:
    if callable(schedule):
        return schedule
    return partial(_constant, number(owner, name, schedule, 0))


# --- OnPlateau ------------------------------------------------------------------------------------


class OnPlateau(Cell):
    """A schedule that follows a metric: after `patience` metrics in a row that were no better than
    the best one, the next such multiplies the rate by `factor`, down to `low`.

    Better is: below best - threshold * |best|; negate a metric that should grow. NaN is not
    better. Rate, best metric and the count of those that were not are Parameters, which are saved
    with the optimizer whose lr this is. As PyTorch's ReduceLROnPlateau with its mode "min" for
    metrics above 0, and "max" for the negatives of those.

    >>> rate = OnPlateau(0.1, factor=0.5, patience=1)
    >>> for metric in (1.0, 0.5, 0.5, 0.6):
    ...     rate.update(metric)
    >>> float(rate.rate)
    0.05
    """

    def __init__(
        self,
        lr: float,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        low: float = 0.0,
    ):
        self.factor = number("OnPlateau", "factor", factor, 0, below=1)
        self.patience = count("OnPlateau", "patience", patience, 0)
        self.threshold = number("OnPlateau", "threshold", threshold, 0, below=1)
        self.low = number("OnPlateau", "low", low, 0)
        rate = np.float64(number("OnPlateau", "lr", lr, 0))
        self.rate = Parameter(rate, requires_grad=False)
        self.best = Parameter(np.float64(np.inf), requires_grad=False)
        self.worse = Parameter(np.int64(0), requires_grad=False)

    def construct(self, step: Any) -> Any:
        """The present rate, whatever the step is."""
        return self.rate

    def update(self, metric: Any) -> None:
        """Take a metric, a number or a Tensor of shape (), inside a compiled step or outside;
        MinimlError for several numbers."""
        if np.shape(metric) != ():
            raise MinimlError(
                f"OnPlateau got a metric of shape {np.shape(metric)}; expected one number"
            )
        together(self._update, metric)

    def _update(self, metric: Any) -> None:
        given = metric if isinstance(metric, Tensor) else float(metric)  # a number has no device
        value = ops.mul(ops.ones_like(self.best), given)
        limit = ops.mul(self.best, ops.sub(1.0, ops.mul(self.threshold, ops.sign(self.best))))
        better = ops.less(value, limit)
        none = ops.zeros_like(self.worse)
        worse = ops.where(better, none, ops.add(self.worse, 1))
        falls = ops.greater(worse, self.patience)
        lower = ops.maximum(ops.mul(self.rate, self.factor), self.low)
        best = ops.where(better, value, self.best)
        rate = ops.where(falls, ops.minimum(lower, self.rate), self.rate)
        self._assign(best, ops.where(falls, none, worse), rate)

    def _assign(self, best: Tensor, worse: Tensor, rate: Tensor) -> None:
        ops.assign(self.best, best)
        ops.assign(self.worse, worse)
        ops.assign(self.rate, rate)
