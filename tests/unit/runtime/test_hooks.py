"""Hooks of nodes: what they see, eagerly and in programs, and that they change nothing."""

import re

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import DeclarationError, NonFiniteError
from miniml.grad import grad

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
Y = np.arange(8) % 2
PROVIDERS = pytest.mark.parametrize("providers", [("miniml",), ("cc",)], ids=str)


def step_of_a_net(optimizer=optim.Adam):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    return ml.train_step(net, nn.CrossEntropyLoss(), optimizer(net.trainable_params(), lr=0.1))


def names(seen):
    return [call.primitive.name for call in seen]


def test_each_eager_call_is_seen_before_and_after():
    log = []
    with ml.hooks(
        before=lambda call: log.append((call.primitive.name, len(call.outputs))),
        after=lambda call: log.append((call.primitive.name, call.outputs[0].asnumpy())),
    ):
        y = ops.exp(X)
        grad(lambda x: ops.sum(x * x))(X)
    ops.exp(X)
    assert log[0] == ("Exp", 0)
    assert np.array_equal(log[1][1], y.asnumpy())
    assert [name for name, _ in log[::2]] == [
        "Exp",
        "Mul",
        "Sum",
        "BroadcastTo",
        "Mul",
        "Mul",
        "Add",
    ]


@PROVIDERS
def test_each_node_of_a_program_is_seen_with_its_values(providers):
    with ml.context(providers=providers):
        fn = ml.jit(lambda x: ops.matmul(ops.exp(x), X[:, :3].T) * 2.0)
        expected = fn(X).asnumpy()
        seen = []
        with ml.hooks(after=seen.append):
            found = fn(X).asnumpy()
        assert len(fn.recompilations) == 1
        fn(X)
    assert np.array_equal(found, expected)
    last = seen[-1].outputs[0]
    assert np.array_equal(last.asnumpy(), expected)
    if providers == ("miniml",):
        assert names(seen) == ["Exp", "MatMul", "Mul"]
    first = seen[0].inputs[0]
    assert np.array_equal(first.asnumpy(), X)
    assert "test_hooks.py" in str(seen[0])


@PROVIDERS
def test_a_step_under_hooks_is_the_same_step(providers):
    with ml.context(providers=providers):
        plain, hooked = step_of_a_net(), step_of_a_net()
        seen = []
        for _ in range(3):
            expected = float(plain(X, Y))
            with ml.hooks(after=seen.append):
                assert float(hooked(X, Y)) == expected
        assert float(hooked(X, Y)) == float(plain(X, Y))
    assert len(hooked.recompilations) == 1
    layers = {call.where.layer for call in seen}
    assert {"layer 2 (Dense)", "CrossEntropyLoss", "Adam"} <= layers
    assert any(call.where.gradient for call in seen)
    for p, q in zip(plain.net.get_parameters(), hooked.net.get_parameters(), strict=True):
        assert np.array_equal(p.asnumpy(), q.asnumpy())


def test_eager_layers_are_named():
    net = nn.Sequential(nn.Dense(3, 4), nn.Sequential(nn.Tanh()))
    net(X)
    seen = []
    with ml.hooks(after=seen.append):
        net(X)
        grad(lambda x: ops.sum(net(x)))(X)
    assert [c.where.layer for c in seen[:3]] == ["layer 0 (Dense)"] * 2 + ["layer 1.0 (Tanh)"]
    assert names(seen)[2] == "Tanh"
    assert {c.where.layer for c in seen if c.where.gradient} >= {"layer 0 (Dense)"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("jit", [True, False])
@PROVIDERS
def test_a_hook_that_raises_is_named_and_the_step_has_changed_nothing(when, jit, providers):
    def stop(call):
        if (call.where.layer == "Adam" and call.outputs == ()) or when == "after":
            raise ZeroDivisionError("in a hook")

    with ml.context(jit=jit, providers=providers):
        step = step_of_a_net()
        float(step(X, Y))
        before = [p.asnumpy() for p in step.optimizer.written()]
        with ml.hooks(**{when: stop}), pytest.raises(ZeroDivisionError) as caught:
            step(X, Y)
        for p, old in zip(step.optimizer.written(), before, strict=True):
            assert np.array_equal(p.asnumpy(), old)
        notes = "\n".join(caught.value.__notes__)
        assert re.search(rf"in the hook stop, {when} \w+ in .* at .*test_hooks\.py", notes)
        assert "kernel " not in notes
        step(X, Y)
        assert not np.array_equal(step.net[0].weight.asnumpy(), before[0])


def test_what_a_hook_computes_is_seen_by_nobody():
    seen = []

    def largest(call):
        seen.append(float(ops.max(ops.abs(call.outputs[0]))))

    with ml.hooks(after=largest):
        ops.exp(X)
        ml.jit(ops.exp)(X)
    assert seen == [np.exp(X).max()] * 2


def test_hooks_nest_and_end_with_their_block():
    outer, inner = [], []
    with ml.hooks(after=outer.append):
        with ml.hooks(after=inner.append), ml.context(jit=False):
            ops.exp(X)
        ops.sin(X)
    ops.cos(X)
    assert (names(outer), names(inner)) == (["Exp", "Sin"], ["Exp"])


def test_the_search_for_nan_is_seen_by_hooks_too():
    seen = []
    with ml.context(check_nan=True), ml.hooks(after=seen.append):
        fn = ml.jit(lambda x: ops.log(ops.exp(x) - 1e9))
        with pytest.raises(NonFiniteError, match="Log made NaN"):
            fn(X)
        with pytest.raises(NonFiniteError, match="Log made NaN"):
            ops.log(ops.sub(X, 1e9))
    assert names(seen) == ["Exp", "Sub", "Sub"]


def test_a_scan_and_a_branch_are_one_call():
    fn = ml.jit(lambda x: ops.scan(lambda c, _: (ops.tanh(c), c), x, length=3)[0])
    seen = []
    with ml.hooks(after=seen.append):
        fn(X)
    assert names(seen) == ["Scan"]


def test_decorators_and_bad_arguments():
    seen = []

    @ml.hooks(after=seen.append)
    def f(x):
        return ops.exp(x)

    f(X)
    f(X)
    assert names(seen) == ["Exp", "Exp"]
    with pytest.raises(DeclarationError, match="hooks got 3"):
        ml.hooks(after=3)
    with pytest.raises(DeclarationError, match="neither before= nor after="):
        ml.hooks()
