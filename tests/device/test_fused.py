"""Fused groups on a CUDA device: random programs, softmax and normalisations with their gradients,
against the same programs node by node on the CPU."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.sim.settings import SCHEDULES, using
from miniml.runtime.jit import Jit
from tests.unit.cc.programs import function, inputs_for, with_gradient

# Of float64, where what differs is the order of sums and the last bits of exp and its like.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}


def run(fn, arrays, device, provider):
    """The outputs of a compiled function, and how many of its nodes are fused."""
    with ml.context(device_target=device, providers=(provider,), verify_passes=True):
        jit, xs = Jit(fn), [ml.Tensor(a) for a in arrays]
        outs = optree.tree_leaves(jit(*xs))
        nodes = jit.compiled(*xs).program.graph.nodes
    return [o.asnumpy() for o in outs], sum(isinstance(n.primitive, ops.Fused) for n in nodes)


def check(fn, arrays, device, schedules=SCHEDULES, **tolerance):
    """A device gives the same in every order of threads; in check mode a race is an error. Returns
    how many nodes were fused."""
    expected, _ = run(fn, arrays, "cpu", "miniml")
    for schedule in schedules:
        with using(schedule=schedule, seed=5):
            got, fused = run(fn, arrays, device, "cc")
        for one, two in zip(expected, got, strict=True):
            np.testing.assert_allclose(two, one, **(tolerance or TOLERANCE))
    return fused


@pytest.mark.parametrize("seed", [3, 6, 7])
def test_random_programs(device, seed):
    assert check(function(seed), inputs_for(seed, np.float64), device)


@pytest.mark.parametrize("seed", [20])
def test_random_gradients(device, seed):
    assert check(with_gradient(function(seed, 7)), inputs_for(seed, np.float64), device)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 160))
def test_many(device, seed):
    check(function(seed), inputs_for(seed, np.float64), device)
    check(with_gradient(function(seed, 7)), inputs_for(seed, np.float64), device)


def rows(*shape):
    return np.random.default_rng(8).standard_normal(shape).astype(np.float32)


LABELS = np.arange(6) % 33
AFFINE = rows(33), rows(33)
COMPOSED = {
    "softmax": (ops.softmax, rows(6, 33)),
    "softmax of columns": (lambda x: ops.softmax(x, 0), rows(6, 40)),
    "log_softmax": (ops.log_softmax, rows(6, 33)),
    "layer_norm": (ops.layer_norm, rows(6, 33), *AFFINE),
    "batch_norm": (
        lambda *xs: ops.batch_norm(*xs, training=True)[0], rows(4, 3, 5, 5), rows(3), rows(3),
    ),
    "cross_entropy": (lambda x: ops.cross_entropy(x, LABELS), rows(6, 33)),
}  # fmt: skip


def with_slopes(fn, count):
    def loss(*xs):
        y = fn(*xs)
        return ops.sum(y * ml.Tensor(np.cos(np.arange(y.size, dtype="f")).reshape(y.shape)))

    return lambda *xs: (fn(*xs), ml.grad.grad(loss, argnums=tuple(range(count)))(*xs))


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions(device, name):
    fn, *arrays = COMPOSED[name]
    assert check(with_slopes(fn, len(arrays)), arrays, device, rtol=2e-5, atol=2e-5)


def test_labels_outside_the_classes_give_nan(on_device):
    labels = ml.Tensor(np.array([1, -1, 33, 4]))
    with ml.context(providers=("cc",)):
        losses = ml.jit(lambda x: ops.cross_entropy(x, labels, "none"))(ml.Tensor(rows(4, 33)))
    assert np.isnan(losses.asnumpy()).tolist() == [False, True, True, False]
