"""Metrics: statistics that add up over batches, and what is made of their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import MinimlError, OutOfRangeError, ShapeError
from ..tensor import Array

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


def accuracy() -> Metric:
    """The share of labels (...) that are the largest of the outputs (..., C)."""
    return _mean("accuracy", lambda out, y: _classes(out, y).argmax(-1) == y)


def top_k(k: int) -> Metric:
    """The share of labels (...) that are among the k largest of the outputs (..., C)."""
    if k < 1:
        raise MinimlError(f"top_k got k={k}; expected an int >= 1")

    def hits(out: Array, y: Array) -> Array:
        of_label = np.take_along_axis(_classes(out, y), np.asarray(y)[..., None], -1)
        return (out > of_label).sum(-1) < k  # type: ignore[no-any-return]

    return _mean(f"top_{k}", hits)


def perplexity() -> Metric:
    """exp of the mean of -log softmax(output)[label]: outputs (..., C), labels (...)."""

    def surprise(out: Array, y: Array) -> Array:
        shifted = _classes(out, y) - out.max(-1, keepdims=True)
        of_label = np.take_along_axis(shifted, np.asarray(y)[..., None], -1)[..., 0]
        return np.log(np.exp(shifted).sum(-1)) - of_label  # type: ignore[no-any-return]

    return _mean("perplexity", surprise, lambda mean: float(np.exp(mean)))


def mean_absolute_error() -> Metric:
    """The mean of |output - target|; both of one shape."""
    return _mean("mean_absolute_error", lambda out, y: np.abs(_difference(out, y)))


def mean_squared_error() -> Metric:
    """The mean of (output - target)^2; both of one shape."""
    return _mean("mean_squared_error", lambda out, y: _difference(out, y) ** 2)


def confusion_matrix(classes: int) -> Metric:
    """Rows with label i whose largest output is j, as (classes, classes) ints: outputs
    (..., classes), labels (...)."""
    return Metric(
        "confusion_matrix",
        (classes, classes),
        lambda out, y: _confusion(classes, out, y),
        lambda total: total.astype(np.int64),
    )


def f1(classes: int) -> Metric:
    """The mean over classes of 2 TP / (2 TP + FP + FN), 0 for a class that neither labels nor
    outputs have ("macro")."""
    return Metric("f1", (classes, classes), lambda out, y: _confusion(classes, out, y), _macro_f1)


def _mean(
    name: str, values: Callable[[Array, Array], Array], last: Callable[[float], float] = float
) -> Metric:
    """The mean of values over all batches."""

    def count(out: Array, y: Array) -> Array:
        each = np.asarray(values(out, y), np.float64)
        return np.array([each.sum(), each.size])

    return Metric(name, (2,), count, lambda total: last(total[0] / max(total[1], 1.0)))


def _confusion(classes: int, out: Array, y: Array) -> Array:
    _classes(out, y)
    if out.shape[-1] != classes or y.min(initial=0) < 0 or y.max(initial=0) >= classes:
        raise OutOfRangeError(
            f"a metric of {classes} classes got outputs of {out.shape[-1]} and labels from "
            f"{y.min(initial=0)} to {y.max(initial=0)}; give it the number of classes"
        )
    pairs = np.ravel(y) * classes + np.ravel(out.argmax(-1))
    counts = np.bincount(pairs.astype(np.int64), minlength=classes**2)
    return counts.reshape(classes, classes).astype(np.float64)


def _macro_f1(total: Array) -> float:
    right = np.diag(total)
    return float(np.mean(2.0 * right / np.maximum(total.sum(0) + total.sum(1), 1.0)))


def _classes(out: Array, y: Array) -> Array:
    """The outputs; ShapeError unless they are scores of classes, a label for each."""
    if out.shape[:-1] != np.shape(y) or not out.ndim:
        raise ShapeError(
            f"a metric of classes got outputs {out.shape} and labels {np.shape(y)}; expected "
            "outputs (..., classes) and labels (...)"
        )
    return out


def _difference(out: Array, y: Array) -> Array:
    if out.shape != np.shape(y):
        raise ShapeError(f"an error got outputs {out.shape} and targets {np.shape(y)}; one shape")
    return np.subtract(out, y, dtype=np.float64)
