"""Metrics: statistics that add up over batches, and what is made of their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DTypeError, OutOfRangeError, ShapeError
from ..optim import arguments
from ..tensor import Array

Counter = Callable[[Array, Array], Array]
Row = dict[str, Any]  # what is known of an epoch or an evaluation, by name


@dataclass(frozen=True)
class Metric:
    """A number, or an array of numbers, that says how good outputs are.

    count(output, labels): a float64 array of `shape` for one batch of NumPy arrays. These are added
    up; result(total) is the value. name: the key of the value, in logs and results.
    """

    name: str
    shape: tuple[int, ...]
    count: Callable[..., Any]
    result: Callable[[Array], Any]


def accuracy(ignore_index: int | None = None) -> Metric:
    """The share of labels (...) that are the largest of the outputs (..., C).

    ignore_index: a label that counts nowhere, as in CrossEntropyLoss.
    """
    return _mean("accuracy", _of_classes(lambda out, y: out.argmax(-1) == y, ignore_index))


def top_k(k: int, ignore_index: int | None = None) -> Metric:
    """The share of labels (...) that are among the k largest of the outputs (..., C), of equal ones
    the first; ignore_index: as in `accuracy`, which this is for k = 1."""
    arguments.count("top_k", "k", k)

    def hits(out: Array, y: Array) -> Array:
        of_label = np.take_along_axis(out, y[:, None], -1)
        first = np.arange(out.shape[-1]) < y[:, None]
        ahead = ~(out <= of_label) | ((out == of_label) & first)  # NaN is ahead
        return ahead.sum(-1) < k  # type: ignore[no-any-return]

    return _mean(f"top_{k}", _of_classes(hits, ignore_index))


def perplexity(ignore_index: int | None = None) -> Metric:
    """exp of the mean of -log softmax(output)[label]: outputs (..., C), labels (...);
    ignore_index: as in `accuracy`."""

    def surprise(out: Array, y: Array) -> Array:
        shifted = out.astype(np.result_type(out, np.float32))
        shifted -= shifted.max(-1, keepdims=True)
        of_label = np.take_along_axis(shifted, y[:, None], -1)[:, 0]
        return np.log(np.exp(shifted).sum(-1)) - of_label  # type: ignore[no-any-return]

    values = _of_classes(surprise, ignore_index)
    return _mean("perplexity", values, lambda mean: float(np.exp(mean)))


def mean_absolute_error() -> Metric:
    """The mean of |output - target|; both of one shape."""
    return _mean("mean_absolute_error", lambda out, y: np.abs(_difference(out, y)))


def mean_squared_error() -> Metric:
    """The mean of (output - target)^2; both of one shape."""
    return _mean("mean_squared_error", lambda out, y: _difference(out, y) ** 2)


def confusion_matrix(classes: int, ignore_index: int | None = None) -> Metric:
    """Rows with label i whose largest output is j, as (classes, classes) ints: outputs
    (..., classes), labels (...); ignore_index: as in `accuracy`."""
    count = _confusion("confusion_matrix", classes, ignore_index)
    return Metric("confusion_matrix", (classes, classes), count, lambda n: n.astype(np.int64))


def f1(classes: int, ignore_index: int | None = None) -> Metric:
    """The mean over classes of 2 TP / (2 TP + FP + FN), 0 for a class that neither labels nor
    outputs have ("macro"); ignore_index: as in `accuracy`."""
    return Metric("f1", (classes, classes), _confusion("f1", classes, ignore_index), _macro_f1)


def _mean(
    name: str, values: Callable[[Array, Array], Array], last: Callable[[float], float] = float
) -> Metric:
    """The mean of values over all batches."""

    def count(out: Array, y: Array) -> Array:
        each = np.asarray(values(out, y), np.float64)
        return np.array([each.sum(), each.size])

    return Metric(name, (2,), count, lambda total: last(total[0] / max(total[1], 1.0)))


def _confusion(owner: str, classes: int, ignored: int | None) -> Counter:
    arguments.count(owner, "classes", classes)

    def pairs(out: Array, y: Array) -> Array:
        if out.shape[-1] != classes:
            raise OutOfRangeError(
                f"a metric of {classes} classes got outputs of {out.shape[-1]}; give it the number "
                "of classes"
            )
        counts = np.bincount(y * classes + out.argmax(-1), minlength=classes**2)
        return counts.reshape(classes, classes).astype(np.float64)

    return _of_classes(pairs, ignored)


def _macro_f1(total: Array) -> float:
    right = np.diag(total)
    return float(np.mean(2.0 * right / np.maximum(total.sum(0) + total.sum(1), 1.0)))


def _of_classes(count: Counter, ignored: int | None) -> Counter:
    """What counts outputs (..., C) and labels (...), from what counts scores (N, C) and labels
    (N,), int64, of the labels that are not ignored; refused unless these are classes."""

    def counted(out: Array, y: Array) -> Array:
        _check_labels(out, y := np.asarray(y))
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


def _check_labels(out: Array, y: Array) -> None:
    """ShapeError or DTypeError unless outputs are scores of classes, with an int label for each."""
    if not out.ndim or out.shape[:-1] != y.shape:
        raise ShapeError(
            f"a metric of classes got outputs {out.shape} and labels {y.shape}; expected "
            "outputs (..., classes) and labels (...)"
        )
    if y.dtype.kind not in "biu":
        raise DTypeError(f"a metric of classes got labels of {y.dtype}; expected ints")


def _difference(out: Array, y: Array) -> Array:
    if out.shape != np.shape(y):
        raise ShapeError(f"an error got outputs {out.shape} and targets {np.shape(y)}; one shape")
    return np.subtract(out, y, dtype=np.float64)
