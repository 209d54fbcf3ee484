"""Cross entropy and the negative log likelihood with all their options: numbers of PyTorch 2.13, a
reference in NumPy, what is refused, and what stays the plain case."""

import itertools

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import ops
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import grad
from miniml.testing import gradcheck

W = np.array([0.5, 2, 1.25, 0.25])
Y = np.array([[0, 3], [2, 1], [2, 0]])


def fill(shape, k):
    return np.sin(np.arange(1, np.prod(shape) + 1) * 1.7 + k).reshape(shape) * 2


X, P = fill((3, 4, 2), 1), special.softmax(fill((3, 4, 2), 2), 1)

# Probabilities or labels, weighted or not, the label that is ignored, the smoothing: the mean, and
# its slope along a direction.
GOLDEN = [
    (False, False, None, 0.0, 1.990246936, -0.2004105),
    (False, False, None, 0.3, 2.031397346, -0.288531239),
    (False, False, 2, 0.0, 0.897620414, 0.490370496),
    (False, False, 2, 0.3, 1.222185589, 0.206342098),
    (False, True, None, 0.0, 2.218377355, -0.379393315),
    (False, True, None, 0.3, 2.173034508, -0.431695526),
    (False, True, 2, 0.0, 0.712898414, 0.545667591),
    (False, True, 2, 0.3, 1.186110083, 0.226618503),
    (True, False, None, 0.0, 1.461697407, -1.117233012),
    (True, False, None, 0.3, 1.661412675, -0.930306997),
    (True, True, None, 0.0, 1.602362826, -1.282322837),
    (True, True, None, 0.3, 1.715983906, -1.056824516),
]


@pytest.mark.parametrize(("probs", "weighted", "ignored", "smoothing", "value", "slope"), GOLDEN)
def test_numbers_are_those_of_pytorch(probs, weighted, ignored, smoothing, value, slope):
    def loss(x):
        weight = W if weighted else None
        return ops.cross_entropy(x, P if probs else Y, "mean", weight, ignored, smoothing)

    assert np.isclose(loss(X).item(), value, atol=2e-9)
    assert np.isclose((grad(loss)(X).asnumpy() * fill(X.shape, 3)).sum(), slope, atol=2e-9)


def reference(x, target, reduction, weight, ignored, smoothing):
    """The documented formula, element by element."""
    classes = x.shape[1]
    logs, w = special.log_softmax(x, 1), np.ones(classes) if weight is None else weight
    labels = target if target.ndim < x.ndim else None
    losses, total = np.zeros((x.shape[0], *x.shape[2:])), 0.0
    for at in np.ndindex(*losses.shape):
        row = (at[0], slice(None), *at[1:])
        if labels is not None and labels[at] == ignored:
            continue
        t = target[row] if labels is None else np.arange(classes) == labels[at]
        losses[at] = -(w * ((1 - smoothing) * t + smoothing / classes) * logs[row]).sum()
        total += 1.0 if labels is None else w[labels[at]]
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / total}[reduction]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 2, 2)])
def test_all_options_together(shape, reduction):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) * 3
    labels = rng.integers(0, 4, (shape[0], *shape[2:]))
    probs = special.softmax(rng.normal(size=shape), 1)
    for weight, ignored, smoothing in itertools.product((None, W), (None, 2, -100), (0.0, 0.25)):
        options = reduction, weight, ignored, smoothing
        y = np.where(labels == 1, -100, labels) if ignored == -100 else labels
        for target in (y,) if ignored else (y, probs):
            got = ops.cross_entropy(x, target, *options).asnumpy()
            np.testing.assert_allclose(got, reference(x, target, *options), 1e-12, 1e-13)
        if not smoothing:
            got = ops.nll_loss(ops.log_softmax(x, 1), y, *options[:3]).asnumpy()
            np.testing.assert_allclose(got, reference(x, y, *options), 1e-12, 1e-13)


def test_two_derivatives_by_logits_probabilities_and_weights():
    def by_probs(x, t):
        return ops.cross_entropy(x, t, weight=W, label_smoothing=0.2)

    def by_label(x, w):
        return ops.cross_entropy(x, Y, "none", w, 2, 0.2)

    assert gradcheck(by_probs, X, P, order=2).ok
    assert gradcheck(by_label, X, W, order=2).ok
    np.testing.assert_allclose(ml.jit(by_label)(X, W).asnumpy(), by_label(X, W).asnumpy(), 1e-12)
    slope = grad(by_probs, argnums=1)
    np.testing.assert_allclose(ml.jit(slope)(X, P).asnumpy(), slope(X, P).asnumpy(), 1e-12)


def test_the_plain_case_is_one_primitive():
    x, y = X[:, :, 0], Y[:, 0]
    assert [n.primitive.name for n in ml.trace(ops.cross_entropy, x, y).nodes] == ["CrossEntropy"]


def test_what_is_ruled_out_does_not_make_the_loss_infinite():
    x = np.array([[1.0, -np.inf, 2.0]])
    for target in (np.array([0]), np.array([[1.0, 0.0, 0.0]])):
        loss = ops.cross_entropy(x, target, weight=np.ones(3))
        assert np.isclose(loss.item(), np.log(1 + np.e))
        slope = grad(lambda x, t=target: ops.cross_entropy(x, t, weight=np.ones(3)))(x)
        assert np.isfinite(slope.asnumpy()).all()
    assert ops.cross_entropy(x, np.array([1]), weight=np.ones(3)).item() == np.inf


def test_dtypes_and_nothing():
    half = ops.cross_entropy(X.astype(np.float16), Y.astype(np.uint8), weight=W, ignore_index=2)
    assert half.dtype == ml.float16
    assert np.isnan(ops.cross_entropy(X, np.full((3, 2), 7), ignore_index=7).item())
    assert np.isnan(ops.nll_loss(np.zeros((0, 3)), np.zeros(0, np.int32)).item())
    many = np.zeros((1, 300), np.float32)  # classes that int8 does not number
    found = ops.nll_loss(many - np.log(300), np.array([100], np.int8))
    assert np.isclose(found.item(), np.log(300))


def test_smoothing_over_many_classes_stays_in_the_range_of_float16():
    """The logarithms of 40,000 probabilities add up to -424,000."""
    even = np.zeros((1, 40000), np.float16)
    found = ops.cross_entropy(even, np.array([1]), label_smoothing=0.5)
    assert np.isclose(found.item(), np.log(40000), rtol=2e-3)


OPTIONS = {
    "cross_entropy": lambda x, y: ops.cross_entropy(x, y, label_smoothing=0.1),
    "CrossEntropy": ops.cross_entropy,
    "nll_loss": ops.nll_loss,
}


@pytest.mark.parametrize("run", [lambda f: f, ml.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_bad_label_is_named_with_its_place(name, run):
    message = rf"{name} got label %s for 4 classes; labels are 0 to 3, and this is labels\[2\]"
    for bad in (4, -1):
        with pytest.raises(OutOfRangeError, match=message % bad) as caught:
            run(OPTIONS[name])(X[:, :, 0], np.array([0, 1, bad]))
        assert "test_label_losses.py" in "".join(caught.value.__notes__)
    with pytest.raises(OutOfRangeError, match=r"this is labels\[1, 0\]"):
        ops.cross_entropy(X, np.array([[0, 2], [9, 9], [0, 0]]), ignore_index=2)


def test_a_negative_label_of_few_bits_is_none_of_many_classes():
    """-100 has the bits of 156, which would be one of 200 classes."""
    labels = np.zeros(300, np.int8)
    labels[7] = -100
    with pytest.raises(OutOfRangeError, match=r"label -100 for 200 classes.*labels\[7\]"):
        ops.cross_entropy(np.zeros((300, 200), np.float32), labels)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.cross_entropy(X, Y[:2]), ShapeError, r"logits of shape \(3, 4, 2\) and"),
        (lambda: ops.cross_entropy(X[0, :, 0], Y[0, 0]), ShapeError, r"\(N, C, \.\.\.\)"),
        (lambda: ops.cross_entropy(X, P > 0), DTypeError, "got labels of bool in the shape of the"),
        (lambda: ops.cross_entropy(X, P, ignore_index=1), AttributeRefusedError, "and probabilit"),
        (lambda: ops.cross_entropy(X, Y, "men"), ValueRefusedError, "got reduction='men'; expec"),
        (lambda: ops.cross_entropy(X, Y, weight=W[:3]), ShapeError, r"weight of shape \(3,\) f"),
        (lambda: ops.cross_entropy(X, Y, label_smoothing=2), ValueRefusedError, "=2; expec"),
        (lambda: ops.cross_entropy(X, Y * 1.0, label_smoothing=0.1), DTypeError, "integer dtype"),
        (lambda: ops.cross_entropy(Y, Y[:, 0], weight=W[:2]), DTypeError, "needs a float tensor"),
        (lambda: ops.nll_loss(X, P), ShapeError, "nll_loss got log_probs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
