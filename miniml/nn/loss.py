"""What training minimises: CrossEntropyLoss, MSELoss."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..abstract import typed
from ..dtype import int64, is_float
from ..errors import ShapeError
from ..graph.tracer import as_tensor
from ..ops.norm import REDUCTIONS
from ..parameter import Parameter
from .arguments import choice, fraction, integer
from .cell import Cell, differing
from .shapes import refuse_shape, shape_of


class CrossEntropyLoss(Cell):
    """The mean over the batch of -log softmax(logits)[label], a float of shape ().

    logits: (N, C) floats for C classes. labels: (N,), integers from 0 to C - 1. With w_c the
    class weights (1 by default), e = label_smoothing and y_n the labels, row n has the loss

        l_n = -(1 - e) w_{y_n} log softmax(logits_n)[y_n] - e / C sum_c w_c log softmax(logits_n)[c]

    weight: (C,), the weight of each class; kept as a Parameter without gradient. ignore_index:
    rows with this label count nowhere, neither in sums nor in means; it may lie outside the
    classes. None, the default, ignores no row, so a label outside the classes is refused.
    reduction: "mean" is sum_n l_n / sum_n w_{y_n} (NaN where no row counts), "sum" is sum_n l_n,
    "none" is (l_1, ..., l_N), with 0 for rows that are ignored. label_smoothing: from 0 to 1
    (Szegedy et al. 2015, "Rethinking the Inception architecture"). These are PyTorch's formulas.
    """

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        name = "CrossEntropyLoss"
        self.weight = None if weight is None else _class_weights(weight)
        self.ignore_index = (
            None if ignore_index is None else integer(name, "ignore_index", ignore_index)
        )
        self.reduction = choice(name, "reduction", reduction, REDUCTIONS)
        self.label_smoothing = fraction(name, "label_smoothing", label_smoothing)

    def construct(self, logits: Any, labels: Any) -> Any:
        self._check(shape_of(self, logits), shape_of(self, labels))
        if self.weight is None and self.ignore_index is None and not self.label_smoothing:
            return ops.cross_entropy(logits, labels, self.reduction)
        logits, labels = as_tensor(logits), as_tensor(labels)
        counts = self._counts(labels)
        inside = labels if counts is None else ops.where(counts, labels, ops.zeros_like(labels))
        share = ops.ones_like(labels) if self.weight is None else ops.gather(self.weight, inside)
        share = _where(counts, ops.cast(share, logits.dtype))
        losses = _where(counts, self._losses(logits, inside, share))
        if self.reduction == "mean":
            return _weighted_mean(losses, share)
        return ops.sum(losses) if self.reduction == "sum" else losses

    def _counts(self, labels: Any) -> Any:
        """Which rows count; None for all."""
        if self.ignore_index is None:
            return None
        return ops.not_equal(ops.cast(labels, int64), self.ignore_index)

    def _losses(self, logits: Any, labels: Any, share: Any) -> Any:
        """The loss of each row, as if all counted."""
        losses = ops.mul(share, ops.cross_entropy(logits, labels, "none"))
        if not self.label_smoothing:
            return losses
        smooth = ops.mul(ops.log_softmax(logits), self.label_smoothing / logits.shape[1])
        if self.weight is not None:
            smooth = ops.mul(smooth, ops.cast(self.weight, logits.dtype))
        return ops.sub(ops.mul(losses, 1.0 - self.label_smoothing), ops.sum(smooth, 1))

    def _check(self, logits: tuple[int, ...], labels: tuple[int, ...]) -> None:
        if len(logits) != 2:
            refuse_shape(self, logits, "logits of shape (N, classes) first, then labels")
        if labels != logits[:1]:
            refuse_shape(self, labels, f"labels of shape {logits[:1]}, one integer for each row")
        if self.weight is not None and self.weight.shape != logits[1:]:
            refuse_shape(self, logits, f"logits of {self.weight.size} classes, one for each weight")

    def describe(self) -> str:
        """The constructor call, without defaults."""
        shown = {} if self.weight is None else {"weight": self.weight._host("repr").tolist()}
        rest = {"ignore_index": None, "reduction": "mean", "label_smoothing": 0.0}
        return differing(self, rest, **shown)


class MSELoss(Cell):
    """The mean of (prediction - target)^2 over all elements, a float of shape ().

    The shapes are equal: broadcasting here is more often a mistake than meant. reduction: "mean",
    "sum", or "none" for (prediction - target)^2 itself.
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = choice("MSELoss", "reduction", reduction, REDUCTIONS)

    def construct(self, prediction: Any, target: Any) -> Any:
        given, expected = shape_of(self, target), shape_of(self, prediction)
        if given != expected:
            refuse_shape(self, given, f"a target of the prediction's shape, {expected}")
        difference = ops.sub(prediction, target)
        squares = ops.mul(difference, difference)
        reduce = {"mean": ops.mean, "sum": ops.sum}.get(self.reduction)
        return squares if reduce is None else reduce(squares)

    def describe(self) -> str:
        """The constructor call, without defaults."""
        return differing(self, {"reduction": "mean"})


def _class_weights(weight: Any) -> Parameter:
    """The weights as a Parameter that is moved and saved with the loss, but not trained."""
    given = as_tensor(weight)
    kept = Parameter(
        given if is_float(given.dtype) else ops.cast(given, float), requires_grad=False
    )
    if len(kept.shape) != 1 or not np.isfinite(kept.asnumpy()).all():
        raise ShapeError(
            f"CrossEntropyLoss got weight of {typed(given)}; expected one "
            "finite number for each class; logits and labels go to the cell that it makes, as in "
            "nn.CrossEntropyLoss()(logits, labels)"
        )
    return kept


def _where(counts: Any, values: Any) -> Any:
    """The values of rows that count, 0 for the others."""
    return values if counts is None else ops.where(counts, values, ops.zeros_like(values))


def _weighted_mean(losses: Any, share: Any) -> Any:
    """sum(losses) / sum(share), by means: sums of many rows overflow in float16."""
    return ops.div(ops.mean(losses), ops.mean(share))
