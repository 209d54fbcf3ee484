"""Recurrent cells, layers with normalized weights, and lists of parameters."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import MinimlError, OutOfRangeError, ShapeError

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(5, 2, 4)).astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_cells_step_by_step_are_the_layer(kind, bias):
    layer, cell = getattr(nn, kind)(4, 3, bias=bias), getattr(nn, f"{kind}Cell")(4, 3, bias=bias)
    cell.load_state_dict({name.removesuffix("_l0"): v for name, v in layer.state_dict().items()})
    state, outs = None, []
    for x in X:
        state = cell(x, state)
        outs.append((state[0] if kind == "LSTM" else state).asnumpy())
    out, last = layer(X)
    np.testing.assert_allclose(outs, out.asnumpy(), 1e-5, 1e-6)
    if kind == "LSTM":
        np.testing.assert_allclose(state[1].asnumpy(), last[1][0].asnumpy(), 1e-5, 1e-6)
    with pytest.raises(ShapeError, match=rf"{kind}Cell\(4, 3\) got .* expected \(N, 4\)"):
        cell(X)
    with pytest.raises(MinimlError, match=r"expected a state|expected \(h, c\)"):
        cell(X[0], np.zeros((2, 5), np.float32))


LAYERS = {
    "dense": (lambda: nn.Dense(4, 3), 1, X[0]),
    "conv": (lambda: nn.Conv1d(2, 5, 3), 0, X),
    "transposed": (lambda: nn.ConvTranspose1d(2, 5, 3), 1, X),
}


@pytest.mark.parametrize("name", LAYERS)
def test_lengths_and_directions_of_weights_are_apart(name):
    make, axis, x = LAYERS[name]
    layer = make()
    before, wrapped = layer(x).asnumpy(), nn.WeightNorm(layer)
    np.testing.assert_allclose(wrapped(x).asnumpy(), before, 1e-5, 1e-6)
    weight = layer.weight.asnumpy()
    layer.weight.set_data(weight * 3)  # the length is that of scale
    np.testing.assert_allclose(wrapped(x).asnumpy(), before, 1e-5, 1e-6)
    assert wrapped.scale.shape == tuple(n if i == axis else 1 for i, n in enumerate(weight.shape))
    assert set(wrapped.parameters_dict()) == {"layer.weight", "layer.bias", "scale"}


@pytest.mark.parametrize("name", LAYERS)
def test_the_largest_singular_value_becomes_1(name):
    ml.manual_seed(1)
    make, axis, x = LAYERS[name]
    layer = make()
    wrapped = nn.SpectralNorm(layer, iterations=30)
    wrapped(x)  # in training the vectors improve
    matrix = np.moveaxis(layer.weight.asnumpy(), axis, 0)
    size = np.linalg.svd(matrix.reshape(len(matrix), -1), compute_uv=False)[0]
    wrapped.set_train(False)
    u, out = wrapped.u.asnumpy(), wrapped(x).asnumpy()
    bias = layer.bias.asnumpy().reshape(-1, *(1,) * (out.ndim - 2))
    np.testing.assert_allclose((out - bias) * size, layer(x).asnumpy() - bias, 1e-3, 1e-4)
    assert np.array_equal(wrapped.u.asnumpy(), u)  # in evaluation they stay


def test_normalized_layers_learn_and_their_vectors_do_not():
    net = nn.Sequential(nn.SpectralNorm(nn.Dense(4, 8)), nn.Tanh(), nn.WeightNorm(nn.Dense(8, 2)))
    names = [name for name, p in net.named_parameters() if p.requires_grad]
    assert not {"0.u", "0.v"} & set(names)
    step = ml.train_step(net, nn.MSELoss(), optim.Adam(net.trainable_params(), lr=0.01))
    target = DRAW.normal(size=(10, 2)).astype(np.float32)
    before = net[0].u.asnumpy()
    losses = [float(step(X.reshape(10, 4), target)) for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]
    assert not np.array_equal(before, net[0].u.asnumpy())
    for kind in (nn.WeightNorm, nn.SpectralNorm):
        with pytest.raises(MinimlError, match=f"{kind.__name__} got ReLU.*a layer with a weight"):
            kind(nn.ReLU())


def test_spectral_norm_is_that_of_pytorch():
    torch = pytest.importorskip("torch", reason="no torch")
    there = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3))
    layer = nn.Dense(4, 3)
    wrapped = nn.SpectralNorm(layer)
    state = {n: v.numpy() for n, v in there.state_dict().items()}
    layer.load_state_dict({"weight": state["weight_orig"].T, "bias": state["bias"]})
    wrapped.u.set_data(state["weight_u"])
    wrapped.v.set_data(state["weight_v"])
    for _ in range(3):
        expected = there(torch.tensor(X[0])).detach().numpy()
        np.testing.assert_allclose(wrapped(X[0]).asnumpy(), expected, 1e-4, 1e-5)


class Scaled(nn.Cell):
    def __init__(self):
        self.scales = nn.ParameterList([np.float32(2.0), ml.Parameter(np.float32([1.0, 2.0]))])

    def construct(self, x):
        return x * self.scales[0] * self.scales[-1]


def test_parameters_of_a_list_are_found_and_learn():
    net = Scaled()
    net.scales.append(np.float32(1.0))
    assert list(net.parameters_dict()) == ["scales.0", "scales.1", "scales.2"]
    assert len(net.scales) == 3 == len(list(net.scales))
    del net.scales[-1]
    assert net(np.ones((1, 2), np.float32)).tolist() == [[2.0, 4.0]]
    step = ml.train_step(net, ops.sum, optim.SGD(net.trainable_params(), lr=0.1))
    step(np.ones((1, 2), np.float32))
    assert net.scales[1].tolist() == pytest.approx([0.8, 1.8])
    with pytest.raises(OutOfRangeError, match="ParameterList of 2 parameters has none at 2"):
        net.scales[2]
    with pytest.raises(MinimlError, match="not called itself"):
        net.scales(1.0)
