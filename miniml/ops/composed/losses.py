"""Loss functions as compositions of operations, and the cosine similarity of vectors.

In order: losses that compare two tensors of one shape; losses of distributions; losses that compare
vectors or scores; losses of class labels, cross entropy and the negative log likelihood; CTC, the
loss of labels at unknown positions in a sequence.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...core.abstract import DType, float16, float32, float64, int64, is_float, promote
from ...core.errors import AttributeRefusedError, DTypeError, ShapeError
from ...core.options import choice, flag, integer, number, probability
from ...core.trace import current_trace
from ..checks import (
    Tensor,
    broadcast,
    check_beside,
    composition,
    dtype_of,
    needs_float,
    normal_axis,
    shape_of,
    strong,
)
from ..control import scan
from ..create import ones_like, zeros_like
from ..elementwise import (
    abs,
    add,
    cast,
    clip,
    div,
    exp,
    log,
    logaddexp,
    maximum,
    minimum,
    mul,
    neg,
    pow,
    relu,
    sigmoid,
    softplus,
    sqrt,
    square,
    stop_gradient,
    sub,
    xlogy,
)
from ..index import gather, take_along_axis
from ..logic import (
    equal,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
    select,
)
from ..norm import (
    REDUCTIONS,
    CheckedLabels,
    CheckedProbabilities,
    CrossEntropy,
    check_reduction,
    log_softmax,
)
from ..reduce import any, mean, norm, sum
from ..shape import broadcast_to, concat, expand_dims, moveaxis, reshape, squeeze
from .elementwise import as_floats, in_dtype

__all__ = [
    "bce", "bce_with_logits", "cosine_similarity", "focal_loss", "hinge", "huber_loss", "kl_div",
    "l1_loss", "mse_loss", "smooth_l1_loss",
    "gaussian_nll_loss", "poisson_nll_loss",
    "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss",
    "cross_entropy", "nll_loss",
    "ctc_loss",
]  # fmt: skip


@composition
def bce(probs: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Tensor:
    """-target log(probs) - (1 - target) log(1 - probs), the binary cross entropy of probabilities.

    probs and target have one shape and lie in [0, 1]: ValueRefusedError for other probs (on a GPU
    a loss of NaN). The loss is infinite where a probability of 0 or 1 contradicts its target
    (PyTorch stops at 100); 1 - probs is rounded. `bce_with_logits` has no such ends. weight: a
    factor of each loss, which broadcasts to their shape; "mean" divides by their number.
    Source: Bishop 2006, "Pattern recognition and machine learning", equation 4.90.

    >>> bce([0.5, 1.0], [0.0, 1.0], "sum")
    Tensor(0.6931472, shape=(), dtype=float32)
    """
    p, t = _alike("bce", probs, target)
    p = CheckedProbabilities("bce")(p)
    right, wrong = xlogy(t, p), xlogy(sub(1.0, t), sub(1.0, p))
    return reduced("bce", _scaled("bce", "weight", sub(neg(right), wrong), weight), reduction)


@composition
def bce_with_logits(
    logits: Any, target: Any, reduction: str = "mean", weight: Any = None, pos_weight: Any = None
) -> Tensor:
    """target softplus(-logits) + (1 - target) softplus(logits), which is bce(sigmoid(logits),
    target).

    It is exact for logits of any size. Logits and targets have one shape; the gradient is
    sigmoid(logits) - target. Infinite logits give NaN. weight: a factor of each loss; pos_weight: a
    factor of target softplus(-logits) alone, above 1 for more recall. Both broadcast to the shape;
    "mean" divides by the number of losses. Source: Bishop 2006, equation 4.90, as in `bce`.

    >>> bce_with_logits([1000.0, -1000.0], [1.0, 1.0], "none").tolist()
    [0.0, 1000.0]
    """
    name = "bce_with_logits"
    x, t = _alike(name, logits, target)
    right = _scaled(name, "pos_weight", mul(t, softplus(neg(x))), pos_weight)
    losses = sub(right, mul(sub(t, 1.0), softplus(x)))
    return reduced(name, _scaled(name, "weight", losses, weight), reduction)


@composition
def focal_loss(
    logits: Any,
    target: Any,
    reduction: str = "mean",
    gamma: float = 2.0,
    alpha: float | None = None,
) -> Tensor:
    """(1 - q)^gamma bce_with_logits(logits, target), where q = p target + (1 - p) (1 - target) and
    p = sigmoid(logits): what is classified well counts little.

    Logits and targets, from 0 to 1, have one shape. gamma: 0 or more. alpha, from 0 to 1: a factor
    alpha target + (1 - alpha) (1 - target), 1/4 in the paper; None for none. Source: Lin et al.
    2017, "Focal Loss for Dense Object Detection".

    >>> focal_loss([0.0], [1.0], "none"), bce_with_logits([0.0], [1.0])  # a quarter of it
    (Tensor([0.1732868], shape=(1,), dtype=float32), Tensor(0.6931472, shape=(), dtype=float32))
    """
    gamma = number("focal_loss", "gamma", gamma, 0)
    x, t = _alike("focal_loss", logits, target)
    off = sub(1.0, t)
    losses = add(mul(t, softplus(neg(x))), mul(off, softplus(x)))
    if gamma:
        missed = add(mul(t, sigmoid(neg(x))), mul(off, sigmoid(x)))
        # From the least normal number on, for the slope of a power below 1 is infinite at 0.
        tiny = 6.1e-5 if dtype_of(x) == float16 else 1.2e-38
        losses = mul(pow(clip(missed, tiny), gamma), losses)
    if alpha is not None:
        share = probability("focal_loss", "alpha", alpha)
        losses = mul(losses, add(mul(t, share), mul(off, 1.0 - share)))
    return reduced("focal_loss", losses, reduction)


@composition
def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(prediction - target)^2, of one shape.

    Source: Bishop 2006, "Pattern recognition and machine learning", equation 1.91 with q = 2."""
    x, t = _alike("mse_loss", prediction, target)
    d = sub(x, t)
    return reduced("mse_loss", mul(d, d), reduction)


@composition
def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|prediction - target|, of one shape; the gradient is 0 where they are equal.

    Source: Bishop 2006, "Pattern recognition and machine learning", equation 1.91 with q = 1."""
    x, t = _alike("l1_loss", prediction, target)
    return reduced("l1_loss", abs(sub(x, t)), reduction)


@composition
def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere, for d = prediction - target.

    Both have one shape (Huber 1964). ValueRefusedError for a delta that is not above
    0.

    >>> huber_loss([1.0, 3.0], [0.0, 0.0], "none").tolist()
    [0.5, 2.5]
    """
    delta = number("huber_loss", "delta", delta, above=0)
    x, t = _alike("huber_loss", prediction, target)
    d = sub(x, t)
    kept = clip(d, -delta, delta)
    return reduced("huber_loss", mul(kept, sub(d, mul(kept, 0.5))), reduction)


@composition
def smooth_l1_loss(
    prediction: Any, target: Any, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere, for d = prediction - target.

    `huber_loss` with delta = beta, divided by beta: its slopes far out are -1 and 1. beta = 0 is
    `l1_loss`. Both have one shape. Source: Girshick 2015, "Fast R-CNN".

    >>> smooth_l1_loss([1.0, 3.0], [0.0, 0.0], "none", beta=2.0).tolist()
    [0.25, 2.0]
    """
    beta = number("smooth_l1_loss", "beta", beta, 0)
    x, t = _alike("smooth_l1_loss", prediction, target)
    d = sub(x, t)
    if not beta:
        return reduced("smooth_l1_loss", abs(d), reduction)
    kept = clip(d, -beta, beta)
    return reduced("smooth_l1_loss", mul(div(kept, beta), sub(d, mul(kept, 0.5))), reduction)


@composition
def kl_div(log_probs: Any, target: Any, reduction: str = "mean") -> Tensor:
    """target (log(target) - log_probs), the terms of the Kullback-Leibler divergence of target.

    The logarithms of the other distribution come first, as in PyTorch. Both have one shape; a
    target of 0 gives 0. The divergence of one distribution is the sum of the terms;
    "mean" divides by the number of all elements, "batchmean", the mean divergence of a batch
    (N, ...), by N.

    >>> kl_div([-1.0, -1.0], [1.0, 0.0], "none").tolist()
    [1.0, 0.0]
    """
    x, t = _alike("kl_div", log_probs, target)
    absent = logical_and(equal(t, 0.0), equal(x, -float("inf")))
    terms = sub(xlogy(t, t), mul(t, select(absent, 0.0, x)))
    if choice("kl_div", "reduction", reduction, (*REDUCTIONS, "batchmean")) == "batchmean":
        return div(sum(terms), float(*shape_of(x)[:1] or (1,)))
    return reduced("kl_div", terms, reduction)


@composition
def hinge(scores: Any, target: Any, reduction: str = "mean") -> Tensor:
    """max(0, 1 - target * scores), for targets of -1 and 1.

    Both have one shape; at the margin, where it bends, the gradient is 0. Source: Cortes, Vapnik
    1995, "Support-vector networks".

    >>> hinge([0.5, 3.0], [1, 1], "none").tolist()
    [0.5, 0.0]
    """
    x, t = _alike("hinge", scores, target)
    return reduced("hinge", relu(sub(1.0, mul(t, x))), reduction)


@composition
def cosine_similarity(x: Any, y: Any, axis: int = -1, eps: float = 1e-8) -> Tensor:
    """sum(x y) / (max(|x|, eps) max(|y|, eps)) along `axis`, the cosine of the angle of vectors.

    x and y broadcast; integers are cast to float32, float16 and bfloat16 computed in it. Vectors of
    zeros give 0, and the gradient is finite there. Source: Salton, Wong, Yang 1975, "A vector space
    model for automatic indexing"; eps: PyTorch's cosine_similarity.

    >>> cosine_similarity([3.0, 4.0], [[4.0, 3.0], [0.0, 0.0]]).tolist()
    [0.9599999785423279, 0.0]
    """
    x, y = strong(x, y)
    shape = broadcast("cosine_similarity", shape_of(x), shape_of(y))
    at = normal_axis("cosine_similarity", axis, len(shape))
    dtype = promote(dtype_of(x), dtype_of(y))
    computed = float64 if dtype == float64 else float32
    x, y = (broadcast_to(in_dtype(v, computed), shape) for v in (x, y))
    # The root's slope is infinite at 0, but no gradient passes where the clip binds.
    least = number("cosine_similarity", "eps", eps, 0) ** 2
    lengths = [sqrt(clip(sum(square(v), at), least)) for v in (x, y)]
    cosine = div(sum(mul(x, y), at), mul(*lengths))
    return in_dtype(cosine, dtype) if is_float(dtype) else cosine


def _scaled(name: str, what: str, losses: Any, weight: Any) -> Any:
    """The losses times a weight, in their dtype, if there is one."""
    if weight is None:
        return losses
    check_beside(name, what, weight, "losses", losses)
    return mul(losses, in_dtype(weight, dtype_of(losses)))


def _alike(name: str, *xs: Any) -> tuple[Any, ...]:
    """Tensors in one float dtype; ShapeError unless they have one shape."""
    shapes = [shape_of(x) for x in xs]
    if len(set(shapes)) > 1:
        got = ", ".join(map(str, shapes[:-1])) + f" and {shapes[-1]}"
        raise ShapeError(
            f"{name} got shapes {got}; a loss compares tensors of one shape, and broadcasting here "
            "is more often a mistake than meant"
        )
    return tuple(as_floats(*xs))


def reduced(name: str, losses: Tensor, reduction: str) -> Tensor:
    """The losses, their mean or their sum; ValueRefusedError for another reduction."""
    check_reduction(name, reduction)
    return losses if reduction == "none" else (mean if reduction == "mean" else sum)(losses)


# --- Losses of distributions ----------------------------------------------------------------------


@composition
def gaussian_nll_loss(
    mean: Any,
    target: Any,
    variance: Any,
    reduction: str = "mean",
    full: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """(log(v) + (mean - target)^2 / v) / 2 for v = max(variance, eps): the negative log likelihood
    of targets under normal distributions.

    mean and target have one shape, to which variance broadcasts, else ShapeError. full: add log(2
    pi) / 2. A variance below 0 gives NaN. As in PyTorch, the gradient in a variance below eps is
    that in v, so that it grows again. Source: Nix and Weigend 1994.

    >>> gaussian_nll_loss([1.0, 2.0], [0.0, 0.0], 1.0, "none").tolist()
    [0.5, 2.0]
    """
    name = "gaussian_nll_loss"
    eps, full = number(name, "eps", eps, above=0), flag(name, "full", full)
    check_beside(name, "variance", variance, "a mean", mean)
    mean, t = _alike(name, mean, target)
    mean, t, v = as_floats(mean, t, variance)
    low = add(sub(v, stop_gradient(v)), eps)
    v = select(less(v, eps), select(less(v, 0.0), float("nan"), low), v)
    losses = add(mul(add(log(v), div(square(sub(mean, t)), v)), 0.5), 0.5 * _LOG_2PI * full)
    return reduced(name, losses, reduction)


@composition
def poisson_nll_loss(
    prediction: Any,
    target: Any,
    reduction: str = "mean",
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
) -> Tensor:
    """exp(prediction) - target * prediction, the negative log likelihood of counts under Poisson
    distributions, but for log(target!).

    log_input: the prediction is the logarithm of the rate; False for the rate itself, whose loss is
    prediction - target log(prediction + eps). full: add Stirling's target log(target) - target +
    log(2 pi target) / 2, for log(target!), where target > 1. Both have one shape.
    Source: McCullagh, Nelder 1989, "Generalized linear models", chapter 6.

    >>> poisson_nll_loss([0.0, 0.0], [0.0, 3.0], "none").tolist()
    [1.0, 1.0]
    """
    name = "poisson_nll_loss"
    log_input, full = flag(name, "log_input", log_input), flag(name, "full", full)
    eps = number(name, "eps", eps, 0)
    x, t = _alike(name, prediction, target)
    losses = sub(exp(x), mul(t, x)) if log_input else sub(x, xlogy(t, add(x, eps)))
    if full:
        many = select(less_equal(t, 1.0), 1.0, t)
        logs = log(many)
        stirling = add(sub(mul(many, logs), many), mul(add(logs, _LOG_2PI), 0.5))
        losses = add(losses, select(less_equal(t, 1.0), 0.0, stirling))
    return reduced(name, losses, reduction)


_LOG_2PI = math.log(2 * math.pi)


# --- Losses that compare vectors or scores --------------------------------------------------------


@composition
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    reduction: str = "mean",
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), where d(a, b) is the p-norm of
    a - b + eps along the last axis.

    All have one shape (..., D); the losses have shape (...). ShapeError for numbers. p: at least 1.
    eps: keeps equal vectors where the norm has a slope. swap: d(positive, negative) in place of
    d(anchor, negative), where it is smaller (Balntas et al. 2016). Source: Schroff et al. 2015,
    "FaceNet", with squares there.

    >>> triplet_margin_loss([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 2.0]], eps=0.0).item()
    4.0
    """
    name = "triplet_margin_loss"
    margin, p = number(name, "margin", margin, above=0), number(name, "p", p, 1)
    eps, swap = number(name, "eps", eps, 0), flag(name, "swap", swap)
    a, right, wrong = _alike(name, anchor, positive, negative)
    if not shape_of(a):
        raise ShapeError(f"{name} got tensors of shape (); expected vectors, of shape (..., D)")

    def distance(x: Any, y: Any) -> Any:
        return norm(add(sub(x, y), eps), p, -1)

    far = distance(a, wrong)
    if swap:
        far = minimum(far, distance(right, wrong))
    return reduced(name, relu(add(sub(distance(a, right), far), margin)), reduction)


@composition
def cosine_embedding_loss(
    x: Any, y: Any, target: Any, reduction: str = "mean", margin: float = 0.0
) -> Tensor:
    """1 - cos(x, y) for a target of 1, max(0, cos(x, y) - margin) for one of -1.

    x and y have one shape (..., D), the targets (...). The cosine is `cosine_similarity` along the
    last axis; at the margin the gradient is 0. NaN for other targets. ShapeError for other shapes.
    Source: PyTorch's CosineEmbeddingLoss.

    >>> cosine_embedding_loss([[3.0, 4.0]] * 2, [[6.0, 8.0]] * 2, [1, -1], "none").tolist()
    [0.0, 1.0]
    """
    name = "cosine_embedding_loss"
    margin = number(name, "margin", margin)
    x, y = _alike(name, x, y)
    if not shape_of(x) or shape_of(target) != shape_of(x)[:-1]:
        raise ShapeError(
            f"{name} got x and y of shape {shape_of(x)} and targets of shape {shape_of(target)}; "
            "expected vectors, of shape (..., D), and a target of 1 or -1 for each, of shape (...)"
        )
    cosine = cosine_similarity(x, y)
    apart = select(equal(target, -1), relu(sub(cosine, margin)), float("nan"))
    return reduced(name, select(equal(target, 1), sub(1.0, cosine), apart), reduction)


@composition
def margin_ranking_loss(
    x: Any, y: Any, target: Any, reduction: str = "mean", margin: float = 0.0
) -> Tensor:
    """max(0, margin - target (x - y)), for a target of 1 where x should be larger, -1 where y.

    All have one shape; where it bends, the gradient is 0. Source: Joachims 2002, "Optimizing search
    engines using clickthrough data", its constraints as a loss.

    >>> margin_ranking_loss([1.0, 3.0], [2.0, 1.0], [1, 1], "none", margin=0.5).tolist()
    [1.5, 0.0]
    """
    margin = number("margin_ranking_loss", "margin", margin)
    x, y, t = _alike("margin_ranking_loss", x, y, target)
    return reduced("margin_ranking_loss", relu(sub(margin, mul(t, sub(x, y)))), reduction)


# --- Losses of class labels -----------------------------------------------------------------------


@composition
def cross_entropy(
    logits: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    axis: int = 1,
) -> Tensor:
    """-sum_c w_c ((1 - e) t_c + e / C) log softmax(logits)_c, the cross entropy with the labels.

    logits: (N, C, ...) floats for C classes. labels: integers in [0, C) of shape (N, ...), each
    standing for t_c = 1 at its class and 0 elsewhere; or t itself, probabilities of the logits'
    shape. weight: w, (C,) floats, by default 1. label_smoothing: e, from 0 to 1 (Szegedy et al.
    2015). ignore_index: integer labels that are it, a class or not, count nowhere; their loss is 0.
    axis: that of the classes: -1 for logits (N, ..., C), as of sequences.

    reduction: "none" gives (N, ...), "sum" their sum, "mean" their mean: for integer labels
    weighted, sum(losses) / sum(w at the labels that count), which is NaN where none does. These are
    PyTorch's formulas; its default of ignore_index is -100. A label outside the classes raises
    OutOfRangeError when it runs.

    >>> cross_entropy([[0.0, 0.0], [0.0, 0.0]], [0, 1])
    Tensor(0.6931472, shape=(), dtype=float32)
    >>> cross_entropy([[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]], "sum")
    Tensor(1.3862944, shape=(), dtype=float32)
    """
    label_smoothing = probability("cross_entropy", "label_smoothing", label_smoothing)
    logits, labels = _classes_second("cross_entropy", logits, labels, axis)
    plain = weight is None and ignore_index is None and not label_smoothing
    if plain and (len(shape_of(logits)), len(shape_of(labels))) == (2, 1):
        return CrossEntropy(reduction)(logits, labels)[0]
    if shape_of(labels) == shape_of(logits) and len(shape_of(logits)) > 1:
        return _by_shares(logits, labels, reduction, weight, ignore_index, label_smoothing)
    target = _targets("cross_entropy", logits, labels, weight, ignore_index)
    losses = _weighted(target, _entropies(logits, target.labels))
    if label_smoothing:
        even = mean(_times(log_softmax(logits, 1), target.weight), 1)  # sums overflow in float16
        losses = sub(mul(losses, 1.0 - label_smoothing), mul(even, label_smoothing))
    return _total(target, losses, reduction)


@composition
def nll_loss(
    log_probs: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: int | None = None,
    axis: int = 1,
) -> Tensor:
    """-w_c log_probs_c at each label c, the negative log likelihood of the labels.

    log_probs (N, C, ...) floats, as of log_softmax along axis 1; labels (N, ...) integers in
    [0, C), else OutOfRangeError. The other arguments are those of `cross_entropy`.

    >>> nll_loss([[-0.5, -1.0], [-2.0, -0.25]], [0, 1])
    Tensor(0.375, shape=(), dtype=float32)
    """
    log_probs, labels = _classes_second("nll_loss", log_probs, labels, axis)
    target = _targets("nll_loss", log_probs, labels, weight, ignore_index)
    classes, rank = shape_of(log_probs)[1], len(shape_of(log_probs))
    if rank == 2:
        hits = reshape(take_along_axis(log_probs, expand_dims(target.labels, 1), 1), -1)
    else:  # in C a loop over all classes takes less time there
        numbers = np.arange(classes, dtype=target.labels.dtype).reshape(-1, *(1,) * (rank - 2))
        hits = sum(select(equal(expand_dims(target.labels, 1), numbers), log_probs, 0.0), 1)
    losses = neg(hits)
    if not current_trace().plans:  # whose kernels have refused what is outside
        losses = select(outside(target.labels, classes), float("nan"), losses)
    return _total(target, _weighted(target, losses), reduction)


def _classes_second(name: str, scores: Any, labels: Any, axis: Any) -> tuple[Any, Any]:
    """The scores, and labels of their shape, with the classes moved from that axis to axis 1."""
    if isinstance(axis, int) and axis == 1:
        return scores, labels
    at = normal_axis(name, axis, len(shape_of(scores)))
    shares = shape_of(labels) == shape_of(scores)
    return moveaxis(scores, at, 1), moveaxis(labels, at, 1) if shares else labels


class _Targets(NamedTuple):
    """The labels (N, ...) of a loss, with 0 for those that are ignored.

    counts: bools, False for ignored labels; None if none is. weight: of each class. share: the
    weight of each label. The weights are None if all are 1.
    """

    name: str
    labels: Any
    counts: Any
    weight: Any
    share: Any


def _targets(name: str, scores: Any, labels: Any, weight: Any, ignored: int | None) -> _Targets:
    """The labels, checked; ShapeError or DTypeError where they do not fit the scores."""
    shape, given = shape_of(scores), shape_of(labels)
    classes = shape[1] if len(shape) > 1 else 0
    if not classes or given != (shape[0], *shape[2:]):
        first = "logits" if name == "cross_entropy" else "log_probs"
        raise ShapeError(
            f"{name} got {first} of shape {shape} and labels of shape {given}; {first} of shape "
            "(N, C, ...), with C at least 1, come first, then labels of shape (N, ...)"
            + (" or that of the logits" if name == "cross_entropy" else "")
            + _would_do(first, shape, given)
        )
    dtype = needs_float(name, dtype_of(scores))
    w = None if weight is None else _by_class(name, weight, shape, dtype)
    if ignored is not None:
        ignored = integer(name, "ignore_index", ignored)
    labels = checked(name, "label", labels, classes, ignored)
    counts = None if ignored is None else not_equal(in_dtype(labels, int64), ignored)
    labels = labels if counts is None else select(counts, labels, 0)
    share = None if w is None else gather(w, labels)
    return _Targets(name, labels, counts, w, share)


def _by_class(name: str, weight: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """The weight of each class, (C,)."""
    if shape_of(weight) != shape[1:2]:
        raise ShapeError(
            f"{name} got weight of shape {shape_of(weight)} for {shape[1]} classes; it has one "
            f"number for each, shape {shape[1:2]}"
        )
    if isinstance(weight, (np.ndarray, list, tuple)):  # it follows the scores to their device
        return np.asarray(weight, dtype)
    return in_dtype(weight, dtype)


def _would_do(name: str, shape: tuple[int, ...], given: tuple[int, ...]) -> str:
    """A hint for labels (N, 1, ...), and for scores with the classes on the last axis."""
    if len(shape) == 1 and not given:
        return f"; {name}[None] and labels[None] are a batch of one row"
    if given[1:2] == (1,) and given[2:] == shape[2:]:
        return f"; labels[{', '.join([':', '0', *':' * len(shape[2:])])}] has that shape"
    if len(shape) > 2 and given == shape[:-1]:
        return "; axis=-1 of the loss has the classes there"
    return ""


def checked(name: str, what: str, values: Any, end: int, ignored: int | None = None) -> Any:
    """Integers in [0, end), in a dtype that has `end`."""
    values = CheckedLabels(end, name, ignored, what)(values)
    return cast(values, int64) if np.iinfo(values.dtype).max < end else values


def outside(values: Any, end: int) -> Any:
    """True for integers that are not in [0, end), which a GPU does not refuse."""
    return logical_or(less(values, 0), greater_equal(values, end))


def _entropies(logits: Any, labels: Any) -> Tensor:
    """The cross entropy of each label."""
    if len(shape_of(logits)) == 2:
        return CrossEntropy("none")(logits, labels)[0]
    rows = reshape(moveaxis(logits, 1, -1), (-1, shape_of(logits)[1]))
    return reshape(CrossEntropy("none")(rows, reshape(labels, -1))[0], labels.shape)


def _weighted(target: _Targets, losses: Tensor) -> Tensor:
    return losses if target.share is None else mul(losses, target.share)


def _times(values: Any, weight: Any) -> Any:
    """Values (N, C, ...) times the weights of the classes, if there are any."""
    if weight is None:
        return values
    return mul(values, weight.reshape((-1, *(1,) * (len(shape_of(values)) - 2))))


def _total(target: _Targets, losses: Tensor, reduction: str) -> Tensor:
    """The losses of the labels that count, reduced."""
    losses = _counted(target.counts, losses)
    check_reduction(target.name, reduction)
    if reduction != "mean" or (target.share is None and target.counts is None):
        return reduced(target.name, losses, reduction)
    share = ones_like(losses) if target.share is None else target.share
    return div(mean(losses), mean(_counted(target.counts, share)))  # sums overflow in float16


def _counted(counts: Any, values: Any) -> Any:
    return values if counts is None else select(counts, values, 0.0)


def _by_shares(
    logits: Any, t: Any, reduction: str, weight: Any, ignored: int | None, smoothing: float
) -> Tensor:
    """The cross entropy with probabilities t for labels."""
    shape, dtype = shape_of(logits), needs_float("cross_entropy", dtype_of(logits))
    if ignored is not None:
        raise AttributeRefusedError(
            f"cross_entropy got ignore_index={ignored} and probabilities, which no number can "
            "name; give rows of zeros to those that are not to count"
        )
    if not is_float(dtype_of(t)):
        raise DTypeError(
            f"cross_entropy got labels of {dtype_of(t).name} in the shape of the logits, {shape}; "
            "probabilities are floats, and integer labels have one number for each row"
        )
    logs = log_softmax(logits, 1)
    q = add(mul(t, 1.0 - smoothing), smoothing / shape[1]) if smoothing else t
    w = None if weight is None else _by_class("cross_entropy", weight, shape, dtype)
    q = _times(q, w)
    absent = logical_and(equal(q, 0.0), equal(logs, -float("inf")))
    return reduced("cross_entropy", neg(sum(mul(q, select(absent, 0.0, logs)), 1)), reduction)


# --- Connectionist temporal classification --------------------------------------------------------


@composition
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log sum_pi prod_t p_t(pi_t), over all paths pi that spell the target: CTC's loss.

    A path names a class for each step; it spells the labels that remain when runs of one class are
    merged, and then blanks dropped. log_probs: (T, N, C) logarithms of probabilities, as of
    log_softmax, floats. targets: (N, S) integer classes, none of them blank; entries beyond a
    target's length are ignored. input_lengths, target_lengths: (N,) integers, at most T and S. The
    sums are taken in the logarithms, in a scan over T; in float32 for floats of 16 bits.

    reduction: "none" gives (N,), "sum" their sum, and "mean", as in PyTorch, the mean of each loss
    divided by its target's length, at least 1. A target that no path of its length spells has the
    loss inf, or 0 with zero_infinity; its gradient is 0 in both cases. OutOfRangeError for a label
    or length outside of its range. Source: Graves et al. 2006, "Connectionist temporal
    classification".

    >>> probs = np.full((3, 1, 2), 0.5, np.float32)  # 6 of 8 paths spell one 1: all but 000, 101
    >>> round(ctc_loss(np.log(probs), [[1]], [3], [1]).item(), 6), round(float(-np.log(6 / 8)), 6)
    (0.287682, 0.287682)
    """
    check_reduction("ctc_loss", reduction)
    zero_infinity = flag("ctc_loss", "zero_infinity", zero_infinity)
    steps, most, classes = _sizes(log_probs, targets, input_lengths, target_lengths, blank)
    dtype = needs_float("ctc_loss", dtype_of(log_probs))
    computed = float64 if dtype == float64 else float32
    lengths = in_dtype(checked("ctc_loss", "input_length", input_lengths, steps + 1), int64)
    count = in_dtype(checked("ctc_loss", "target_length", target_lengths, most + 1), int64)
    spelt = less(np.arange(most), expand_dims(count, 1))
    labels = in_dtype(checked("ctc_loss", "target", select(spelt, targets, blank), classes), int64)
    paths = _paths(in_dtype(log_probs, computed), labels, lengths, blank)
    paths = concat([np.full((shape_of(count)[0], 1), _NEVER, computed), paths], 1)
    ends = take_along_axis(paths, add(mul(expand_dims(count, 1), 2), np.array([0, 1])), 1)
    likely = logaddexp(ends[:, 0], ends[:, 1])
    likely = select(any(logical_and(spelt, equal(labels, blank)), 1), _NEVER, likely)
    losses = select(less(likely, _NEVER / 2), 0.0 if zero_infinity else float("inf"), neg(likely))
    unseen = logical_or(outside(lengths, steps + 1), outside(count, most + 1))
    unseen = logical_or(unseen, any(outside(labels, classes), 1))  # on a GPU
    losses = select(unseen, float("nan"), losses)
    if reduction == "mean":
        losses = div(losses, cast(maximum(count, 1), computed))
    return in_dtype(reduced("ctc_loss", losses, reduction), dtype)


def _sizes(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[int, int, int]:
    """(T, S, C); ShapeError where the shapes do not belong together."""
    shapes = [shape_of(v) for v in (log_probs, targets, input_lengths, target_lengths)]
    rows = shapes[0][1:2]
    if [len(s) for s in shapes] != [3, 2, 1, 1] or {s[:1] for s in shapes[1:]} != {rows}:
        raise ShapeError(
            "ctc_loss got log_probs, targets, input_lengths and target_lengths of shapes "
            f"{', '.join(map(str, shapes))}; expected (T, N, C), (N, S), (N,) and (N,): targets "
            "of several lengths are padded, not joined"
        )
    classes = shapes[0][2]
    integer("ctc_loss", "blank", blank, 0, classes - 1)
    return shapes[0][0], shapes[1][1], classes


# The logarithm of probability 0: finite, so that the difference of two is not NaN, and below all
# sums of logarithms of probabilities.
_NEVER = -1e30


def _paths(log_probs: Any, labels: Any, lengths: Any, blank: int) -> Any:
    """(N, 2 S + 1): the logarithms of the total probability of all paths of these lengths, by the
    state in which they end: 2 s is the blank after s labels, 2 s - 1 the last of these itself."""
    dtype, (rows, most) = log_probs.dtype, shape_of(labels)
    at = expand_dims(_between(labels, blank), 0)
    emitted = clip(take_along_axis(log_probs, at, 2), _NEVER)
    # A label follows the one before it, without a blank, if it is another.
    before = concat([np.full((rows, 1), -1), labels], 1)[:, :-1]
    skipping = _between(select(equal(labels, before), _NEVER, 0.0), _NEVER)
    empty = np.array([0.0] + [_NEVER] * (2 * most), dtype)  # the path of no steps
    start = add(zeros_like(expand_dims(lengths, 1), dtype), empty)  # on the inputs' device

    def step(reached: Any, emission: Any) -> Any:
        earlier = concat([np.full((rows, 2), _NEVER, dtype), reached], 1)
        entered = logaddexp(reached, earlier[:, 1:-1])
        after = logaddexp(entered, earlier[:, :-2] + skipping) + emission
        return after, after

    found = concat([expand_dims(start, 0), scan(step, start, emitted)[0]])
    return squeeze(take_along_axis(found, reshape(lengths, (1, rows, 1)), 0), 0)


def _between(labels: Any, other: float) -> Any:
    """(N, S) as (N, 2 S + 1): `other` before, between and behind the labels."""
    rows, most = shape_of(labels)
    whole = concat([np.full((rows, 1), other, dtype_of(labels)), labels], 1)
    return gather(whole, [(i + 1) // 2 * (i % 2) for i in range(2 * most + 1)], 1)
