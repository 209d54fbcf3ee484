"""Parameters that an optimizer lacks: named, as those of a layer that was replaced never learn."""

import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.errors import MinimlError, TrainingWarning

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
Y = np.arange(8) % 3
CE = nn.CrossEntropyLoss()
OPTIMIZERS = [
    lambda params: optim.SGD(params, lr=0.1),
    lambda params: optim.EMA(optim.Accumulate(optim.AdamW(params), 2)),
    lambda params: optim.Groups(optim.SGD(params[:1], lr=0.1), optim.Adam(params[1:])),
]


def network():
    ml.manual_seed(0)
    return nn.Sequential(nn.Dense(4, 5), nn.Tanh(), nn.Sequential(nn.Dense(5, 5)), nn.Dense(5, 3))


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("layer", ["0", "2.0", "3"])
@pytest.mark.parametrize("jit", [True, False])
def test_a_layer_replaced_after_the_optimizer_is_refused(make, layer, jit):
    def replace(net):
        owner, _, name = layer.rpartition(".")
        holder = net[int(owner)] if owner else net
        old = holder[int(name)]
        holder[int(name)] = nn.Dense(*old.weight.shape)

    message = rf"without {layer}\.weight, {layer}\.bias of Sequential, and with .*does not have"
    net = network()
    optimizer = make(net.trainable_params())
    replace(net)
    with pytest.raises(MinimlError, match=message):
        ml.train_step(net, CE, optimizer)
    net = network()
    step = ml.train_step(net, CE, make(net.trainable_params()))
    with ml.context(jit=jit):
        step(X, Y)
        replace(net)
        before = net.state_dict()
        with pytest.raises(MinimlError, match=message):
            step(X, Y)
    assert all(np.array_equal(v, before[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_parameters_left_out_are_named_once_unless_they_are_frozen(seed, jit):
    net = network()
    names = np.array(list(net.parameters_dict()))
    chosen = np.random.default_rng(seed).permutation(len(names))[:3]
    rest = [str(n) for n in np.delete(names, chosen)]
    params = [p for n, p in net.named_parameters() if n not in rest]
    step = ml.train_step(net, CE, optim.SGD(params, lr=0.1))
    with ml.context(jit=jit):
        with pytest.warns(TrainingWarning, match=f"SGD does not have {', '.join(rest)} of Seq"):
            step(X, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step(X, Y)
            step(X[:4], Y[:4])
            net.freeze(*rest)
            ml.train_step(net, CE, optim.SGD(params, lr=0.1))(X, Y)


def test_parameters_of_a_loss_and_functions_are_fine():
    class Tempered(nn.Cell):
        def __init__(self):
            self.t = ml.Parameter(np.float32(1.0))

        def construct(self, out, y):
            return CE(out * self.t, y)

    net, loss, other = network(), Tempered(), nn.Dense(3, 3)
    both = optim.SGD([*net.trainable_params(), *loss.trainable_params()], lr=0.1)
    ml.train_step(net, loss, both)(X, Y)
    joined = optim.SGD([*net.trainable_params(), *other.trainable_params()], lr=0.1)
    ml.train_step(net, lambda out, y: CE(other(out), y), joined)(X, Y)
    ml.train_step(lambda x: other(net(x)), CE, optim.SGD(other.trainable_params(), lr=0.1))(X, Y)


class Hides(nn.Cell):
    """A cell that calls a layer which is no attribute of it."""

    def __init__(self, layer):
        self.dense, self.function = nn.Dense(4, 3), lambda x: layer(x) * 2.0

    def construct(self, x):
        return self.function(self.dense(x))


def test_a_parameter_that_nothing_uses_is_refused_but_not_where_a_function_may_use_it():
    net, other = nn.Dense(4, 3), nn.Dense(3, 3)
    joined = optim.SGD([*net.trainable_params(), *other.trainable_params()], lr=0.1)
    message = "SGD with weight, bias, which neither Dense nor CrossEntropyLoss has; make it with"
    with pytest.raises(MinimlError, match=message):
        ml.train_step(net, CE, joined)
    hides, before = Hides(other), other.weight.asnumpy()
    params = [*hides.trainable_params(), *other.trainable_params()]
    ml.train_step(hides, CE, optim.SGD(params, lr=0.1))(X, Y)
    assert not np.array_equal(before, other.weight.asnumpy())
    own = [*net.trainable_params(), *other.trainable_params()]
    for metrics in ([], [ml.train.accuracy()]):
        ml.train.Model(net, lambda out, y: CE(other(out), y), optim.SGD(own, lr=0.1), metrics)
        with pytest.raises(MinimlError, match="SGD with weight, bias, which neither Dense nor"):
            ml.train.Model(net, CE, joined, metrics)
