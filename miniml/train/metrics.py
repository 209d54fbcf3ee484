"""Metrics: statistics that are summed over batches, and functions of these sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import DTypeError, OutOfRangeError, ShapeError
from ..core.options import count, integer
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
    return _mean("accuracy", hits, True)


def top_k(k: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """The share of labels (...) that are among the k largest of the outputs (..., C), of equal ones
    the first; ignore_index, axis: as in `accuracy`, which this is for k = 1."""
    k = count("top_k", "k", k)

    def hits(out: Array, y: Array) -> Array:
        of_label = np.take_along_axis(out, y[:, None], -1)
        first = np.arange(out.shape[-1]) < y[:, None]
        ahead = ~(out <= of_label) | ((out == of_label) & first)  # NaN is ahead
        return ahead.sum(-1) < k  # type: ignore[no-any-return]

    return _mean(f"top_{k}", _of_classes("top_k", hits, ignore_index, axis), True)


def perplexity(ignore_index: int | None = None, axis: int = -1) -> Metric:
    """exp of the mean of -log softmax(output)[label]: outputs (..., C), labels (...);
    ignore_index, axis: as in `accuracy`."""

    def surprise(out: Array, y: Array) -> Array:
        shifted = out.astype(np.result_type(out, np.float32))
        shifted -= shifted.max(-1, keepdims=True)
        of_label = np.take_along_axis(shifted, y[:, None], -1)[:, 0]
        return np.log(np.exp(shifted).sum(-1)) - of_label  # type: ignore[no-any-return]

    values = _of_classes("perplexity", surprise, ignore_index, axis)
    return _mean("perplexity", values, False, lambda mean: float(np.exp(mean)))


def mean_absolute_error() -> Metric:
    """The mean of |output - target|; both of one shape."""
    return _mean("mean_absolute_error", lambda out, y: np.abs(_difference(out, y)), False)


def mean_squared_error() -> Metric:
    """The mean of (output - target)^2; both of one shape."""
    return _mean("mean_squared_error", lambda out, y: _difference(out, y) ** 2, False)


def confusion_matrix(classes: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """Rows with label i whose largest output is j, as (classes, classes) ints: outputs
    (..., classes), labels (...); ignore_index, axis: as in `accuracy`."""
    count = _confusion("confusion_matrix", classes, ignore_index, axis)
    return Metric("confusion_matrix", (classes, classes), count, lambda n: n.astype(np.int64))


def f1(classes: int, ignore_index: int | None = None, axis: int = -1) -> Metric:
    """The mean over classes of 2 TP / (2 TP + FP + FN), 0 for a class that neither labels nor
    outputs have ("macro"); ignore_index, axis: as in `accuracy`."""
    count = _confusion("f1", classes, ignore_index, axis)
    return Metric("f1", (classes, classes), count, _macro_f1, True)


def _mean(
    name: str,
    values: Callable[[Array, Array], Array],
    larger_is_better: bool,
    last: Callable[[float], float] = float,
) -> Metric:
    """The mean of values over all batches."""

    def count(out: Array, y: Array) -> Array:
        each = np.asarray(values(out, y), np.float64)
        return np.array([each.sum(), each.size])

    def result(total: Array) -> float:
        return last(total[0] / max(total[1], 1.0))

    return Metric(name, (2,), count, result, larger_is_better)


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


def _macro_f1(total: Array) -> float:
    right = np.diag(total)
    return float(np.mean(2.0 * right / np.maximum(total.sum(0) + total.sum(1), 1.0)))


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
