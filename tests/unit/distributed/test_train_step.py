"""Data parallelism: ranks with a part of the batch each train as one rank with all of it."""

import copy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.distributed import loopback
from miniml.errors import DistributedError, MinimlError

from .launch import needs_mpi, ranks

SIZE, ROWS, STEPS = 3, 4, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(STEPS, SIZE, ROWS, 6)).astype(np.float32)
Y = RNG.normal(size=(STEPS, SIZE, ROWS, 2)).astype(np.float32)


def network(seed=0):
    ml.manual_seed(seed)
    return nn.Sequential(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 2))


def squares(out, y):
    return ops.mean((out - y) ** 2)


OPTIMIZERS = {
    "momentum": (lambda ps: optim.SGD(ps, lr=0.2, momentum=0.9, weight_decay=0.01), {}),
    "clipped": (lambda ps: optim.Adam(ps, lr=0.05), {"clip": 0.3}),
    "accumulated": (lambda ps: optim.Accumulate(optim.SGD(ps, lr=0.2), 2), {"clip": 0.5}),
    "averaged": (lambda ps: optim.EMA(optim.SGD(ps, lr=0.2), 0.5), {}),
    "scaled": (lambda ps: optim.Adam(ps, lr=0.05), {"loss_scale": True}),
}


def trained(net, how, batches, group=None):
    """The losses of all steps, and all state after them."""
    make, options = OPTIMIZERS[how]
    optimizer = make(net.trainable_params())
    if options.get("loss_scale"):
        options = {"loss_scale": optim.LossScale(256.0)}
    step = ml.train_step(net, squares, optimizer, group=group, **options)
    losses = [step(x, y).item() for x, y in batches]
    state = [p.asnumpy() for p in (*net.get_parameters(), *optimizer.parameters_dict().values())]
    return losses, state


def in_parallel(how):
    nets = [network() for _ in range(SIZE)]

    def on(group):
        r = group.rank
        return trained(nets[r], how, zip(X[:, r], Y[:, r]), group)

    return loopback(on, SIZE)


@pytest.mark.parametrize("how", OPTIMIZERS)
def test_ranks_with_parts_of_a_batch_train_as_one_with_all_of_it(how):
    whole = zip(X.reshape(STEPS, -1, 6), Y.reshape(STEPS, -1, 2))
    losses, state = trained(network(), how, whole)
    found = in_parallel(how)
    for own_losses, own_state in found:
        np.testing.assert_allclose(own_losses, losses, rtol=2e-6)
        for one, other in zip(own_state, state):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)
        for one, other in zip(own_state, found[0][1]):
            assert np.array_equal(one, other)  # all ranks have the same, to the bit
        assert own_losses == found[0][0]
    again = in_parallel(how)
    assert all(map(np.array_equal, again[0][1], found[0][1]))  # and so has every run


def test_ranks_that_step_op_by_op_train_as_compiled_ones():
    """A step claims the random stream, which the threads share, only where it draws."""
    compiled = in_parallel("momentum")
    with ml.context(jit=False):
        found = in_parallel("momentum")
    for (own_losses, own_state), (losses, state) in zip(found, compiled):
        np.testing.assert_allclose(own_losses, losses, rtol=2e-6)
        for one, other in zip(own_state, state):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)


def test_gradients_that_are_not_averaged_are_seen():
    """Without the group each rank learns from its own rows alone."""
    net = network()
    one, _ = trained(net, "momentum", zip(X[:, 0], Y[:, 0]))
    assert not np.allclose(one, in_parallel("momentum")[0][0], rtol=1e-3)


def test_one_collective_call_a_step_for_each_dtype():
    nets = [network() for _ in range(2)]

    def on(group):
        net = nets[group.rank]
        step = ml.train_step(net, squares, optim.SGD(net.trainable_params(), 0.1), group=group)
        asked, agree = [], group.agree
        step(X[0, 0], Y[0, 0])
        group.agree = lambda call: (asked.append(call), agree(call))
        step.held = lambda: pytest.fail("weights were compared, or only collected, again")
        step(X[1, 0], Y[1, 0])
        return asked

    # 6 * 8 + 8 + 8 * 2 + 2 numbers of parameters, the loss, and the weight of the rank
    assert loopback(on, 2) == [["all_reduce sum of float32[76]"]] * 2


def test_a_step_that_overflows_on_one_rank_is_left_out_on_all():
    nets = [network() for _ in range(2)]

    def on(group):
        net, scale = nets[group.rank], optim.LossScale(256.0)
        optimizer = optim.SGD(net.trainable_params(), 0.1)
        step = ml.train_step(net, squares, optimizer, loss_scale=scale, group=group)
        before = [p.asnumpy() for p in net.trainable_params()]
        step(X[0, 0] * (np.float32(np.inf) if group.rank else 1.0), Y[0, 0])
        return all(map(np.array_equal, before, [p.asnumpy() for p in net.trainable_params()]))

    assert loopback(on, 2) == [True, True]


def test_ranks_that_begin_with_other_weights_are_named():
    nets = [network(), network(), network(seed=1)]

    def on(group):
        trained(nets[group.rank], "momentum", zip(X[:, 0], Y[:, 0]), group)

    with pytest.raises(DistributedError, match=r"0\.weight on rank 2 than on rank 0.*manual_seed"):
        loopback(on, 3)


def test_what_is_no_group_is_refused_and_one_rank_needs_none():
    net = network()
    optimizer = optim.SGD(net.trainable_params(), 0.1)
    with pytest.raises(MinimlError, match="train_step got group=2 of type int"):
        ml.train_step(net, squares, optimizer, group=2)
    step = ml.train_step(net, squares, optimizer, group=ml.distributed.init("self"))
    assert step.group is None
    assert "AllReduce" not in str(ml.trace(step.train_step, X[0, 0], Y[0, 0]))


def test_copies_of_a_step_have_its_group():
    def on(group):
        net = network()
        step = ml.train_step(net, squares, optim.SGD(net.trainable_params(), 0.1), group=group)
        return copy.deepcopy(step).group is group

    assert loopback(on, 2) == [True, True]


@needs_mpi
def test_processes_train_together_compiled_and_op_by_op(tmp_path):
    program = """
        import sys
        import numpy as np
        import miniml as ml
        from miniml import nn, ops, optim

        ml.set_context(providers=("miniml",))
        group = ml.distributed.init(timeout=60.0)
        x, y = np.load("x.npy"), np.load("y.npy")

        def squares(out, y):
            return ops.mean((out - y) ** 2)

        for compiled in (True, False):
            with ml.context(jit=compiled):
                ml.manual_seed(0)
                net = nn.Sequential(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 2))
                weights = net.trainable_params()
                optimizer = optim.SGD(weights, lr=0.2, momentum=0.9, weight_decay=0.01)
                step = ml.train_step(net, squares, optimizer, group=group)
                for i in range(len(x)):
                    loss = step(x[i, group.rank], y[i, group.rank])
            np.save(f"{group.rank}-{compiled}.npy", net[0].weight.asnumpy())
        if group.rank:
            net[0].weight.set_data(net[0].weight.asnumpy() + 1)
        ml.train_step(net, squares, optimizer, group=group)(x[0, 0], y[0, 0])
    """
    np.save(tmp_path / "x.npy", X[:, :2])
    np.save(tmp_path / "y.npy", Y[:, :2])
    ended = ranks(2, program, tmp_path)
    assert ended.status == 1
    assert "train_step got other values of 0.weight on rank 1 than on rank 0" in ended.err
    net = network()
    whole = zip(X[:, :2].reshape(STEPS, -1, 6), Y[:, :2].reshape(STEPS, -1, 2))
    trained(net, "momentum", whole)
    for compiled in (True, False):
        first, second = (np.load(tmp_path / f"{r}-{compiled}.npy") for r in (0, 1))
        assert np.array_equal(first, second)
        np.testing.assert_allclose(first, net[0].weight.asnumpy(), rtol=1e-4, atol=2e-6)
