"""What training makes small: CrossEntropyLoss, MSELoss."""

from __future__ import annotations

from typing import Any

from .. import ops
from .cell import Cell, refuse_shape, shape_of


class CrossEntropyLoss(Cell):
    """The mean over the batch of -log softmax(logits)[label], a float of shape ().

    logits: (N, classes). labels: (N,), integers from 0 to classes - 1.
    """

    def construct(self, logits: Any, labels: Any) -> Any:
        came, given = shape_of(logits), shape_of(labels)
        if len(came) != 2:
            refuse_shape(self, came, "logits of shape (N, classes) first, then labels")
        if given != came[:1]:
            refuse_shape(self, given, f"labels of shape {came[:1]}, one integer for each row")
        return ops.cross_entropy(logits, labels)


class MSELoss(Cell):
    """The mean of (prediction - target)^2 over all elements, a float of shape ().

    The shapes are equal: broadcasting here is more often a mistake than meant.
    """

    def construct(self, prediction: Any, target: Any) -> Any:
        came, given = shape_of(prediction), shape_of(target)
        if came != given:
            refuse_shape(self, given, f"a target of the prediction's shape, {came}")
        difference = ops.sub(prediction, target)
        return ops.mean(ops.mul(difference, difference))
