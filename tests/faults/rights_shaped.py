"""Correct primitives of rows and matrices: layers, losses, distances, norms, forms, solves."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniml import ops

from .natural import (
    across,
    attention,
    bilinear,
    form,
    inside,
    layer,
    matrices,
    natural,
    numbers,
    reduced,
    reduced_pair,
    rows,
    shapes,
    square,
    table,
    two_sets,
)


def soft(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def soft_gradient(out: Any, dout: Any) -> Any:
    return out * (dout - ops.sum(out * dout, -1, True))


def log_soft(x: Any) -> Any:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def through(x: Any, w: Any, slope: Any) -> Any:
    """The gradients of f(x @ w) from the one by x @ w."""
    return ops.matmul(slope, ops.swapaxes(w, 0, 1)), ops.matmul(ops.swapaxes(x, 0, 1), slope)


def dense_gradient(x: Any, w: Any, b: Any, out: Any, dout: Any) -> Any:
    slope = dout * (1.0 - out * out)
    return *through(x, w, slope), ops.sum(slope, 0)


def centred(x: Any) -> Any:
    return x - x.mean(-1, keepdims=True)


def normed(x: Any, eps: float) -> Any:
    return centred(x) / np.sqrt(x.var(-1, keepdims=True) + eps)


def normed_gradient(x: Any, out: Any, dout: Any, eps: float) -> Any:
    r = ops.rsqrt(ops.var(x, -1, keepdims=True) + eps)
    return r * (dout - ops.mean(dout, -1, True) - out * ops.mean(dout * out, -1, True))


def root_mean(x: Any, eps: float) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def root_mean_gradient(x: Any, out: Any, dout: Any, eps: float) -> Any:
    r = ops.rsqrt(ops.mean(x * x, -1, True) + eps)
    return r * (dout - out * ops.mean(dout * out, -1, True))


def wide(x: Any) -> Any:
    return ops.expand_dims(x, -1)


def unit_gradient(x: Any, out: Any, dout: Any) -> Any:
    length = ops.sqrt(ops.sum(x * x, -1, True))
    return (dout - out * ops.sum(dout * out, -1, True)) / length


def cosine(x: Any, y: Any) -> Any:
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


def cosine_gradient(x: Any, y: Any, out: Any, dout: Any) -> Any:
    a, b = ops.sum(x * x, -1), ops.sum(y * y, -1)
    shared, length = wide(dout), wide(ops.sqrt(a * b))
    return (
        shared * (y / length - wide(out / a) * x),
        shared * (x / length - wide(out / b) * y),
    )


def distances_gradient(x: Any, y: Any, out: Any, dout: Any) -> Any:
    gap = ops.expand_dims(x, 1) - ops.expand_dims(y, 0)
    pull = 2.0 * wide(dout) * gap
    return ops.sum(pull, 1), -ops.sum(pull, 0)


def kernel_gradient(x: Any, y: Any, out: Any, dout: Any) -> Any:
    return distances_gradient(x, y, out, -0.5 * dout * out)


def distances(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def form_gradient(x: Any, a: Any, out: Any, dout: Any) -> Any:
    both = ops.matmul(a, x) + ops.matmul(ops.swapaxes(a, 0, 1), x)
    return dout * both, dout * ops.outer(x, x)


def bilinear_gradient(x: Any, a: Any, y: Any, out: Any, dout: Any) -> Any:
    return (
        dout * ops.matmul(a, y),
        dout * ops.outer(x, y),
        dout * ops.matmul(ops.swapaxes(a, 0, 1), x),
    )


def attend(q: Any, k: Any, v: Any) -> Any:
    return soft(q @ k.T / np.sqrt(q.dtype.type(q.shape[1]))) @ v


def attend_gradient(q: Any, k: Any, v: Any, out: Any, dout: Any) -> Any:
    root = q.shape[1] ** 0.5
    p = ops.softmax(ops.matmul(q, ops.swapaxes(k, 0, 1)) / root)
    slope = soft_gradient(p, ops.matmul(dout, ops.swapaxes(v, 0, 1))) / root
    return (
        ops.matmul(slope, k),
        ops.matmul(ops.swapaxes(slope, 0, 1), q),
        ops.matmul(ops.swapaxes(p, 0, 1), dout),
    )


def weighted_gradient(x: Any, w: Any, out: Any, dout: Any) -> Any:
    share = wide(dout / ops.sum(w, -1))
    return share * w, share * (x - wide(out))


def cross_gradient(x: Any, t: Any, out: Any, dout: Any) -> Any:
    total = ops.sum(t, -1, True)
    return wide(dout) * (ops.softmax(x) * total - t), -wide(dout) * ops.log_softmax(x)


def deviation_gradient(x: Any, out: Any, dout: Any) -> Any:
    gap = x - ops.mean(x, -1, True)
    return wide(dout / out) * gap / x.shape[-1]


def inverse_gradient(a: Any, out: Any, dout: Any) -> Any:
    turned = ops.swapaxes(out, 0, 1)
    return -ops.matmul(turned, ops.matmul(dout, turned))


def largest_gradient(x: Any, out: Any, dout: Any) -> Any:
    """Numbers that tie share the gradient."""
    largest = ops.cast(x == wide(out), x.dtype)
    return largest * wide(dout) / ops.sum(largest, -1, True)


def rest_of_product(x: Any, out: Any, dout: Any) -> Any:
    return wide(dout * out) / x


def mirrored(x: Any, v: Any) -> Any:
    return x - 2 * v * (x * v).sum(-1, keepdims=True) / (v * v).sum(-1, keepdims=True)


def mirrored_gradient(x: Any, v: Any, out: Any, dout: Any) -> Any:
    square = ops.sum(v * v, -1, True)
    a, b = ops.sum(x * v, -1, True) / square, ops.sum(dout * v, -1, True) / square
    return dout - 2.0 * v * b, -2.0 * (dout * a + x * b - 2.0 * v * a * b)


def same_rows(self: Any, x: Any, y: Any) -> Any:
    reduced_pair(self, x, y)
    return x


NORMAL, TWO = numbers(), numbers(2)
LAYERS = (
    natural("DenseTanh", layer, lambda x, w, b: np.tanh(x @ w + b), dense_gradient,
        shapes("nk", "km", "m")),
    natural("TanhOfProduct", matrices, lambda x, w: np.tanh(x @ w),
        lambda x, w, out, d: through(x, w, d * (1.0 - out * out)), shapes("nk", "km")),
    natural("SigmoidOfProduct", matrices, lambda x, w: 1 / (1 + np.exp(-(x @ w))),
        lambda x, w, out, d: through(x, w, d * out * (1.0 - out)), shapes("nk", "km")),
    natural("SoftmaxOfProduct", matrices, lambda x, w: soft(x @ w),
        lambda x, w, out, d: through(x, w, soft_gradient(out, d)), shapes("nk", "km")),
    natural("ReluOfProduct", matrices, lambda x, w: np.maximum(x @ w, 0),
        lambda x, w, out, d: through(x, w, ops.where(out > 0.0, d, 0.0 * d)), shapes("nk", "km")),
    natural("OwnAttention", attention, attend, attend_gradient, shapes("nd", "md", "me")),
    natural("SoftmaxOfRows", rows, soft, lambda x, out, d: soft_gradient(out, d), NORMAL),
    natural("LogSoftmaxOfRows", rows, log_soft,
        lambda x, out, d: d - ops.exp(out) * ops.sum(d, -1, True), NORMAL),
    natural("LayerNormOfRows", rows, normed, normed_gradient, NORMAL, eps=1e-5),
    natural("NormOfRootMeanSquare", rows, root_mean, root_mean_gradient, NORMAL, eps=1e-5),
    natural("UnitRows", rows, lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
        unit_gradient, NORMAL),
    natural("CentredRows", rows, centred, lambda x, out, d: d - ops.mean(d, -1, True), NORMAL),
    natural("RunningSum", rows, lambda x: np.cumsum(x, -1),
        lambda x, out, d: ops.cumsum(d, -1, reverse=True), NORMAL),
    natural("Mirrored", same_rows, mirrored, mirrored_gradient, TWO),
)  # fmt: skip
LOSSES = (
    natural("EntropyOfRows", reduced, lambda x: -(x * np.log(x)).sum(-1),
        lambda x, out, d: -wide(d) * (ops.log(x) + 1.0), across(0.0, 1.0)),
    natural("LogSumExpOfRows", reduced, lambda x: x.max(-1) + np.log(np.exp(
        x - x.max(-1, keepdims=True)).sum(-1)),
        lambda x, out, d: wide(d) * ops.exp(x - wide(out)), NORMAL),
    natural("SoftCrossEntropy", reduced_pair, lambda x, t: -(t * log_soft(x)).sum(-1),
        cross_gradient, TWO),
    natural("Divergence", reduced_pair, lambda p, q: (p * (np.log(p) - np.log(q))).sum(-1),
        lambda p, q, out, d: (wide(d) * (ops.log(p) - ops.log(q) + 1.0), -wide(d) * p / q),
        across(0.0, 1.0, 2)),
    natural("SquaredDistance", reduced_pair, lambda x, y: ((x - y) ** 2).sum(-1),
        lambda x, y, out, d: (2.0 * wide(d) * (x - y), -2.0 * wide(d) * (x - y)), TWO),
    natural("CosineOfRows", reduced_pair, cosine, cosine_gradient, TWO),
    natural("EuclideanNorm", reduced, lambda x: np.linalg.norm(x, axis=-1),
        lambda x, out, d: x * wide(d / out), NORMAL),
    natural("WeightedMean", reduced_pair, lambda x, w: (w * x).sum(-1) / w.sum(-1),
        weighted_gradient, inside(0.1, 2.0, 2)),
    natural("GeometricMean", reduced, lambda x: np.exp(np.log(x).mean(-1)),
        lambda x, out, d: wide(d * out) / (x * float(x.shape[-1])), across(0.2, 3.0)),
    natural("HarmonicMean", reduced, lambda x: 1 / (1 / x).mean(-1),
        lambda x, out, d: wide(d * out * out) / (x * x * float(x.shape[-1])), inside(0.2, 3.0)),
    natural("VarianceOfRows", reduced, lambda x: x.var(-1),
        lambda x, out, d: 2.0 * wide(d) * (x - ops.mean(x, -1, True)) / x.shape[-1], NORMAL),
    natural("DeviationOfRows", reduced, lambda x: x.std(-1), deviation_gradient, NORMAL),
    natural("ProductOfRows", reduced, lambda x: x.prod(-1), rest_of_product, NORMAL),
    natural("LargestOfRows", reduced, lambda x: x.max(-1), largest_gradient, NORMAL),
)  # fmt: skip
FORMS = (
    natural("PairwiseDistances", two_sets, distances, distances_gradient, shapes("nd", "md")),
    natural("GaussianKernel", two_sets, lambda x, y: np.exp(-distances(x, y) / 2),
        kernel_gradient, shapes("nd", "md")),
    natural("QuadraticForm", form, lambda x, a: x @ a @ x, form_gradient, shapes("n", "nn")),
    natural("Bilinear", bilinear, lambda x, a, y: x @ a @ y, bilinear_gradient,
        shapes("n", "nm", "m")),
    natural("OuterProduct", table, np.outer,
        lambda x, y, out, d: (ops.matmul(d, y), ops.matmul(ops.swapaxes(d, 0, 1), x)),
        shapes("n", "m")),
    natural("OwnInverse", square, np.linalg.inv, inverse_gradient,
        lambda rng: (rng.normal(size=(3, 3)) + 3 * np.eye(3),)),
)  # fmt: skip

SHAPED_RIGHTS = LAYERS + LOSSES + FORMS
