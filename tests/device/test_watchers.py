"""Hooks, profiles, loss scaling and recomputation on a CUDA device."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
Y = np.arange(8) % 2


def step_of(wrap=lambda cell: cell, **options):
    ml.manual_seed(0)
    net = nn.Sequential(wrap(nn.Sequential(nn.Dense(4, 8), nn.Tanh())), nn.Dense(8, 2))
    opt = optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9)
    return ml.train_step(net, nn.CrossEntropyLoss(), opt, **options)


@pytest.mark.parametrize("graphs", ["auto", "on"])
def test_a_step_under_hooks_and_in_a_profile_is_the_same_step(on_device, graphs):
    seen = []
    with ml.context(cuda_graphs=graphs):
        plain, watched = step_of(), step_of()
        for _ in range(3):
            expected = float(plain(X, Y))
            with ml.profile() as p, ml.hooks(after=seen.append):
                assert float(watched(X, Y)) == expected
        with ml.profile() as p:
            assert float(watched(X, Y)) == float(plain(X, Y))
    assert len(watched.recompilations) == 1
    assert seen[0].outputs[0].device == on_device
    assert {"layer 0.0 (Dense)", "CrossEntropyLoss", "SGD"} & {r.layer for r in p.layers}
    assert all(row.seconds > 0 for row in p.rows)


def test_eager_calls_are_seen(on_device):
    seen = []
    with ml.profile() as p, ml.hooks(after=seen.append):
        y = ops.exp(ml.Tensor(X))
    assert np.array_equal(seen[-1].outputs[0].asnumpy(), y.asnumpy())
    assert [row.node for row in p.rows] == ["Exp"]


def test_a_step_in_float16_that_overflows_changes_the_scale_alone(on_device):
    scale = optim.LossScale(1024.0)
    step = step_of(loss_scale=scale)
    with ml.context(autocast=ml.float16):
        step(X, Y)
        before = [p.asnumpy() for p in step.optimizer.written()]
        step(np.full_like(X, np.inf), Y)
        assert float(step.loss_scale.scale) == 512.0
        for p, old in zip(step.optimizer.written(), before, strict=True):
            assert np.array_equal(p.asnumpy(), old)
        step(X, Y)
    assert int(step.loss_scale.good_steps) == 1


def test_recomputation_gives_the_same_losses(on_device):
    plain, again = step_of(), step_of(ml.recompute)
    for _ in range(3):
        assert float(plain(X, Y)) == pytest.approx(float(again(X, Y)), rel=1e-6)
