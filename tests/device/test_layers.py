"""Layers on a CUDA device give what they give on the CPU, and arrays go where the weights are."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.grad import grad

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 2, 4)).astype(np.float32)
STATE = RNG.normal(size=(1, 2, 2)).astype(np.float32)
SEEN = np.array([[True, False], [True, True]])
CASES = {
    "LSTM": (nn.LSTM(4, 2), (X, (STATE, STATE), np.array([3, 1]))),
    "GRU": (nn.GRU(4, 2), (X, STATE, np.array([3, 1]))),
    "RNN": (nn.RNN(4, 2), (X,)),
    "MultiHeadAttention": (nn.MultiHeadAttention(4, 2), (X, X + 1, X, SEEN, True)),
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0), (X, SEEN)),
    "GroupNorm": (nn.GroupNorm(1, 2), (X,)),
    "RMSNorm": (nn.RMSNorm(4), (X,)),
    "BatchNorm1d": (nn.BatchNorm1d(2), (X,)),
    "InstanceNorm1d": (nn.InstanceNorm1d(2, affine=True), (X,)),
    "PReLU": (nn.PReLU(2), (X,)),
}


def first(layer, args):
    out = layer(*args)
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("case", CASES)
def test_layers_are_the_same_on_every_device(case, device):
    layer, (x, *rest) = CASES[case]
    f = lambda x: ops.sum(first(layer, (x, *rest)) ** 2)  # noqa: E731
    expected, slope = first(layer, (x, *rest)).asnumpy(), grad(f)(ml.Tensor(x)).asnumpy()
    layer.to(device)
    out = first(layer, (x, *rest))
    found = grad(f)(ml.Tensor(x).to(device))
    layer.to("cpu")
    assert out.device == device
    np.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.asnumpy(), slope, rtol=1e-3, atol=1e-4)


LABELS = np.array([[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]])
LOSSES = [
    (nn.CrossEntropyLoss([1.0, 2.0], ignore_index=7), LABELS),
    (nn.NLLLoss([1.0, 2.0]), LABELS),
    (nn.KLDivLoss(), np.abs(X)),
]


@pytest.mark.parametrize(("loss", "target"), LOSSES, ids=lambda v: type(v).__name__)
def test_arrays_of_targets_go_where_predictions_are(loss, target, device):
    expected = loss(X, target).item()
    found = loss.to(device)(ml.Tensor(X).to(device), target)
    loss.to("cpu")
    assert found.device == device
    np.testing.assert_allclose(found.item(), expected, rtol=1e-5)
