"""The CTC loss: all paths enumerated, numbers of PyTorch 2.13, lengths, what cannot be spelt."""

import itertools

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

from .test_label_losses import fill

LOGITS = fill((5, 3, 4), 4)
TARGETS = np.array([[1, 2, 2], [3, 1, 0], [2, 2, 3]])
LENGTHS, COUNTS = np.array([5, 4, 3]), np.array([3, 2, 3])  # 2 2 3 needs a blank: four steps


def loss(logits, *options):
    return ops.ctc_loss(ops.log_softmax(logits), TARGETS, LENGTHS, COUNTS, *options)


def spelt(path, blank):
    return [c for c, _ in itertools.groupby(path) if c != blank]


def enumerated(log_probs, target, steps, blank):
    """Minus the logarithm of the sum over all paths, one by one."""
    paths = itertools.product(range(log_probs.shape[1]), repeat=steps)
    found = [
        sum(log_probs[t, c] for t, c in enumerate(path))
        for path in paths
        if spelt(path, blank) == list(target)
    ]
    return -special.logsumexp(found) if found else np.inf


@pytest.mark.parametrize("blank", [0, 2])
def test_it_is_the_sum_over_all_paths(blank):
    rng = np.random.default_rng(blank)
    x = special.log_softmax(rng.normal(size=(5, 12, 3)), 2)
    targets = rng.integers(0, 2, (12, 3))
    targets += targets >= blank
    steps, counts = rng.integers(0, 6, 12), rng.integers(0, 4, 12)
    got = ops.ctc_loss(x, targets, steps, counts, blank, "none").asnumpy()
    expected = [
        enumerated(x[:, n], targets[n, : counts[n]], steps[n], blank) for n in range(len(targets))
    ]
    assert np.isinf(expected).any()
    np.testing.assert_allclose(got, expected, 1e-12, 1e-14)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64])
def test_targets_of_any_integers(dtype):
    x = special.log_softmax(np.random.default_rng(0).normal(size=(5, 3, 4)), 2)
    given = [np.array(v, dtype) for v in (TARGETS, LENGTHS, COUNTS)]
    got = ops.ctc_loss(x, *given, reduction="none").asnumpy()
    rows = zip(TARGETS, LENGTHS, COUNTS)
    expected = [enumerated(x[:, n], t[:c], steps, 0) for n, (t, steps, c) in enumerate(rows)]
    np.testing.assert_allclose(got, expected, 1e-12)


def test_numbers_are_those_of_pytorch():
    values = loss(LOGITS, 0, "none", True).asnumpy()
    np.testing.assert_allclose(values, [6.838592631616959, 4.872289474346576, 0], 1e-13)
    slope = grad(lambda x: ops.sum(loss(x, 0, "none", True) * np.array([1.0, 2, 3])))(LOGITS)
    found = (slope.asnumpy() * fill(LOGITS.shape, 3)).sum((0, 2))
    np.testing.assert_allclose(found, [-0.304708985044963, 9.996761226565308, 0], 1e-12)


def test_reductions_and_what_cannot_be_spelt():
    each = loss(LOGITS, 0, "none").asnumpy()
    assert each[2] == np.inf
    assert loss(LOGITS, 0, "sum").item() == np.inf
    finite = loss(LOGITS, 0, "none", True).asnumpy()
    assert np.isclose(loss(LOGITS, 0, "sum", True).item(), finite.sum())
    assert np.isclose(loss(LOGITS, 0, "mean", True).item(), (finite / COUNTS).mean())
    assert not grad(lambda x: ops.sum(loss(x, 0, "none")[2]))(LOGITS).asnumpy().any()
    blanks = ops.ctc_loss(ops.log_softmax(LOGITS), TARGETS, LENGTHS, COUNTS, 1, "none")
    assert np.isinf(blanks.asnumpy()[:2]).all()  # a blank is never left over


def test_two_derivatives_compiled_and_not():
    assert gradcheck(lambda x: loss(x, 0, "none", True), LOGITS, order=2).ok
    slope = grad(lambda x: loss(x, 0, "mean", True))
    np.testing.assert_allclose(ml.jit(slope)(LOGITS).asnumpy(), slope(LOGITS).asnumpy(), 1e-10)


def test_probabilities_of_0_dtypes_and_nothing():
    probs = np.array([[[0.5, 0.5]], [[1.0, 0.0]]])
    with np.errstate(divide="ignore"):
        logs = np.log(probs)
    one = np.array([[1]]), np.array([2]), np.array([1])
    assert np.isclose(ops.ctc_loss(logs, *one).item(), np.log(2))
    slope = grad(ops.ctc_loss)(logs, *one).asnumpy()
    np.testing.assert_allclose(slope.ravel(), [0, -1, -1, 0], atol=1e-14)
    half = ops.ctc_loss(logs.astype(np.float16), *one)
    assert half.dtype == ml.float16
    empty = ops.ctc_loss(
        np.zeros((2, 3, 4)), np.zeros((3, 0), int), np.full(3, 2), np.zeros(3, int)
    )
    assert empty.item() == 0.0
    none = ops.ctc_loss(np.zeros((0, 1, 2)), np.array([[1]]), np.array([0]), np.array([1]))
    assert none.item() == np.inf


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"targets": [[1, 4, 2]] * 3}, OutOfRangeError, r"target 4 for 4 .* targets\[0, 1\]"),
        ({"targets": [[1, -1, 2]] * 3}, OutOfRangeError, "target -1 for 4 classes"),
        ({"input_lengths": [5, 6, 1]}, OutOfRangeError, r"6; input_lengths are 0 to 5.*s\[1\]"),
        ({"target_lengths": [1, 1, 4]}, OutOfRangeError, "target_length 4; target_lengths are 0"),
        ({"input_lengths": [5.0, 5.0, 1.0]}, DTypeError, "ctc_loss needs input_lengths of an int"),
        ({"targets": [1, 2, 2, 3]}, ShapeError, "are padded, not joined"),
        ({"target_lengths": [1]}, ShapeError, r"expected \(T, N, C\), \(N, S\), \(N,\) and"),
        ({"blank": 4}, ValueRefusedError, "blank=4; expected an int from 0 to 3"),
        ({"reduction": "avg"}, ValueRefusedError, "ctc_loss got reduction='avg'; expected one"),
    ],
)
def test_what_does_not_fit_is_refused(changed, error, message):
    given = {"targets": TARGETS, "input_lengths": LENGTHS, "target_lengths": COUNTS} | changed
    given = {k: np.array(v) if isinstance(v, list) else v for k, v in given.items()}
    with pytest.raises(error, match=message):
        ops.ctc_loss(LOGITS, **given)
