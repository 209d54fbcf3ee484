"""Batch norm whose statistics are those of all ranks, against one rank with all of the rows."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.distributed import loopback
from miniml.errors import MinimlError, ShapeError
from miniml.grad import value_and_grad

RNG = np.random.default_rng(0)
SIZE = 3
# By name: the layer, and the whole batch; each rank gets other numbers of its rows.
CASES = {
    "1d": (nn.BatchNorm1d, RNG.normal(size=(7, 4))),
    "2d": (nn.BatchNorm2d, RNG.normal(3.0, 2.0, size=(7, 4, 2, 3))),
    "3d": (nn.BatchNorm3d, RNG.normal(size=(7, 4, 2, 1, 2))),
}
PARTS = (slice(0, 3), slice(3, 4), slice(4, 7))


def layer(kind, group=None):
    made = kind(4, momentum=0.25, group=group).to(ml.float64)
    made.weight.set_data(np.linspace(0.5, 2.0, 4))
    return made


def computed(norm, x, factor, compiled):
    """The output, the gradients by x, weight and bias of a sum over it, and what runs along."""

    def loss(x):
        out = norm(x)
        return ops.sum(ops.tanh(out) * factor), out

    call = value_and_grad(loss, 0, True, norm.trainable_params())
    (_, out), (dx, (dweight, dbias)) = (ml.jit(call) if compiled else call)(x)
    return out, dx, dweight, dbias, norm.running_mean, norm.running_var


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_ranks_have_the_statistics_and_gradients_of_one_with_all_rows(name, compiled):
    kind, x = CASES[name]
    factor = RNG.normal(size=x.shape)

    def on(group):
        own = PARTS[group.rank]
        norm = layer(kind, group)
        found = computed(norm, ml.Tensor(x[own]), factor[own], compiled)
        return [np.array(value) for value in found]

    alone = computed(layer(kind), ml.Tensor(x), factor, False)
    out, dx, dweight, dbias, mean, var = zip(*loopback(on, SIZE))
    same = {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(np.concatenate(out), alone[0], **same)
    np.testing.assert_allclose(np.concatenate(dx), alone[1], **same)
    np.testing.assert_allclose(sum(dweight), alone[2], **same)  # of the sum over all ranks
    np.testing.assert_allclose(sum(dbias), alone[3], **same)
    for own_mean, own_var in zip(mean, var):
        np.testing.assert_allclose(own_mean, alone[4], **same)
        np.testing.assert_allclose(own_var, alone[5], **same)
        assert np.array_equal(own_mean, mean[0])


X, Y = RNG.normal(size=(4, 7, 4)), RNG.normal(size=(4, 7, 2))


def trained(group, rows, synchronised=True):
    """The losses of four steps of a small network, and its parameters after them."""
    norm = nn.BatchNorm1d(4, group=group if synchronised else None)
    net = nn.Sequential(nn.Dense(4, 4), norm, nn.Dense(4, 2)).to(ml.float64)
    for i, p in enumerate(net.trainable_params()):  # threads would draw from one stream
        p.set_data(np.cos(np.arange(p.size) + i).reshape(p.shape))
    squares = lambda out, y: ops.mean((out - y) ** 2)  # noqa: E731
    optimizer = optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9)
    step = ml.train_step(net, squares, optimizer, clip=1.0, group=group)
    losses = [step(x[rows], y[rows]).item() for x, y in zip(X, Y)]
    return losses, [p.asnumpy() for p in net.get_parameters()]


def test_a_network_trains_as_on_one_rank():
    losses, state = trained(None, slice(None))
    for own_losses, own_state in loopback(lambda group: trained(group, PARTS[group.rank]), SIZE):
        np.testing.assert_allclose(own_losses, losses, rtol=1e-12)
        for one, other in zip(own_state, state):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_without_the_group_each_rank_has_statistics_of_its_own():
    parts = (slice(0, 2), slice(2, 4), slice(4, 7))
    found = loopback(lambda group: trained(group, parts[group.rank], False), SIZE)
    assert not np.allclose(found[0][0], trained(None, slice(None))[0], rtol=1e-6)
    for own, first in zip(found[1][1], found[0][1]):
        assert np.array_equal(own, first)  # what runs along is averaged


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16])
def test_statistics_of_16_bit_floats_are_those_in_float32(dtype):
    x = (RNG.normal(size=(8, 4)) + 30.0).astype(dtype)

    def on(group):
        norm = nn.BatchNorm1d(4, momentum=1.0, group=group)
        out = norm(ml.Tensor(x[4 * group.rank :][:4]))
        return out.dtype, norm.running_var.asnumpy()

    whole = nn.BatchNorm1d(4, momentum=1.0)
    expected = whole(ml.Tensor(x)).dtype
    for found, var in loopback(on, 2):
        assert found == expected
        np.testing.assert_allclose(var, x.astype(np.float64).var(0, ddof=1), rtol=1e-4)


def test_evaluation_needs_no_other_rank_and_one_value_is_enough_in_training():
    def on(group):
        norm = nn.BatchNorm1d(2, group=group)
        trained = norm(np.full((1, 2), group.rank, np.float32)).tolist()
        norm.set_train(False)
        return trained, norm(np.zeros((1, 2), np.float32)).shape if group.rank else None, repr(norm)

    first, second = loopback(on, 2)
    np.testing.assert_allclose([first[0][0], second[0][0]], [[-1, -1], [1, 1]], rtol=1e-4)
    assert "momentum=0.1, group=Loopback('world', rank 0 of 2))" in first[2]


def test_what_is_refused():
    with pytest.raises(MinimlError, match="BatchNorm2d got group=2 of type int"):
        nn.BatchNorm2d(3, group=2)
    alone = nn.BatchNorm1d(3, group=ml.distributed.init("self"))
    assert alone.group is None
    with pytest.raises(ShapeError, match="two or more values"):
        loopback(lambda g: nn.BatchNorm1d(3, group=g)(np.zeros((0, 3), np.float32)), 2)
