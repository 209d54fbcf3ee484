"""Which version of which parameter a value of a graph is."""

from dataclasses import replace

import numpy as np

import miniml as ml
from miniml import ops
from miniml.core.infer import written
from miniml.graph.ir import versions
from miniml.ops import Assign

X = np.ones(3, np.float32)


def traced():
    """p is written twice, q once with what p held at first, r is only read."""
    p, q, r = (ml.Parameter(X, name=name) for name in "pqr")

    def fn(x):
        first = p * 1.0
        ops.assign(p, p + x)
        ops.assign(q, first)
        ops.assign(p, p * r)
        return first

    return ml.trace(fn, X), p


def test_every_version_has_its_parameter_and_every_write_its_target():
    graph, p = traced()
    found = versions(graph)
    assigns = [n for n in graph.nodes if isinstance(n.primitive, Assign)]
    assert [found.writes[n].name for n in assigns] == ["p", "q", "p"]
    assert len(found.writes) == 3
    chain = [v for v, owner in found.parameter.items() if owner is p]
    assert chain == [graph.state[0][1], assigns[0].outputs[0], assigns[2].outputs[0]]
    assert {owner.name for owner in found.parameter.values()} == {"p", "q", "r"}
    assert {owner.name: v for owner, v in found.final} == {
        "p": assigns[2].outputs[0],
        "q": assigns[1].outputs[0],
    }
    assert not found.again


def test_a_second_write_to_one_version_is_found():
    graph, _ = traced()
    first = graph.state[0][1]
    last = graph.nodes[-1]
    wrong = replace(last, inputs=(first, *last.inputs[1:]))
    assert versions(replace(graph, nodes=(*graph.nodes[:-1], wrong))).again == {wrong}


def test_a_call_writes_to_a_parameter_that_comes_first():
    p = ml.Parameter(X)
    assert written(Assign(), (p, X)) is p
    assert written(Assign(), (X, p)) is None
    assert written(ops.Add(), (p, X)) is None
