"""Random programs that read and assign parameters, against the same with state passed by hand."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import GraphError
from miniml.grad import stop_gradient, value_and_grad, vjp
from tests.conftest import DEEP
from tests.stateful.gradients import (
    MODES,
    by_autograd,
    by_hand,
    exchanges,
    loss,
    start,
    with_parameters,
)
from tests.stateful.machines import Functional, Stateful
from tests.stateful.programs import PARAMETERS, draw, draw_exchange, execute

f64 = np.float64


SEEDS = range(400 if DEEP else 8)


def drawn(seed):
    """A program, what it starts from, how many parameters are differentiated, the order."""
    rng = np.random.default_rng(seed)
    return draw(rng), start(rng), seed % (PARAMETERS + 1), 1 + seed // 4 % 2


@pytest.mark.larger
@pytest.mark.filterwarnings("ignore:Output seems independent")
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_and_state_are_those_of_the_pure_function(seed):
    block, given, weights, order = drawn(seed)
    expected = by_autograd(block, given, weights, order)
    expected.compare(by_hand(block, given, weights, order))
    for name, mode in MODES.items():
        if DEEP or name != list(MODES)[1 + seed % 3]:  # two or three of the four each day
            with_parameters(block, given, weights, order, mode, calls=2).compare(expected)


@pytest.mark.larger
@pytest.mark.parametrize("seed", range(2000 if DEEP else 40))
def test_compiled_programs_that_pass_values_among_parameters(seed):
    rng = np.random.default_rng(seed)
    exchanges(draw_exchange(rng), start(rng))


def by_assign(params, x):
    for p in params:
        ops.assign(p, ops.sin(p) + x)


def by_set_data(params, x):
    for p in params:
        p.set_data(p.asnumpy() - 1.0)


def by_an_optimizer(params, x):
    optim.Adam(params, lr=0.5).update([x] * len(params))


def by_a_compiled_update(params, x):
    ml.jit(lambda x: by_an_optimizer(params, x))(x)


def by_a_step(params, x):
    net = lambda x: ops.sum(sum(ops.tanh(p * x) for p in params))  # noqa: E731
    ml.train_step(net, lambda out, _: out, optim.SGD(params, lr=2.0))(x, x)


WRITERS = (by_assign, by_set_data, by_an_optimizer, by_a_compiled_update, by_a_step)


@pytest.mark.larger
@pytest.mark.parametrize("seed", SEEDS)
def test_a_pull_back_is_of_the_values_that_the_function_saw(seed):
    block, given, _, _ = drawn(seed)
    params = [ml.Parameter(v) for v in given[1:]]
    x, dout = ml.Tensor(given[0]), ml.Tensor(f64(1.0))
    pure = lambda x, *state: loss(Functional(state), block, x, ops.sum)  # noqa: E731
    _, (expected, *_) = value_and_grad(pure, argnums=(0, 1))(x, *map(ml.Tensor, given[1:]))
    held = [vjp(lambda x: loss(Stateful(params), block, x, ops.sum), x)[1]]
    after = [p.asnumpy() for p in params]
    for write in np.random.default_rng(seed).permutation(WRITERS):
        held.append(vjp(lambda x: ops.sum(params[0] * x * x), x)[1])
        before = params[0].asnumpy()
        write(params, x)
        np.testing.assert_allclose(held[0](dout)[0], expected, 1e-9, 1e-10)
        np.testing.assert_allclose(held[-1](dout)[0], 2 * before * given[0], 1e-12)
    assert not any(np.array_equal(p.asnumpy(), a) for p, a in zip(params, after, strict=True))


@pytest.mark.larger
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_of_training_leave_what_the_pure_function_says(seed):
    block, given, _, _ = drawn(seed)
    params = [ml.Parameter(v) for v in given[1:]]
    step = ml.train_step(
        lambda x: loss(Stateful(params), block, x, ops.sum),
        lambda out, _: out,
        optim.SGD(params, lr=0.125),
    )

    def pure(x, *state):
        machine = Functional(state)
        return loss(machine, block, x, ops.sum), machine.state

    x, state = ml.Tensor(given[0]), [ml.Tensor(v) for v in given[1:]]
    gradient = value_and_grad(pure, argnums=tuple(range(1, 1 + PARAMETERS)), has_aux=True)
    with ml.context(jit=bool(seed % 2)):
        for _ in range(3):
            (value, left), slopes = gradient(x, *state)
            assert np.isclose(step(x, x).item(), value.item(), 1e-9)
            state = [s - 0.125 * d for s, d in zip(left, slopes, strict=True)]
            for p, s in zip(params, state, strict=True):
                np.testing.assert_allclose(p.asnumpy(), s.asnumpy(), 1e-8, 1e-10)


def test_values_are_those_of_the_pure_function_where_a_loop_runs_in_the_graph():
    given = start(np.random.default_rng(0))
    block = draw(np.random.default_rng(1))

    def f(machine, x):
        execute(machine, block.statements, [x])
        before = machine.read(1)
        out = ops.while_loop(lambda v: ops.sum(v * v) < 50.0, lambda v: v * 1.5 + before * x, x)
        machine.assign(1, out)
        execute(machine, block.statements, [machine.read(1) * 0.01])
        return out

    machine = Functional([ml.Tensor(v) for v in given[1:]])
    expected = f(machine, ml.Tensor(given[0]))
    for mode in MODES.values():
        params = [ml.Parameter(v) for v in given[1:]]
        out = mode(lambda x, params=params: f(Stateful(params), x))(ml.Tensor(given[0]))
        np.testing.assert_allclose(out, expected, 1e-9)
        np.testing.assert_allclose(params, machine.state, 1e-9)


def test_what_a_branch_in_a_graph_cannot_do_is_refused():
    p = ml.Parameter(f64(1.0), name="p")

    def f(x):
        return ops.cond(x > 0.0, lambda: ops.assign(p, x * p), lambda: x)

    for fn in (f, value_and_grad(f, weights=[p])):
        with pytest.raises(GraphError, match="'p' is assigned inside a branch or loop"):
            ml.jit(fn)(ml.Tensor(f64(2.0)))
    assert p.item() == 1.0
    assert value_and_grad(f, weights=[p])(ml.Tensor(f64(2.0)))[1][0].item() == 1.0
    assert p.item() == 2.0


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_running_statistics_in_a_loss(mode):
    """The layer moves them twice, past the gradient, and the loss reads them then."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 2, 2, 1)), rng.uniform(0.5, 1.5, 2)

    def f(norm, x):
        first, second = norm(x), norm(x * x)
        return ops.sum(first * second * second + norm.running_mean[0] * x * norm.running_var[1])

    def pure(x, weight, bias, mean, var):
        def batch_norm(x, mean, var):
            axes = (0, 2, 3)
            m, v = ops.mean(x, axes, keepdims=True), ops.var(x, axes, keepdims=True)
            out = (x - m) / ops.sqrt(v + 1e-5)
            out = out * ops.reshape(weight, (1, 2, 1, 1)) + ops.reshape(bias, (1, 2, 1, 1))
            m, v = (stop_gradient(ops.reshape(s, (2,))) for s in (m, v * (6 / 5)))
            return out, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v

        first, mean, var = batch_norm(x, mean, var)
        second, mean, var = batch_norm(x * x, mean, var)
        return ops.sum(first * second * second + mean[0] * x * var[1]), (mean, var)

    norm = nn.BatchNorm2d(2)
    for name, p in norm.parameters_dict().items():
        setattr(norm, name, ml.Parameter(w if name == "weight" else p.asnumpy().astype(f64)))
    params = [norm.weight, norm.bias]
    given = [ml.Tensor(v) for v in (x, w, np.zeros(2), np.zeros(2), np.ones(2))]
    (value, state), expected = value_and_grad(pure, (0, 1, 2), has_aux=True)(*given)
    out, (dx, by_weight) = mode(value_and_grad(lambda x: f(norm, x), weights=params))(given[0])
    assert np.isclose(out.item(), value.item(), 1e-9)
    state_of_norm = [norm.running_mean, norm.running_var]
    for a, b in zip([dx, *by_weight, *state_of_norm], [*expected, *state], strict=True):
        np.testing.assert_allclose(a, b, 1e-6, 1e-9)


class Recurrent(nn.Cell):
    """A cell that keeps its state, in two assignments a step."""

    def __init__(self, n):
        self.w = ml.Parameter(np.linspace(-1, 1, n * n).reshape(n, n))
        self.h = ml.Parameter(np.full(n, 0.5), requires_grad=False)

    def construct(self, x):
        ops.assign(self.h, ops.tanh(ops.matmul(self.h, self.w) + x))
        return ops.assign(self.h, self.h * ops.sum(self.w * self.w))


@pytest.mark.parametrize(("mode", "order"), [(m, o) for m in MODES for o in (1, 2)], ids=str)
def test_a_recurrent_cell_through_time(mode, order):
    cell, x = Recurrent(3), ml.Tensor(np.array([0.3, -0.2, 0.9]))

    def f():
        return sum(ops.sum(ops.sin(cell(x))) for _ in range(3))

    def pure(w, h):
        total = 0.0
        for _ in range(3):
            h = ops.tanh(ops.matmul(h, w) + x) * ops.sum(w * w)
            total = total + ops.sum(ops.sin(h))
        return total, h

    by_weight = {"argnums": None, "weights": [cell.w]}
    fn, pure_fn = value_and_grad(f, **by_weight), value_and_grad(pure, has_aux=True)
    w, h = ml.Tensor(cell.w.asnumpy()), ml.Tensor(cell.h.asnumpy())
    (_, left), expected = pure_fn(w, h)
    if order == 2:
        first = fn
        fn = value_and_grad(lambda: ops.sum(ops.sin(first()[1][0])), **by_weight)
        expected = value_and_grad(lambda w: ops.sum(ops.sin(pure_fn(w, h)[1])))(w)[1]
    (dw,) = MODES[mode](fn)()[1]
    np.testing.assert_allclose(dw, expected, 1e-9, 1e-12)
    np.testing.assert_allclose(cell.h, left, 1e-12)
