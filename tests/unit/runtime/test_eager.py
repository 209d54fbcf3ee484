"""Call plans: a second call of a kind does what the first did, whatever changed in between."""

import sys

import numpy as np
import pytest

import miniml as ml
from benchmarks.eager import CALLS, frames
from miniml import kernel, ops
from miniml.errors import DTypeError, NonFiniteError, OutOfRangeError
from miniml.grad import grad, value_and_grad, vjp
from miniml.ops import Unary

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def twice(call):
    """What a call gives when its plan is made, and what it gives by its plan."""
    return call(), call()


@pytest.mark.parametrize("scalar", [True, 2, 0.5])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("op", [ops.add, ops.div, ops.maximum])
def test_weak_scalars_have_the_dtype_that_a_graph_gives_them(op, dtype, scalar):
    x = ml.Tensor(np.ones(3), dtype)
    graph = ml.jit(lambda t: (op(t, scalar), op(scalar, t)))(x)
    for eager in twice(lambda: (op(x, scalar), op(scalar, x))):
        for found, expected in zip(eager, graph, strict=True):
            assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


def test_a_plan_of_a_kind_serves_other_values_and_refuses_those_that_do_not_fit():
    x = ml.Tensor(np.ones(2, np.int8))
    assert [(x + n).tolist() for n in (1, 2, True, 1.5)] == [[2, 2], [3, 3], [2, 2], [2.5, 2.5]]
    with pytest.raises(DTypeError, match=r"Add got the scalar 300, which int8 cannot hold"):
        x + 300


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("number", [0.1, 7e4, 300, -1, 2])
@pytest.mark.parametrize("dtype", [np.float16, np.uint8])
@pytest.mark.parametrize("op", [ops.logaddexp, ops.pow, ops.div])
def test_a_number_beside_a_tensor_that_is_cast_has_its_dtype_first(op, dtype, number):
    """As in a graph: it is rounded to it, or refused, whatever was computed before."""
    x = ml.Tensor(np.array([2, 3], dtype))

    def outcome(way):
        try:
            return way(lambda v: op(v, number))(x).asnumpy()
        except DTypeError as error:
            return str(error)

    with ml.context(autocast=ml.float16):
        op(x, type(number)(1))  # a plan of these kinds
        found, expected = outcome(lambda fn: fn), outcome(ml.jit)
    if isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_arrays_of_any_strides_and_none():
    for array in (X.T, X[:, ::2], X[0, 0], X[:0]):
        for found in twice(lambda a=array: ml.Tensor(a) * a + 1.0):
            assert np.array_equal(found.asnumpy(), array * array + 1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", ">f4", "float64"])
@pytest.mark.parametrize("op", [ops.add, ops.div, ops.matmul])
def test_an_array_beside_a_tensor_means_the_tensor_of_it(op, dtype):
    x, array = ml.Tensor(X @ X.T), (X @ X.T).astype(dtype)
    expected = op(x, ml.Tensor(array)), op(ml.Tensor(array), x)
    for eager in twice(lambda: (op(x, array), op(array, x))):
        for found, right in zip(eager, expected, strict=True):
            assert (found.dtype, found.tolist()) == (right.dtype, right.tolist())
    scalar = array.dtype.type(1)  # of NumPy: it has its dtype, as arrays have
    for found in twice(lambda: ops.add(x, scalar)):
        assert found.dtype == ops.add(x, ml.Tensor(scalar)).dtype


def test_what_is_written_into_an_array_later_changes_no_result():
    x, array = ml.Tensor(X), X.copy()
    calls = (
        lambda: x + array, lambda: ops.reshape(array, (3, 2)), lambda: ops.swapaxes(array, 0, 1),
        lambda: ops.split(array, 3, 1)[0], lambda: array[0] * x, lambda: ops.mse_loss(x, array),
        lambda: ops.flatten(array),
    )  # fmt: skip
    for call in calls:
        found = [call() for _ in range(4)]
        expected = found[0].asnumpy()
        array += 1
        assert all(np.array_equal(f.asnumpy(), expected) for f in found)
        assert not np.array_equal(call().asnumpy(), expected)


LOSSES = {
    "add": lambda w, a: w + a,
    "div, of another dtype": lambda w, a: a.astype(ml.float64) / (w + 1.0),
    "where": lambda w, a: ops.where(a > 2, w, 0.0),
    "index": lambda w, a: w[a.astype(ml.int64)[0] % 2],
    "mse": lambda w, a: ops.mse_loss(w, a, reduction="none"),
    "concat": lambda w, a: ops.concat([w, a]) * 2.0,
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_gradient_beside_an_array_is_that_beside_the_tensor_of_it(name):
    def loss(a):
        return lambda w: ops.sum(LOSSES[name](w, a) ** 2)

    w, array = ml.Tensor(X + 0.5), X.copy()
    expected = value_and_grad(loss(ml.Tensor(array)))(w)
    for _ in range(4):
        for found, right in zip(value_and_grad(loss(array))(w), expected, strict=True):
            assert found.tolist() == right.tolist()
        _, pull = vjp(loss(array), w)
        array += 1
        assert pull(ml.Tensor(1.0, expected[0].dtype))[0].tolist() == expected[1].tolist()
        array -= 1


@pytest.mark.parametrize(
    "array",
    [X.astype(object), X.astype(str), np.ma.masked_array(X), np.full((2, 3), "2020", "M8[D]")],
)
def test_an_array_that_makes_no_tensor_is_refused_each_time(array):
    x, found = ml.Tensor(X), []
    for call in (lambda: ops.add(x, array), lambda: ops.mse_loss(x, array)):
        for _ in range(3):
            with pytest.raises(DTypeError, match=r"not supported|refuses|got") as caught:
                call()
            found.append(str(caught.value))
    assert len(set(found)) == 2


def test_a_parameter_is_read_anew_and_what_views_it_keeps_its_value():
    p = ml.Parameter(X.copy())
    row, total = p[1], p + 1.0
    p.set_data(-X)
    assert row.tolist() == X[1].tolist()
    assert total.tolist() == (X + 1).tolist()
    assert p[1].tolist() == (-X[1]).tolist()
    assert (p + 1.0).tolist() == (1 - X).tolist()
    for _ in range(2):
        ops.assign(p, p * 2.0)
    assert p.tolist() == (-4 * X).tolist()


def test_settings_and_kernels_of_the_moment_are_used():
    class PlanNegated(Unary):
        """x in, something of its type out."""

    def register(provider, factor):
        @kernel("PlanNegated", "cpu", "f->f", provider=provider)
        def scaled(x, *, out):
            np.multiply(x, factor, out=out)

    x, call = ml.Tensor([1.0]), PlanNegated()
    register("miniml", -1)
    assert [t.item() for t in twice(lambda: call(x))] == [-1, -1]
    register("other", -2)
    with ml.context(providers=("other",)):
        assert call(x).item() == -2
    register("other", -3)
    with ml.context(providers=("other",)):
        assert call(x).item() == -3
    assert call(x).item() == -1
    for _ in twice(lambda: ops.log(x - 1.0)):
        with (
            ml.context(check_nan=True),
            pytest.raises(NonFiniteError, match="Log made an infinity"),
        ):
            ops.log(x - 1.0)


@pytest.mark.parametrize(
    "index",
    [0, -1, (1, 2), (0, slice(None)), slice(0, 1), (..., 0), (None, 1), (slice(None, None, -1), 1),
     (1, None, 2), (), ..., slice(5, 9)],
)  # fmt: skip
def test_a_static_index_means_the_same_again_for_each_shape(index):
    x = ml.Tensor(X)
    for found in twice(lambda: x[index]):
        assert np.array_equal(found.asnumpy(), X[index])
    longer = np.concatenate([X, X])
    assert np.array_equal(ml.Tensor(longer)[index].asnumpy(), longer[index])
    for found in twice(lambda: grad(lambda t: ops.sum(t[index] * t[index]))(x)):
        expected = np.zeros_like(X)
        expected[index] = 2 * X[index]
        assert np.array_equal(found.asnumpy(), expected)


def test_an_index_is_told_from_one_that_is_equal_to_it():
    x = ml.Tensor(X)
    assert x[1].shape == (3,)
    with pytest.raises(DTypeError, match="got True as an index"):
        x[True]
    with pytest.raises(DTypeError, match=r"got 1.0 as an index"):
        x[1.0]
    assert x[ml.Tensor(1)].tolist() == x[np.int64(1)].tolist() == X[1].tolist()
    with pytest.raises(OutOfRangeError):
        x[2]


def test_a_primitive_made_again_keeps_what_its_own_init_sets():
    class PlanNoted(Unary):
        scale: float

        def __init__(self, scale, note):
            self.note = note
            super().__init__(scale)

    first, second = PlanNoted(1, "a"), PlanNoted(1, "b")
    assert (first.note, second.note) == ("a", "b")
    assert first == second
    assert PlanNoted(-0.0, "") != PlanNoted(0.0, "")


@pytest.mark.skipif(sys.gettrace() is not None, reason="counts the functions that are called")
@pytest.mark.parametrize("name", CALLS)
def test_a_planned_call_enters_few_functions(name):
    given = ml.Tensor(X @ X.T), ml.Tensor(X @ X.T), ml.Parameter(X @ X.T)
    name = name.replace("[2]", "[1]")
    call = CALLS.get(name, lambda x, y, p: x[1])
    call(*given)
    assert frames(lambda: call(*given)) <= 25
