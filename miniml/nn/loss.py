"""Losses as layers: each computes the function of `ops` named beside it."""

from __future__ import annotations

import reprlib
from copy import copy
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from .. import ops
from ..core.abstract import is_float, typed
from ..core.errors import AttributeRefusedError, ShapeError, ValueRefusedError
from ..core.options import number, probability
from ..core.parameter import Parameter
from ..graph.tracing import as_tensor
from ..ops.norm import check_reduction
from .cell import Cell
from .layer import CHECKS, FunctionCell, shape_of

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity",
    "CrossEntropyLoss", "FocalLoss", "GaussianNLLLoss", "HingeLoss", "HuberLoss", "KLDivLoss",
    "L1Loss", "MSELoss", "MarginRankingLoss", "NLLLoss", "PoissonNLLLoss", "SampleWeighted",
    "SmoothL1Loss", "TripletMarginLoss",
]  # fmt: skip

Reduction = Literal["mean", "sum", "none"]
Power = Annotated[float, "at least 0"]
Share = Annotated[float, "from 0 to 1"]
Weight = Annotated[Any, "of each loss"]
ClassWeight = Annotated[Any, "of each class"]


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


class SmoothL1Loss(Loss, of=ops.smooth_l1_loss):
    """d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere; d = prediction - target."""

    beta: float = 1.0


class KLDivLoss(Loss, of=ops.kl_div):
    """target (log(target) - prediction), for a prediction that is the logarithm of probabilities.

    reduction: "mean" over all elements, as in PyTorch; "batchmean" for the mean divergence of a
    batch (N, ...), "sum" divided by N; "sum" or "none".
    """

    reduction: Literal["mean", "sum", "none", "batchmean"] = "mean"  # type: ignore[assignment]


class HingeLoss(Loss, of=ops.hinge):
    """max(0, 1 - target * prediction) for targets of -1 and 1."""


class PoissonNLLLoss(Loss, of=ops.poisson_nll_loss):
    """exp(prediction) - target * prediction, for counts: `ops.poisson_nll_loss`."""

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8


class GaussianNLLLoss(FunctionCell, of=ops.gaussian_nll_loss):
    """(log(variance) + (mean - target)^2 / variance) / 2, called with mean, target and variance:
    `ops.gaussian_nll_loss`."""

    reduction: Reduction = "mean"
    full: bool = False
    eps: float = 1e-6


class TripletMarginLoss(FunctionCell, of=ops.triplet_margin_loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the distance of vectors
    (..., D) in the p-norm: `ops.triplet_margin_loss`."""

    reduction: Reduction = "mean"
    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False


class CosineEmbeddingLoss(FunctionCell, of=ops.cosine_embedding_loss):
    """1 - cos(x, y) for a target of 1, max(0, cos(x, y) - margin) for one of -1, of vectors
    (..., D) and targets (...)."""

    reduction: Reduction = "mean"
    margin: float = 0.0


class MarginRankingLoss(FunctionCell, of=ops.margin_ranking_loss):
    """max(0, margin - target (x - y)), for a target of 1 where x should be larger, -1 where y."""

    reduction: Reduction = "mean"
    margin: float = 0.0


class CosineSimilarity(FunctionCell, of=ops.cosine_similarity):
    """sum(x y) / (max(|x|, eps) max(|y|, eps)) along `axis`, of vectors that broadcast.

    axis: the last by default, in PyTorch axis 1.
    """

    axis: int = -1
    eps: float = 1e-8


class CTCLoss(FunctionCell, of=ops.ctc_loss):
    """The CTC loss of log_probs (T, N, C) and targets (N, S) of these lengths: `ops.ctc_loss`.

    zero_infinity: 0 in place of the infinite loss of a target that cannot be spelt.
    """

    blank: int = 0
    reduction: Reduction = "mean"
    zero_infinity: bool = False
    plain_mean = False  # each loss is divided by its length first


# --- Losses with weights --------------------------------------------------------------------------


class BCELoss(FunctionCell, of=ops.bce):
    """-target log(p) - (1 - target) log(1 - p), for probabilities p; others are refused.

    weight: a factor of each loss, which broadcasts to their shape, kept as a Parameter without
    gradient.
    """

    reduction: Reduction = "mean"
    weight: Weight = None


class BCEWithLogitsLoss(FunctionCell, of=ops.bce_with_logits):
    """The binary cross entropy of sigmoid(prediction), exact for logits of any size.

    weight: a factor of each loss; pos_weight: one of what targets of 1 lose. Both broadcast to the
    shape of the losses, and are kept as Parameters without gradient.
    """

    reduction: Reduction = "mean"
    weight: Weight = None
    pos_weight: Weight = None


class FocalLoss(FunctionCell, of=ops.focal_loss):
    """The binary cross entropy of logits times (1 - q)^gamma, q being the probability given to the
    target: `ops.focal_loss`. alpha: None, or the factor of targets of 1, beside 1 - alpha."""

    reduction: Reduction = "mean"
    gamma: Power = 2.0
    alpha: Share | None = None


class ClassLoss(FunctionCell):
    """Base of losses of class labels."""

    weight: ClassWeight = None
    ignore_index: int | None = None

    @property
    def plain_mean(self) -> bool:
        """True if the mean of the losses is that of all of them, without weights."""
        return self.weight is None and self.ignore_index is None


class NLLLoss(ClassLoss, of=ops.nll_loss):
    """-w_c log_probs_c at each label c: `ops.nll_loss`, whose options it has.

    log_probs: (N, C, ...), labels: (N, ...). weight: w, (C,), kept as a Parameter without gradient.
    axis: that of the classes in log_probs.
    """

    reduction: Reduction = "mean"
    axis: int = 1


class CrossEntropyLoss(ClassLoss, of=ops.cross_entropy):
    """The cross entropy of softmax(logits) with labels: `ops.cross_entropy`, whose options it has.

    logits: (N, C, ...) floats for C classes. labels: (N, ...) integers from 0 to C - 1, or
    probabilities of the logits' shape. ignore_index: None by default, so that a label outside the
    classes is refused; -100 in PyTorch. weight is kept as a Parameter without gradient. axis: that
    of the classes: -1 for logits (N, ..., C).
    """

    reduction: Reduction = "mean"
    label_smoothing: Share = 0.0
    axis: int = 1


class SampleWeighted(Cell):
    """The losses of rows times weights of the rows: called with a prediction, its targets and
    weights (N,), as `fit(x, y, weights, epochs=3)` and `step(x, y, weights)` do.

    loss: a loss with reduction="none", or a function that gives the losses (N, ...) of the rows.
    reduction: "mean" is sum(weight * loss) / sum(weight), "sum" or "none". Weights of classes are
    those of rows, too: `class_weights[y]`. Weights for `fit(x, y, sample_weight=weights)` need no
    such loss; there the mean is over rows. AttributeRefusedError for a loss with another reduction,
    ShapeError for losses that are not of rows, or weights that are not (N,).

    >>> loss = SampleWeighted(MSELoss(reduction="none"))
    >>> loss(np.float32([1.0, 2.0]), np.float32([0.0, 0.0]), np.float32([3.0, 1.0])).item()
    1.75
    """

    _shown = ("loss",)
    plain_mean = False  # but over weights

    def __init__(self, loss: Any, reduction: str = "mean"):
        if not callable(loss) or isinstance(loss, type):
            raise AttributeRefusedError(
                f"SampleWeighted got {loss!r} for the loss; expected one such as "
                "nn.CrossEntropyLoss(reduction='none')"
            )
        self.loss = loss
        self.reduction = check_reduction("SampleWeighted", reduction)

    def construct(self, prediction: Any, *targets: Any) -> Any:
        losses, weight = self.loss(prediction, *targets[:-1]), ops.stop_gradient(targets[-1])
        shape, given = losses.shape, shape_of(self, weight)
        if not given or given != shape[:1]:
            raise ShapeError(
                f"SampleWeighted got losses of shape {shape} and weights of shape {given}; "
                "expected losses (N, ...) of the rows, as of a loss with reduction='none', and "
                "weights (N,)"
            )
        wide = ops.cast(ops.reshape(weight, (*given, *(1,) * (len(shape) - 1))), losses.dtype)
        weighted = ops.mul(losses, wide)
        if self.reduction == "none":
            return weighted
        total = ops.sum(weighted)
        if self.reduction == "sum":
            return total
        return ops.div(total, ops.sum(ops.broadcast_to(wide, shape)))


def of_rows(who: str, loss: Any) -> tuple[Any, str]:
    """A loss that gives those of the rows, and how they become one: "mean", "sum" or "batchmean".

    A loss of this module is copied with reduction="none"; another function has to give the losses
    of rows already. AttributeRefusedError for one whose mean is not that of all its losses.
    """
    reduction = getattr(loss, "reduction", "none")
    if not isinstance(loss, Cell) or reduction == "none":
        return loss, "mean"
    if not getattr(loss, "plain_mean", True):
        raise AttributeRefusedError(
            f"{who} got weights of rows or classes for {loss.describe()}, whose mean is weighted "
            "already; give all weights there, or nn.SampleWeighted of one with reduction='none', "
            "and weights behind the labels"
        )
    own = copy(loss)
    own.reduction = "none"
    return own, str(reduction)


# --- Checks of options ----------------------------------------------------------------------------


def _fixed(layer: str, name: str, weight: Any) -> Parameter:
    """A weight as a Parameter that is moved and saved with the loss, but not trained."""
    kept = _as_parameter(weight)
    if not np.isfinite(kept.asnumpy()).all():
        raise ValueRefusedError(
            f"{layer} got {name}={reprlib.repr(weight)}; expected finite numbers"
        )
    return kept


def _class_weights(layer: str, name: str, weight: Any) -> Parameter:
    """The weights of classes, in the same way."""
    kept = _as_parameter(weight)
    if len(kept.shape) != 1 or not np.isfinite(kept.asnumpy()).all():
        raise ShapeError(
            f"{layer} got {name} of {typed(as_tensor(weight))}; expected one finite number for "
            "each class; logits and labels go to the cell that it makes, as in "
            f"nn.{layer}()(logits, labels)"
        )
    return kept


def _as_parameter(weight: Any) -> Parameter:
    given = as_tensor(weight)
    return Parameter(
        given if is_float(given.dtype) else ops.cast(given, float), requires_grad=False
    )


CHECKS[Reduction] = lambda layer, _, value: check_reduction(layer, value)
CHECKS |= {Power: partial(number, low=0), Share: probability, Share | None: probability}
CHECKS |= {Weight: _fixed, ClassWeight: _class_weights}
