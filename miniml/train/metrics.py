"""Metrics: statistics that are summed over batches, and functions of these sums.

In order: Metric; accuracy and what else looks at the largest outputs; errors; what the confusion
matrix tells; AUC; R2; means of a function of the user's, and their sums; what they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import DTypeError, OutOfRangeError, ShapeError, ValueRefusedError
from ..core.options import choice, count, integer
from ..core.tensor import Array

__all__ = [
    "Metric", "accuracy", "auc", "confusion_matrix", "f1", "mean", "mean_absolute_error",
    "mean_squared_error", "perplexity", "precision", "r2", "recall", "top_k",
]  # fmt: skip

Counter = Callable[..., Array]  # of outputs, labels and, where they are weighted, weights
Row = dict[str, Any]  # the results of an epoch or an evaluation, by name


@dataclass(frozen=True)
class Metric:
    """A number, or an array of numbers, that says how good outputs are.

    count(output, labels): a float64 array of `shape` for one batch of NumPy arrays. These are added
    up; result(total) is the value. name: the key of the value, in logs and results. One for
    `weighted_metrics=` is counted as count(output, labels, weights) where rows have weights: an
    array (N,), or (N, ...) as the labels.
    larger_is_better: the direction for callbacks with mode="auto"; with None these raise an error.
    """

    name: str
    shape: tuple[int, ...]
    count: Callable[..., Any]
    result: Callable[[Array], Any]
    larger_is_better: bool | None = None


def accuracy(ignore_index: int | None = None, axis: int = -1) -> Metric:
    """The share of labels (...) that are the largest of the outputs (..., C).

    ignore_index: a label that counts nowhere, as in CrossEntropyLoss. axis: that of the classes in
    the outputs: 1 for the (N, C, ...) that CrossEntropyLoss takes.
    """
    return _mean_of_classes(
        "accuracy", lambda out, y: out.argmax(-1) == y, ignore_index, axis, True
    )


def top_k(k: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """The share of labels (...) that are among the k largest of the outputs (..., C), of equal ones
    the first; ignore_index, axis: as in `accuracy`, which this is for k = 1."""
    k = count("top_k", "k", k)

    def hits(out: Array, y: Array) -> Array:
        of_label = np.take_along_axis(out, y[:, None], -1)
        first = np.arange(out.shape[-1]) < y[:, None]
        ahead = ~(out <= of_label) | ((out == of_label) & first)  # NaN is ahead
        return ahead.sum(-1) < k  # type: ignore[no-any-return]

    return _mean_of_classes(f"top_{k}", hits, ignore_index, axis, True)


def perplexity(ignore_index: int | None = None, axis: int = -1) -> Metric:
    """exp of the mean of -log softmax(output)[label]: outputs (..., C), labels (...);
    ignore_index, axis: as in `accuracy`."""

    def surprise(out: Array, y: Array) -> Array:
        shifted = out.astype(np.result_type(out, np.float32))
        shifted -= shifted.max(-1, keepdims=True)
        of_label = np.take_along_axis(shifted, y[:, None], -1)[:, 0]
        return np.log(np.exp(shifted).sum(-1)) - of_label  # type: ignore[no-any-return]

    return _mean_of_classes(
        "perplexity", surprise, ignore_index, axis, False, lambda mean: float(np.exp(mean))
    )


def mean_absolute_error() -> Metric:
    """The mean of |output - target|; both of one shape."""
    return mean("mean_absolute_error", lambda out, y: np.abs(_difference(out, y)), False)


def mean_squared_error() -> Metric:
    """The mean of (output - target)^2; both of one shape."""
    return mean("mean_squared_error", lambda out, y: _difference(out, y) ** 2, False)


def confusion_matrix(classes: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """Rows with label i whose largest output is j, as (classes, classes) ints: outputs
    (..., classes), labels (...); ignore_index, axis: as in `accuracy`. Sums of weights, where
    rows have some that are no ints, are float64."""

    def result(total: Array) -> Array:
        whole = total.astype(np.int64)
        return whole if np.array_equal(whole, total) else total

    count = _confusion("confusion_matrix", classes, ignore_index, axis)
    return Metric("confusion_matrix", (classes, classes), count, result)


def precision(
    classes: int, ignore_index: int | None = None, axis: int = -1, average: str = "macro"
) -> Metric:
    """TP / (TP + FP) of the classes: of the rows whose largest output is a class, the share that
    have its label. ignore_index, axis: as in `accuracy`.

    average: "macro", the mean over classes, 0 for one that nothing is taken for; "weighted" with
    the numbers of their labels; "micro", that of all counts together; "none", one for each class.
    """
    return _of_counts("precision", classes, ignore_index, axis, average)


def recall(
    classes: int, ignore_index: int | None = None, axis: int = -1, average: str = "macro"
) -> Metric:
    """TP / (TP + FN) of the classes: of the rows with the label of a class, the share that are
    taken for it. The arguments are those of `precision`."""
    return _of_counts("recall", classes, ignore_index, axis, average)


def f1(
    classes: int, ignore_index: int | None = None, axis: int = -1, average: str = "macro"
) -> Metric:
    """2 TP / (2 TP + FP + FN) of the classes, 0 for one that neither labels nor outputs have. The
    arguments are those of `precision`."""
    return _of_counts("f1", classes, ignore_index, axis, average)


def auc() -> Metric:
    """The area under the ROC curve: the share of pairs of a row of label 1 and one of label 0 in
    which the first has the larger score; equal ones count half.

    outputs: scores (N,) or (N, 1), or those of two classes (N, 2), whose difference is taken;
    labels: 0 and 1, (N,) or (N, 1). Scores count as equal where their first 8 binary digits are, so
    logits tell more apart than probabilities near 1. NaN for scores of NaN, or labels of one kind.
    """
    return Metric("auc", (2, _BINS), _score_counts, _area, True)


def r2(outputs: int = 1) -> Metric:
    """1 - sum (output - target)^2 / sum (target - mean)^2, of all rows; of several outputs
    (N, outputs) the mean of theirs. Targets that are all equal give 1 where outputs equal them,
    else 0."""
    outputs = count("r2", "outputs", outputs)

    def sums(out: Array, y: Array, weights: Array | None = None) -> Array:
        wrong = _difference(out, y).reshape(-1, outputs)
        each = _wide("r2", weights, np.shape(y)).reshape(-1, outputs)
        y = np.asarray(y, np.float64).reshape(-1, outputs)
        return np.stack([(each * v).sum(0) for v in (np.ones_like(y), y, y * y, wrong * wrong)])

    def result(total: Array) -> float:
        rows, of_y, squares, wrong = total
        spread = np.maximum(squares - of_y * of_y / np.where(rows > 0, rows, 1.0), 0.0)
        equal = spread <= 1e-12 * squares  # the rounding of sums
        share = wrong / np.where(equal, 1.0, spread)
        return float(np.mean(np.where(equal, wrong == 0.0, 1.0 - share)))

    return Metric("r2", (4, outputs), sums, result, True)


def mean(
    name: str,
    values: Callable[[Array, Array], Any],
    larger_is_better: bool | None = None,
    then: Callable[[float], float] = float,
) -> Metric:
    """A metric of your own: the mean over all batches of values(output, labels), an array of any
    shape, and a function of this mean. Among `weighted_metrics=`, whose values have the rows first,
    it is sum(weight * value) / sum(weight).

    >>> metric = mean("rmse", lambda out, y: (out - y) ** 2, False, np.sqrt)
    >>> total = metric.count(np.ones(2), np.zeros(2)) + metric.count(np.ones(1), np.array([3.0]))
    >>> round(float(metric.result(total)), 4)  # of 1, 1 and 4
    1.4142
    """

    def count(out: Array, y: Array, weights: Array | None = None) -> Array:
        each = np.asarray(values(out, y), np.float64)
        return _sums(each, None if weights is None else _wide(name, weights, each.shape))

    return Metric(name, (2,), count, _ratio(then), larger_is_better)


def _sums(each: Array, weights: Array | None) -> Array:
    """The sum of values times weights, and that of the weights, by default 1."""
    if weights is None:
        return np.array([each.sum(), float(each.size)])
    return np.array([(weights * each).sum(), weights.sum()])


def _ratio(then: Callable[[float], float]) -> Callable[[Array], float]:
    """A function of the mean, 0 of nothing."""
    return lambda total: then(total[0] / total[1] if total[1] else 0.0)


def _mean_of_classes(
    name: str,
    values: Counter,
    ignored: int | None,
    axis: int,
    larger_is_better: bool,
    then: Callable[[float], float] = float,
) -> Metric:
    """The mean of values(scores, labels) over the labels that are not ignored."""

    def sums(out: Array, y: Array, weights: Array | None) -> Array:
        return _sums(np.asarray(values(out, y), np.float64), weights)

    count = _of_classes(name, sums, ignored, axis)
    return Metric(name, (2,), count, _ratio(then), larger_is_better)


def _wide(name: str, weights: Array | None, shape: tuple[int, ...]) -> Array:
    """A float64 weight for each element of values of this shape, 1 by default; ShapeError unless
    the weights are those of their first axes."""
    each = np.ones(()) if weights is None else np.asarray(weights, np.float64)
    if each.shape != shape[: each.ndim]:
        raise ShapeError(
            f"{name} got weights of shape {each.shape} for values of shape {shape}; expected one "
            "for each row, with the rows of the values first"
        )
    return np.broadcast_to(each.reshape(each.shape + (1,) * (len(shape) - each.ndim)), shape)


_BY_NAME: dict[str, Callable[[], Metric]] = {
    "accuracy": accuracy,
    "auc": auc,
    "mae": mean_absolute_error,
    "mean_absolute_error": mean_absolute_error,
    "mean_squared_error": mean_squared_error,
    "mse": mean_squared_error,
    "perplexity": perplexity,
    "r2": r2,
}


def named(name: str) -> Metric:
    """The metric of a name that needs no argument; ValueRefusedError for another one."""
    if name in _BY_NAME:
        return _BY_NAME[name]()
    raise ValueRefusedError(
        f"metrics got {name!r}; by name there are {', '.join(_BY_NAME)}; others are made, as "
        "train.f1(classes=10)"
    )


def _confusion(owner: str, classes: int, ignored: int | None, axis: int) -> Counter:
    classes = count(owner, "classes", classes)

    def pairs(out: Array, y: Array, weights: Array | None) -> Array:
        if out.shape[-1] != classes:
            raise OutOfRangeError(
                f"a metric of {classes} classes got outputs of {out.shape[-1]}; give it the number "
                "of classes"
            )
        counts = np.bincount(y * classes + out.argmax(-1), weights, classes**2)
        return counts.reshape(classes, classes).astype(np.float64)

    return _of_classes(owner, pairs, ignored, axis)


# The share of each class: its numerator and denominator, of what is right, taken for it, and its.
_SHARES: dict[str, Callable[[Array, Array, Array], tuple[Array, Array]]] = {
    "precision": lambda right, taken, own: (right, taken),
    "recall": lambda right, taken, own: (right, own),
    "f1": lambda right, taken, own: (2.0 * right, taken + own),
}
_AVERAGES = "macro", "micro", "weighted", "none"


def _of_counts(
    name: str, classes: int, ignore_index: int | None, axis: int, average: str
) -> Metric:
    """A metric of the confusion matrix."""
    average = choice(name, "average", average, _AVERAGES)

    def result(total: Array) -> Any:
        own = total.sum(1)
        above, below = _SHARES[name](np.diag(total), total.sum(0), own)
        if average == "micro":
            return float(above.sum() / below.sum()) if below.any() else 0.0
        each = np.divide(above, below, out=np.zeros(len(below)), where=below > 0)
        if average == "none":
            return each
        weights = own if average == "weighted" and own.any() else None
        return float(np.average(each, weights=weights))

    confusion = _confusion(name, classes, ignore_index, axis)
    return Metric(name, (classes, classes), confusion, result, True)


_BINS = 2**16


def _score_counts(out: Array, y: Array, weights: Array | None = None) -> Array:
    """The rows of each label by the first 16 bits of their scores, which have their order."""
    y = np.asarray(y)
    rows = (len(out),) if out.ndim else ()
    if out.shape not in (rows, (*rows, 1), (*rows, 2)) or y.shape not in (rows, (*rows, 1)):
        raise ShapeError(
            f"auc got outputs {out.shape} and labels {y.shape}; expected scores (N,), (N, 1) or "
            "(N, 2) and labels (N,)"
        )
    labels, numbers = y.reshape(-1), out.astype(np.float64)
    if not np.isin(labels, (0, 1)).all():
        raise OutOfRangeError("auc got labels other than 0 and 1; give those of one class as 1")
    scores = numbers[:, 1] - numbers[:, 0] if out.shape == (*rows, 2) else numbers.reshape(-1)
    if np.isnan(scores).any():
        return np.full((2, _BINS), np.nan)
    bits = (scores.astype(np.float32) + np.float32(0.0)).view(np.int32) >> 16  # -0 becomes 0
    keys = np.where(bits < 0, -1 - (bits & 0x7FFF), bits) + _BINS // 2
    each = None if weights is None else _wide("auc", weights, labels.shape)
    counts = np.bincount(labels.astype(np.int64) * _BINS + keys, each, 2 * _BINS)
    return counts.reshape(2, _BINS).astype(np.float64)


def _area(total: Array) -> float:
    zeros, ones = total
    above = ones[::-1].cumsum()[::-1] - ones
    pairs = zeros.sum() * ones.sum()
    return float((zeros * (above + 0.5 * ones)).sum() / pairs) if pairs else float("nan")


def _of_classes(owner: str, count: Counter, ignored: int | None, axis: int) -> Counter:
    """A counter of outputs with C classes on that axis and labels (...), from one of scores (N, C),
    int64 labels (N,) and weights (N,) or None, without the ignored ones; OutOfRangeError for a
    label beyond C."""
    axis = integer(owner, "axis", axis)
    if ignored is not None:
        ignored = integer(owner, "ignore_index", ignored)

    def counted(out: Array, y: Array, weights: Array | None = None) -> Array:
        out = _classes_last(out, y := np.asarray(y), axis)
        scores, labels = out.reshape(y.size, out.shape[-1]), y.reshape(-1).astype(np.int64)
        each = None if weights is None else _wide(owner, weights, y.shape).reshape(-1)
        if ignored is not None:
            kept = labels != ignored
            scores, labels = scores[kept], labels[kept]
            each = None if each is None else each[kept]
        if not 0 <= labels.min(initial=0) <= labels.max(initial=0) < scores.shape[1]:
            raise OutOfRangeError(
                f"a metric of classes got labels from {labels.min()} to {labels.max()} for "
                f"{scores.shape[1]} classes; ignore_index= of the metric names one that counts "
                "nowhere"
            )
        return count(scores, labels, each)

    return counted


def _classes_last(out: Array, y: Array, axis: int) -> Array:
    """The outputs with the classes on their last axis; ShapeError or DTypeError unless they are
    scores of classes, with an int label for each."""
    has_axis, last = -out.ndim <= axis < out.ndim, axis in (-1, out.ndim - 1)
    moved = np.moveaxis(out, axis, -1) if has_axis and not last else out
    if not has_axis or moved.shape[:-1] != y.shape:
        first = out.ndim > 1 and out.shape[:1] + out.shape[2:] == y.shape
        hint = "; axis=1 of the metric has the classes there" * first
        raise ShapeError(
            f"a metric of classes got outputs {out.shape} and labels {y.shape}, with the classes "
            f"on axis {axis}; expected outputs (..., classes) and labels (...){hint}"
        )
    if y.dtype.kind not in "biu":
        raise DTypeError(f"a metric of classes got labels of {y.dtype}; expected ints")
    return moved


def _difference(out: Array, y: Array) -> Array:
    if out.shape != np.shape(y):
        raise ShapeError(f"an error got outputs {out.shape} and targets {np.shape(y)}; one shape")
    return np.subtract(out, y, dtype=np.float64)
