"""What used to pass in silence: compiling again and again, float64 by accident, a detached loss."""

import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import GradientArgumentError, MinimlWarning, PerformanceWarning
from miniml.grad import grad, value_and_grad

X = np.ones((4, 3), np.float32)
Y = np.ones((4, 2), np.float32)


class Counts(nn.Cell):
    """A counter in construct."""

    def __init__(self):
        self.dense, self.n = nn.Dense(3, 2), 0

    def construct(self, x):
        self.n += 1
        return self.dense(x)


def step_of(net, loss=None):
    return ml.train_step(net, loss or nn.MSELoss(), optim.SGD(net.trainable_params(), 0.1))


def given(calls):
    """The warnings of each call."""
    found = []
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        found.append([w for w in caught if issubclass(w.category, MinimlWarning)])
    return found


class TestRecompilations:
    @pytest.mark.parametrize(
        ("fn", "arguments", "reason"),
        [
            (step_of(Counts()), [(X, Y)] * 7, "a cell changed (Counts): its mode, an attribute"),
            (ml.jit(lambda x, c: x * c), [(X, 0.5 * i) for i in range(7)], "pass a Tensor for"),
            (ml.jit(ops.sin), [(X[:1, :1].repeat(n, 0),) for n in range(1, 8)], "tensor 0 changed"),
        ],
        ids=["a counter", "a float", "shapes"],
    )
    def test_the_fifth_is_warned_of_once_with_the_reason(self, fn, arguments, reason):
        found = given([lambda a=a: fn(*a) for a in arguments])
        assert [len(w) for w in found] == [0, 0, 0, 0, 1, 0, 0]
        (warning,) = found[4]
        assert warning.category is PerformanceWarning
        assert f"{fn.__name__} is compiled for the fifth time" in str(warning.message)
        assert reason in str(warning.message)
        assert ("dynamic=" in str(warning.message)) == (reason == "tensor 0 changed")
        assert warning.filename == __file__
        assert len(fn.recompilations) == 7

    def test_cells_in_graph_mode_are_warned_of_too(self):
        net = nn.Dense(3, 2)
        with ml.context(mode=ml.GRAPH_MODE):
            found = given([lambda n=n: net(np.ones((n, 3), np.float32)) for n in range(1, 7)])
        assert [len(w) for w in found] == [0, 0, 0, 0, 1, 0]

    def test_what_is_compiled_four_times_is_not(self):
        f = ml.jit(ops.cos)
        assert not any(given([lambda n=n: f(np.ones(n)) for n in (1, 2, 3, 4, 1, 2, 3, 4) * 3]))


class TestFloat64:
    @pytest.mark.parametrize("how", ["eager", "jit", "grad"])
    def test_it_is_named_once_for_a_network(self, how):
        net = nn.Sequential(nn.Dense(3, 4), nn.Sequential(nn.ReLU(), nn.Dense(4, 2)))
        call = {"eager": net, "jit": ml.jit(net), "grad": grad_of(net)}[how]
        found = given([lambda: call(X.astype(float))] * 3)
        assert [len(w) for w in found] == [1, 0, 0]
        assert str(found[0][0].message).startswith("Sequential got float64[")
        assert found[0][0].filename == __file__

    def test_a_step_names_it(self):
        step = step_of(nn.Dense(3, 2))
        assert [len(w) for w in given([lambda: step(X.astype(float), Y)] * 2)] == [1, 0]

    @pytest.mark.parametrize(
        ("net", "x"),
        [
            (nn.Dense(3, 2), X),
            (nn.Embedding(3, 2), np.array([1])),
            (nn.ReLU(), X.astype(float)),
            (nn.MSELoss(), X.astype(float)),
        ],
        ids=repr,
    )
    def test_what_is_meant_is_not_named(self, net, x):
        inputs = (x, x) if isinstance(net, nn.MSELoss) else (x,)
        assert not any(given([lambda: net(*inputs), lambda: ml.jit(net)(*inputs)]))

    def test_a_network_that_casts_is_not_named(self):
        class Casts(nn.Cell):
            def __init__(self):
                self.dense = nn.Dense(3, 2)

            def construct(self, x):
                return self.dense(x.astype(ml.float32))

        assert not any(given([lambda: Casts()(ml.Tensor(X.astype(float)))]))


def grad_of(net):
    return value_and_grad(lambda x: ops.sum(net(x)), None, weights=net)


class TestDetachedLoss:
    def test_a_step_refuses_it_and_changes_nothing(self):
        net = nn.Dense(3, 2)
        before = net.weight.asnumpy()

        def detached(p, y):
            return ops.mean(ops.stop_gradient(p))

        step = step_of(net, detached)
        message = "^train_step's loss function detached reaches none of its 2 parameters, so noth"
        with pytest.raises(GradientArgumentError, match=message):
            step(X, Y)
        assert np.array_equal(before, net.weight.asnumpy())

    def test_a_gradient_by_weights_alone_refuses_it(self):
        net = nn.Dense(3, 2)
        for transform in (grad, value_and_grad):
            derived = transform(blind, argnums=None, weights=net)
            with pytest.raises(GradientArgumentError, match="blind reaches none of its 2 par"):
                ml.jit(derived)(X)

    def test_a_branch_that_was_taken_for_its_values_may_use_no_weight(self):
        net = nn.Dense(3, 2)

        def hinge(x):
            loss = ops.mean(net(x))
            return loss if loss > 1e9 else ops.sum(0.0 * x)

        gradients = grad(hinge, argnums=None, weights=net)(X)
        assert not any(g.asnumpy().any() for g in gradients)

    def test_one_that_is_reached_is_enough(self):
        net = nn.Dense(3, 2)
        gradients = grad(lambda x: ops.sum(net.bias), argnums=None, weights=net)(X)
        assert [float(ops.sum(g)) for g in gradients] == [0.0, 2.0]

    def test_a_gradient_by_arguments_too_gives_zeros(self):
        p = ml.Parameter(X)
        _, by_weight = grad(blind, weights=p)(X)
        assert not by_weight.asnumpy().any()


def blind(x):
    return ops.sum(x)
