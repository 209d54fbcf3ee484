"""gradcheck of cells: their weights are judged, and left as they were."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import GradientArgumentError
from miniml.testing import gradcheck
from tests.faults.planted import PRODUCT, Planted, planted

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
MODES = pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])


def small_net():
    return nn.Sequential(nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 2))


def values(net):
    return [p.asnumpy() for p in net.get_parameters()]


@MODES
def test_the_weights_of_a_cell_are_judged_and_left_alone(mode):
    net = small_net()
    before = values(net)
    report = gradcheck(net, X, mode=mode)
    assert report.judged == X.size + sum(v.size for v in before)
    assert not report.findings
    assert all(map(np.array_equal, values(net), before))
    assert gradcheck(net, X, weights=(), mode=mode).judged == X.size


@MODES
def test_the_weights_of_a_loss(mode):
    net = small_net()
    count = sum(v.size for v in values(net))
    loss = lambda *_: ops.mean(net(X) ** 2)  # noqa: E731
    assert gradcheck(loss, weights=net.trainable_params(), mode=mode).judged == count
    assert gradcheck(loss, weights=net, mode=mode).judged == count
    assert gradcheck(loss, *net.trainable_params(), mode=mode).judged == count
    assert gradcheck(loss, net[0].weight, order=2, mode=mode).judged == 2 * 12 + 1


@MODES
@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_are_left_alone(mode, training):
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Tanh()).set_train(training)
    images = np.random.default_rng(1).normal(size=(2, 3, 4, 4)).astype(np.float32)
    before = values(net)
    assert not gradcheck(net, images, mode=mode).findings
    loss = lambda x: ops.sum(net(x) ** 2)  # noqa: E731
    assert not gradcheck(loss, images, weights=net.trainable_params(), mode=mode).findings
    assert all(map(np.array_equal, values(net), before))


class Scaled(nn.Cell):
    """x times a weight of its own, by a primitive that is given."""

    def __init__(self, scale):
        self.scale = scale
        self.gain = ml.Parameter(np.array([0.5, 2.0, -1.0], np.float32))

    def construct(self, x):
        return self.scale(x, self.gain)


def wrong_gain(self):
    return lambda x, gain, out, dout: (dout * gain, 1.01 * dout * x)


@MODES
def test_a_fault_in_a_layer_is_found_and_named(mode):
    row = Planted("GainOffByOnePercent", PRODUCT, "gradient", bprop=wrong_gain)
    with planted(row) as (product, _):
        net = nn.Sequential(nn.Dense(4, 3), nn.Tanh(), Scaled(product))
        report = gradcheck(net, X, mode=mode, raise_error=False)
        assert {f.argument for f in report.wrong} == {"weight 2.gain"}
        assert report.wrong[0].path == "2.gain"
        assert "a constant factor 1.01" in report.wrong[0].diagnosis


def test_what_is_no_parameter_is_refused():
    with pytest.raises(GradientArgumentError, match="weights holds"):
        gradcheck(small_net(), X, weights=[X])
