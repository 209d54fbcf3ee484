"""Losses as layers: each computes the function of `ops` named beside it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .. import ops
from ..core.abstract import typed
from ..core.dtype import is_float
from ..core.errors import ShapeError
from ..core.options import integer, probability
from ..core.parameter import Parameter
from ..graph.tracing import as_tensor
from ..ops.norm import check_reduction
from .arguments import on_one_device
from .cell import Cell, differing
from .function import CHECKS, FunctionCell

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineSimilarity", "CrossEntropyLoss", "HingeLoss",
    "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "NLLLoss",
]  # fmt: skip

Reduction = Literal["mean", "sum", "none"]
CHECKS[Reduction] = lambda layer, _, value: check_reduction(layer, value)


class Loss(FunctionCell):
    """Base of losses of a prediction and a target of its shape.

    reduction: "mean" over all elements, "sum", or "none" for a loss of each element.
    """

    reduction: Reduction = "mean"

    def construct(self, prediction: Any, target: Any) -> Any:
        return self.function(prediction, target)


class MSELoss(Loss, of=ops.mse_loss):
    """(prediction - target)^2. As for all losses here, the shapes are equal: broadcasting is more
    often a mistake than intended."""


class L1Loss(Loss, of=ops.l1_loss):
    """|prediction - target|."""


class HuberLoss(Loss, of=ops.huber_loss):
    """d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere; d = prediction - target."""

    delta: float = 1.0


class BCELoss(Loss, of=ops.bce):
    """-target log(p) - (1 - target) log(1 - p), for probabilities p; others are refused."""


class BCEWithLogitsLoss(Loss, of=ops.bce_with_logits):
    """The binary cross entropy of sigmoid(prediction), exact for logits of any size."""


class KLDivLoss(Loss, of=ops.kl_div):
    """target (log(target) - prediction), for a prediction that is the logarithm of probabilities.

    "mean" divides by the number of all elements, as in PyTorch; the mean divergence of a batch is
    "sum" divided by N.
    """


class HingeLoss(Loss, of=ops.hinge):
    """max(0, 1 - target * prediction) for targets of -1 and 1."""


class CosineSimilarity(FunctionCell, of=ops.cosine_similarity):
    """sum(x y) / (max(|x|, eps) max(|y|, eps)) along `axis`, of vectors that broadcast.

    axis: the last by default, in PyTorch axis 1.
    """

    axis: int = -1
    eps: float = 1e-8

    def construct(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


class CTCLoss(FunctionCell, of=ops.ctc_loss):
    """The CTC loss of log_probs (T, N, C) and targets (N, S) of these lengths: `ops.ctc_loss`.

    zero_infinity: 0 in place of the infinite loss of a target that cannot be spelt.
    """

    blank: int = 0
    reduction: Reduction = "mean"
    zero_infinity: bool = False

    def construct(
        self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any
    ) -> Any:
        return self.function(log_probs, targets, input_lengths, target_lengths)


class NLLLoss(Cell):
    """-w_c log_probs_c at each label c: `ops.nll_loss`, whose options it has.

    log_probs: (N, C, ...), labels: (N, ...). weight: w, (C,), kept as a Parameter without gradient.
    """

    def __init__(
        self, weight: Any = None, ignore_index: int | None = None, reduction: str = "mean"
    ):
        name = type(self).__name__
        self.weight = None if weight is None else _class_weights(name, weight)
        self.ignore_index = (
            None if ignore_index is None else integer(name, "ignore_index", ignore_index)
        )
        self.reduction = check_reduction(name, reduction)

    def construct(self, log_probs: Any, labels: Any) -> Any:
        log_probs, labels = on_one_device(self, log_probs, labels)
        return ops.nll_loss(log_probs, labels, self.reduction, self.weight, self.ignore_index)

    def describe(self) -> str:
        """The constructor call, without defaults."""
        shown = {} if self.weight is None else {"weight": self.weight._host("repr").tolist()}
        rest = {"ignore_index": None, "reduction": "mean", "label_smoothing": 0.0}
        return differing(self, {k: v for k, v in rest.items() if hasattr(self, k)}, **shown)


class CrossEntropyLoss(NLLLoss):
    """The cross entropy of softmax(logits) with labels: `ops.cross_entropy`, whose options it has.

    logits: (N, C, ...) floats for C classes. labels: (N, ...) integers from 0 to C - 1, or
    probabilities of the logits' shape. ignore_index: None by default, so that a label outside the
    classes is refused; -100 in PyTorch. weight is kept as a Parameter without gradient.
    """

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = probability("CrossEntropyLoss", "label_smoothing", label_smoothing)

    def construct(self, logits: Any, labels: Any) -> Any:
        logits, labels = on_one_device(self, logits, labels)
        return ops.cross_entropy(
            logits, labels, self.reduction, self.weight, self.ignore_index, self.label_smoothing
        )


def _class_weights(layer: str, weight: Any) -> Parameter:
    """The weights as a Parameter that is moved and saved with the loss, but not trained."""
    given = as_tensor(weight)
    kept = Parameter(
        given if is_float(given.dtype) else ops.cast(given, float), requires_grad=False
    )
    if len(kept.shape) != 1 or not np.isfinite(kept.asnumpy()).all():
        raise ShapeError(
            f"{layer} got weight of {typed(given)}; expected one finite number for each class; "
            f"logits and labels go to the cell that it makes, as in nn.{layer}()(logits, labels)"
        )
    return kept
