"""Every refusal shows the user's own line, once."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad

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
