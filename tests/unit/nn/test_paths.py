"""An error names the layer that it came from, by its path in the network that was called."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import DTypeError, OutOfRangeError, ShapeError
from miniml.grad import value_and_grad

X = np.ones((2, 3), np.float32)
MODES = pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])


class Forgets(nn.Cell):
    """A construct without return."""

    def construct(self, x):
        ops.relu(x)


class Block(nn.Cell):
    """What does not fit, in a construct of one's own."""

    def __init__(self):
        self.dense = nn.Dense(3, 4)
        self.w = ml.Parameter(np.ones((5, 5), np.float32))

    def construct(self, x):
        return self.dense(x) @ self.w


class Looks(nn.Cell):
    """A table with an index outside it."""

    def __init__(self):
        self.words = nn.Embedding(4, 2)

    def construct(self, x):
        return self.words(x)


def notes(error, call):
    with pytest.raises(error) as caught:
        call()
    return caught.value.__notes__


@MODES
def test_a_layer_whose_input_does_not_fit_is_named(mode):
    with ml.context(mode=mode):
        first, second = notes(ShapeError, lambda: wrong(X))
    assert first == "in layer 2 (Dense)"
    assert "nn.Dense(5, 2))(x)" in second


def wrong(x):
    return nn.Sequential(nn.Dense(3, 4), nn.ReLU(), nn.Dense(5, 2))(x)


@MODES
def test_the_path_is_from_the_network_that_was_called(mode):
    inner = nn.Sequential(nn.ReLU(), Block())
    net = nn.Sequential(nn.Sequential(inner))
    with ml.context(mode=mode):
        assert notes(ShapeError, lambda: inner(X))[0] == "in layer 1 (Block)"
        first, second = notes(ShapeError, lambda: net(X))
    assert first == "in layer 0.0.1 (Block)"
    assert "self.dense(x) @ self.w" in second


def test_it_is_named_in_steps_and_gradients_once():
    net = nn.Sequential(nn.ReLU(), Block())
    opt = optim.SGD(net.trainable_params(), 0.1)
    step = ml.train_step(net, nn.MSELoss(), opt)
    gradient = value_and_grad(lambda x: ops.sum(net(x)), None, weights=opt.params)
    for call in (lambda: step(X, X), lambda: gradient(X), lambda: ml.jit(gradient)(X)):
        found = notes(ShapeError, call)
        assert [n for n in found if n.startswith("in ")] == ["in layer 1 (Block)"]


@MODES
def test_a_kernel_that_refuses_values_names_the_layer(mode):
    with ml.context(mode=mode):
        assert notes(OutOfRangeError, lambda: Looks()(np.array([9])))[0] == (
            "in layer words (Embedding)"
        )
        assert notes(OutOfRangeError, lambda: nn.Embedding(4, 2)(np.array([9])))[0] == (
            "in Embedding"
        )


def test_a_kernel_of_a_compiled_step_names_the_layer():
    net = Looks()
    step = ml.train_step(net, ops.mean, optim.SGD(net.trainable_params(), 0.1))
    step(np.array([1]))
    assert notes(OutOfRangeError, lambda: step(np.array([9])))[0] == "in layer words (Embedding)"


def test_a_layer_that_says_its_name_is_not_named_twice():
    (note,) = notes(ShapeError, lambda: nn.Dense(5, 2)(X))
    assert note.startswith("Dense was called at")


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dense(3, 4), nn.ReLU(), nn.LayerNorm(3), nn.Conv2d(3, 4, 3), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm2d(3), nn.GELU(), nn.Embedding(3, 2),
    ],
    ids=repr,
)  # fmt: skip
def test_none_is_called_none(layer):
    net = nn.Sequential(Forgets(), layer)
    message = "got None where it takes .*; a function, or a cell's construct, that ends without"
    with pytest.raises(DTypeError, match=message) as caught:
        net(X)
    assert caught.value.__notes__[0] == f"in layer 1 ({type(layer).__name__})"


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.CrossEntropyLoss()], ids=repr)
def test_a_network_that_returns_none_is_called_so(loss):
    net = nn.Sequential(nn.Dense(3, 2), Forgets())
    step = ml.train_step(net, loss, optim.SGD(net.trainable_params(), 0.1))
    with pytest.raises(DTypeError, match=r"Loss\(\) got None where it takes a tensor"):
        step(X, np.zeros(2, int))


def test_a_loss_with_weights_says_what_it_is_in_a_compiled_step():
    net = nn.Dense(3, 2)
    loss = nn.CrossEntropyLoss(weight=[1.0, 2.0])
    step = ml.train_step(net, loss, optim.SGD(net.trainable_params(), 0.1))
    with pytest.raises(DTypeError, match=r"^CrossEntropyLoss\(weight=\[1.0, 2.0\]\) got None"):
        step(X, None)
