"""Weights of rows and of classes in `fit`: each row's loss times its weight, then the mean.

As in Keras the mean is over rows, not over weights, so that weights of 1 change nothing, and a
batch in parts has the gradients of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import ops
from ..core.abstract import is_float
from ..core.errors import AttributeRefusedError, MinimlError, ShapeError, ValueRefusedError
from ..core.options import brief
from ..core.tensor import Array, Tensor
from ..nn import Cell
from ..nn.loss import of_rows

ClassWeights = Mapping[int, float] | Sequence[float] | Array


class Weighted(Cell):
    """A loss whose rows are weighted; called as it is, with weights behind the labels if `rows`.

    classes: the weight of each class, the last for what is none of them; () for none.
    """

    def __init__(self, loss: Callable[..., Any], classes: tuple[float, ...], rows: bool):
        self.loss, self.reduction = of_rows("fit", loss)
        self.classes, self.rows = classes, rows

    def construct(self, out: Any, *labels: Any) -> Any:
        own, given = (labels[:-1], labels[-1]) if self.rows else (labels, None)
        result = self.loss(out, *own)
        losses, *aux = result if isinstance(result, tuple) and len(result) == 2 else (result,)
        _check_losses(losses, out, own)
        if self.classes:
            losses = losses * _wide(_of_classes(self.classes, losses, own), losses)
        if given is not None:
            losses = losses * _wide(ops.stop_gradient(given), losses)
        loss = ops.mean(losses) if self.reduction == "mean" else ops.sum(losses)
        loss = ops.div(loss, losses.shape[0]) if self.reduction == "batchmean" else loss
        return (loss, aux[0]) if aux else loss


def _check_losses(losses: Any, out: Any, labels: Sequence[Any]) -> None:
    """ShapeError unless there is a loss for each row."""
    rows = getattr(labels[0] if labels else out, "shape", ())[:1]
    if isinstance(losses, Tensor) and is_float(losses.dtype) and losses.shape[:1] == rows != ():
        return
    got = getattr(losses, "shape", type(losses).__name__)
    raise ShapeError(
        f"class_weight and sample_weight weigh the losses of rows, and the loss function gives "
        f"{got} for {rows[0] if rows else 'no'} rows; give one of miniml.nn with its reduction, or "
        "a function that returns the losses (N, ...) before their mean"
    )


def _wide(weights: Any, losses: Any) -> Any:
    """Weights of rows, or of all losses, as a factor of these."""
    shape = weights.shape + (1,) * (len(losses.shape) - len(weights.shape))
    return ops.cast(ops.reshape(weights, shape), losses.dtype)


def _of_classes(classes: tuple[float, ...], losses: Any, labels: Sequence[Any]) -> Any:
    """The weight of each label."""
    table = Tensor(np.array(classes, np.float32), device=losses.device)
    y, last = _label_numbers(losses, labels), len(classes) - 1
    known = ops.logical_and(y >= 0, y < last)
    return ops.stop_gradient(ops.gather(table, ops.where(known, y, last)))


def _label_numbers(losses: Any, labels: Sequence[Any]) -> Any:
    """The class of each row, (N,), or of each loss; ShapeError where labels do not say it."""
    y: Any = labels[0] if labels else None
    shape = getattr(y, "shape", None)
    if shape is None:
        raise MinimlError(
            f"class_weight weighs rows by their labels, one array; got {type(y).__name__}; weights "
            "of rows are sample_weight="
        )
    rows = shape[:1]
    if is_float(y.dtype) and len(shape) == 2 and shape[1] > 1 and losses.shape == rows:
        return ops.argmax(y, axis=1)  # one-hot
    if shape in (rows, (*rows, 1)):
        return ops.cast(ops.reshape(y, rows), np.int64)
    if not is_float(y.dtype) and shape == losses.shape:
        return ops.cast(y, np.int64)
    raise ShapeError(
        f"class_weight got labels of shape {shape} for losses of shape {losses.shape}; expected "
        "the number of a class for each row (N,), or one-hot rows (N, classes)"
    )


def labels_weighed(classes: tuple[float, ...], labels: Any) -> Array:
    """The weight of each label of a batch that a Weighted took, (N,) or as the labels, in NumPy."""
    y = labels.asnumpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.dtype.kind not in "biu" and y.ndim == 2 and y.shape[1] > 1:
        y = y.argmax(1)  # one-hot
    y = y[:, 0] if y.shape[1:] == (1,) else y
    numbers, last = y.astype(np.int64), len(classes) - 1
    known = (numbers >= 0) & (numbers < last)
    return np.array(classes)[np.where(known, numbers, last)]


# --- Arguments ------------------------------------------------------------------------------------


def weights_of_classes(given: ClassWeights | None) -> tuple[float, ...]:
    """The weights by class and, behind them, 1 for all others; () for None. ValueRefusedError
    unless they are finite numbers >= 0."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        known = {_class_number(key): value for key, value in given.items()}
        listed = [known.get(i, 1.0) for i in range(max(known, default=-1) + 1)]
    else:
        listed = np.asarray(given).tolist()
    table = np.asarray(listed)
    if table.ndim != 1 or table.dtype.kind not in "biuf" or not _weighs(table):
        raise ValueRefusedError(
            f"fit got class_weight={brief(given)}; expected finite numbers >= 0 by class, as "
            "{0: 1.0, 1: 5.0}, or one for each, as data.class_weights(y) gives"
        )
    return (*map(float, table), 1.0)


def _class_number(key: object) -> int:
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and key >= 0:
        return int(key)
    raise AttributeRefusedError(
        f"fit got class_weight with the key {brief(key)}; expected numbers of classes, as "
        "{0: 1.0, 1: 5.0}"
    )


def weights_of_rows(who: str, given: Any) -> Array:
    """The weights as float32 (N,); ValueRefusedError for other shapes and numbers."""
    weights = given.asnumpy() if isinstance(given, Tensor) else np.asarray(given)
    weights = weights[:, 0] if weights.ndim == 2 and weights.shape[1] == 1 else weights
    if weights.ndim == 1 and weights.dtype.kind in "biuf" and _weighs(weights):
        return weights.astype(np.float32)
    raise ValueRefusedError(
        f"{who} got sample_weight of {weights.dtype}{list(weights.shape)}; expected one finite "
        "number >= 0 for each row, (N,)"
    )


def _weighs(table: Array) -> bool:
    return bool(np.isfinite(table).all() and (table >= 0).all())
