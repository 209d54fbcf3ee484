"""Rows of softmax, layer and batch normalisation, and cross entropy."""

import numpy as np

from miniml import ops
from miniml.errors import DTypeError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers


def softmax(x, axis=-1):
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis, keepdims=True)


def log_softmax(x, axis=-1):
    shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def rows(rng, dtype):
    for shape, axis in (((4,), 0), ((2, 3), 1), ((2, 3, 5), -2), ((3, 1), 1), ((0, 3), -1)):
        yield Sample((numbers(rng, shape, dtype),), {"axis": axis})
    yield Sample((numbers(rng, (2, 3), dtype),))
    # Far beyond where exp overflows or vanishes.
    yield Sample((np.array([-1000.0, 1000.0, 999.5], dtype),))


def layer_norm(x, gamma, beta, eps=1e-5):
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    return (x - mean) * rstd * gamma + beta, mean, rstd


def layer_norm_samples(rng, dtype):
    for x, gamma, attrs in (
        ((2, 5), (5,), {}),
        ((2, 3, 4), (3, 4), {"eps": 0.5}),
        ((4,), (4,), {"eps": 0.01}),
        ((0, 3), (3,), {}),
    ):
        yield Sample(tuple(numbers(rng, s, dtype) for s in (x, gamma, gamma)), attrs)


def batch_norm(x, gamma, beta, eps=1e-5):
    axes = (0, *range(2, x.ndim))
    rest = (-1, *(1,) * (x.ndim - 2))
    mean, var = x.mean(axes), x.var(axes)
    normal = (x - mean.reshape(rest)) / np.sqrt(var + eps).reshape(rest)
    return normal * gamma.reshape(rest) + beta.reshape(rest), mean, var


def batch_norm_samples(rng, dtype):
    for x, attrs in (
        ((5, 3), {}),
        ((2, 3, 4, 5), {}),
        ((3, 2, 4), {"eps": 0.5}),
        ((1, 2, 5, 1), {"eps": 0.01}),
        ((2, 0, 3, 4), {}),
    ):
        yield Sample(tuple(numbers(rng, s, dtype) for s in (x, x[1:2], x[1:2])), attrs)


REDUCE = {"mean": np.mean, "sum": np.sum, "none": lambda losses: losses}


def cross_entropy(logits, labels, reduction="mean"):
    logs = log_softmax(logits)
    losses = np.array([-logs[n, int(label)] for n, label in enumerate(labels)])
    return REDUCE[reduction](losses), softmax(logits)


def cross_entropy_grad(probs, labels, dloss, reduction="mean"):
    onehot = np.array([[c == label for c in range(probs.shape[1])] for label in labels], float)
    slope = (probs - onehot.reshape(probs.shape)) * dloss.reshape(-1, 1)
    return slope / len(labels) if reduction == "mean" else slope


LABELS = (
    ((3, 4), np.int64, {}),
    ((2, 5), np.int8, {"reduction": "sum"}),
    ((4, 3), np.uint16, {"reduction": "none"}),
    ((3, 2), np.uint64, {"reduction": "mean"}),
    ((2, 3), np.int32, {"reduction": "none"}),
    ((1, 1), np.uint8, {}),
    ((0, 3), np.int64, {"reduction": "none"}),
)


def cross_entropy_samples(rng, dtype):
    for shape, integer, attrs in LABELS:
        labels = rng.integers(0, shape[1], shape[0]).astype(integer)
        yield Sample((numbers(rng, shape, dtype), labels), attrs)


def cross_entropy_grad_samples(rng, dtype):
    for shape, integer, attrs in LABELS:
        labels = rng.integers(0, shape[1], shape[0]).astype(integer)
        dloss = numbers(rng, shape[:1] if attrs.get("reduction") == "none" else (), dtype)
        yield Sample((numbers(rng, shape, dtype, 0.1, 0.9), labels, dloss), attrs)


def checked_labels_samples(rng, dtype):
    for shape, attrs in (((3,), {}), ((2, 2), {"ignored": 5}), ((0,), {})):
        labels = rng.integers(0, 4, shape).astype(dtype)
        labels.flat[:1] = attrs.get("ignored", 3)
        yield Sample((labels,), {"classes": 4, **attrs})


def checked_probabilities_samples(rng, dtype):
    for shape in ((3,), (2, 2), (), (0, 2)):
        yield Sample((rng.uniform(0.1, 0.9, shape).astype(dtype),), {"of": "Own"})


NO_AXIS = (
    Refusal((np.ones((2, 3)),), "axis 2 of a tensor of rank 2", {"axis": 2}, ShapeError),
    Refusal((np.ones(()),), "axis -1 of a tensor of rank 0", {}, ShapeError),
)
X, ONES, LOGITS, FIRST = np.ones((2, 3, 4)), np.ones(4), np.ones((2, 3)), np.zeros(2, int)


def refused_labels(*labels, match, error=OutOfRangeError, **attrs):
    return Refusal((LOGITS, np.array(labels)), match, attrs, error)


ROWS = (
    OpInfo(ops.Softmax, rows, reference=softmax, refused=NO_AXIS),
    OpInfo(ops.LogSoftmax, rows, reference=log_softmax, refused=NO_AXIS),
    OpInfo(ops.LayerNorm, layer_norm_samples, reference=layer_norm, refused=(
        Refusal((X, np.ones(3), np.ones(3)), r"x of shape \(2, 3, 4\), gamma of \(3,\)",
                error=ShapeError),
        Refusal((X, ONES, np.ones(3)), r"beta of \(3,\)", error=ShapeError),
        Refusal((X, np.ones(()), np.ones(())), r"gamma of \(\)", error=ShapeError),
    )),
    OpInfo(ops.BatchNorm, batch_norm_samples, reference=batch_norm, refused=(
        Refusal((X, ONES, ONES), r"x of shape \(2, 3, 4\), gamma of \(4,\)", error=ShapeError),
        Refusal((ONES, ONES, ONES), r"x has shape \(N, C, ...\)", error=ShapeError),
        Refusal((X, np.ones(3), ONES), r"beta of \(4,\)", error=ShapeError),
    )),
    OpInfo(ops.CheckedLabels, checked_labels_samples, dtypes="bhilBHIL",
           reference=lambda labels, classes, of="", ignored=None, what="": labels,
           domain="0 <= labels < classes", refused=(
        Refusal((np.array([[0, 1], [5, 4]]),), r"label 4 for 4 classes; .*this is labels\[1, 1\]",
                {"classes": 4, "of": "CheckedLabels", "ignored": 5}, OutOfRangeError),
        Refusal((np.array([3, -1]),), r"got n_length -1; n_lengths are 0 to 3, and .*n_lengths\[1",
                {"classes": 4, "of": "CheckedLabels", "what": "n_length"}, OutOfRangeError),
        Refusal((np.ones(2),), "needs labels of an integer dtype",
                {"classes": 4, "of": "CheckedLabels"}, DTypeError),
    )),
    OpInfo(ops.CheckedProbabilities, checked_probabilities_samples, reference=lambda x, of="": x,
           domain="0 <= x <= 1", nan="handled", refused=(
        Refusal((np.array([[0.5, 1.0], [0.0, 1.5]]),), r"probability 1\.5, .*probs\[1, 1\]; .*BCEW",
                {"of": "CheckedProbabilities"}, ValueRefusedError),
        Refusal((np.array(-1e-6),), r"got probability -1e-06, .*probs\[\(\)\]",
                {"of": "CheckedProbabilities"}, ValueRefusedError),
    )),
    OpInfo(ops.CrossEntropy, cross_entropy_samples, reference=cross_entropy, refused=(
        refused_labels(0, 3, match="label 3 for 3 classes; labels are 0 to 2"),
        refused_labels(-1, 0, match="label -1 for 3 classes"),
        refused_labels(0, 1, 2, match=r"labels of shape \(3,\)", error=ShapeError),
        refused_labels([0, 1], [1, 0], match=r"labels of shape \(2, 2\)", error=ShapeError),
        refused_labels(0.0, 1.0, match="integer dtype.*got float64", error=DTypeError),
        refused_labels(True, False, match="integer dtype.*got bool", error=DTypeError),
        refused_labels(0, 1, match="'max'; expected one of 'mean', 'sum'", reduction="max",
                       error=ValueRefusedError),
        Refusal((np.ones((2, 0)), FIRST), "C at least 1", error=ShapeError),
        Refusal((LOGITS.astype(int), FIRST), "float tensor; got int64", error=DTypeError),
    )),
    OpInfo(ops.CrossEntropyGrad, cross_entropy_grad_samples, reference=cross_entropy_grad,
           domain="0 <= labels < C", refused=(
        Refusal((LOGITS, FIRST, np.ones(2)), r"the loss has shape \(\)", error=ShapeError),
        Refusal((LOGITS, FIRST, np.ones((), np.float32)), "of float64 and dloss of float32",
                error=DTypeError),
    )),
)  # fmt: skip
