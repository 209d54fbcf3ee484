"""Every refusal shows the user's own line, once."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, register_pass, unregister_pass
from miniml.grad import grad
from miniml.graph.passes.rewrite import Rewriter
from tests.frame.native import needs_compiler

T = ml.Tensor(np.ones((2, 3), np.float32))


def refused_item():
    T[0] = 1.0


def refused_name():
    class Add(ml.Primitive):
        def infer_shape(self, x):
            return x


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (refused_item, "T[0] = 1.0"),
        (refused_name, "class Add(ml.Primitive)"),
        (lambda: ml.jit(lambda x: x if x > 0 else -x)(1.0 * T[0, 0]), "x if x > 0 else -x"),
        (lambda: T[7], "T[7]"),
        (lambda: T.to("abacus"), "T.to('abacus')".replace("'", '"')),
        (lambda: grad(lambda x: x)(np.ones(2, int)), "grad(lambda x: x)"),
        (lambda: T + np.ones(4), "T + np.ones(4)"),
        (lambda: ops.cond(T > 0, ops.exp, ops.log, T), "ops.cond(T > 0"),
    ],
    ids=["item", "name", "traced bool", "index", "device", "integer", "shapes", "cond"],
)
def test_a_refusal_has_one_note_with_the_users_line(mistake, line):
    with pytest.raises(ml.errors.MinimlError) as caught:
        mistake()
    (note,) = caught.value.__notes__
    assert line in note
    assert "^^" in note


def test_what_was_called_takes_the_place_of_a_bare_line():
    class RefusesAll(ml.Primitive):
        def infer_shape(self, x):
            raise ml.errors.ShapeError("RefusesAll refuses")

        def infer_dtype(self, x):
            return x

    with pytest.raises(ml.errors.ShapeError) as caught:
        RefusesAll()(T)
    (note,) = caught.value.__notes__
    assert note.startswith("RefusesAll was called at\n")
    assert "RefusesAll()(T)" in note


TABLE, LABELS = np.ones((4, 3), np.float32), np.array([0, 1, 2, 9])


def loss(x, y):
    return nn.CrossEntropyLoss()(x, y)


def added(x, i):
    return ops.scatter_add(x * 2.0, i, x) + x


def in_a_loop(x, i):
    return ops.scan(lambda c, row: (c + ops.sum(x[row]), c), ops.sum(x), i)


@needs_compiler
@pytest.mark.parametrize(
    ("fn", "called"),
    [
        (loss, "CrossEntropy"),
        (grad(loss), "CrossEntropy"),
        (lambda x, i: ops.gather(x * 2.0, i, 0) * ops.exp(x), "Gather"),
        (lambda x, i: ops.scatter(x * 2.0, i, x) + x, "Scatter"),
        (added, "ScatterAdd"),
        (in_a_loop, "Gather"),
    ],
    ids=["loss", "gradient", "gather", "scatter", "scatter_add", "in a scan"],
)
def test_what_was_called_is_named_whichever_kernels_run(fn, called):
    """In C, a check of the labels or indices raises, which nobody has called."""

    def refused(provider):
        with ml.context(providers=(provider,)), pytest.raises(ml.errors.OutOfRangeError) as caught:
            ml.jit(fn)(TABLE, LABELS)
        return caught.value.__notes__

    assert refused("cc") == refused("miniml")
    assert refused("cc")[-1].startswith(f"{called} was called at\n")


def test_what_was_called_is_named_where_a_pass_has_put_another_in_its_place(tables_as_before):
    class Fails(ml.Primitive):
        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    @ml.kernel("Fails", "cpu", "f->f")
    def fails(x, *, out):
        raise ValueError("no")

    def other(graph):
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            rewriter.call(node, Fails(), node.inputs)
        return rewriter.finish()

    register_pass("other", other)
    try:
        with pytest.raises(ValueError, match="no") as caught:
            ml.jit(ops.exp)(TABLE)
    finally:
        unregister_pass("other")
    assert caught.value.__notes__[-1].startswith("Exp was called at\n")


def test_a_line_of_a_notebook_is_named_by_its_cell(monkeypatch):
    names = {"/tmp/ipykernel_7/123.py": ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=names.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    cell = compile("\nt[0] = 1.0", next(iter(names)), "exec")
    for mistake, line in ((lambda: exec(cell, {"t": T}), "In[3]"), (refused_item, __file__)):
        with pytest.raises(ml.errors.ImmutableError) as caught:
            mistake()
        assert f'File "{line}", line ' in caught.value.__notes__[0]
