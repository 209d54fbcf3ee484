"""Losses as functions, made of other operations, and the similarity of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..dtype import DType, float32, float64, int64, is_float, promote
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from .activation import relu, softplus
from .arithmetic import abs, add, as_float, cast, clip, div, mul, neg, square, sub
from .compare import equal, greater_equal, less, logical_and, logical_or, not_equal, select
from .create import ones_like
from .exponential import sqrt, xlogy
from .inference.shapes import broadcast, dtype_of, needs_float, normal_axis, shape_of, strong
from .norm import CheckedLabels, CrossEntropy, check_reduction, log_softmax
from .reduce import mean, sum
from .shape import broadcast_to, expand_dims, reshape

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "bce", "bce_with_logits", "cosine_similarity", "cross_entropy", "hinge", "huber_loss", "kl_div",
    "l1_loss", "mse_loss", "nll_loss",
]  # fmt: skip


def cross_entropy(
    logits: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """-sum_c w_c ((1 - e) t_c + e / C) log softmax(logits)_c, the cross entropy with the labels.

    logits: (N, C, ...) floats for C classes. labels: integers in [0, C) of shape (N, ...), each
    standing for t_c = 1 at its class and 0 elsewhere; or t itself, probabilities of the logits'
    shape. weight: w, (C,) floats, by default 1. label_smoothing: e, from 0 to 1 (Szegedy et al.
    2015). ignore_index: integer labels that are it, a class or not, count nowhere; their loss is 0.

    reduction: "none" gives (N, ...), "sum" their sum, "mean" their mean: for integer labels
    weighted, sum(losses) / sum(w at the labels that count), which is NaN where none does. These are
    PyTorch's formulas; its default of ignore_index is -100. A label outside the classes raises
    OutOfRangeError when it runs.

    >>> cross_entropy([[0.0, 0.0], [0.0, 0.0]], [0, 1])
    Tensor(0.6931472, shape=(), dtype=float32)
    >>> cross_entropy([[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]], "sum")
    Tensor(1.3862944, shape=(), dtype=float32)
    """
    plain = weight is None and ignore_index is None and not label_smoothing
    if plain and (len(shape_of(logits)), len(shape_of(labels))) == (2, 1):
        return CrossEntropy(reduction)(logits, labels)[0]
    if not 0.0 <= label_smoothing <= 1.0:
        raise AttributeRefusedError(
            f"cross_entropy got label_smoothing={label_smoothing!r}; give a number from 0 to 1"
        )
    target = _targets("cross_entropy", logits, labels, ignore_index, probabilities=True)
    logs = log_softmax(logits, 1)
    return _expected(target, logs, reduction, weight, label_smoothing)


def nll_loss(
    log_probs: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: int | None = None,
) -> Tensor:
    """-w_c log_probs_c at each label c, the negative log likelihood of the labels.

    log_probs (N, C, ...) floats, as of log_softmax along axis 1; labels (N, ...) integers in
    [0, C), else OutOfRangeError. The other arguments are those of `cross_entropy`.

    >>> nll_loss([[-0.5, -1.0], [-2.0, -0.25]], [0, 1])
    Tensor(0.375, shape=(), dtype=float32)
    """
    target = _targets("nll_loss", log_probs, labels, ignore_index, probabilities=False)
    return _expected(target, log_probs, reduction, weight, 0.0)


class _Targets(NamedTuple):
    """What rows of logits are compared with.

    t: (N, C, ...), bools for labels or probabilities. counts: (N, ...) bools, which labels count;
    None for all. outside: (N, ...) bools, labels that are no class, which a GPU does not refuse.
    """

    name: str
    t: Any
    counts: Any
    outside: Any


def _targets(
    name: str, logits: Any, labels: Any, ignored: int | None, probabilities: bool
) -> _Targets:
    """The labels beside the classes; ShapeError or DTypeError where they do not fit the logits."""
    shape, given = shape_of(logits), shape_of(labels)
    classes = shape[1] if len(shape) > 1 else 0
    if probabilities and given == shape and classes:
        needs_float(name, dtype_of(logits))
        return _Targets(name, _probabilities(name, labels, ignored), None, None)
    if not classes or given != (shape[0], *shape[2:]):
        first = "logits" if probabilities else "log_probs"
        raise ShapeError(
            f"{name} got {first} of shape {shape} and labels of shape {given}; {first} of shape "
            "(N, C, ...), with C at least 1, come first, then labels of shape (N, ...)"
            + (" or that of the logits" if probabilities else "")
        )
    needs_float(name, dtype_of(logits))
    labels, outside = checked(name, "label", labels, classes, ignored)
    numbers = np.arange(classes, dtype=labels.dtype).reshape(-1, *(1,) * (len(shape) - 2))
    counts = None if ignored is None else not_equal(cast(labels, int64), ignored)
    return _Targets(name, equal(expand_dims(labels, 1), numbers), counts, outside)


def checked(
    name: str, what: str, values: Any, end: int, ignored: int | None = None
) -> tuple[Any, Any]:
    """Integers in [0, end), in a dtype that has `end`; and bools, which of them are not, where that
    is refused by nobody: on a GPU."""
    values = CheckedLabels(end, name, ignored, what)(values)
    values = cast(values, int64) if np.iinfo(values.dtype).max < end else values
    return values, logical_or(less(values, 0), greater_equal(values, end))


def _probabilities(name: str, labels: Any, ignored: int | None) -> Any:
    if ignored is not None:
        raise AttributeRefusedError(
            f"{name} got ignore_index={ignored} and probabilities, which no number can name; "
            "give rows of zeros to those that are not to count"
        )
    if not is_float(dtype_of(labels)):
        raise DTypeError(
            f"{name} got labels of {dtype_of(labels).name} in the shape of the logits; "
            "probabilities are floats, and integer labels have one number for each row"
        )
    return labels


def _expected(target: _Targets, logs: Any, reduction: str, weight: Any, smoothing: float) -> Tensor:
    """-sum_c w_c ((1 - e) t_c + e / C) logs_c along axis 1, reduced."""
    shape, dtype = shape_of(logs), dtype_of(logs)
    by_label = target.outside is not None
    w = None if weight is None else _by_class(target.name, weight, shape, dtype)
    q = select(target.t, *np.array([1, 0], dtype)) if by_label else target.t
    q = add(mul(q, 1.0 - smoothing), smoothing / shape[1]) if smoothing else q
    q = q if w is None else mul(q, w)
    absent = logical_and(equal(q, 0.0), equal(logs, -float("inf")))
    losses = neg(sum(mul(q, select(absent, 0.0, logs)), 1))
    if not by_label:
        return reduced(target.name, losses, reduction)
    losses = _counted(target.counts, select(target.outside, float("nan"), losses))
    if reduction != "mean" or (w is None and target.counts is None):
        return reduced(target.name, losses, reduction)
    share = ones_like(losses) if w is None else sum(select(target.t, w, 0.0), 1)
    return div(mean(losses), mean(_counted(target.counts, share)))  # sums overflow in float16


def _by_class(name: str, weight: Any, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """The weight of each class, along axis 1."""
    if shape_of(weight) != shape[1:2]:
        raise ShapeError(
            f"{name} got weight of shape {shape_of(weight)} for {shape[1]} classes; it has one "
            f"number for each, shape {shape[1:2]}"
        )
    return reshape(cast(weight, dtype), (-1, *(1,) * (len(shape) - 2)))


def _counted(counts: Any, values: Any) -> Any:
    return values if counts is None else select(counts, values, 0.0)


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


def bce_with_logits(logits: Any, target: Any, reduction: str = "mean") -> Tensor:
    """bce(sigmoid(logits), target), exact for logits of any size: with softplus(x) = log(1 + e^x),

        target softplus(-logits) + (1 - target) softplus(logits)

    Logits and targets have one shape; the gradient is sigmoid(logits) - target. Infinite logits
    give NaN.

    >>> bce_with_logits([1000.0, -1000.0], [1.0, 1.0], "none").tolist()
    [0.0, 1000.0]
    """
    x, t = _pair("bce_with_logits", logits, target)
    losses = sub(mul(t, softplus(neg(x))), mul(sub(t, 1.0), softplus(x)))
    return reduced("bce_with_logits", losses, reduction)


def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(prediction - target)^2, of one shape."""
    x, t = _pair("mse_loss", prediction, target)
    d = sub(x, t)
    return reduced("mse_loss", mul(d, d), reduction)


def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|prediction - target|, of one shape; the gradient is 0 where they are equal."""
    x, t = _pair("l1_loss", prediction, target)
    return reduced("l1_loss", abs(sub(x, t)), reduction)


def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere, for d = prediction - target.

    Both have one shape (Huber 1964). AttributeRefusedError for a delta that is not above 0.

    >>> huber_loss([1.0, 3.0], [0.0, 0.0], "none").tolist()
    [0.5, 2.5]
    """
    if not delta > 0:
        raise AttributeRefusedError(f"huber_loss got delta={delta!r}; give one above 0")
    x, t = _pair("huber_loss", prediction, target)
    d = sub(x, t)
    kept = clip(d, -float(delta), float(delta))
    return reduced("huber_loss", mul(kept, sub(d, mul(kept, 0.5))), reduction)


def kl_div(log_probs: Any, target: Any, reduction: str = "mean") -> Tensor:
    """target (log(target) - log_probs), the terms of the Kullback-Leibler divergence of target
    from the distribution whose logarithms come first, as in PyTorch.

    Both have one shape; a target of 0 gives 0. The divergence of one distribution is their sum;
    "mean" divides by the number of all elements, so of a batch (N, C) the mean divergence is
    "sum" divided by N.

    >>> kl_div([-1.0, -1.0], [1.0, 0.0], "none").tolist()
    [1.0, 0.0]
    """
    x, t = _pair("kl_div", log_probs, target)
    absent = logical_and(equal(t, 0.0), equal(x, -float("inf")))
    terms = sub(xlogy(t, t), mul(t, select(absent, 0.0, x)))
    return reduced("kl_div", terms, reduction)


def hinge(scores: Any, target: Any, reduction: str = "mean") -> Tensor:
    """max(0, 1 - target * scores) for targets of -1 and 1, of the scores' shape; at the margin,
    where it bends, the gradient is 0.

    >>> hinge([0.5, 3.0], [1, 1], "none").tolist()
    [0.5, 0.0]
    """
    x, t = _pair("hinge", scores, target)
    return reduced("hinge", relu(sub(1.0, mul(t, x))), reduction)


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
    lengths = [sqrt(clip(sum(square(v), at), eps * eps)) for v in (x, y)]
    cosine = div(sum(mul(x, y), at), mul(*lengths))
    return cast(cosine, dtype) if is_float(dtype) else cosine


def _pair(name: str, x: Any, target: Any) -> tuple[Any, Any]:
    """What is compared, of one shape and at least one of them floats; else ShapeError."""
    if shape_of(x) != shape_of(target):
        raise ShapeError(
            f"{name} got shapes {shape_of(x)} and {shape_of(target)}; a loss compares tensors of "
            "one shape, and broadcasting here is more often a mistake than meant"
        )
    x, target = strong(x, target)
    return (x if is_float(dtype_of(target)) else as_float(x)), target


def reduced(name: str, losses: Tensor, reduction: str) -> Tensor:
    check_reduction(name, reduction)
    return losses if reduction == "none" else (mean if reduction == "mean" else sum)(losses)
