"""Losses as functions, made of other operations, and the similarity of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtype import float32, float64, is_float, promote
from ...errors import ShapeError
from ..activation import relu, softplus
from ..arithmetic import abs, as_floats, cast, clip, div, mul, neg, square, sub
from ..compare import equal, logical_and, select
from ..exponential import sqrt, xlogy
from ..inference.devices import on_one_device
from ..inference.numbers import above_zero, number
from ..inference.shapes import broadcast, dtype_of, normal_axis, shape_of, strong
from ..norm import check_reduction
from ..reduce import mean, sum
from ..shape import broadcast_to

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = [
    "bce", "bce_with_logits", "cosine_similarity", "hinge", "huber_loss", "kl_div", "l1_loss",
    "mse_loss",
]  # fmt: skip


@on_one_device
def bce(probs: Any, target: Any, reduction: str = "mean") -> Tensor:
    """-target log(probs) - (1 - target) log(1 - probs), the binary cross entropy of probabilities.

    probs and target have one shape and lie in [0, 1]. The loss is infinite where a probability of
    0 or 1 contradicts its target (PyTorch stops at 100), and NaN outside [0, 1]; 1 - probs
    is rounded. `bce_with_logits` has no such ends.

    >>> bce([0.5, 1.0], [0.0, 1.0], "sum")
    Tensor(0.6931472, shape=(), dtype=float32)
    """
    p, t = _pair("bce", probs, target)
    right, wrong = xlogy(t, p), xlogy(sub(1.0, t), sub(1.0, p))
    return reduced("bce", sub(neg(right), wrong), reduction)


@on_one_device
def bce_with_logits(logits: Any, target: Any, reduction: str = "mean") -> Tensor:
    """target softplus(-logits) + (1 - target) softplus(logits), which is bce(sigmoid(logits),
    target).

    It is exact for logits of any size. Logits and targets have one shape; the gradient is
    sigmoid(logits) - target. Infinite logits give NaN.

    >>> bce_with_logits([1000.0, -1000.0], [1.0, 1.0], "none").tolist()
    [0.0, 1000.0]
    """
    x, t = _pair("bce_with_logits", logits, target)
    losses = sub(mul(t, softplus(neg(x))), mul(sub(t, 1.0), softplus(x)))
    return reduced("bce_with_logits", losses, reduction)


@on_one_device
def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(prediction - target)^2, of one shape."""
    x, t = _pair("mse_loss", prediction, target)
    d = sub(x, t)
    return reduced("mse_loss", mul(d, d), reduction)


@on_one_device
def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|prediction - target|, of one shape; the gradient is 0 where they are equal."""
    x, t = _pair("l1_loss", prediction, target)
    return reduced("l1_loss", abs(sub(x, t)), reduction)


@on_one_device
def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere, for d = prediction - target.

    Both have one shape (Huber 1964). AttributeRefusedError for a delta that is no number above 0.

    >>> huber_loss([1.0, 3.0], [0.0, 0.0], "none").tolist()
    [0.5, 2.5]
    """
    delta = above_zero("huber_loss", "delta", delta)
    x, t = _pair("huber_loss", prediction, target)
    d = sub(x, t)
    kept = clip(d, -delta, delta)
    return reduced("huber_loss", mul(kept, sub(d, mul(kept, 0.5))), reduction)


@on_one_device
def kl_div(log_probs: Any, target: Any, reduction: str = "mean") -> Tensor:
    """target (log(target) - log_probs), the terms of the Kullback-Leibler divergence of target.

    The logarithms of the other distribution come first, as in PyTorch. Both have one shape; a
    target of 0 gives 0. The divergence of one distribution is the sum of the terms;
    "mean" divides by the number of all elements, so of a batch (N, C) the mean divergence is
    "sum" divided by N.

    >>> kl_div([-1.0, -1.0], [1.0, 0.0], "none").tolist()
    [1.0, 0.0]
    """
    x, t = _pair("kl_div", log_probs, target)
    absent = logical_and(equal(t, 0.0), equal(x, -float("inf")))
    terms = sub(xlogy(t, t), mul(t, select(absent, 0.0, x)))
    return reduced("kl_div", terms, reduction)


@on_one_device
def hinge(scores: Any, target: Any, reduction: str = "mean") -> Tensor:
    """max(0, 1 - target * scores), for targets of -1 and 1.

    Both have one shape; at the margin, where it bends, the gradient is 0.

    >>> hinge([0.5, 3.0], [1, 1], "none").tolist()
    [0.5, 0.0]
    """
    x, t = _pair("hinge", scores, target)
    return reduced("hinge", relu(sub(1.0, mul(t, x))), reduction)


@on_one_device
def cosine_similarity(x: Any, y: Any, axis: int = -1, eps: float = 1e-8) -> Tensor:
    """sum(x y) / (max(|x|, eps) max(|y|, eps)) along `axis`, the cosine of the angle of vectors.

    x and y broadcast; integers are cast to float32, float16 and bfloat16 computed in it. Vectors of
    zeros give 0, and the gradient is finite there.

    >>> cosine_similarity([3.0, 4.0], [[4.0, 3.0], [0.0, 0.0]]).tolist()
    [0.9599999785423279, 0.0]
    """
    x, y = strong(x, y)
    shape = broadcast("cosine_similarity", shape_of(x), shape_of(y))
    at = normal_axis("cosine_similarity", axis, len(shape))
    dtype = promote(dtype_of(x), dtype_of(y))
    computed = float64 if dtype == float64 else float32
    x, y = (broadcast_to(cast(v, computed), shape) for v in (x, y))
    # The root's slope is infinite at 0, but nothing passes to what the clip holds.
    least = number("cosine_similarity", "eps", eps, 0.0) ** 2
    lengths = [sqrt(clip(sum(square(v), at), least)) for v in (x, y)]
    cosine = div(sum(mul(x, y), at), mul(*lengths))
    return cast(cosine, dtype) if is_float(dtype) else cosine


def _pair(name: str, x: Any, target: Any) -> tuple[Any, Any]:
    """What is compared, of one shape, else ShapeError, and one float dtype."""
    if shape_of(x) != shape_of(target):
        raise ShapeError(
            f"{name} got shapes {shape_of(x)} and {shape_of(target)}; a loss compares tensors of "
            "one shape, and broadcasting here is more often a mistake than meant"
        )
    x, target = as_floats(x, target)
    return x, target


def reduced(name: str, losses: Tensor, reduction: str) -> Tensor:
    check_reduction(name, reduction)
    return losses if reduction == "none" else (mean if reduction == "mean" else sum)(losses)
