"""What verify refuses of a graph, in whose words."""

from dataclasses import replace

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.abstract import Abstract
from miniml.errors import GraphError
from miniml.graph.ir import Graph, Node, Var, verify
from miniml.ops import Unary

X = np.zeros((2, 3), np.float32)


class Body(Unary):
    """A graph, or several, as an attribute."""

    bodies: object


class Shout(Unary):
    """An effect on no parameter."""

    effect = "state"


def weight():
    return ml.Parameter(X, name="w")


def traced(w):
    def fn(x):
        y = ops.exp(x) * w + np.ones((1, 3), np.float32)
        ops.assign(w, y)
        ops.assign(w, w * 2.0)
        return y, ops.argmax(y, 0)

    return ml.trace(fn, X)


def with_node(graph, index, **changes):
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def typed(shape, dtype="float32", value=None):
    return Var(Abstract(shape, np.dtype(dtype), value))


def test_a_traced_graph_keeps_all_rules():
    graph = traced(weight())
    assert verify(graph) is graph
    verify(ml.trace(lambda: 1))
    verify(ml.trace(lambda x: (x, x), X))
    verify(ml.trace(Body((graph, ())), X))
    verify(ml.trace(lambda x: Shout()(x) + 1.0, X))


def test_an_undefined_input_is_named_with_the_users_line():
    graph = traced(weight())
    broken = with_node(graph, 0, inputs=(typed((2, 3)),))
    with pytest.raises(GraphError, match=r"graph 'fn', %1: .* = Exp\(\) %\?: input 0") as caught:
        verify(broken)
    (note,) = caught.value.__notes__
    assert "y = ops.exp(x) * w" in note
    assert "^^^^^^^^^^" in note


def broken_graphs():
    """name -> (graph, what the error says)."""
    w = weight()
    graph = traced(w)
    exp, mul, add, first, double, second, top = graph.nodes
    (x,), (state,) = graph.inputs, [v for _, v in graph.state]
    array, scalar = graph.constants
    nodes = graph.nodes
    yield "order", replace(graph, nodes=(mul, exp, *nodes[2:])), "before it is defined"
    yield "twice", replace(graph, nodes=(exp, *nodes)), "defined a second time"
    yield "input twice", replace(graph, inputs=(x, x)), "defined a second time"
    yield "dropped", replace(graph, nodes=nodes[1:]), "before it is defined"
    yield "output", replace(graph, outputs=(typed((2, 3)),)), "returns a value that nothing defines"
    yield (
        "shape",
        with_node(graph, 0, outputs=(typed((3, 2)),)),
        r"is inferred to be float32\[2, 3\]",
    )
    yield "dtype", with_node(graph, 6, outputs=(typed((3,)),)), r"is inferred to be int64\[3\]"
    yield "count", with_node(graph, 0, outputs=(*exp.outputs, typed((2, 3)))), "inference gives 1"
    yield "refused", with_node(graph, 1, inputs=(exp.outputs[0], typed((4,)))), "before it is def"
    bad = typed((4,), value=np.zeros(4, np.float32))
    refused = replace(
        with_node(graph, 2, inputs=(mul.outputs[0], bad)), constants=(array, scalar, bad)
    )
    yield "refused by inference", refused, "inference refuses the node: Add cannot broadcast"
    yield "constant gone", replace(graph, constants=(scalar,)), "before it is defined"
    yield "no value", replace(graph, constants=(array, scalar, typed(()))), "has no value"
    wrong = typed((2,), value=np.zeros(2))
    yield "value", replace(graph, constants=(array, scalar, wrong)), r"value of float64\[2\]"
    yield "made constant", with_node(graph, 0, outputs=(typed((2, 3), value=X),)), "carries a const"
    yield (
        "state type",
        replace(graph, state=((w, typed((3,))),)),
        "stands for 'w', which is float32",
    )
    pairs = ((w, state), (w, typed((2, 3))))
    yield "one parameter twice", replace(graph, state=pairs), "one parameter twice"
    stale = with_node(graph, 5, inputs=(state, double.outputs[0]))
    yield "stale version", stale, "writes %w, which was overwritten before"
    inner = Node(Body(replace(graph, nodes=())), (x,), (typed((2, 3)),))
    yield "inner", replace(graph, nodes=(*nodes, inner)), "in bodies: graph 'fn' returns a value"
    pair = Node(Body((Graph((), (), ()), replace(graph, nodes=()))), (x,), (typed((2, 3)),))
    yield "inner of two", replace(graph, nodes=(*nodes, pair)), r"in bodies\[1\]: graph 'fn'"
    assert first.primitive == second.primitive == ops.Assign()
    assert top.primitive.name == "ArgMax"
    assert add.primitive == ops.Add()


@pytest.mark.parametrize(
    ("graph", "says"), [pytest.param(g, s, id=name) for name, g, s in broken_graphs()]
)
def test_every_broken_rule_is_found(graph, says):
    with pytest.raises(GraphError, match=says):
        verify(graph)
