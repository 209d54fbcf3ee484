"""Metrics: statistics that are summed over batches, and functions of these sums.

In order: Metric; accuracy and what else looks at the largest outputs; errors; what the confusion
matrix tells; AUC; R2; means of a function of the user's; what they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import DTypeError, OutOfRangeError, ShapeError, ValueRefusedError
from ..core.options import choice, count, integer
from ..core.tensor import Array

Counter = Callable[[Array, Array], Array]
Row = dict[str, Any]  # the results of an epoch or an evaluation, by name


@dataclass(frozen=True)
class Metric:
    """A number, or an array of numbers, that says how good outputs are.

    count(output, labels): a float64 array of `shape` for one batch of NumPy arrays. These are added
    up; result(total) is the value. name: the key of the value, in logs and results.
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
    hits = _of_classes("accuracy", lambda out, y: out.argmax(-1) == y, ignore_index, axis)
    return mean("accuracy", hits, True)


def top_k(k: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """The share of labels (...) that are among the k largest of the outputs (..., C), of equal ones
    the first; ignore_index, axis: as in `accuracy`, which this is for k = 1."""
    k = count("top_k", "k", k)

    def hits(out: Array, y: Array) -> Array:
        of_label = np.take_along_axis(out, y[:, None], -1)
        first = np.arange(out.shape[-1]) < y[:, None]
        ahead = ~(out <= of_label) | ((out == of_label) & first)  # NaN is ahead
        return ahead.sum(-1) < k  # type: ignore[no-any-return]

    return mean(f"top_{k}", _of_classes("top_k", hits, ignore_index, axis), True)


def perplexity(ignore_index: int | None = None, axis: int = -1) -> Metric:
    """exp of the mean of -log softmax(output)[label]: outputs (..., C), labels (...);
    ignore_index, axis: as in `accuracy`."""

    def surprise(out: Array, y: Array) -> Array:
        shifted = out.astype(np.result_type(out, np.float32))
        shifted -= shifted.max(-1, keepdims=True)
        of_label = np.take_along_axis(shifted, y[:, None], -1)[:, 0]
        return np.log(np.exp(shifted).sum(-1)) - of_label  # type: ignore[no-any-return]

    values = _of_classes("perplexity", surprise, ignore_index, axis)
    return mean("perplexity", values, False, lambda mean: float(np.exp(mean)))


def mean_absolute_error() -> Metric:
    """The mean of |output - target|; both of one shape."""
    return mean("mean_absolute_error", lambda out, y: np.abs(_difference(out, y)), False)


def mean_squared_error() -> Metric:
    """The mean of (output - target)^2; both of one shape."""
    return mean("mean_squared_error", lambda out, y: _difference(out, y) ** 2, False)


def confusion_matrix(classes: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """Rows with label i whose largest output is j, as (classes, classes) ints: outputs
    (..., classes), labels (...); ignore_index, axis: as in `accuracy`."""
    count = _confusion("confusion_matrix", classes, ignore_index, axis)
    return Metric("confusion_matrix", (classes, classes), count, lambda n: n.astype(np.int64))


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

    def sums(out: Array, y: Array) -> Array:
        wrong = _difference(out, y).reshape(-1, outputs)
        y = np.asarray(y, np.float64).reshape(-1, outputs)
        rows = np.full(outputs, float(len(y)))
        return np.stack([rows, y.sum(0), (y * y).sum(0), (wrong * wrong).sum(0)])

    def result(total: Array) -> float:
        rows, of_y, squares, wrong = total
        spread = np.maximum(squares - of_y * of_y / np.maximum(rows, 1.0), 0.0)
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
    shape, and a function of this mean.

    >>> metric = mean("rmse", lambda out, y: (out - y) ** 2, False, np.sqrt)
    >>> total = metric.count(np.ones(2), np.zeros(2)) + metric.count(np.ones(1), np.array([3.0]))
    >>> round(float(metric.result(total)), 4)  # of 1, 1 and 4
    1.4142
    """

    def count(out: Array, y: Array) -> Array:
        each = np.asarray(values(out, y), np.float64)
        return np.array([each.sum(), each.size])

    def result(total: Array) -> float:
        return then(total[0] / max(total[1], 1.0))

    return Metric(name, (2,), count, result, larger_is_better)


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

    def pairs(out: Array, y: Array) -> Array:
        if out.shape[-1] != classes:
            raise OutOfRangeError(
                f"a metric of {classes} classes got outputs of {out.shape[-1]}; give it the number "
                "of classes"
            )
        counts = np.bincount(y * classes + out.argmax(-1), minlength=classes**2)
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
            return float(above.sum() / max(below.sum(), 1.0))
        each = above / np.maximum(below, 1.0)
        if average == "none":
            return each
        weights = own if average == "weighted" and own.any() else None
        return float(np.average(each, weights=weights))

    confusion = _confusion(name, classes, ignore_index, axis)
    return Metric(name, (classes, classes), confusion, result, True)


_BINS = 2**16


def _score_counts(out: Array, y: Array) -> Array:
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
    counts = np.bincount(labels.astype(np.int64) * _BINS + keys, minlength=2 * _BINS)
    return counts.reshape(2, _BINS).astype(np.float64)


def _area(total: Array) -> float:
    zeros, ones = total
    above = ones[::-1].cumsum()[::-1] - ones
    pairs = zeros.sum() * ones.sum()
    return float((zeros * (above + 0.5 * ones)).sum() / pairs) if pairs else float("nan")


def _of_classes(owner: str, count: Counter, ignored: int | None, axis: int) -> Counter:
    """A counter of outputs with C classes on that axis and labels (...), from one of scores (N, C)
    and int64 labels (N,), without the ignored ones; OutOfRangeError for a label beyond C."""
    axis = integer(owner, "axis", axis)
    if ignored is not None:
        ignored = integer(owner, "ignore_index", ignored)

    def counted(out: Array, y: Array) -> Array:
        out = _classes_last(out, y := np.asarray(y), axis)
        scores, labels = out.reshape(y.size, out.shape[-1]), y.reshape(-1).astype(np.int64)
        if ignored is not None:
            kept = labels != ignored
            scores, labels = scores[kept], labels[kept]
        if not 0 <= labels.min(initial=0) <= labels.max(initial=0) < scores.shape[1]:
            raise OutOfRangeError(
                f"a metric of classes got labels from {labels.min()} to {labels.max()} for "
                f"{scores.shape[1]} classes; ignore_index= of the metric names one that counts "
                "nowhere"
            )
        return count(scores, labels)

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
