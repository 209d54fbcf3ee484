"""Gradient rules of softmax, normalization and cross entropy, from outputs and kept statistics."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core.bprop import Bprop, bprop_getters, rule
from ..batching import Batched, all_in_front, batch_rules, batches, in_front, padded, shifted
from ..reverse import used
from .reduce import divided


@bprop_getters.register(ops.Softmax)
def get_bprop_softmax(self: ops.Softmax) -> Bprop:
    return lambda x, out, dout: (softmax_pull(out, dout, self.axis),)


def softmax_pull(out: Any, dout: Any, axis: int) -> Any:
    """out * (dout - sum(dout * out)): the softmax's Jacobian is diag(out) - out out^T."""
    return out * (dout - ops.sum(dout * out, axis, True))


@bprop_getters.register(ops.CheckedProbabilities)
def get_bprop_checked_probabilities(self: ops.CheckedProbabilities) -> Bprop:
    return lambda x, out, dout: (dout,)


@rule(ops.LogSoftmax)
def log_softmax_bprop(self: ops.LogSoftmax, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """By the softmax of x, which shares its exponentials with what made `out`; and those of `out`
    are off by its rounding, 1/64 next to -20 in float16."""
    return (dout - ops.softmax(x, self.axis) * ops.sum(dout, self.axis, True),)


@rule(ops.LayerNorm)
def layer_norm_bprop(
    self: ops.LayerNorm, x: Any, gamma: Any, beta: Any, out: Any, dout: Any
) -> tuple[Any, Any, Any]:
    mean, rstd = out[1:]
    first = x.ndim - gamma.ndim
    rows, columns = tuple(range(first)), tuple(range(first, x.ndim))
    share = 1.0 / max(gamma.size, 1)
    normal = (x - mean) * rstd
    slope = dout[0] * gamma
    tilt = ops.mean(slope * normal, columns, True)
    if used(dout, 2):
        tilt = tilt + dout[2] * rstd * share
    dx = (slope - normal * tilt - ops.mean(slope, columns, True)) * rstd
    if used(dout, 1):
        dx = dx + dout[1] * share
    return dx, ops.sum(dout[0] * normal, rows), ops.sum(dout[0], rows)


@rule(ops.BatchNorm)
def batch_norm_bprop(
    self: ops.BatchNorm, x: Any, gamma: Any, beta: Any, out: Any, dout: Any
) -> tuple[Any, Any, Any]:
    mean, var = out[1:]
    axes = (0, *range(2, x.ndim))
    rest = (-1, *(1,) * (x.ndim - 2))
    count = x.size // max(x.shape[1], 1)
    rstd = ops.rsqrt(var + self.eps)
    centred = x - ops.reshape(mean, rest)
    dbeta = ops.sum(dout[0], axes)
    dgamma = ops.sum(dout[0] * centred, axes) * rstd
    # gamma * rstd comes last: rstd^2 may overflow float16 where the variance is tiny.
    tilt, shift = divided(dgamma, count) * rstd, divided(dbeta, count)
    dx = dout[0] - centred * ops.reshape(tilt, rest) - ops.reshape(shift, rest)
    dx = dx * ops.reshape(gamma * rstd, rest)
    if used(dout, 1):
        dx = dx + ops.reshape(divided(dout[1], count), rest)
    if used(dout, 2):
        dx = dx + centred * ops.reshape(divided(2.0 * dout[2], count), rest)
    return dx, dgamma, dbeta


@rule(ops.CrossEntropy)
def cross_entropy_bprop(
    self: ops.CrossEntropy, logits: Any, labels: Any, out: Any, dout: Any
) -> tuple[Any, None]:
    slope = ops.CrossEntropyGrad(self.reduction)(out[1], labels, dout[0])
    if used(dout, 1):
        slope = slope + softmax_pull(out[1], dout[1], 1)
    return slope, None


@rule(ops.CrossEntropyGrad)
def cross_entropy_grad_bprop(
    self: ops.CrossEntropyGrad, probs: Any, labels: Any, dloss: Any, out: Any, dslope: Any
) -> tuple[Any, None, Any]:
    each = self.reduction == "none"
    share = ops.reshape(dloss, (-1, 1)) if each else dloss
    if self.reduction == "mean":
        share = share * (1.0 / max(probs.shape[0], 1))
    unit = ops.CrossEntropyGrad(self.reduction)(probs, labels, ops.ones_like(dloss))
    return dslope * share, None, ops.sum(dslope * unit, 1 if each else None)


# --- Batching -------------------------------------------------------------------------------------


for _cls in (ops.Softmax, ops.LogSoftmax):
    batch_rules.register(_cls)(shifted("axis"))


@batches(ops.LayerNorm)
def batch_layer_norm(self: ops.LayerNorm, batched: Batched, x: Any, gamma: Any, beta: Any) -> Any:
    whole = x if batched[0] else in_front(x, batched.size)
    if not any(batched[1:]):
        return self(whole, gamma, beta)
    shape = gamma.shape[1:] if batched[1] else gamma.shape
    plain = ops.ones(shape, gamma.dtype), ops.zeros(shape, beta.dtype)
    out, mean, rstd = self(whole, *plain)
    rank = len(whole.shape) - 1
    scale, shift = (
        padded(v, rank) if flag else v for v, flag in zip((gamma, beta), batched[1:], strict=True)
    )
    return ops.cast(out * scale + shift, out.dtype), mean, rstd


@batches(ops.BatchNorm)
def batch_batch_norm(self: ops.BatchNorm, batched: Batched, x: Any, gamma: Any, beta: Any) -> Any:
    """The channels of all examples as channels of one batch: each has statistics of its own."""
    whole, gammas, betas = all_in_front(batched, (x, gamma, beta))
    size, n, channels, *rest = whole.shape
    merged = ops.reshape(ops.moveaxis(whole, 0, 1), (n, size * channels, *rest))
    out, mean, var = self(merged, *(ops.reshape(v, (size * channels,)) for v in (gammas, betas)))
    apart = ops.moveaxis(ops.reshape(out, (n, size, channels, *rest)), 1, 0)
    return apart, *(ops.reshape(v, (size, channels)) for v in (mean, var))


@batches(ops.CrossEntropy)
def batch_cross_entropy(self: ops.CrossEntropy, batched: Batched, logits: Any, labels: Any) -> Any:
    logits, labels = all_in_front(batched, (logits, labels))
    size, n, classes = logits.shape
    each = ops.CrossEntropy("none")
    rows, probs = each(ops.reshape(logits, (size * n, classes)), ops.reshape(labels, (size * n,)))
    loss = ops.reshape(rows, (size, n))
    if self.reduction != "none":
        loss = ops.sum(loss, 1) if self.reduction == "sum" else ops.mean(loss, 1)
    return loss, ops.reshape(probs, (size, n, classes))


@batches(ops.CrossEntropyGrad)
def batch_cross_entropy_grad(
    self: ops.CrossEntropyGrad, batched: Batched, probs: Any, labels: Any, dloss: Any
) -> Any:
    probs, labels, dloss = all_in_front(batched, (probs, labels, dloss))
    size, n, classes = probs.shape
    if self.reduction != "none":
        share = divided(dloss, n) if self.reduction == "mean" else dloss
        dloss = ops.broadcast_to(ops.expand_dims(share, 1), (size, n))
    rows = ops.reshape(probs, (size * n, classes)), ops.reshape(labels, (size * n,))
    slopes = ops.CrossEntropyGrad("none")(*rows, ops.reshape(dloss, (size * n,)))
    return ops.reshape(slopes, (size, n, classes))
