"""Graphs traced again: through primitives, with the versions of parameters kept apart."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.graph.ir import verify
from miniml.graph.passes import run_passes
from miniml.graph.record import replay

START = np.array([1.0, 2.0, 3.0], np.float32)
X = np.array([10.0, 20.0, 30.0], np.float32)


def versions(w):
    """A function that uses a parameter before, between and after two assignments."""

    def fn(x):
        before = ops.reshape(w, (3,))
        ops.assign(w, w + x)
        between = w * 1.0
        ops.assign(w, w * 2.0)
        return before, between, w + before

    return fn


def expected():
    return [START, START + X, 2 * (START + X) + START]


@pytest.mark.parametrize("change", [lambda graph: graph, run_passes], ids=["traced", "passed"])
def test_a_replay_reads_and_writes_every_version(change):
    w = ml.Parameter(START, name="w")
    graph = change(ml.trace(versions(w), X))
    outs = [o.asnumpy() for o in replay(graph, [ml.Tensor(X)])]
    np.testing.assert_array_equal(outs, expected())
    np.testing.assert_array_equal(w.asnumpy(), 2 * (START + X))


def test_an_inlined_graph_is_the_program_it_was():
    w = ml.Parameter(START, name="w")
    inner = run_passes(ml.trace(versions(w), X))
    outer = ml.trace(lambda x: replay(inner, [x]), X)
    assert run_passes(verify(outer), verified=True) == inner
    outs = [o.asnumpy() for o in replay(outer, [ml.Tensor(X)])]
    np.testing.assert_array_equal(outs, expected())
    np.testing.assert_array_equal(w.asnumpy(), 2 * (START + X))


@pytest.mark.parametrize("compile", [lambda fn: fn, ml.jit], ids=["eager", "jit"])
def test_eager_and_compiled_calls_agree_on_versions(compile):
    w = ml.Parameter(START, name="w")
    outs = [np.array(o) for o in compile(versions(w))(X)]
    np.testing.assert_array_equal(outs, expected())
    np.testing.assert_array_equal(w.asnumpy(), 2 * (START + X))


def test_gradients_pass_through_a_replayed_graph():
    graph = ml.trace(lambda x: ops.sum(ops.sin(x) * 2.0), X)
    slope = ml.grad.grad(lambda x: replay(graph, [x])[0])(X)
    np.testing.assert_allclose(slope.asnumpy(), 2 * np.cos(X), rtol=1e-6)
