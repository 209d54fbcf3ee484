"""Passes together: order, registration, planted faults, values, and work linear in the nodes."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import miniml as ml
from miniml import ops, register_pass, unregister_pass
from miniml.core.abstract import Abstract
from miniml.errors import DuplicateError, GraphError
from miniml.graph.ir import Var, text, verify
from miniml.graph.passes import PIPELINE, pipeline, run_passes
from miniml.graph.record import replay

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5


@pytest.fixture(autouse=True)
def _no_pass_is_left_behind():
    before = pipeline()
    yield
    for name, _ in pipeline():
        unregister_pass(name)
    assert pipeline() == before == PIPELINE


def names():
    return [p.name for p in pipeline()]


def same(graph):
    return graph


def other(graph):
    return graph


def test_the_pipeline_can_be_read():
    expected = "fold share loops simplify scale slices stack lookups prune".split()
    assert [p.name for p in PIPELINE] == expected
    assert [p.fn.__name__ for p in PIPELINE] == expected


def test_user_passes_run_where_they_say_in_the_order_of_registration():
    for name, position in [
        ("c", "end"), ("a", "begin"), ("s1", "before:share"), ("s2", "before:share"),
        ("f", "after:fold"), ("p", "after:prune"), ("b", "begin"),
    ]:  # fmt: skip
        register_pass(name, same, position)
    assert (
        names()
        == "a b fold f s1 s2 share loops simplify scale slices stack lookups prune p c".split()
    )
    unregister_pass("s1")
    unregister_pass("s1")
    assert (
        names() == "a b fold f s2 share loops simplify scale slices stack lookups prune p c".split()
    )


def test_a_pass_registered_again_replaces_the_first_and_keeps_its_turn():
    register_pass("a", same)
    register_pass("b", same)
    register_pass("a", same)
    assert names()[-2:] == ["a", "b"]
    register_pass("a", same, "begin")
    assert names()[0] == "a"


def test_a_name_that_is_taken_is_refused():
    register_pass("a", same)
    with pytest.raises(DuplicateError, match="a pass 'a' already"):
        register_pass("a", other)
    with pytest.raises(DuplicateError, match="a pass 'fold' already"):
        register_pass("fold", same)


def test_an_unknown_position_or_name_is_refused_with_the_known_ones():
    with pytest.raises(GraphError, match="'before:cse' is unknown; use begin, before:fold"):
        register_pass("a", same, "before:cse")
    known = "fold, share, loops, simplify, scale, slices, stack, lookups, prune"
    with pytest.raises(GraphError, match=f"names cse; the passes are {known}"):
        run_passes(ml.trace(ops.exp, X), ("cse",))


def test_a_pass_can_be_switched_off_by_name():
    def fn(x):
        return (ops.exp(x) + ops.exp(x)) * (ops.full((), 1.0) + 0.0)

    graph = ml.trace(fn, X)
    kept = {
        "fold": ["Exp", "Add", "Full"],
        "share": ["Exp", "Exp", "Add"],
        "simplify": ["Exp", "Add", "Mul"],
        "prune": ["Exp", "Add"],
    }
    for name, nodes in kept.items():
        after = run_passes(graph, (name,), verified=True)
        assert sorted(n.primitive.name for n in after.nodes)[:9] is not None
        if name in ("share", "simplify"):
            assert [n.primitive.name for n in after.nodes] == nodes
    everything = [p.name for p in PIPELINE]
    assert run_passes(graph, everything, verified=True) is graph


def test_a_user_pass_sees_every_graph_that_is_compiled():
    seen = []

    def spy(graph):
        seen.append(str(graph))
        return graph

    register_pass("spy", spy, "begin")
    run_passes(ml.trace(lambda x: x + 0.0, X))
    assert seen == ["graph(%0: float32[2, 3]):\n  %1: float32[2, 3] = Add() %0, 0.0\n  return %1"]


def test_a_pass_that_returns_no_graph_is_named():
    register_pass("lost", lambda graph: None)
    with pytest.raises(GraphError, match="pass 'lost' returned None; a pass returns a Graph"):
        run_passes(ml.trace(ops.exp, X))


# Planted faults: what a wrong pass may do, and what the verification then says.


def _with(graph, index, **changes):
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def drops_a_node(graph):
    return replace(graph, nodes=graph.nodes[1:])


def swaps_nodes(graph):
    return replace(graph, nodes=(graph.nodes[1], graph.nodes[0], *graph.nodes[2:]))


def changes_a_shape(graph):
    return _with(graph, 1, inputs=(graph.nodes[1].inputs[0], _constant(np.zeros((4, 2, 3), "f"))))


def forgets_a_constant(graph):
    return _with(graph, 1, inputs=(graph.inputs[0], _constant(np.zeros((2, 3), "f"))))


def changes_a_dtype(graph):
    return _with(graph, 0, primitive=ops.Cast(ml.float64))


def drops_an_assignment(graph):
    return replace(graph, nodes=graph.nodes[:-1])


def repeats_an_assignment(graph):
    last = graph.nodes[-1]
    again = replace(
        last, inputs=(last.outputs[0], last.inputs[1]), outputs=(Var(last.outputs[0].abstract),)
    )
    return replace(graph, nodes=(*graph.nodes, again))


def exchanges_assignments(graph):
    return replace(graph, nodes=(*graph.nodes[:-2], graph.nodes[-1], graph.nodes[-2]))


def assigns_to_a_value(graph):
    return _with(graph, -1, inputs=(graph.nodes[0].outputs[0], graph.nodes[-1].inputs[1]))


def drops_an_output(graph):
    return replace(graph, outputs=())


def drops_an_input(graph):
    return replace(graph, inputs=graph.inputs[:1])


def _constant(value):
    return Var(Abstract(value.shape, value.dtype, value))


FAULTS = {
    drops_a_node: "is used before it is defined",
    swaps_nodes: "is used before it is defined",
    changes_a_shape: "is used before it is defined",
    forgets_a_constant: "input 1, %\\?, is used before it is defined",
    changes_a_dtype: r"output %\d: float32\[2, 3\] is inferred to be float64\[2, 3\]",
    drops_an_assignment: "has other effects than before",
    repeats_an_assignment: "has other effects than before",
    exchanges_assignments: "has other effects than before",
    assigns_to_a_value: "has other effects than before",
    drops_an_output: "has other outputs than before",
    drops_an_input: "has other inputs than before",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_the_verification_finds_a_broken_pass_and_names_it(fault):
    w, v = ml.Parameter(X, name="w"), ml.Parameter(X, name="v")

    def fn(x, unused):
        y = ops.exp(x) * w
        ops.assign(w, y)
        ops.assign(v, y)
        return y

    graph = ml.trace(fn, X, X)
    assert str(run_passes(graph, verified=True))
    register_pass("broken", fault)
    with pytest.raises(
        GraphError, match=f"pass 'broken' broke a rule of graphs: .*{FAULTS[fault]}"
    ):
        run_passes(graph, verified=True)


# Values: whatever the program, passes change nothing but rounding.

UNARY = {
    "neg": ops.neg,
    "sin": ops.sin,
    "tanh": ops.tanh,
    "transpose": ops.transpose,
    "reshape": lambda x: ops.reshape(x, x.shape[::-1]),
    "widen": lambda x: ops.cast(ops.cast(x, ml.float64), ml.float32),
    "sum": lambda x: ops.broadcast_to(ops.sum(x, 0, keepdims=True), x.shape),
    "sum_to": lambda x: ops.sum_to(x, x.shape),
    "pow": lambda x: x**1,
    "square": lambda x: ops.tanh(x) ** 2.0,
    "masked": lambda x: ops.where(ops.full(x.shape, True), x, 7.0),
    "greater": lambda x: ops.where(x > 0, x, x * 0.5),
}
BINARY = {"add": ops.add, "sub": ops.sub, "mul": ops.mul, "maximum": ops.maximum}
NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5)


@st.composite
def programs(draw):
    """A list of steps, each on values made before: numbers below refer to them, modulo."""
    step = st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 30)),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 30), st.integers(0, 30)),
        st.tuples(st.just("number"), st.sampled_from(NUMBERS), st.booleans()),
    )
    return draw(st.lists(step, min_size=1, max_size=14))


def run(program, x, w):
    values = [x, ops.reshape(w, (2, 3))]
    for name, *places in program:
        if name == "number":
            number, many = places
            values.append(ops.full((2, 3) if many else (), number))
        elif name in UNARY:
            values.append(
                ops.reshape(UNARY[name](_matrix(values[places[0] % len(values)])), (2, 3))
            )
        else:
            values.append(BINARY[name](*(values[p % len(values)] for p in places)))
    ops.assign(w, _matrix(values[-1]))
    return values[-1], values[len(values) // 2] + w


def _matrix(x):
    return ops.broadcast_to(x, (2, 3)) if x.shape != (2, 3) else x


@given(programs())
def test_passes_keep_the_values_of_any_program(program):
    w = ml.Parameter(X * 2 + 1, name="w")
    graph = ml.trace(lambda x: run(program, x, w), X)
    after = run_passes(graph, verified=True)
    assert len(after.nodes) <= len(graph.nodes)
    expected = None
    for call in (
        lambda x: run(program, x, w),
        lambda x: replay(graph, [x]),
        lambda x: replay(after, [x]),
        ml.jit(lambda x: run(program, x, w)),
    ):
        w.set_data(X * 2 + 1)
        found = [*(o.asnumpy() for o in call(ml.Tensor(X))), w.asnumpy()]
        expected = expected or found
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
            assert a.dtype == b.dtype


# Work: counted in calls, not in seconds, so the test is exact.


def calls_of(fn):
    """How many calls of functions, Python's and C's, `fn` makes."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        fn()
    finally:
        sys.setprofile(None)
    return count


def chain(length):
    def fn(x):
        for _ in range(length // 5):
            x = -ops.sin(x * 1.0 + 0.5) + ops.full((3,), 1.0)
        return x

    return fn


STAGES = {
    "trace": lambda fn, graph: ml.trace(fn, np.ones(3, np.float32)),
    **{p.name: lambda fn, graph, p=p: p.fn(graph) for p in PIPELINE},
    "verify": lambda fn, graph: verify(graph),
    "text": lambda fn, graph: text(graph),
    "key": lambda fn, graph: hash(replace(graph)),
    "all passes": lambda fn, graph: run_passes(graph, verified=True),
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_work_is_linear_in_the_nodes(stage):
    counts = []
    for length in (200, 2000):
        fn = chain(length)
        graph = ml.trace(fn, np.ones(3, np.float32))
        STAGES[stage](fn, graph)  # caches are warm
        counts.append(calls_of(lambda fn=fn, graph=graph: STAGES[stage](fn, graph)))
    assert counts[1] / counts[0] < 11


def test_a_chain_longer_than_the_recursion_limit_passes_through():
    graph = ml.trace(chain(5 * sys.getrecursionlimit()), np.ones(3, np.float32))
    after = run_passes(graph, verified=True)
    assert len(after.nodes) > 3 * sys.getrecursionlimit()
    assert len(str(after).splitlines()) > len(after.nodes)
    assert hash(after) == hash(replace(after))
