"""Layers compute what their formulas say, by NumPy written out here."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    DTypeError,
    MinimlError,
    ShapeError,
    ValueRefusedError,
)

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(4, 2, 5, 6)).astype(np.float32)


def test_dense():
    layer = nn.Dense(3, 2)
    x = rng.normal(size=(5, 4, 3)).astype(np.float32)
    expected = x @ layer.weight.asnumpy() + layer.bias.asnumpy()
    assert layer.weight.shape == (3, 2)
    assert np.allclose(layer(x).asnumpy(), expected, atol=1e-6)
    assert nn.Dense(3, 2, bias=False).bias is None
    assert np.abs(nn.Dense(100, 50).weight.asnumpy()).max() <= 0.1


def test_conv2d():
    layer = nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=1)
    padded = np.pad(IMAGES, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))[:, :, ::1, ::2]
    expected = np.einsum("nchwij,ocij->nohw", windows, layer.weight.asnumpy())
    expected += layer.bias.asnumpy()[:, None, None]
    assert np.allclose(layer(IMAGES).asnumpy(), expected, atol=1e-5)
    assert nn.Conv2d(4, 6, 3, groups=2).weight.shape == (6, 2, 3, 3)
    assert nn.Conv2d(2, 3, 3, padding="same")(IMAGES).shape == (4, 3, 5, 6)
    assert repr(nn.Conv2d(2, 4, 3, padding=1, groups=2, bias=False)) == (
        "Conv2d(2, 4, kernel_size=(3, 3), padding=1, groups=2, bias=False)"
    )


def test_pools_and_flatten():
    blocks = IMAGES[:, :, :4].reshape(4, 2, 2, 2, 3, 2)
    assert np.array_equal(nn.MaxPool2d(2)(IMAGES).asnumpy(), blocks.max((3, 5)))
    assert np.allclose(nn.AvgPool2d(2)(IMAGES).asnumpy(), blocks.mean((3, 5)), atol=1e-6)
    assert np.array_equal(nn.Flatten()(IMAGES).asnumpy(), IMAGES.reshape(4, 60))
    assert nn.MaxPool2d(3, stride=1)(IMAGES).shape == (4, 2, 3, 4)


@pytest.mark.parametrize(
    ("layer", "formula"),
    [
        (nn.ReLU(), lambda x: np.maximum(x, 0)),
        (nn.LeakyReLU(0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
        (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
        (nn.Tanh(), np.tanh),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_activations(layer, formula):
    assert np.allclose(layer(IMAGES).asnumpy(), formula(IMAGES), atol=1e-6)


def test_gelu_is_half_way_at_zero_and_the_identity_far_out():
    out = nn.GELU()(np.array([0.0, 10.0, -10.0], np.float32)).asnumpy()
    assert np.allclose(out, [0, 10, 0], atol=1e-6)


@pytest.mark.parametrize("mode", [ml.GRAPH_MODE, ml.PYNATIVE_MODE])
def test_batch_norm_trains_and_evaluates(mode):
    layer = nn.BatchNorm2d(2, momentum=0.25)
    layer.weight.set_data(np.array([2, 3], np.float32))
    axes, shaped = (0, 2, 3), (1, 2, 1, 1)
    mean, var = IMAGES.mean(axes), IMAGES.var(axes)
    with ml.context(mode=mode):
        out = layer(IMAGES).asnumpy()
        expected = (IMAGES - mean.reshape(shaped)) / np.sqrt(var.reshape(shaped) + 1e-5)
        assert np.allclose(out, expected * np.array([2, 3]).reshape(shaped), atol=1e-5)
        assert np.allclose(layer.running_mean.asnumpy(), 0.25 * mean, atol=1e-6)
        n = 4 * 5 * 6
        unbiased = 0.75 + 0.25 * var * n / (n - 1)
        assert np.allclose(layer.running_var.asnumpy(), unbiased, atol=1e-6)
        layer.set_train(False)
        before = layer.running_mean.asnumpy()
        out = layer(IMAGES).asnumpy()
        moved = (IMAGES - before.reshape(shaped)) / np.sqrt(unbiased.reshape(shaped) + 1e-5)
        assert np.allclose(out, moved * np.array([2, 3]).reshape(shaped), atol=1e-5)
        assert np.array_equal(layer.running_mean.asnumpy(), before)


def test_layer_norm():
    layer = nn.LayerNorm((5, 6))
    mean, var = (f(IMAGES, axis=(2, 3), keepdims=True) for f in (np.mean, np.var))
    assert np.allclose(layer(IMAGES).asnumpy(), (IMAGES - mean) / np.sqrt(var + 1e-5), atol=1e-5)
    assert [p.shape for p in nn.LayerNorm(6).get_parameters()] == [(6,), (6,)]


@pytest.mark.parametrize("mode", [ml.GRAPH_MODE, ml.PYNATIVE_MODE])
def test_dropout_drops_a_share_and_keeps_the_mean(mode):
    layer, ones = nn.Dropout(0.25), np.ones((100, 100), np.float32)
    with ml.context(mode=mode):
        first, second = layer(ones).asnumpy(), layer(ones).asnumpy()
        assert set(np.unique(first)) == {0.0, np.float32(1 / 0.75)}
        assert abs(first.mean() - 1) < 0.02
        assert not np.array_equal(first, second)
        ml.manual_seed(0)
        again = layer(ones).asnumpy()
        layer.set_train(False)
        assert np.array_equal(layer(ones).asnumpy(), ones)
    assert np.array_equal(first, again)


def test_dropout_draws_the_same_in_both_modes():
    layer, ones = nn.Dropout(0.5), np.ones(1000, np.float32)
    drawn = []
    for mode in (ml.GRAPH_MODE, ml.PYNATIVE_MODE):
        ml.manual_seed(5)
        with ml.context(mode=mode):
            drawn.append([layer(ones).asnumpy() for _ in range(2)])
    assert np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize("jit", [True, False])
def test_embedding_learns_the_rows_it_gave(jit):
    layer = nn.Embedding(5, 3)
    table = layer.weight.asnumpy()
    rows = np.array([[0, 3], [3, -1]])
    assert np.array_equal(layer(rows).asnumpy(), table[rows])
    step = ml.train_step(layer, nn.MSELoss(), ml.optim.SGD(layer.trainable_params(), lr=6.0))
    with ml.context(jit=jit):
        step(rows, np.zeros((2, 2, 3), np.float32))
    moved = table - np.array([1, 0, 0, 2, 1])[:, None] * table  # d mean(w^2) = 2 w / 12
    assert np.allclose(layer.weight.asnumpy(), moved, atol=1e-6)


def test_losses():
    logits = rng.normal(size=(6, 3)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 0, 2])
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    loss = nn.CrossEntropyLoss()(logits, labels)
    assert loss.shape == ()
    assert np.isclose(float(loss), -log_p[np.arange(6), labels].mean(), rtol=1e-6)
    assert np.isclose(float(nn.MSELoss()(logits, 2 * logits)), (logits**2).mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "inputs", "message"),
    [
        (nn.Dense(64, 32), [np.zeros((2, 63))], r"Dense\(64, 32\) got input of shape \(2, 63\)"),
        (nn.Dense(64, 32), [np.float32(1)], r"shape \(\); expected \(\.\.\., 64\)"),
        (nn.Conv2d(1, 2, 3), [np.zeros((1, 8, 8))], r"Conv2d\(1, 2.*expected \(N, 1, H, W\)"),
        (nn.Conv2d(1, 2, 3), [np.zeros((1, 2, 8, 8))], r"\(1, 2, 8, 8\)"),
        (nn.MaxPool2d(2), [np.zeros((8, 8))], r"MaxPool2d.*expected \(N, C, H, W\)"),
        (nn.BatchNorm2d(3), [np.zeros((2, 2, 4, 4))], r"BatchNorm2d\(3.*expected \(N, 3, H, W\)"),
        (nn.BatchNorm2d(3), [np.zeros((1, 3, 1, 1))], "two or more pixels per channel"),
        (nn.LayerNorm(4), [np.zeros((2, 3))], r"LayerNorm\(\(4,\).*expected \(\.\.\., 4\)"),
        (nn.Flatten(), [np.float32(1)], r"Flatten\(\) got input of shape \(\)"),
        (nn.CrossEntropyLoss(), [np.zeros((2, 3)), np.zeros((2, 1), int)], r"labels of shape \(2,"),
        (nn.CrossEntropyLoss(), [np.zeros(3), np.zeros(3, int)], r"\(N, C, \.\.\.\)"),
        (
            nn.MSELoss(),
            [np.zeros((2, 1)), np.zeros(2)],
            "mse_loss got shapes",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(layer, inputs, message):
    with pytest.raises(ShapeError, match=message):
        layer(*(np.asarray(x, np.float32) if x.dtype != int else x for x in inputs))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Dense(0, 3), ValueRefusedError, "in_features=0; expected an int >= 1"),
        (lambda: nn.Dense(3, True), AttributeRefusedError, "out_features=True"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueRefusedError, "groups=2 for 3 channels"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ValueRefusedError, r"kernel_size=\(3, 3, 3\)"),
        (lambda: nn.MaxPool2d(0), ValueRefusedError, r"kernel_size=\(0, 0\)"),
        (lambda: nn.Dropout(1.0), ValueRefusedError, r"Dropout got p=1\.0"),
        (lambda: nn.LayerNorm(-1), ValueRefusedError, r"shape\[0\]=-1"),
    ],
)
def test_layers_that_make_no_sense_are_refused(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert isinstance(caught.value, MinimlError)


def test_initializers_have_their_spread():
    for made, std in (
        (nn.init.kaiming_uniform((400, 300), 400), np.sqrt(2 / 400)),
        (nn.init.xavier_uniform((400, 300), 400, 300), np.sqrt(2 / 700)),
        (nn.init.normal((400, 300), 0.1), 0.1),
    ):
        values = made.asnumpy()
        assert values.dtype == np.float32
        assert abs(values.mean()) < std / 50
        assert np.isclose(values.std(), std, rtol=0.02)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Dropout1d(0.25), 5), (nn.Dropout2d(0.25), (2, 3)), (nn.Dropout3d(0.25), (2, 1, 3))],
)
def test_dropout_of_whole_channels(layer, shape):
    ml.manual_seed(0)
    x = np.ones((50, 40, *np.atleast_1d(shape)), np.float32)
    out = layer(x).asnumpy().reshape(50, 40, -1)
    assert (out == out[:, :, :1]).all()
    assert set(np.unique(out)) == {0.0, np.float32(1 / 0.75)}
    assert abs(out.mean() - 1) < 0.05
    assert np.array_equal(layer.set_train(False)(x).asnumpy(), x)
    layer.set_train(True)
    with pytest.raises(ShapeError, match=r"Dropout.d\(0.25\) got input of shape \(50, 40\)"):
        layer(x.reshape(50, 40, -1)[:, :, 0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.ELU("x"), AttributeRefusedError, "ELU got alpha='x'; expected a number"),
        (lambda: nn.Softmax(1.0), AttributeRefusedError, r"Softmax got axis=1\.0; expected an int"),
        (lambda: nn.HuberLoss("avg"), ValueRefusedError, "HuberLoss got reduction='avg'; exp"),
        (lambda: nn.CTCLoss(zero_infinity=1), AttributeRefusedError, "zero_infinity=1; expected T"),
        (lambda: nn.ELU(1.0, 2.0), ArityError, r"ELU takes alpha: float = 1\.0: too many"),
        (lambda: nn.PReLU(0), ValueRefusedError, "PReLU got num_parameters=0"),
        (lambda: nn.PReLU(3)(IMAGES), ShapeError, r"PReLU\(num_parameters=3\) got .*\(N, 3, "),
        (lambda: nn.InstanceNorm2d(3)(IMAGES), ShapeError, r"expected \(N, 3, H, W\)"),
        (lambda: nn.InstanceNorm2d(2)(IMAGES[:, :, :1, :1]), ShapeError, "two or more values per"),
        (lambda: nn.L1Loss()(IMAGES, None), DTypeError, r"L1Loss\(\) got None where it takes a te"),
    ],
)  # fmt: skip
def test_options_and_inputs_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_cells_of_one_function_show_what_is_no_default():
    assert repr(nn.Sequential(nn.ELU(), nn.CELU(2.0))) == (
        "Sequential(\n  (0): ELU()\n  (1): CELU(alpha=2.0)\n)"
    )
    assert repr(nn.HuberLoss("sum", 2)) == "HuberLoss(reduction='sum', delta=2.0)"


class Narrow(nn.Dense):
    """A subclass whose constructor has other arguments."""

    def __init__(self, out_features):
        super().__init__(3, out_features, bias=False)


@pytest.mark.parametrize(
    ("layer", "shown"),
    [
        (Narrow(2), "Narrow(3, 2, bias=False)"),
        (nn.InstanceNorm1d(2, affine=True), "InstanceNorm1d(2, eps=1e-05, affine=True)"),
        (nn.LPPool1d(2, 3, 1, True), "LPPool1d(p=2.0, kernel_size=(3,), stride=1, ceil_mode=True)"),
        (nn.NLLLoss([1, 2], axis=-1), "NLLLoss(weight=[1.0, 2.0], axis=-1)"),
        (nn.FocalLoss(alpha=0.25), "FocalLoss(alpha=0.25)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_layers_show_the_arguments_that_are_not_defaults(layer, shown):
    assert layer.describe() == shown
