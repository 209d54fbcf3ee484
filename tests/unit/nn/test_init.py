"""Initialisers: their formulas, what they keep, their bounds, what they refuse."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn
from miniml.errors import AttributeRefusedError, ShapeError
from miniml.nn import init

# The standard deviation for a weight (400, 300) of a Dense, and the bound if there is one.
SPREADS = {
    "uniform": (np.sqrt(1 / 12), None),
    "normal": (1.0, None),
    "truncated_normal": (0.8796257, 2.0),
    "xavier_uniform": (np.sqrt(2 / 700), np.sqrt(6 / 700)),
    "xavier_normal": (np.sqrt(2 / 700), None),
    "kaiming_uniform": (np.sqrt(2 / 400), np.sqrt(6 / 400)),
    "kaiming_normal": (np.sqrt(2 / 400), None),
    "lecun_uniform": (np.sqrt(1 / 400), np.sqrt(3 / 400)),
    "lecun_normal": (np.sqrt(1 / 400), None),
    "orthogonal": (np.sqrt(1 / 400), None),
}


@pytest.mark.parametrize("name", SPREADS)
def test_spreads(name):
    std, bound = SPREADS[name]
    values = getattr(init, name)((400, 300)).asnumpy()
    assert values.dtype == np.float32
    assert np.isclose(values.std(), std, rtol=0.02)
    assert abs(values.mean() - (name == "uniform") * 0.5) < std / 50
    if bound:
        assert 0.99 * bound < np.abs(values).max() <= bound * (1 + 1e-6)


def test_what_is_exact():
    assert (init.constant((2, 3), 0.5).asnumpy() == 0.5).all()
    assert not init.zeros((3,)).asnumpy().any()
    assert init.ones((3,)).asnumpy().all()
    for shape in ((3, 5), (5, 3), (4, 2, 3, 3)):
        q = init.orthogonal(shape, gain=2.0).asnumpy().reshape(shape[0], -1)
        product = q @ q.T if shape[0] <= q.shape[1] else q.T @ q
        np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)
    assert init.normal((4,), 0.0, mean=3.0).asnumpy().tolist() == [3.0] * 4


def test_fans_of_convolutions_and_given_ones():
    ml.manual_seed(0)
    conv = nn.Conv2d(50, 40, 3)
    assert np.isclose(init.lecun_normal(conv.weight).asnumpy().std(), 450**-0.5, rtol=0.03)
    mixed = init.xavier_normal(conv.weight).asnumpy().std()
    assert np.isclose(mixed, np.sqrt(2 / 810), rtol=0.03)
    by_output = init.kaiming_normal(conv.weight, fan_in=360).asnumpy().std()
    assert np.isclose(by_output, np.sqrt(2 / 360), rtol=0.03)


def test_a_parameter_keeps_what_it_is_and_seeds_fix_the_draws():
    net = nn.Sequential(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2)).to(ml.float64)
    weight = net[0].weight
    weight.requires_grad = False
    ml.manual_seed(3)
    assert init.truncated_normal(weight, 0.1) is weight
    assert (weight.dtype, weight.requires_grad) == (ml.float64, False)
    first = weight.asnumpy()
    ml.manual_seed(3)
    assert np.array_equal(init.truncated_normal(weight, 0.1).asnumpy(), first)

    def start(cell):
        if isinstance(cell, nn.Dense):
            init.orthogonal(cell.weight)
            init.zeros(cell.bias)

    assert net.apply(start) is net
    assert not net[2].bias.asnumpy().any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: init.zeros(nn.Dense(2, 2)), AttributeRefusedError, "got Dense; expected a Param"),
        (lambda: init.kaiming_uniform(nn.Dense(2, 2).bias), ShapeError, r"shape \(2,\) for a w"),
        (lambda: init.orthogonal((3,)), ShapeError, "a bias takes nn.init.zeros"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
