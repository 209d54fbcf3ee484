"""find_rate: a search for the learning rate, from a few steps at rates that grow."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from ..core.errors import MinimlError
from ..core.hints import hides_frames
from ..core.options import count, number
from ..core.tensor import Array
from ..nn import Cell
from .checkpoint import Snapshot
from .learner import Learner, batches_of, check_batches, in_batches, in_equal_parts

_SMOOTHING, _WORSE = 0.9, 4.0  # of the running mean; a loss of so many times the best one ends it


@dataclass(frozen=True)
class RateSearch:
    """The losses of steps at growing rates: rates and losses (steps,), smoothed: running means of
    the losses without start bias."""

    rates: Array
    losses: Array
    smoothed: Array

    @property
    def suggestion(self) -> float:
        """The rate at which the smoothed loss falls quickest by the logarithm of the rate, from the
        second tenth of the steps on, as the first means are of few, up to its least value."""
        start = min(len(self.rates) // 10, len(self.rates) - 3)
        end = max(int(np.argmin(self.smoothed)) + 1, start + 3)
        slopes = np.gradient(self.smoothed[start:end], np.log(self.rates[start:end]))
        return float(self.rates[start + int(np.argmin(slopes))])

    def picture(self) -> bytes:
        """The losses by rates, as a PNG; MinimlError where matplotlib is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MinimlError(
                "a picture of rates is drawn with matplotlib, which is not installed; pip install "
                "matplotlib, or pip install 'miniml[demo]'"
            ) from None
        figure = Figure(figsize=(5.0, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, color="0.75", label="steps")
        axes.plot(self.rates, self.smoothed, label="smoothed")
        axes.axvline(self.suggestion, linestyle="--", label=f"{self.suggestion:.2g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
        axes.legend()
        out = BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()

    def _repr_png_(self) -> bytes:
        return self.picture()


@hides_frames
def find_rate(
    model: Learner,
    data: Any,
    *labels: Any,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    batch_size: int | None = None,
) -> RateSearch:
    """The losses at rates from low to high, each a constant factor above the last, of a step each.

    data, labels, batch_size: as in `Model.fit`, again from the beginning where they end. It ends
    early at a loss that is not finite or 4 times the best smoothed one. Network, optimizer, random
    stream and rate are afterwards as before. MinimlError where it ends too early. Source: Smith
    2017, "Cyclical learning rates for training neural networks", section 3.3.
    """
    who, step = "find_rate", model.step
    low = number(who, "low", low, above=0)
    high, steps = number(who, "high", high, above=low), count(who, "steps", steps, 4)
    data = in_batches(who, data, labels, batch_size, 32, 0, model.group)
    data = in_equal_parts(who, data, batch_size)
    check_batches(who, data, 2)
    parts = model.net, model.loss, step.loss_scale
    before = Snapshot(model.optimizer, *(part for part in parts if isinstance(part, Cell)))
    first, losses, smoothed = float(model.optimizer.lr), list[float](), list[float]()
    rates = low * (high / low) ** (np.arange(steps) / (steps - 1))
    try:
        with closing(_again(data)) as batches:
            for rate, (x, *own) in zip(rates, batches, strict=False):
                model.optimizer.lr = float(rate)
                loss = float(model.parts(step(x, *own))[0])
                if not math.isfinite(loss) or (smoothed and loss > _WORSE * min(smoothed)):
                    break
                losses.append(loss)
                smoothed.append(_mean(losses))
    finally:
        before.restore()
        model.optimizer.lr = first
    if len(losses) < 4:
        raise MinimlError(
            f"find_rate got {len(losses)} losses before they grew beyond all bounds; give a "
            f"smaller low than {low:g}"
        )
    return RateSearch(rates[: len(losses)], np.array(losses), np.array(smoothed))


def _again(data: Any) -> Generator[Any, None, None]:
    """The batches, over and over."""
    while True:
        empty = True
        with closing(batches_of(data)) as batches:
            for batch in batches:
                empty = False
                yield batch
        if empty:
            raise MinimlError("find_rate got data without a batch; give data with at least one")


def _mean(losses: list[float]) -> float:
    """The running mean of losses, without start bias."""
    weights = _SMOOTHING ** np.arange(len(losses))[::-1]
    return float(np.average(losses, weights=weights))
