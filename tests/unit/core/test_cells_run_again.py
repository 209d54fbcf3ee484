"""Definitions and registrations that come again, as from a notebook cell run twice."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel
from miniml.backends import registry
from miniml.bprop import bprop_getters
from miniml.errors import DuplicateError
from miniml.primitive import primitives

CELL = """
class CoreEdited(Primitive):
    {attributes}
    def infer_shape(self, x): return x
    def infer_dtype(self, x): return x

@kernel("CoreEdited", "cpu", "f->f")
def edited(x, *, {takes}, out):
    np.multiply(x, k, out=out)

elementwise_kernel("CoreEdited", "{expression}", "f->f")
"""


def test_the_same_cell_run_twice_replaces():
    def cell(factor):
        class CoreCell(Primitive):
            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        @bprop_getters.register(CoreCell)
        def get_bprop(self):
            return lambda x, out, dout: (dout * factor,)

        @kernel("CoreCell", "cpu", "f->f")
        def core_cell(x, *, out):
            np.multiply(x, factor, out=out)

        return CoreCell

    first = cell(2.0)
    assert first()(ml.Tensor(3.0)).item() == 6.0
    second = cell(5.0)
    assert primitives["CoreCell"] is second
    assert second()(ml.Tensor(3.0)).item() == 15.0
    assert ml.grad.grad(second())(3.0).item() == 5.0


def test_a_cell_run_again_after_an_edit_replaces_its_text_and_drops_what_no_longer_fits():
    def cell(number, attributes, takes, expression):
        names = dict(vars(ml), np=np, elementwise_kernel=ml.elementwise_kernel)
        source = CELL.format(attributes=attributes, takes=takes, expression=expression)
        exec(compile(source, f"<cell {number}>", "exec"), names | {"__name__": "a_notebook"})
        return primitives["CoreEdited"]

    first = cell(1, "k: float = 2.0", "k", "x * k")
    assert first()(ml.Tensor(3.0)).item() == 6.0
    second = cell(2, "k: float = 2.0; c: float = 1.0", "k, c=5.0", "x * k + c")
    assert second()(ml.Tensor(3.0)).item() == 6.0
    (entry,) = registry.table["CoreEdited", "cuda"]
    assert entry.body.text == "x * k + c"


def test_text_for_a_taken_place_of_the_same_file_is_refused():
    class CoreTexts(Primitive):
        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    ml.elementwise_kernel("CoreTexts", "x * 2", "f->f")
    with pytest.raises(DuplicateError, match="CoreTexts has a kernel f->f on cuda"):
        ml.elementwise_kernel("CoreTexts", "x * 3", "f->f")
