"""Keys of calls, and functions traced into graphs."""

from typing import NamedTuple

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.abstract import Abstract
from miniml.errors import DeviceError, GraphError, TracedValueError
from miniml.graph.ir import flatten_arguments
from miniml.graph.tracing import trace_call

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def key(*args):
    return flatten_arguments(args)[1]


def test_equal_arguments_have_equal_keys():
    for args in [(X, 1), ({"a": X, "b": [1.5, None]},), ("mean", np.dtype("f")), ((), 2, True)]:
        assert key(*args) == key(*args)
        assert hash(key(*args)) == hash(key(*args))
    assert key(X) == key(X + 1) == key(ml.Tensor(X))


def test_static_values_that_python_calls_equal_have_their_own_keys():
    values = (1, 1.0, True, 0, 0.0, -0.0, False, None, "1", (1,), [1], np.dtype("f"), np.dtype("d"))
    assert len({key(v) for v in values}) == len(values)


def test_the_place_of_a_tensor_and_the_structure_are_in_the_key():
    assert key(X, 1) != key(1, X)
    assert key((X, X)) != key([X, X])
    assert key({"a": X}) != key({"b": X})


def test_a_parameter_is_static_and_counts_by_identity():
    p, q = ml.Parameter(X, name="w"), ml.Parameter(X, name="w")
    assert flatten_arguments((p,))[0] == []
    assert key(p) == key(p)
    assert key(p) != key(q)


def test_leaves_are_tensors_and_arrays():
    leaves, _, rebuild = flatten_arguments(({"a": X, "b": 2}, [np.float64(3.0), ml.Tensor(X)]))
    assert [type(leaf) for leaf in leaves] == [np.ndarray, np.ndarray, ml.Tensor]
    assert [leaf.dtype.name for leaf in leaves] == ["float32", "float64", "float32"]
    assert rebuild([10, 20, 30]) == ({"a": 10, "b": 2}, [20, 30])


def test_a_static_leaf_that_cannot_be_hashed_is_refused():
    with pytest.raises(GraphError, match="set, which is neither a tensor nor hashable"):
        flatten_arguments((X, {1, 2}))


def test_results_keep_their_structure_and_their_static_leaves():
    def fn(batch, scale):
        return {"y": batch["x"] * scale, "pair": (scale, None), "n": np.ones(2)}

    (x,), _, arranged = flatten_arguments((({"x": X}, 2.0), {}))
    graph, rebuild, trace = trace_call(fn, arranged, [Abstract(x.shape, x.dtype)], "cpu")
    assert len(graph.inputs) == 1
    assert len(graph.outputs) == 2
    assert graph.name == "fn"
    assert trace.ended
    result = rebuild(["first", "second"])
    assert result == {"n": "first", "pair": (2.0, None), "y": "second"}
    assert rebuild([1, 2]) == {"n": 1, "pair": (2.0, None), "y": 2}


def test_trace_prints_the_program_as_written():
    graph = ml.trace(lambda x, n: ops.exp(x) * n, X, 2.0)
    assert str(graph) == (
        "graph(%0: float32[2, 3]):\n"
        "  %1: float32[2, 3] = Exp() %0\n"
        "  %2: float32[2, 3] = Mul() %1, 2.0\n"
        "  return %2"
    )


def test_trace_computes_nothing_and_refuses_to_branch_on_a_value():
    with pytest.raises(TracedValueError, match=r"ops\.cond"):
        ml.trace(lambda x: x if x.sum() > 0 else -x, X)


def test_a_parameter_among_the_arguments_is_state():
    w = ml.Parameter(np.ones(3, np.float32), name="w")

    def fn(p, x):
        ops.assign(p, p * x)
        return p

    assert str(ml.trace(fn, w, X[0])) == (
        "fn(%0: float32[3], state %w: float32[3]):\n"
        "  %1: float32[3] = Mul() %w, %0\n"
        "  %2: float32[3] = Assign() %w, %1\n"
        "  return %2"
    )
    np.testing.assert_array_equal(w.asnumpy(), np.ones(3))


def test_a_trace_inside_a_trace_stands_alone():
    inner = []

    def outer(x):
        inner.append(ml.trace(lambda y: y * 2.0, x))
        return x + 1.0

    graph = ml.trace(outer, X)
    assert [n.primitive.name for n in graph.nodes] == ["Add"]
    assert [n.primitive.name for n in inner[0].nodes] == ["Mul"]


class Point(NamedTuple):
    x: object
    y: object


def test_named_tuples_and_functions_pass_through():
    leaves, _, rebuild = flatten_arguments((Point(X, ops.exp), len))
    assert len(leaves) == 1
    assert rebuild([0]) == (Point(0, ops.exp), len)


def test_an_absent_device_is_refused():
    with ml.context(device_target="cuda"), pytest.raises(DeviceError):
        ml.trace(ops.exp, X)
