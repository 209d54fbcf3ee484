"""Normalizing layers: numbers of PyTorch 2.13, and formulas written out in NumPy."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import ShapeError, ValueRefusedError
from miniml.grad import value_and_grad

from .test_recurrent import fill

# The shape of x; then row 1 of the output and of the input's gradient of the sum of cubes, the
# gradient of the weight, and the running variance after it.
GOLDEN = {
    "BatchNorm1d (N, C)": (
        lambda: nn.BatchNorm1d(3), (4, 3),
        [1.1496995, 0.5720009, -0.2769935],
        [0.2560717, 0.3833506, -0.3040482],
        [6.3552523, -0.7776314, -1.5065513],
        [0.9129389, 0.9136706, 0.9176301],
    ),
    "BatchNorm1d (N, C, L)": (
        lambda: nn.BatchNorm1d(3), (2, 3, 2),
        [[0.199461, -0.024171], [-0.4492385, -0.0795465], [-0.1470144, 0.2982342]],
        [[-0.3046465, 0.6646696], [0.502221, -0.7390672], [-0.6496679, 0.6722346]],
        [5.5260095, 1.9561738, -1.5361776],
        [0.9095525, 0.9192433, 0.904365],
    ),
    "GroupNorm": (
        lambda: nn.GroupNorm(2, 4), (2, 4, 3),
        [[1.1152506, 0.8823966, 0.4987905], [-0.1514066, -0.3373884, -0.2047647],
         [-0.6032263, -0.1041366, 0.2394236], [-0.3849064, -0.4035649, -0.4337348]],
        [[0.5537905, -0.2376134, -0.7242522], [-0.2503754, 0.6727877, -0.0143372],
         [0.7970709, -0.2684105, 0.2711251], [0.0849681, -0.206739, -0.6780147]],
        [10.7527438, 1.507262, -2.8296914, 1.1084652],
        None,
    ),
    "RMSNorm": (
        lambda: nn.RMSNorm(4), (2, 4),
        [0.3543158, -0.0679191, -0.3551824, -0.030598],
        [0.4690819, 0.0200562, 0.3758195, -0.0020082],
        [0.2900246, 0.1537893, 0.322786, -0.0008323],
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
@pytest.mark.parametrize("case", GOLDEN)
def test_numbers_are_those_of_pytorch(case, mode):
    make, shape, *expected, running = GOLDEN[case]
    layer = make()
    for k, p in enumerate(layer.trainable_params()):
        p.set_data(fill(p.shape, k + 1))

    def loss(x):
        out = layer(x)
        return ops.sum(out**3), out

    with ml.context(mode=mode):
        (_, out), (dx, dw) = value_and_grad(loss, has_aux=True, weights=layer.weight)(
            fill(shape, 50)
        )
    for got, wanted in zip((out[1], dx[1], dw), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-4, atol=1e-5)
    if running:
        np.testing.assert_allclose(layer.running_var.asnumpy(), running, rtol=1e-5)


def test_formulas():
    x = np.random.default_rng(0).normal(size=(3, 6, 2, 2)).astype(np.float32)
    groups = x.reshape(3, 3, 8).astype(np.float64)
    centred = groups - groups.mean(2, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        nn.GroupNorm(3, 6)(x).asnumpy(), expected.reshape(x.shape), atol=1e-5
    )
    rms = np.sqrt((x.astype(np.float64) ** 2).mean((2, 3), keepdims=True) + 0.1)
    np.testing.assert_allclose(nn.RMSNorm((2, 2), eps=0.1)(x).asnumpy(), x / rms, atol=1e-5)
    assert np.array_equal(nn.Identity()(x).asnumpy(), x)


def test_a_batch_norm_evaluates_with_what_it_followed():
    layer = nn.BatchNorm1d(2, momentum=1.0)
    x = np.array([[1, 2], [3, 6]], np.float32)
    layer(x)
    out = layer.set_train(False)(x).asnumpy()
    np.testing.assert_allclose(out, (x - [2, 4]) / np.sqrt(np.array([2, 8]) + 1e-5), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.BatchNorm1d(3)(np.zeros((2, 4))), r"expected \(N, 3\) or \(N, 3, L\)"),
        (lambda: nn.BatchNorm1d(3)(fill((1, 3), 0)), "two or more values per channel in training"),
        (lambda: nn.GroupNorm(4, 6), "num_groups=4 for 6 channels; expected a divisor"),
        (lambda: nn.GroupNorm(2, 6)(fill((2, 5), 0)), r"\(2, 5\); expected \(N, 6, \.\.\.\)"),
        (lambda: nn.RMSNorm((2, 3))(fill((2, 5), 0)), r"\(2, 5\); expected \(\.\.\., 2, 3\)"),
        (lambda: nn.RMSNorm(0), r"RMSNorm got shape\[0\]=0"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises((ShapeError, ValueRefusedError), match=message):
        call()
