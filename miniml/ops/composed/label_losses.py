"""Losses of labels, which number classes: cross entropy and the negative log likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtype import DType, int64, is_float
from ...errors import AttributeRefusedError, DTypeError, ShapeError
from ..arithmetic import add, cast, div, mul, neg, sub
from ..compare import equal, greater_equal, less, logical_and, logical_or, not_equal, select
from ..create import ones_like
from ..index import gather
from ..inference.devices import on_one_device
from ..inference.numbers import fraction, integer
from ..inference.shapes import dtype_of, needs_float, shape_of
from ..norm import CheckedLabels, CrossEntropy, log_softmax
from ..reduce import mean, sum
from ..shape import expand_dims, moveaxis, reshape
from .loss import reduced

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["cross_entropy", "nll_loss"]


@on_one_device
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
    label_smoothing = fraction("cross_entropy", "label_smoothing", label_smoothing)
    if shape_of(labels) == shape_of(logits) and len(shape_of(logits)) > 1:
        return _by_shares(logits, labels, reduction, weight, ignore_index, label_smoothing)
    target = _targets("cross_entropy", logits, labels, weight, ignore_index)
    losses = _weighted(target, _entropies(logits, target.labels))
    if label_smoothing:
        even = mean(_times(log_softmax(logits, 1), target.weight), 1)  # sums overflow in float16
        losses = sub(mul(losses, 1.0 - label_smoothing), mul(even, label_smoothing))
    return _total(target, losses, reduction)


@on_one_device
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
    target = _targets("nll_loss", log_probs, labels, weight, ignore_index)
    classes, rank = shape_of(log_probs)[1], len(shape_of(log_probs))
    numbers = np.arange(classes, dtype=target.labels.dtype).reshape(-1, *(1,) * (rank - 2))
    hits = equal(expand_dims(target.labels, 1), numbers)
    losses = neg(sum(select(hits, log_probs, 0.0), 1))
    losses = select(outside(target.labels, classes), float("nan"), losses)
    return _total(target, _weighted(target, losses), reduction)


class _Targets(NamedTuple):
    """The labels (N, ...) of a loss, 0 in place of those that are ignored.

    counts: bools, which are not ignored; None for all. weight: of each class. share: the
    weight of each label. The weights are None where all are 1.
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
    counts = None if ignored is None else not_equal(cast(labels, int64), ignored)
    labels = labels if counts is None else select(counts, labels, 0)
    share = None if w is None else gather(w, labels)
    return _Targets(name, labels, counts, w, share)


def _would_do(name: str, shape: tuple[int, ...], given: tuple[int, ...]) -> str:
    """What to write for labels (N, 1, ...), and for scores whose classes come last."""
    if given[1:2] == (1,) and given[2:] == shape[2:]:
        return f"; labels[{', '.join([':', '0', *':' * len(shape[2:])])}] has that shape"
    if len(shape) > 2 and given == shape[:-1]:
        return f"; ops.moveaxis({name}, -1, 1) has the classes on axis 1"
    return ""


def _entropies(logits: Any, labels: Any) -> Tensor:
    """The cross entropy of each label."""
    if len(shape_of(logits)) == 2:
        return CrossEntropy("none")(logits, labels)[0]
    rows = reshape(moveaxis(logits, 1, -1), (-1, shape_of(logits)[1]))
    return reshape(CrossEntropy("none")(rows, reshape(labels, -1))[0], labels.shape)


def _weighted(target: _Targets, losses: Tensor) -> Tensor:
    return losses if target.share is None else mul(losses, target.share)


def _total(target: _Targets, losses: Tensor, reduction: str) -> Tensor:
    """The losses of the labels that count, reduced."""
    losses = _counted(target.counts, losses)
    if reduction != "mean" or (target.share is None and target.counts is None):
        return reduced(target.name, losses, reduction)
    share = ones_like(losses) if target.share is None else target.share
    return div(mean(losses), mean(_counted(target.counts, share)))  # sums overflow in float16


def checked(name: str, what: str, values: Any, end: int, ignored: int | None = None) -> Any:
    """Integers in [0, end), in a dtype that has `end`."""
    values = CheckedLabels(end, name, ignored, what)(values)
    return cast(values, int64) if np.iinfo(values.dtype).max < end else values


def outside(values: Any, end: int) -> Any:
    """Which of the integers are not in [0, end), though a GPU has refused none."""
    return logical_or(less(values, 0), greater_equal(values, end))


def _by_shares(
    logits: Any, t: Any, reduction: str, weight: Any, ignored: int | None, smoothing: float
) -> Tensor:
    """The cross entropy with probabilities t."""
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


def _by_class(name: str, weight: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """The weight of each class, (C,)."""
    if shape_of(weight) != shape[1:2]:
        raise ShapeError(
            f"{name} got weight of shape {shape_of(weight)} for {shape[1]} classes; it has one "
            f"number for each, shape {shape[1:2]}"
        )
    if isinstance(weight, (np.ndarray, list, tuple)):  # it follows the scores, wherever they are
        return np.asarray(weight, dtype)
    return weight if weight.dtype == dtype else cast(weight, dtype)


def _times(values: Any, weight: Any) -> Any:
    """Values (N, C, ...) times the weights of the classes, if there are any."""
    if weight is None:
        return values
    return mul(values, weight.reshape((-1, *(1,) * (len(shape_of(values)) - 2))))


def _counted(counts: Any, values: Any) -> Any:
    return values if counts is None else select(counts, values, 0.0)
