"""Optimizers, schedules and averages on a device, against the same on the CPU."""

import numpy as np
import pytest

import miniml as ml
from miniml import optim

GRADS = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


def averaged(params):
    rate = optim.chained([optim.warmup(1, 0.1), optim.cosine(0.1, 9)], milestones=[2])
    return optim.EMA(optim.Accumulate(optim.AdamW(params, lr=rate), every=2, clip=1.0), decay=0.5)


def on_plateau(params):
    return optim.RMSprop(params, lr=optim.OnPlateau(0.1, 0.5, patience=0), centered=True)


def constant(params):
    return optim.Groups(optim.Lion(params, lr=lambda step: 0.1))


def trained(make, device, jit):
    p = ml.Parameter(np.ones(5, np.float32), device=device)
    opt = make([p])
    step = ml.jit(lambda g: opt.update([g]))
    for g in GRADS:
        with ml.context(jit=jit):
            step(ml.Tensor(g, device=device))
        if make is on_plateau:
            opt._schedule.update(1.0)
    if make is not averaged:
        return [p.asnumpy()]
    with opt.averaged():
        average = p.asnumpy()
    return [p.asnumpy(), average]


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("make", [averaged, on_plateau, constant])
def test_updates_are_those_of_the_cpu(device, make, jit):
    found, expected = trained(make, device, jit), trained(make, "cpu", jit)
    assert all(np.allclose(a, b, rtol=1e-5) for a, b in zip(found, expected))


def test_a_loss_scale_moves_op_by_op(device):
    scale = optim.LossScale(8.0, every=1).to(device)
    for finite in (True, False, False):
        scale.update(ml.Tensor(finite, device=device))
    assert float(scale.scale) == 4.0
