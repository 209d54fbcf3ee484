"""OnPlateau: a learning rate that falls when a metric no longer does."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..errors import MinimlError
from ..nn import Cell
from ..parameter import Parameter
from ..runtime.staged import together
from ..tensor import Tensor
from .arguments import in_range


class OnPlateau(Cell):
    """A schedule that follows a metric: where `patience` metrics in a row were no better than the
    best one, the next such multiplies the rate by `factor`, down to `low`.

    Better is: below best - threshold * |best|; give the negative of what is to grow. NaN is not
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
        self.factor = in_range("OnPlateau", "factor", factor, 1.0)
        self.patience = int(in_range("OnPlateau", "patience", patience))
        self.threshold = in_range("OnPlateau", "threshold", threshold, 1.0)
        self.low = in_range("OnPlateau", "low", low)
        rate = np.float64(in_range("OnPlateau", "lr", lr))
        self.rate = Parameter(rate, requires_grad=False)
        self.best = Parameter(np.float64(np.inf), requires_grad=False)
        self.worse = Parameter(np.int64(0), requires_grad=False)

    def construct(self, step: Any) -> Any:
        """The rate of now, whatever the step is."""
        return self.rate

    def update(self, metric: Any) -> None:
        """Take a metric, a number or a Tensor of shape (), inside a compiled step or outside."""
        if np.shape(metric) != ():
            raise MinimlError(
                f"OnPlateau got a metric of shape {np.shape(metric)}; expected one number"
            )
        together(self._update, metric)

    def _update(self, metric: Any) -> None:
        given = metric if isinstance(metric, Tensor) else float(metric)  # of no device
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
