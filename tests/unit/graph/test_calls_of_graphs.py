"""A graph is a function of tensors."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import ArityError, DTypeError, ShapeError
from miniml.grad import grad, value_and_grad

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _sum_and_product(x, y):
    return ops.add(x, y), ops.mul(x, y)


def test_it_computes_what_the_function_does():
    graph = ml.trace(_sum_and_product, X, X)
    total, product = graph(X, ml.Tensor(X))
    assert np.array_equal(total, X + X)
    assert np.array_equal(product, X * X)
    assert np.array_equal(ml.trace(ops.exp, X)(X), np.exp(X))


def test_it_is_compiled_once():
    graph = ml.trace(_sum_and_product, X, X)
    for _ in range(3):
        graph(X, X)
    assert graph._run._compiled.recompilations == ["first call"]


def test_warnings_call_it_by_its_name():
    def doubled(x):
        return x * 2.0

    graph, x = ml.trace(doubled, np.ones(2, np.float32)), np.ones(2, np.float32)

    def call(threads):
        with ml.context(threads=threads):
            graph(x)

    for threads in range(1, 5):
        call(threads)
    with pytest.warns(ml.errors.PerformanceWarning, match="^doubled is compiled for the fifth"):
        call(5)


def test_inputs_go_by_name():
    graph = ml.trace(lambda x, y: x - y, X, X)
    one = np.ones_like(X)
    assert np.array_equal(graph(y=one, x=X), X - one)
    assert np.array_equal(graph(X, y=one), X - one)


@pytest.mark.parametrize(
    ("args", "named", "error", "message"),
    [
        ((X,), {}, ArityError, "got 1 inputs by position; it takes x: float32"),
        ((X, X, X), {}, ArityError, "got 3 inputs by position"),
        ((X, X), {"y": X}, ArityError, "by name y; it takes x"),
        ((X,), {"z": X}, ArityError, "by name z; it takes x"),
        ((X, X[:1]), {}, ShapeError, r"takes y: float32\[2, 3\]; got float32\[1, 3\]"),
        ((X, X.astype(int)), {}, DTypeError, r"takes y: float32\[2, 3\]; got int64\[2, 3\]"),
        ((X, 2.0), {}, DTypeError, "takes y: .* got 2.0 of type float; give a Tensor"),
    ],
)
def test_other_arguments_are_refused_by_name(args, named, error, message):
    graph = ml.trace(_sum_and_product, X, X)
    with pytest.raises(error, match=message):
        graph(*args, **named)


DTYPES = [ml.bool_, *map(np.dtype, "bBhHiIlLefd"), ml.bfloat16]
FLOATS = [np.dtype("e"), np.dtype("f"), np.dtype("d"), ml.bfloat16]
# Python's numbers, and what takes them: as beside a tensor, where floats are for floats only.
PYTHON = [(True, DTYPES), (1, DTYPES[1:]), (100, DTYPES[1:]), (1.5, FLOATS), (-0.5, FLOATS),
          (300, [d for d in DTYPES[1:] if d.itemsize > 1]),
          (-1, [d for d in DTYPES[1:] if d.kind != "u"])]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_are_taken_as_arrays_without_axes(dtype):
    graph = ml.trace(lambda x, y: (x, y), np.zeros((), dtype), X)
    for other in DTYPES:
        number = np.ones((), other)[()]
        assert isinstance(number, np.generic)
        if other == dtype:
            assert graph(number, X)[0].asnumpy() == graph(np.ones((), other), X)[0].asnumpy() == 1
        else:
            with pytest.raises(DTypeError, match=rf"takes x: {dtype}\[\]; got {other}\[\]"):
                graph(number, X)
    for number, takers in PYTHON:
        if dtype in takers:
            out, _ = graph(number, X)
            assert out.dtype == dtype
            assert float(out) == number
        else:
            with pytest.raises(DTypeError, match=f"got {number} of type .*a number that it can"):
                graph(number, X)
    with pytest.raises(ShapeError, match=r"takes y: float32\[2, 3\]; got float32\[\]"):
        graph(np.ones((), dtype), np.float32(1))


def test_its_calls_become_part_of_other_traces():
    graph = ml.trace(lambda x: ops.sum(ops.sin(x)), X)
    np.testing.assert_allclose(grad(graph)(X), np.cos(X), rtol=1e-6)
    twice = ml.jit(lambda x: graph(x) * 2.0)
    np.testing.assert_allclose(twice(X), 2 * np.sin(X).sum(), rtol=1e-6)
    assert "Sin()" in str(ml.trace(graph, X))


def test_its_parameters_are_trained():
    net = nn.Dense(3, 1)
    graph = ml.trace(net, X)
    assert graph.trainable_params() == net.trainable_params()
    _, by_graph = value_and_grad(lambda x: ops.sum(graph(x) ** 2.0), weights=graph)(X)
    _, by_net = value_and_grad(lambda x: ops.sum(net(x) ** 2.0), weights=net)(X)
    for one, other in zip(by_graph[1], by_net[1], strict=True):
        assert np.array_equal(one, other)
    net.trainable_params()[0].set_data(np.zeros((3, 1), np.float32))
    assert np.array_equal(graph(X), net(X))


def test_it_is_copied_and_pickled_without_what_was_compiled():
    graph = ml.trace(ops.exp, X)
    graph(X)
    assert graph.key
    for other in (deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert "_run" not in other.__dict__
        assert np.array_equal(other(X), graph(X))
