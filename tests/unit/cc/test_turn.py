"""Products that are stored transposed, as the attention of several heads joins them."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops, view_kernel
from miniml.backends.selection import Target, get_device
from miniml.graph.ir import verify
from miniml.graph.passes import run_passes
from miniml.runtime.lowering import turn
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(0)
X, Y = (RNG.integers(-4, 5, s).astype(np.float32) for s in ((2, 3, 4, 5), (2, 3, 5, 6)))


def joined(z, axes=(0, 2, 1, 3)):
    return ops.reshape(ops.transpose(z, axes), (-1,))


def heads(x, y):
    return joined(x @ y)


def read_by_another(x, y):
    z = x @ y
    return joined(z), ops.tanh(z)


def given_back(x, y):
    z = x @ y
    return joined(z), z


def columns_apart(x, y):
    """The rows of the product do not stay whole."""
    return joined(x @ y, (0, 3, 1, 2))


def read_as_it_is(x, y):
    """A view serves these readers as well."""
    z = ops.transpose(x @ y, (0, 2, 1, 3))
    return ops.reshape(z, (-1,)), ops.tanh(z)


def names(fn):
    graph = run_passes(ml.trace(fn, X, Y))
    lowered = verify(turn(graph, Target(get_device("cpu"), ("cc",))))
    return [n.primitive.name for n in lowered.nodes]


def test_what_is_transposed_and_flattened_is_stored_so():
    assert names(heads) == ["TurnedMatMul", "Reshape"]


def test_a_view_of_the_users_own_that_permutes_axes_is_stored_so_too():
    class TurnSwapped(Primitive):
        view = "transpose"
        axes: tuple[int, ...] = (0, 2, 1, 3)

        def infer_shape(self, x):
            return tuple(x[a] for a in self.axes)

        def infer_dtype(self, x):
            return x

    @view_kernel("TurnSwapped", "cpu")
    def swapped(x, *, axes):
        return x.transpose(axes)

    def fn(x, y):
        return ops.reshape(TurnSwapped()(x @ y), (-1,))

    assert names(fn) == ["TurnedMatMul", "Reshape"]
    with ml.context(providers=("cc",)):
        found = ml.jit(fn)(X, Y)
    expected = (X @ Y).transpose(0, 2, 1, 3).reshape(-1)
    np.testing.assert_array_equal(found.asnumpy(), expected)  # whole numbers: no rounding


@pytest.mark.parametrize("fn", [read_by_another, given_back, columns_apart, read_as_it_is])
def test_a_product_that_is_needed_as_it_is_stays(fn):
    assert "TurnedMatMul" not in names(fn)


@pytest.mark.parametrize("fn", [heads, read_by_another, given_back, columns_apart])
def test_the_results_are_the_same(fn):
    def flat(x, y):
        outs = fn(x, y)
        outs = outs if isinstance(outs, tuple) else (outs,)
        return ops.concat([ops.reshape(out, (-1,)) for out in outs])

    with ml.context(providers=("cc",)):
        found = ml.jit(flat)(X, Y)
    np.testing.assert_allclose(found.asnumpy(), flat(*map(ml.Tensor, (X, Y))).asnumpy(), rtol=1e-6)
