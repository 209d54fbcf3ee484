"""LOWERING: passes of graph and target, listed, verified, switched off and joined by name."""

import numpy as np
import pytest

import miniml as ml
from miniml import kernel, register_pass, unregister_pass
from miniml.backends.selection import Target
from miniml.errors import DuplicateError, GraphError, KernelNotFoundError
from miniml.graph.passes import pipeline
from miniml.runtime.lowering import LOWERING
from tests.unit.core.kernels import primitive

X = np.arange(3, dtype=np.int16)


@pytest.fixture
def half(tables_as_before):
    """A primitive whose one kernel takes float32."""
    op = primitive(infer_dtype=lambda self, x: np.float32)

    @kernel("KerOne", "cpu", "f->f")
    def fill(x, *, out):
        np.multiply(x, 0.5, out=out)

    return op()


@pytest.fixture
def passes():
    """Registers passes until the test ends."""
    names = []

    def register(name, fn, position):
        register_pass(name, fn, position)
        names.append(name)

    yield register
    for name in names:
        unregister_pass(name)


def test_it_can_be_read():
    names = "selections narrow legalize decompose movement checks turn formats placed fuse".split()
    assert [(p.name, p.fn.__name__) for p in LOWERING] == [(name, name) for name in names]
    assert pipeline(LOWERING) == LOWERING


def test_legalize_casts_and_is_verified(half):
    with ml.context(verify_passes=True):
        explained = ml.explain(half, X)
    assert [c.primitive for c in explained.rows] == ["Cast(dtype=float32)", "KerOne()"]
    assert ml.jit(half)(X).tolist() == [0.0, 0.5, 1.0]


def test_without_legalize_the_kernel_is_refused_and_exact_dtypes_run(half):
    with ml.context(disabled_passes="legalize"):
        with pytest.raises(KernelNotFoundError, match="the pass 'legalize', which disabled"):
            ml.jit(half)(X)
        assert ml.jit(half)(X.astype("f")).tolist() == [0.0, 0.5, 1.0]


def test_users_passes_join_it_with_the_target(half, passes):
    seen = []

    def spy(graph, target):
        seen.append((len(graph.nodes), target))
        return graph

    for position in ("before:legalize", "after:legalize"):
        passes(position, spy, position)
    first = ["before:legalize", "legalize", "after:legalize"]
    assert [p.name for p in pipeline(LOWERING)][2:5] == first
    run = ml.jit(half)
    run(X)
    assert [count for count, _ in seen] == [1, 2]
    assert all(isinstance(t, Target) and t.device.name == "cpu" for _, t in seen)
    with ml.context(disabled_passes=("before:legalize",)):
        run(X)
    assert [count for count, _ in seen] == [1, 2, 2]
    unregister_pass("after:legalize")
    run(X)
    assert run.recompilations[-1].endswith("a pass was registered")


def test_a_pass_that_breaks_the_graph_is_named(half, passes):
    passes("lost", lambda graph, target: None, "after:legalize")
    with pytest.raises(GraphError, match="pass 'lost' returned None; a pass returns a Graph"):
        ml.jit(half)(X)
    with pytest.raises(DuplicateError, match="a pass 'legalize' already"):
        passes("legalize", lambda graph, target: graph, "end")


def test_branches_are_lowered_for_the_target_of_the_whole(half):
    @kernel("KerOne", "cpu", "f->f", provider="mine")
    def minus(x, *, out):
        np.negative(x, out=out)

    def fn(x):
        return ml.ops.cond(x[0] > -1, half, half, x)

    with ml.context(providers="mine"):
        assert ml.jit(fn)(X).tolist() == [0.0, -1.0, -2.0]
