"""Layers on a CUDA device give what they give on the CPU, and arrays go where the weights are."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.grad import grad, value_and_grad

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
    "TransformerDecoderLayer": (
        nn.TransformerDecoderLayer(4, 2, 4, dropout=0.0, bias=False),
        (X, X + 1, SEEN),
    ),
    "LearnedPositions": (nn.LearnedPositions(3, 4), (X,)),
    "GroupNorm": (nn.GroupNorm(1, 2), (X,)),
    "RMSNorm": (nn.RMSNorm(4), (X,)),
    "BatchNorm1d": (nn.BatchNorm1d(2), (X,)),
    "Conv1d": (nn.Conv1d(2, 3, 2, dilation=2), (X,)),
    "Conv3d": (nn.Conv3d(3, 2, (2, 1, 2), padding=1), (X[None, ..., None],)),
    "ConvTranspose1d": (nn.ConvTranspose1d(2, 1, 3, 2, 1, 1), (X,)),
    "ConvTranspose3d": (nn.ConvTranspose3d(3, 2, 2, 2), (X[None, ..., None],)),
    "MaxPool1d": (
        nn.Sequential(nn.Conv1d(2, 2, 1), nn.MaxPool1d(2, 1, dilation=2, ceil_mode=True)),
        (X,),
    ),
    "AvgPool3d": (
        nn.Sequential(nn.Conv3d(3, 2, 1), nn.AvgPool3d((1, 3, 1), 2, ceil_mode=True)),
        (X[None, ..., None],),
    ),
    "AdaptiveAvgPool1d": (nn.Sequential(nn.Conv1d(2, 2, 1), nn.AdaptiveAvgPool1d(3)), (X,)),
    "Upsample": (nn.Sequential(nn.Conv1d(2, 2, 1), nn.Upsample(6, mode="linear")), (X,)),
    "InstanceNorm1d": (nn.InstanceNorm1d(2, affine=True), (X,)),
    "PReLU": (nn.PReLU(2), (X,)),
}


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.5), ops.dropout, nn.SinusoidalPositions(4), nn.RotaryPositions(4)],
    ids=["Dropout", "dropout", "SinusoidalPositions", "RotaryPositions"],
)
def test_what_has_no_weights_computes_where_the_tensor_is(layer, device):
    """With the same draws on every device, outside of a context too."""
    found = []
    for x in (ml.Tensor(X), ml.Tensor(X, device=device)):
        ml.manual_seed(2)
        out, slope = value_and_grad(lambda x: ops.sum(ops.square(layer(x))))(x)
        assert out.device == slope.device == x.device
        found.append(slope.asnumpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


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
