"""Definitions and registrations that come again, as from a notebook cell run twice."""

import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.backends import registry
from miniml.core.primitive import primitives
from miniml.errors import DeclarationError, DuplicateError, PerformanceWarning
from miniml.grad import bprop_getters
from miniml.testing import opcheck
from tests.frame.native import needs_compiler

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


FOLLOWED = """
class CoreFollowedCell(ml.Primitive):
    like = "x"

    def compute(self, x, *, out):
        np.multiply(x, {0}, out=out)

    def bprop(self, x, out, dout):
        return (dout * {0},)
"""


@pytest.mark.parametrize("again", ["class", "bprop and kernel"])
def test_what_was_made_before_follows_the_new_definition_with_its_gradient(run, again):
    """A cell that made an instance is often not run again; nor are functions that hold it."""

    def cell(factor):
        if again == "class":  # other code each time, as a cell is
            names = {"ml": ml, "np": np, "__name__": __name__}
            exec(FOLLOWED.format(factor), names)
            return names["CoreFollowedCell"]()

        class CoreFollowed(Primitive):
            like = "x"

        @bprop_getters.register(CoreFollowed)
        def get_bprop(self):
            return lambda x, out, dout: (dout * factor,)

        @kernel("CoreFollowed", "cpu", "f->f")
        def core_followed(x, *, out):
            np.multiply(x, factor, out=out)

        return CoreFollowed()

    first = cell(2.0)
    both = run(ml.grad.value_and_grad(first))
    for factor in (2.0, 5.0, 7.0):
        made = cell(factor)
        for _ in range(3):
            assert [t.item() for t in both(3.0)] == [3.0 * factor, factor]
            assert ml.grad.grad(made)(3.0).item() == factor


def made_by(factor, table=None):
    """An instance of a class of its own, whose kernels close over the arguments."""

    def scaled(x):
        return x * factor

    class CoreMadeAgain(Primitive):
        like = "x"

        def compute(self, x, *, out, unused=table):
            np.copyto(out, scaled(x))

        def bprop(self, x, out, dout):
            return (dout * factor,)

    return CoreMadeAgain()


@pytest.mark.parametrize(
    ("first", "other"),
    [((2.0,), (5.0,)), ((1,), (True,)), ((2.0, [1]), (2.0, [2])), ((2.0, np.ones(2)), (2.0, None))],
)
def test_an_instance_of_a_function_called_again_with_other_values_is_refused(run, first, other):
    """Kernels are found by name: it would compute with those of the last call."""
    older = made_by(*first)
    function = run(ml.grad.value_and_grad(older))
    expected = [t.item() for t in function(3.0)]
    made_by(*first)  # the same
    assert [t.item() for t in function(3.0)] == expected
    last = made_by(*other)
    for call in (function, older, ml.jit(older), ml.vmap(older), ml.grad.grad(older)):
        with pytest.raises(DeclarationError, match="defined again by made_by with another"):
            call(np.ones(2) if call is not function else 3.0)
    assert last(ml.Tensor(3.0)).item() == 3.0 * other[0]
    made_by(*first)
    assert [t.item() for t in function(3.0)] == expected


def test_a_subclass_keeps_the_gradient_of_its_base_when_that_is_defined_again():
    def cell(factor):
        class CoreRebased(Primitive):
            like = "x"

            def compute(self, x, *, out):
                np.multiply(x, factor, out=out)

            def bprop(self, x, out, dout):
                return (dout * factor,)

        return CoreRebased

    class CoreOfRebased(cell(2.0)):
        pass

    cell(5.0)
    assert CoreOfRebased()(ml.Tensor(3.0)).item() == 6.0
    assert ml.grad.grad(CoreOfRebased())(3.0).item() == 2.0


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


CLASS = """
class CoreHalves(Primitive):
    def infer_shape(self, x): return x
    def infer_dtype(self, x): return x
"""
KERNEL = """
@kernel("CoreHalves", "cpu", "f->f", "d->d")
def halves(x, *, out):
    np.multiply(x, {}, out=out)
"""
EXPRESSION = 'elementwise_kernel("CoreHalves", "x * {}", "f->f", "d->d")'


@pytest.fixture
def cell(tables_as_before):
    """Runs cells of a notebook: each time a file of its own, in one module."""
    count = iter(range(100))

    def run(*sources):
        names = dict(vars(ml), np=np, __name__="a_notebook")
        for source in sources:
            exec(compile(source, f"<cell {next(count)}>", "exec"), names)

    return run


X = np.array([1.0, 2.0], np.float32)


def computed():
    """Eagerly, and compiled with what C can fuse; how many kernels that was; and the warnings."""

    def fn(x):
        return ops.exp(primitives["CoreHalves"]()(x))

    with warnings.catch_warnings(record=True) as caught, ml.context(providers=("cc",)):
        warnings.simplefilter("always")
        compiled = ml.jit(fn)(X).tolist()
        kernels = len(ml.explain(fn, X).rows)
    eager = np.log(fn(X).asnumpy()).tolist()
    told = [str(w.message) for w in caught if w.category is PerformanceWarning]
    return np.round(eager).tolist(), np.round(np.log(compiled)).tolist(), kernels, told


@needs_compiler
@pytest.mark.parametrize(
    ("edited", "other", "named"),
    [
        (KERNEL.format(5), EXPRESSION.format(5), "NumPy kernel f->f of CoreHalves was replaced"),
        (EXPRESSION.format(5), KERNEL.format(5), "C expression f->f of CoreHalves was replaced"),
    ],
    ids=["kernel", "expression"],
)
def test_half_an_edit_is_not_fused_and_said_once(cell, edited, other, named):
    cell(CLASS, KERNEL.format(2), EXPRESSION.format(2))
    assert computed() == ([2.0, 4.0], [2.0, 4.0], 1, [])
    cell(edited)
    eager, compiled, kernels, told = computed()
    assert eager == compiled
    assert kernels == 2
    assert len(told) == 1
    assert named in told[0]
    assert f"until you register the {'C expression' if edited[:1] != 'e' else 'NumPy'}" in told[0]
    cell(other)
    assert computed() == ([5.0, 10.0], [5.0, 10.0], 1, [])


@needs_compiler
@pytest.mark.parametrize(
    "again",
    [
        (KERNEL.format(2),),
        ("\n# the same\n" + KERNEL.format(2),),
        (EXPRESSION.format(2),),
        (CLASS,),
        (EXPRESSION.format("2.0f"), KERNEL.format("2.0")),
    ],
)
def test_a_cell_that_says_the_same_and_a_whole_edit_stay_fused(cell, again):
    cell(CLASS, KERNEL.format(2), EXPRESSION.format(2))
    cell(*again)
    _, compiled, kernels, told = computed()
    assert (compiled, kernels, told) == ([2.0, 4.0], 1, [])


@needs_compiler
def test_an_expression_that_comes_later_is_fused_from_then_on(cell):
    cell(CLASS, KERNEL.format(2))
    assert computed()[2] == 2
    cell(EXPRESSION.format(2))
    assert computed()[2] == 1


@needs_compiler
def test_opcheck_compares_the_two_halves_of_half_an_edit(cell):
    cell(CLASS, KERNEL.format(2), EXPRESSION.format(2))
    cell(KERNEL.format(3))
    op = primitives["CoreHalves"]()
    with ml.context(providers=("cc",)):
        report = opcheck(op, checks=("in C",), raise_error=False)
        assert "gives other numbers than NumPy's" in report.findings[0].message
        cell(EXPRESSION.format(3))
        assert opcheck(op, checks=("in C",)).calls["in C"]
