"""Losses of labels and norms of groups on a device: the CPU's numbers, and NaN for a bad label."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.grad import value_and_grad

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 4, 3)).astype(np.float32)
LABELS = np.array([[0, 3, 1], [2, 1, 3]])
WEIGHT = np.array([1, 2, 0.5, 1], np.float32)
PATHS = np.array([[1, 2], [2, 0]]), np.array([2, 2]), np.array([2, 1])
CASES = {
    "cross_entropy": lambda x: ops.cross_entropy(x, ml.Tensor(LABELS), "mean", WEIGHT, 2, 0.1),
    "nll_loss": lambda x: ops.nll_loss(x, ml.Tensor(LABELS)),
    "ctc_loss": lambda x: ops.ctc_loss(ops.log_softmax(x[:, :2]), *map(ml.Tensor, PATHS)),
    "instance_norm": lambda x: ops.sum(ops.instance_norm(x, WEIGHT) ** 3),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_cpu(name, jit, on_simulator):
    expected = value_and_grad(CASES[name])(ml.Tensor(X))
    with ml.context(device_target=on_simulator):
        fn = value_and_grad(CASES[name])
        found = (ml.jit(fn) if jit else fn)(ml.Tensor(X))
    for a, b in zip(found, expected, strict=True):
        assert a.device == on_simulator
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", [nn.NLLLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)])
def test_a_bad_label_gives_nan_where_nothing_waits(loss, on_simulator):
    with ml.context(device_target=on_simulator):
        found = loss(ml.Tensor(X), ml.Tensor(np.where(LABELS == 0, 4, LABELS)))
    assert np.isnan(found.item())
