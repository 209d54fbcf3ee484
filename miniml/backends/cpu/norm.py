"""NumPy kernels of normalisation: softmax, layer and batch normalisation, cross entropy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core.abstract import DType, int64
from ...core.errors import OutOfRangeError, ValueRefusedError
from ...core.signature import FLOAT, INT, same
from ..kernel import Array, largest, least, scalars, skips
from ..registry import kernel, register_floats
from . import linalg
from .index import inside

Outs = tuple[Array, ...]


def softmax(x: Array, *, axis: int, out: Array) -> None:
    if not x.size or least(x) < -32 or not largest(x) <= 32:  # else exp keeps far from its ends
        x = np.subtract(x, np.maximum.reduce(x, axis=axis, keepdims=True), out)
    np.exp(x, out)
    np.divide(out, np.add.reduce(out, axis=axis, keepdims=True), out)


def log_softmax(x: Array, *, axis: int, out: Array) -> None:
    np.subtract(x, np.maximum.reduce(x, axis=axis, keepdims=True), out)
    total = np.add.reduce(np.exp(out), axis=axis, keepdims=True)
    np.subtract(out, np.log(total, total), out)


def layer_norm(x: Array, gamma: Array, beta: Array, *, eps: float, out: Outs) -> None:
    values, mean, rstd = out
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    (count,) = scalars(mean.dtype, gamma.size)
    np.add.reduce(x, axis=axes, keepdims=True, out=mean)
    np.subtract(x, np.divide(mean, count, mean), values)
    rows = values.reshape(mean.size, gamma.size)
    np.vecdot(rows, rows, rstd.reshape(-1))
    inverse_root(np.divide(rstd, count, rstd), eps, rstd)
    np.multiply(np.multiply(values, rstd, values), gamma, values)
    np.add(values, beta, values)


def batch_norm(x: Array, gamma: Array, beta: Array, *, eps: float, out: Outs) -> None:
    values, mean, var = out
    (count,) = scalars(mean.dtype, x.size // gamma.size if gamma.size else 0)
    rest = (-1, *(1,) * (x.ndim - 2))
    np.add.reduce(x, axis=(0, *range(2, x.ndim)), out=mean)
    np.subtract(x, np.divide(mean, count, mean).reshape(rest), values)
    rows = values.reshape(*x.shape[:2], -1 if x.size else 0)
    np.add.reduce(np.vecdot(rows, rows), axis=0, out=var)
    scale = np.empty(var.shape, var.dtype)
    inverse_root(np.divide(var, count, var), eps, scale)
    np.multiply(values, np.multiply(scale, gamma, scale).reshape(rest), values)
    np.add(values, beta.reshape(rest), values)


def inverse_root(var: Array, eps: float, out: Array) -> None:
    """1 / sqrt(var + eps)."""
    np.reciprocal(np.sqrt(np.add(var, scalars(var.dtype, eps)[0], out), out), out)


@skips(1)
def cross_entropy(logits: Array, labels: Array, *, reduction: str, out: Outs) -> None:
    loss, probs = out
    rows = rows_of(logits.shape, logits.dtype)
    check_labels(labels, logits.shape[1])
    exps = np.subtract(logits, np.maximum.reduce(logits, axis=1, keepdims=True), out=probs)
    chosen = exps.reshape(-1)[np.add(rows.starts, labels, dtype=int64, casting="unsafe")]
    np.exp(exps, out=exps)
    total = linalg.dot(exps, rows.ones)
    if probs is not None:
        np.divide(probs, total[:, None], out=probs)
    losses = np.log(total, out=loss if reduction == "none" else total)
    np.subtract(losses, chosen, out=losses)
    if reduction == "sum":
        loss[...] = linalg.dot(losses, rows.each)
    elif reduction == "mean":  # without rows there is no mean
        loss[...] = linalg.dot(losses, rows.share) if labels.size else np.nan


def cross_entropy_grad(
    probs: Array, labels: Array, dloss: Array, *, reduction: str, out: Array
) -> None:
    rows = rows_of(probs.shape, probs.dtype)
    share: Any = dloss[()] if dloss.ndim == 0 else dloss
    if reduction == "mean":
        share = share / labels.size
    np.multiply(probs, share if dloss.ndim == 0 else share[:, None], out=out)
    # CrossEntropy has checked the labels.
    out.reshape(-1)[np.add(rows.starts, labels, dtype=int64, casting="unsafe")] -= share


class Rows(NamedTuple):
    """Constants of matrices of one shape: row starts, and vectors that sum and average them."""

    starts: Array
    ones: Array
    each: Array
    share: Array


@lru_cache(maxsize=256)
def rows_of(shape: tuple[int, int], dtype: DType) -> Rows:
    """The constants for matrices of `shape` and `dtype`: products with them are fast sums."""
    n, classes = shape
    return Rows(
        np.arange(0, n * classes, classes) if classes else np.zeros(n, int64),
        np.ones(classes, dtype),
        np.ones(n, dtype),
        np.full(n, 1 / max(n, 1), dtype),
    )


def checked_labels(
    labels: Array, *, classes: int, of: str, ignored: int | None, what: str, out: Array
) -> None:
    check_labels(labels, classes, of, ignored, what)
    out[...] = labels


def check_labels(
    labels: Array, classes: int, of: str = "CrossEntropy", ignored: int | None = None,
    what: str = "label",
) -> None:  # fmt: skip
    """OutOfRangeError unless all labels are classes, or `ignored`."""
    if not inside(labels, classes):
        outside = (labels < 0) | (labels >= classes)
        if ignored is not None:
            outside &= np.not_equal(labels, ignored)
        for index, place in _first(outside):
            among = f" for {classes} classes" if what in ("label", "target") else ""
            raise OutOfRangeError(
                f"{of} got {what} {labels[index]}{among}; {what}s are 0 to {classes - 1}, "
                f"and this is {what}s[{place}]"
            )


def checked_probabilities(x: Array, *, of: str, out: Array) -> None:
    outside = np.less(x, 0.0) | np.greater(x, 1.0)
    for index, place in _first(outside):
        raise ValueRefusedError(
            f"{of} got probability {x[index]:.6g}, and this is probs[{place}]; "
            "probabilities are 0 to 1: a sigmoid before it makes them, and BCEWithLogitsLoss, or "
            "ops.bce_with_logits, takes logits"
        )
    out[...] = x


def _first(outside: Array) -> list[tuple[tuple[int, ...], str]]:
    """The first index of an element that is True, and what a message has between brackets for it;
    empty if there is none."""
    found = np.argwhere(outside)[:1].tolist()
    return [(tuple(index), ", ".join(map(str, index)) or "()") for index in found]


kernel("CheckedLabels", "cpu", *same(1, INT))(checked_labels)
kernel("CheckedProbabilities", "cpu", *same(1, FLOAT))(checked_probabilities)
register_floats("Softmax", softmax)
register_floats("LogSoftmax", log_softmax)
register_floats("LayerNorm", layer_norm, "{}{}{}->{}{}{}")
register_floats("BatchNorm", batch_norm, "{}{}{}->{}{}{}")
register_floats("CrossEntropy", cross_entropy, *["{}" + i + "->{}{}" for i in INT])
register_floats("CrossEntropyGrad", cross_entropy_grad, *["{}" + i + "{}->{}" for i in INT])
