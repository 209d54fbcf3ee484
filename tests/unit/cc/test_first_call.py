"""What the first call of an unrolled loop costs does not grow with what its steps repeat."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc.native import NativeKernel
from miniml.backends.selection import Target, get_device
from miniml.graph.passes import run_passes
from miniml.runtime import fuse
from miniml.runtime.launch import prepare
from miniml.runtime.lowering import lower
from tests.unit.cc import programs

CC = Target(get_device("cpu"), ("cc",))
W = np.ones((8, 32), np.float32)


def loss(w, x):
    """Steps of an LSTM without input weights."""
    h = c = ops.zeros((4, 8))
    for t in range(len(x)):
        i, g, o, f = ops.split(h @ w + x[t], 4, 1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
    return ops.sum(h)


def lowered(steps):
    x = np.ones((steps, 4, 32), np.float32)
    return lower(run_passes(ml.trace(ml.grad.value_and_grad(loss), W, x)), CC)


def sources(graph):
    """The C functions of a graph."""
    found = set()
    for n in graph.nodes:
        takes, gives = (tuple(v.abstract for v in vs) for vs in (n.inputs, n.outputs))
        made = prepare(n.primitive, takes, gives, n.attrs, CC).instance
        if isinstance(made, NativeKernel):
            found.add(made.source)
    return found


def test_equal_steps_are_few_functions():
    few, many = lowered(6), lowered(18)
    assert len(many.nodes) > 2 * len(few.nodes)
    assert len(sources(many)) <= len(sources(few)) + 2  # of longer sums
    assert len(sources(few)) < 20


@pytest.mark.parametrize(("name", "limit"), [("Nest", 20), ("tail", 4)])
def test_questions_about_equal_steps_are_asked_once(monkeypatch, name, limit):
    asked, question = [], getattr(fuse, name)
    monkeypatch.setattr(fuse, name, lambda *args: asked.append(1) or question(*args))
    lowered(6)
    before = len(asked)
    lowered(18)
    assert 0 < len(asked) - before <= before + limit


@pytest.mark.parametrize("seed", range(12))
def test_groups_know_all_that_runs_before_them(seed):
    """Against a search through the finished groups."""
    given = programs.inputs_for(seed, np.float32)
    grouping = fuse.Grouping(run_passes(ml.trace(programs.function(seed), *given)), CC)
    needs = {
        g: grouping._makers({grouping.root(v) for n in g.nodes for v in n.inputs})
        for g in grouping.group.values()
    }
    for group, before in needs.items():
        found, stack = set(), [*before]
        while stack:
            other = stack.pop()
            if other is not group and other not in found:
                found.add(other)
                stack += needs[other]
        known = {g for g in needs if g.bits & group.before}
        assert known == found
