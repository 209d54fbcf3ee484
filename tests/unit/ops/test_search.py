"""Medians, places in sorted rows, counts, places by tuples; shapes that depend on values."""

import tracemalloc

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, GraphError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

INF, NAN = np.inf, np.nan


# Medians


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, -1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_median_is_numpys(axis, keepdims):
    rng = np.random.default_rng(0)
    for shape in ((3, 4, 5), (2, 3, 4)):
        x = rng.integers(-4, 5, shape) / 4
        x[0, 1, 2], x[1, 2, 3], x[1, 0] = NAN, INF, -INF
        expected = np.median(x, axis, keepdims=keepdims)
        call = lambda x: ops.median(x, axis, keepdims)  # noqa: E731
        for got in (call(x), call(ml.Tensor(x.T.copy()).T), ml.jit(call)(x)):
            np.testing.assert_array_equal(got.asnumpy(), expected)


def test_what_median_takes():
    assert ops.median(np.array([1, 2], np.int8)).item() == 1.5
    assert ops.median(np.array([1, 2])).dtype == ml.float32
    assert ops.median(ml.Tensor([1.0, 2.0], dtype=ml.bfloat16)).dtype == ml.bfloat16
    assert ops.median(np.array(3.0)).item() == 3.0
    assert ops.median(np.zeros((0, 3)), 1).shape == (0,)
    for x, axis in ((np.zeros((0, 3)), 0), (np.zeros(0), None)):
        with pytest.raises(ShapeError, match="median cannot reduce axis 0"):
            ops.median(x, axis)
    with pytest.raises(ShapeError, match="median got axis 2"):
        ops.median(np.ones((2, 2)), 2)


def test_the_gradient_of_a_median():
    assert grad(ops.median)(np.array([3.0, 1.0, 10.0, 2.0])).tolist() == [0.5, 0, 0, 0.5]
    assert grad(ops.median)(np.array([5.0, 1.0, 5.0, 5.0, 7.0])).tolist() == [0, 0, 1, 0, 0]
    x = np.random.default_rng(1).permutation(12).reshape(3, 4) / 3
    assert gradcheck(lambda x: ops.median(x, 0) ** 2, x, order=2).ok


# Places in sorted rows


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_is_numpys(side):
    rng = np.random.default_rng(2)
    for dtype in (np.int8, np.uint64, np.float16, np.float64, bool):
        row, values = (rng.integers(0, 2 if dtype is bool else 9, n).astype(dtype) for n in (7, 12))
        row = np.sort(row)
        got = ops.searchsorted(row, values.reshape(3, 4).T, side)
        np.testing.assert_array_equal(
            got.asnumpy(), np.searchsorted(row, values.reshape(3, 4).T, side)
        )
    row, values = np.array([-INF, -1, 0, 0, 3, INF, NAN, NAN]), [NAN, INF, -INF, 0.0, -0.0, 9]
    got = ops.searchsorted(row, np.array(values), side)
    assert got.tolist() == np.searchsorted(row, values, side).tolist()


def test_rows_of_their_own():
    rng = np.random.default_rng(3)
    rows, values = np.sort(rng.standard_normal((2, 3, 6))), rng.standard_normal((2, 3, 4))
    expected = [[np.searchsorted(r, v) for r, v in zip(a, b)] for a, b in zip(rows, values)]
    turned = ml.Tensor(values.T.copy()).T
    for got in (ops.searchsorted(rows, values), ml.jit(ops.searchsorted)(rows, turned)):
        np.testing.assert_array_equal(got.asnumpy(), expected)
    assert ops.searchsorted(rows[..., :0], values).tolist() == np.zeros((2, 3, 4)).tolist()
    assert ops.searchsorted([1, 3], 2.5).item() == 1  # promoted
    with pytest.raises(ShapeError, match="same leading extents"):
        ops.searchsorted(rows, values[0])
    with pytest.raises(ValueRefusedError, match="side='middle'"):
        ops.searchsorted([1, 2], 1, "middle")


# Counts


def test_bincount_is_numpys_up_to_a_length_that_is_known():
    rng = np.random.default_rng(4)
    x, weights = rng.integers(0, 5, (3, 7)), rng.standard_normal((3, 7))
    for call in (ops.bincount, ml.jit(lambda x, n, w=None: ops.bincount(x, n, w))):
        assert call(x, 9).tolist() == np.bincount(x.ravel(), minlength=9).tolist()
        expected = np.bincount(x.ravel(), weights.ravel(), 9)
        np.testing.assert_allclose(call(x, 9, weights).asnumpy(), expected, 1e-14)
    assert ops.bincount(x.astype(np.uint8), 5).dtype == ml.int64
    assert ops.bincount(np.zeros((0,), int), 0).shape == (0,)
    assert ops.bincount(np.int64(1), 2).tolist() == [0, 1]
    slope = grad(lambda w: ops.sum(ops.bincount(x, 5, w) * np.arange(5.0)))(weights)
    np.testing.assert_array_equal(slope.asnumpy(), x)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: ops.bincount([0, -1], 3), OutOfRangeError, "bincount got a negative number"),
        (lambda: ml.jit(ops.bincount)(np.array([0, -1]), 3), OutOfRangeError, "index -4 "),
        (lambda: ops.bincount([0, 3], 3), OutOfRangeError, "index 3 for axis 0 of extent 3"),
        (lambda: ops.bincount([0.5], 3), DTypeError, "bincount needs integer indices"),
        (lambda: ops.bincount([0], -1), ShapeError, "length=-1; it takes an int"),
        (lambda: ops.bincount([0], ml.Tensor(3)), ShapeError, "length=Tensor.*it takes an int"),
        (lambda: ops.bincount([0], 2.0), ShapeError, "length=2.0; it takes an int"),
        (lambda: ops.bincount([0], 2, [1.0, 2.0]), ShapeError, r"\(1,\) and weights of shape \(2,"),
        (lambda: ops.gather_nd(np.ones((2, 2)), [[0, 1, 0]]), ShapeError, "at most 2"),
        (lambda: ops.gather_nd(np.ones((2, 2)), 1), ShapeError, r"indices of shape \(\)"),
        (lambda: ops.gather_nd(np.ones((2, 2)), [[0.0, 1.0]]), DTypeError, "gather_nd needs int"),
        (lambda: ops.gather_nd(np.ones((2, 2)), [[0, 2]]), OutOfRangeError, "index 2 for axis 1"),
    ],
)
def test_refusals(call, error, says):
    with pytest.raises(error, match=says):
        call()


# Places by tuples


def test_gather_nd_takes_what_tuples_name():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 4, 5))
    for k in (1, 2, 3):
        indices = np.stack([rng.integers(-n, n, (2, 6)) for n in x.shape[:k]], -1)
        expected = x[tuple(np.moveaxis(indices, -1, 0))]
        for got in (ops.gather_nd(x, indices), ml.jit(ops.gather_nd)(x, indices.astype(np.int32))):
            np.testing.assert_array_equal(got.asnumpy(), expected)
        assert gradcheck(lambda x, i=indices: ops.gather_nd(x, i) ** 2, x, order=2).ok
    assert ops.gather_nd(x, np.zeros((2, 0), int)).shape == (2, 3, 4, 5)
    assert ops.gather_nd(x, np.zeros((0, 2), int)).shape == (0, 5)
    assert ops.gather_nd(x, np.array([1, 2])).tolist() == x[1, 2].tolist()


# Shapes that depend on values


def test_nonzero_is_a_row_for_each():
    x = np.array([[0.0, NAN, -0.0], [2.0, 0.0, -INF]])
    assert ops.nonzero(x).tolist() == [[0, 1], [1, 0], [1, 2]]
    assert ops.nonzero(ml.Tensor(x.T.copy()).T).tolist() == np.argwhere(x).tolist()
    assert ops.nonzero(np.zeros((2, 0))).shape == (0, 2)
    assert [ops.nonzero(np.array(v)).shape for v in (0, 3)] == [(0, 0), (1, 0)]
    assert ops.nonzero([True, False, True]).tolist() == [[0], [2]]


def test_unique_and_all_about_it():
    x = np.array([[3.0, 1.0, NAN], [1.0, -0.0, NAN]])
    np.testing.assert_array_equal(ops.unique(x).asnumpy(), [0, 1, 3, NAN])
    values, indices, inverse, counts = ops.unique_all(x)
    assert (indices.tolist(), counts.tolist()) == ([4, 1, 0, 2], [1, 2, 1, 2])
    np.testing.assert_array_equal(ops.gather(values, inverse).asnumpy(), x)
    assert [out.shape for out in ops.unique_all(np.zeros((0, 2)))] == [(0,), (0,), (0, 2), (0,)]
    narrow = ml.Tensor(x, dtype=ml.bfloat16)
    assert ops.unique(narrow).dtype == ml.bfloat16
    np.testing.assert_array_equal(ops.unique(narrow).asnumpy().astype(float), [0, 1, 3, NAN])


@pytest.mark.parametrize("call", [ops.nonzero, ops.unique, lambda x: ops.unique_all(x)[3]])
def test_graphs_refuse_them_and_say_what_would_do(call):
    x = np.array([0.0, 1.0, 1.0])
    for way in (ml.jit(call), lambda x: ml.trace(call, x)):
        with pytest.raises(GraphError, match=r"runs only eagerly.*ops.where, ops.masked_fill"):
            way(x)
    with ml.context(mode=ml.GRAPH_MODE):
        assert call(x).ndim >= 1


def test_under_an_eager_gradient_no_gradient_passes_through_them():
    x = np.array([0.0, 3.0, 2.0, 3.0])

    def of_some(x):
        return ops.sum(ops.gather_nd(x, ops.nonzero(x)) ** 2) + ops.sum(ops.unique(x))

    assert grad(of_some)(x).tolist() == [0, 6, 4, 6]


def test_what_is_read_only_is_not_copied_to_be_read():
    """NumPy's argmax, and its take of indices, would copy the arrays of tensors."""
    rng = np.random.default_rng(3)
    x, indices = rng.normal(size=(50, 4000)), rng.integers(-50, 50, 100_000)
    taken, numbers = ml.Tensor(x[:, :1]), ml.Tensor(indices)
    whole = ml.Tensor(x)
    for call, expected in (
        (lambda: ops.gather(taken, numbers, 0), x[indices, :1]),
        (lambda: ops.argmax(whole), x.argmax()),
        (lambda: ops.argmin(whole, 1), x.argmin(1)),
    ):
        call()
        tracemalloc.start()
        found = call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        np.testing.assert_array_equal(found.asnumpy(), expected)
        assert peak < expected.nbytes + 100_000
