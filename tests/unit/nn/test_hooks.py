"""Hooks of cells and of gradients: when they are called, with what, and what they may change."""

import copy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import BpropError, DeclarationError, MinimlError
from miniml.grad import grad, hook_gradient, value_and_grad

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
MODES = pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])


def dense(values):
    cell = nn.Dense(3, 2, bias=False)
    cell.weight.set_data(values.T)
    return cell


W = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


def host(tensor):
    return tensor.asnumpy() if tensor is not None else None


@MODES
def test_a_gradient_passes_through_its_hook(mode):
    # The example of MindSpore's HookBackward: z = x * y; z = hook(z) * y; x = 1, y = 2.
    def f(x, y):
        z = hook_gradient(x * y, lambda g: 10.0 * g)
        return z * y

    with ml.context(mode=mode):
        dx, dy = grad(f, (0, 1))(1.0, 2.0)
    assert (float(dx), float(dy)) == (40.0, 22.0)  # by hand: 10 y y; 10 y x + x y
    seen = []
    dx, dy = grad(lambda x, y: hook_gradient(x * y, seen.append) * y, (0, 1))(1.0, 2.0)
    assert ([float(g) for g in seen], float(dx), float(dy)) == ([2.0], 4.0, 4.0)


def test_a_gradient_hook_is_differentiated():
    second = grad(grad(lambda x: hook_gradient(x * x, lambda g: g * x)))
    assert float(second(3.0)) == 12.0  # of x * 2 x


@MODES
def test_hooks_see_and_replace(mode):
    with ml.context(mode=mode):
        cell = dense(W)
        cell.register_forward_pre_hook(lambda c, inputs: inputs[0] * 2.0)
        cell.register_forward_pre_hook(lambda c, inputs: (inputs[0] + 1.0,))
        cell.register_forward_hook(lambda c, inputs, out: out * 3.0)
        assert np.array_equal(cell(X).asnumpy(), ((X * 2 + 1) @ W.T) * 3)
        handle = cell.register_backward_hook(lambda c, dx, dout: (dx[0] * 5.0,))
        found = grad(lambda x: ops.sum(cell(x)))(X).asnumpy()
        assert np.array_equal(found, np.full((2, 2), 3.0) @ W * 5 * 2)
        handle.remove()
        handle.remove()
        found = grad(lambda x: ops.sum(cell(x)))(X).asnumpy()
        assert np.array_equal(found, np.full((2, 2), 3.0) @ W * 2)


def test_a_backward_hook_gets_the_gradients_of_inputs_and_of_the_output():
    net = nn.Sequential(dense(W), nn.ReLU())
    seen = []

    def note(cell, inputs, output):
        seen.append((type(cell).__name__, [host(g) for g in inputs], host(output)))

    for cell in net:
        cell.register_backward_hook(note)
    value_and_grad(lambda x: ops.sum(net(x)), None, weights=net)(X)
    (relu, (into_relu,), of_relu), (first, into_first, of_first) = seen
    assert (relu, first, into_first) == ("ReLU", "Dense", [None])  # x is not differentiated
    positive = (X @ W.T > 0).astype(np.float32)
    assert np.array_equal(of_relu, np.ones((2, 2)))
    assert np.array_equal(into_relu, positive)
    assert np.array_equal(of_first, positive)


def test_a_compiled_step_is_made_anew_for_its_hooks():
    net = nn.Sequential(dense(W), nn.ReLU())
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    y = np.zeros((2, 2), np.float32)
    step(X, y)
    handle = net[1].register_backward_hook(lambda c, dx, dout: (dx[0] * 0.0,))
    before = net[0].weight.asnumpy()
    step(X, y)
    assert np.array_equal(net[0].weight.asnumpy(), before)
    handle.remove()
    step(X, y)
    assert not np.array_equal(net[0].weight.asnumpy(), before)
    assert len(step.recompilations) == 3


def raising(*_):
    raise ZeroDivisionError("in a hook")


@pytest.mark.parametrize("kind", ["forward_pre_hook", "forward_hook", "backward_hook"])
@pytest.mark.parametrize("jit", [True, False])
def test_a_hook_that_raises_is_named_and_nothing_is_lost(kind, jit):
    net = nn.Sequential(nn.Flatten(), dense(W))
    step = ml.train_step(net, nn.MSELoss(), optim.Adam(net.trainable_params(), lr=0.1))
    handle = getattr(net[1], f"register_{kind}")(raising)
    with ml.context(jit=jit), pytest.raises(ZeroDivisionError) as caught:
        step(X, np.zeros((2, 2), np.float32))
    notes = "\n".join(caught.value.__notes__)
    assert f"{kind.replace('_hook', ' hook').replace('_pre hook', ' pre-hook')} raising" in notes
    assert "layer 1 (Dense)" in notes or not jit
    assert np.array_equal(net[1].weight.asnumpy(), W.T)
    assert int(step.optimizer.parameters_dict()["step"]) == 0
    handle.remove()
    step(X, np.zeros((2, 2), np.float32))
    assert not np.array_equal(net[1].weight.asnumpy(), W.T)


REFUSED = [
    ("backward_hook", lambda c, dx, dout: (dx[0][0],), BpropError, r"\[3\].*float32\[2, 3\]"),
    ("backward_hook", lambda c, dx, dout: dx[0], BpropError, "float32.*tuple of 1"),
    ("backward_hook", lambda c, dx, dout: (ops.cast(dx[0], ml.float64),), BpropError, "float64"),
    ("forward_hook", lambda c, inputs, out: out[0], MinimlError, r"float32\[2\].*float32\[2, 2\]"),
    ("forward_hook", lambda c, inputs, out: 1.0, MinimlError, "float in place of"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fn", "error", "message"), REFUSED)
def test_what_a_hook_returns_fits(kind, fn, error, message):
    net = nn.Sequential(dense(W))
    getattr(net[0], f"register_{kind}")(fn)
    with pytest.raises(error, match=f"{kind.replace('_', ' ')} <lambda> of Dense.*{message}"):
        grad(lambda x: ops.sum(net(x)))(X)


def test_inputs_that_do_not_fit_are_traced_to_their_hook():
    cell = dense(W)
    cell.register_forward_pre_hook(lambda c, inputs: (inputs[0][:, :2],))
    with pytest.raises(ml.errors.ShapeError) as caught:
        cell(X)
    assert "with inputs from the forward pre-hook <lambda> of Dense(3, 2" in "".join(
        caught.value.__notes__
    )


def test_hooks_are_functions():
    with pytest.raises(DeclarationError, match=r"Dense\(3, 2.*got 3 for a forward hook"):
        dense(W).register_forward_hook(3)
    with pytest.raises(DeclarationError, match="hook_gradient got 3"):
        hook_gradient(1.0, 3)
    with pytest.raises(BpropError, match=r"gradient hook <lambda> returned float32\[3\]"):
        grad(lambda x: ops.sum(hook_gradient(x, lambda g: g[0])))(X)


def test_a_copy_of_a_cell_has_no_hooks():
    cell = dense(W)
    cell.register_forward_hook(lambda c, inputs, out: out * 2.0)
    assert np.array_equal(copy.deepcopy(cell)(X).asnumpy(), X @ W.T)
    assert np.array_equal(cell(X).asnumpy(), (X @ W.T) * 2)


@MODES
def test_inputs_that_are_given_by_name_are_seen_too(mode):
    class Scaled(nn.Cell):
        def construct(self, x, bias=0.0, *, scale):
            return x * scale + bias

    cell = Scaled()
    cell.register_forward_pre_hook(lambda cell, inputs: (inputs[0] + 1.0, *inputs[1:]))
    cell.register_backward_hook(lambda cell, dx, dout: (10.0 * dx[0], *dx[1:]))
    for given in ({"scale": 2.0}, {"scale": 2.0, "bias": ml.Tensor(X)}):
        with ml.context(mode=mode):
            value, dx = value_and_grad(lambda x, given=given: ops.sum(cell(x=x, **given)))(X)
        plus = X if "bias" in given else 0.0
        np.testing.assert_allclose(value.asnumpy(), np.sum((X + 1.0) * 2.0 + plus), rtol=1e-6)
        np.testing.assert_array_equal(dx.asnumpy(), np.full_like(X, 20.0))
