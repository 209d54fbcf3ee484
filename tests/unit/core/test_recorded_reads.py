"""A recorded read of a Parameter is its value at that moment, whatever is assigned later."""

import copy
import gc
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, nn, ops, optim
from miniml.core.parameter import Reading
from miniml.grad import grad, value_and_grad, vjp
from miniml.grad.reverse import Linearized
from tests.stateful.gradients import MODES

f64 = np.float64


def parameter(value, name="p"):
    return ml.Parameter(np.asarray(value, f64), name=name)


each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@each_mode
def test_state_that_is_read_and_then_replaced(mode):
    w, state = parameter(0.5), parameter(2.0)

    def f():
        h = ops.tanh(w * state)
        ops.assign(state, h)
        return ops.sum(h)

    _, (dw,) = mode(value_and_grad(f, argnums=None, weights=[w]))()
    assert np.isclose(dw.item(), 2.0 * (1 - np.tanh(1.0) ** 2), rtol=1e-12)
    assert np.isclose(state.item(), np.tanh(1.0), rtol=1e-12)


@each_mode
def test_reads_between_assignments_have_a_value_each(mode):
    p = parameter(1.0)

    def f(x):
        total = x * p
        for _ in range(2):
            ops.assign(p, p * 0.5)
            total = total + x * p
        return total

    assert mode(grad(f))(ml.Tensor(f64(3.0))).item() == 1.75
    assert p.item() == 0.25


@each_mode
def test_a_gradient_passes_through_an_assignment(mode):
    p = parameter(3.0)

    def f(x):
        ops.assign(p, p * x)
        return ops.sum(p * x)

    assert mode(grad(f))(ml.Tensor(f64(2.0))).item() == 12.0


@each_mode
def test_a_weight_assigned_in_the_function_has_the_gradient_of_its_first_value(mode):
    p = parameter([3.0, -1.0])

    def f(x):
        ops.assign(p, p * x)  # p x
        ops.assign(p, p * p)  # (p x)^2
        return ops.sum(p * x)  # p^2 x^3

    both = value_and_grad(f, weights=[p])
    value, (dx, (dp,)) = mode(both)(ml.Tensor(f64(2.0)))
    assert (value.item(), dx.item(), dp.tolist()) == (80.0, 120.0, [48.0, -16.0])


@each_mode
def test_a_weight_that_the_function_returns(mode):
    p = parameter(3.0)
    value, (dp,) = mode(value_and_grad(lambda: p, argnums=None, weights=[p]))()
    assert (value.item(), dp.item()) == (3.0, 1.0)

    def twice():
        ops.assign(p, p * 2.0)
        return p

    value, (dp,) = mode(value_and_grad(twice, argnums=None, weights=[p]))()
    assert (value.item(), dp.item()) == (6.0, 2.0)


WRITES = {
    "set_data": lambda p: p.set_data(f64(100.0)),
    "assign": lambda p: ops.assign(p, p * 0.0),
    "an optimizer": lambda p: optim.SGD([p], lr=1.0).update([ml.Tensor(f64(1.0))]),
    "a compiled assignment": lambda p: ml.jit(lambda: ops.assign(p, p * 7.0))(),
    "a compiled update in place": lambda p: ml.jit(
        lambda: optim.SGD([p], lr=1.0).update([ml.Tensor(f64(1.0))])
    )(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_pulling_back_after_a_write(write):
    p = parameter(3.0)
    out, pull = vjp(lambda x: x * p, ml.Tensor(f64(2.0)))
    for _ in range(2):  # the second write finds nothing left to keep
        write(p)
        assert (out.item(), pull(f64(1.0))[0].item()) == (6.0, 3.0)
    later = p.item()
    assert later != 3.0
    assert vjp(lambda x: x * p, ml.Tensor(f64(2.0)))[1](f64(1.0))[0].item() == later


def test_pulling_back_after_a_checkpoint_was_loaded(tmp_path):
    p = parameter(3.0)
    ml.save_checkpoint({"p": parameter(9.0)}, tmp_path / "p.safetensors")
    _, pull = vjp(lambda x: x * p, ml.Tensor(f64(2.0)))
    ml.load_checkpoint(tmp_path / "p.safetensors", {"p": p})
    assert (pull(f64(1.0))[0].item(), p.item()) == (3.0, 9.0)


def test_pulling_back_after_a_step():
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    net = nn.Dense(3, 2)
    step = ml.train_step(net, nn.MSELoss(), optim.Adam(net.trainable_params(), lr=0.1))
    step(x, np.zeros((4, 2), np.float32))
    weight = net.weight.asnumpy()
    out, pull = vjp(net, ml.Tensor(x))
    step(x, np.zeros((4, 2), np.float32))
    assert not np.array_equal(net.weight.asnumpy(), weight)
    (dx,) = pull(ops.ones_like(out))
    np.testing.assert_allclose(dx.asnumpy(), np.ones((4, 2)) @ weight.T, rtol=1e-6)


def test_an_argument_that_is_a_parameter_has_the_value_of_the_call():
    p = parameter([3.0, 4.0])
    _, pull = vjp(lambda x: ops.sum(x * x), p)
    p.set_data([0.0, 0.0])
    assert pull(f64(1.0))[0].tolist() == [6.0, 8.0]


def test_inside_a_graph_an_assignment_between_forward_and_backward():
    p = parameter(3.0)

    @ml.jit
    def f(x):
        _, pull = vjp(lambda x: x * p, x)
        ops.assign(p, p * 0.0)
        return pull(ops.ones_like(x))[0], x * p

    assert [o.item() for o in f(ml.Tensor(f64(2.0)))] == [3.0, 0.0]
    assert p.item() == 0.0


def test_views_of_what_was_read_do_not_change():
    p = parameter([[1.0, 2.0], [3.0, 4.0]])
    _, pull = vjp(lambda x: ops.matmul(x, ops.transpose(p, (1, 0))), ml.Tensor(np.eye(2)))
    (before,) = pull(np.eye(2))
    p.set_data(np.zeros((2, 2)))
    (after,) = pull(np.eye(2))
    assert before.tolist() == after.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_what_is_read_shares_the_parameters_memory_until_a_write():
    p = parameter(np.zeros(1000))
    _, pull = vjp(lambda x: ops.sum(x * p), ml.Tensor(np.ones(1000)))
    (reading,) = [v for v in found_values(pull) if type(v) is not ml.Tensor]
    assert np.shares_memory(reading._data, p._buffer)
    ops.assign(p, p + 1.0)
    assert not np.shares_memory(reading._data, p._buffer)
    assert not reading.asnumpy().any()


def found_values(pull):
    """The values that the pull-back keeps and that are no traced tensors' results."""
    (found,) = [
        c.cell_contents for c in pull.__closure__ if isinstance(c.cell_contents, Linearized)
    ]
    return [v for call in found.trace.calls for v in call.given if v.shape == (1000,)]


def readings_of(p):
    """The recorded values of a parameter that are alive."""
    return [r for r in gc.get_objects() if type(r) is Reading and r.parameter is p]


def test_nothing_is_kept_when_the_pull_back_is_gone():
    p = parameter(3.0)
    out, pull = vjp(lambda x: x * p, ml.Tensor(f64(2.0)))
    assert len(readings_of(p)) == 1
    del out, pull
    assert not readings_of(p)


def test_nothing_is_kept_after_an_eager_gradient_of_weights():
    p = parameter(3.0)
    gc.disable()
    try:
        value_and_grad(lambda: ops.tanh(p * p), argnums=None, weights=[p])()
        assert not readings_of(p)
    finally:
        gc.enable()


class CoreAddTo(Primitive):
    """A parameter moved by d, through which no gradient passes."""

    effect = "state"
    differentiable = False

    def infer_shape(self, parameter, d):
        return parameter

    def infer_dtype(self, parameter, d):
        return parameter


ml.kernel("CoreAddTo", "cpu", "dd->d")(np.add)


@each_mode
def test_an_update_without_a_gradient_changes_the_weight_and_ends_its_gradient(mode):
    p = parameter(3.0)

    def f(x):
        first = p * x
        CoreAddTo()(p, x)
        return first + p * x * x

    value, (dx, (dp,)) = mode(value_and_grad(f, weights=[p]))(ml.Tensor(f64(2.0)))
    assert (value.item(), dx.item(), dp.item(), p.item()) == (26.0, 23.0, 2.0, 5.0)


def test_data_set_in_the_function_are_a_constant():
    p = parameter(3.0)

    def f(x):
        first = p * x
        p.set_data(f64(5.0))
        return first + p * x * x

    value, (dx, (dp,)) = value_and_grad(f, weights=[p])(ml.Tensor(f64(2.0)))
    assert (value.item(), dx.item(), dp.item()) == (26.0, 23.0, 2.0)


class Recurrent(nn.Cell):
    """A cell that keeps its state."""

    def __init__(self, n_in, n):
        self.x, self.u = nn.Dense(n_in, n), nn.Dense(n, n, bias=False)
        self.h = ml.Parameter(np.full((4, n), 0.5, np.float32), requires_grad=False)

    def construct(self, x):
        return ops.assign(self.h, ops.tanh(self.x(x) + self.u(self.h)))


@pytest.mark.parametrize("jit", [True, False])
def test_a_step_of_a_cell_that_keeps_its_state(jit):
    ml.manual_seed(3)
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    net = Recurrent(3, 5)
    params = net.trainable_params()
    before = [p.asnumpy().astype(f64) for p in params]
    step = ml.train_step(net, lambda out, _: ops.sum(out), optim.SGD(params, lr=0.1))
    with ml.context(jit=jit):
        step(x, x)
    wx, b, wu = before
    h0 = np.full((4, 5), 0.5)
    h = np.tanh(x @ wx + b + h0 @ wu)
    da = 1 - h * h
    expected = [wx - 0.1 * x.T @ da, b - 0.1 * da.sum(0), wu - 0.1 * h0.T @ da]
    for p, value in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.asnumpy(), value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net.h.asnumpy(), h, rtol=1e-5)


@each_mode
def test_a_gradient_passes_through_an_optimizers_update(mode):
    p = parameter(3.0)
    opt = optim.SGD([p], lr=0.5)

    def f(x):
        (dp,) = value_and_grad(lambda: 0.5 * (p * x) ** 2, argnums=None, weights=[p])()[1]
        opt.update([dp])  # p - p x^2 / 2
        return p * x

    _, (dx, (dp,)) = mode(value_and_grad(f, weights=[p]))(ml.Tensor(f64(2.0)))
    assert np.allclose([dx.item(), dp.item(), p.item()], [3.0 - 1.5 * 12.0, 2.0 - 4.0, -3.0])


def test_what_was_read_is_an_ordinary_tensor_to_others():
    p = parameter([3.0, 4.0])
    step = ml.jit(lambda x: ops.assign(p, p + x) * x)
    assert step(vjp(lambda: p)[0]).tolist() == [18.0, 32.0]
    p.set_data([3.0, 4.0])
    out = vjp(lambda: p)[0]
    found = out, np.asarray(out), pickle.loads(pickle.dumps(out)), copy.deepcopy(out)
    inside = ml.jit(lambda: out + p)
    inside()
    p.set_data([5.0, 6.0])
    assert [v.tolist() for v in found] == [[3.0, 4.0]] * 4
    assert inside().tolist() == [8.0, 10.0]
    assert repr(out) == "Tensor([3., 4.], shape=(2,), dtype=float64)"
