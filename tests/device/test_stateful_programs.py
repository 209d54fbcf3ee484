"""Random programs that read and assign parameters on a device, against state passed by hand."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops, optim
from miniml.grad import vjp
from tests.conftest import DEEP
from tests.stateful.gradients import by_hand, exchanges, start, with_parameters
from tests.stateful.programs import PARAMETERS, draw, draw_exchange

f64 = np.float64
MODES = {
    "eager": ({}, lambda fn: fn),
    "jit": ({}, ml.jit),
    "CUDA graph": ({"cuda_graphs": "on"}, ml.jit),
}


@pytest.mark.larger
@pytest.mark.parametrize("seed", range(40 if DEEP else 2))
@pytest.mark.parametrize("mode", MODES)
def test_gradients_and_state_are_those_of_the_pure_function(device, mode, seed):
    rng = np.random.default_rng(seed)
    block, given = draw(rng), start(rng)
    weights, order = (seed + 1) % (PARAMETERS + 1), 1 + seed % 2
    expected = by_hand(block, given, weights, order)
    settings, compile = MODES[mode]
    with ml.context(device_target=device, **settings):
        found = with_parameters(block, given, weights, order, compile, calls=3)
    found.compare(expected, 1e-8, 1e-9)


@pytest.mark.larger
@pytest.mark.parametrize("seed", range(200 if DEEP else 8))
@pytest.mark.parametrize("graphs", ["off", "on"])
def test_compiled_programs_that_pass_values_among_parameters(device, graphs, seed):
    rng = np.random.default_rng(seed)
    with ml.context(device_target=device, cuda_graphs=graphs):
        exchanges(draw_exchange(rng), start(rng))


def test_a_pull_back_is_of_the_values_that_the_function_saw(on_device):
    p = ml.Parameter(np.array([3.0, 4.0]))
    step = ml.jit(lambda g: optim.SGD([p], lr=1.0).update([g]))
    writes = (
        lambda: p.set_data(np.array([5.0, 6.0])),
        lambda: ops.assign(p, p * 2.0),
        *[lambda: step(ml.Tensor(np.ones(2)))] * 3,
    )
    for write in writes:
        before = p.asnumpy()
        _, pull = vjp(lambda x: ops.sum(x * ops.reshape(p, (2,)) * p), ml.Tensor(np.ones(2)))
        write()
        assert not np.array_equal(p.asnumpy(), before)
        assert pull(ml.Tensor(f64(1.0)))[0].tolist() == (before * before).tolist()


def test_a_branch_that_only_captures_is_traced_for_the_device(on_device):
    p = ml.Parameter(np.array([3.0, 4.0]))
    f = ml.jit(lambda x: ops.cond(ops.sum(x) > 0.0, lambda: x * p, lambda: p))
    assert f(ml.Tensor(np.ones(2))).tolist() == [3.0, 4.0]


def test_an_input_and_then_what_another_parameter_held(on_device):
    p, q = ml.Parameter(np.array([3.0, 4.0])), ml.Parameter(np.array([5.0, 6.0]))

    def f(x):
        ops.assign(p, x)
        ops.assign(p, q)
        ops.assign(q, x)

    step = ml.jit(f)
    for held in ([5.0, 6.0], [1.0, 1.0]):
        step(ml.Tensor(np.ones(2)))
        assert (p.tolist(), q.tolist()) == (held, [1.0, 1.0])
