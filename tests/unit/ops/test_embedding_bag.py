"""embedding_bag beside loops in NumPy: both kinds of bags, derivatives, ends, refusals."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import grad
from miniml.testing import gradcheck

rng = np.random.default_rng(0)
TABLE = rng.normal(size=(6, 3))
ROWS = np.array([[0, 5, 2, 2], [1, -1, 4, 4], [2, 2, 2, 2]])
FLAT = np.array([3, 0, 5, 2, 2, 1, 4, -4, 2])
OFFSETS = np.array([1, 4, 4, 7, 9])
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max}


def by_hand(bags, mode, padding=None, weights=None, table=TABLE):
    out = np.zeros((len(bags), table.shape[1]))
    for b, bag in enumerate(bags):
        kept = [j for j, i in enumerate(bag) if padding is None or i % 6 != padding % 6]
        if kept:
            rows = table[np.asarray(bag)[kept]]
            rows = rows if weights is None else rows * np.asarray(weights[b])[kept][:, None]
            out[b] = REDUCTIONS[mode](rows, 0)
    return out


def cut(values):
    return [values[b:e] for b, e in zip(OFFSETS, [*OFFSETS[1:], len(values)], strict=True)]


@pytest.mark.parametrize("padding", [None, 2, -4, 5])
@pytest.mark.parametrize("mode", REDUCTIONS)
def test_bags_are_reduced_as_by_a_loop(mode, padding):
    rows = lambda t: ops.embedding_bag(t, ROWS, None, mode, None, padding)  # noqa: E731
    flat = lambda t: ops.embedding_bag(t, FLAT, OFFSETS, mode, None, padding)  # noqa: E731
    for fn, bags in ((rows, ROWS), (flat, cut(FLAT))):
        expected = by_hand(bags, mode, padding)
        np.testing.assert_allclose(fn(TABLE).asnumpy(), expected, 1e-12, 1e-14)
        np.testing.assert_allclose(ml.jit(fn)(TABLE).asnumpy(), expected, 1e-12, 1e-14)
        assert gradcheck(lambda t, fn=fn: fn(t) ** 2, TABLE, order=2).ok


def test_sums_are_weighted():
    for indices, offsets, bags in ((ROWS, None, ROWS), (FLAT, OFFSETS, cut(FLAT))):
        w = rng.normal(size=indices.shape)
        fn = lambda t, w, i=indices, o=offsets: ops.embedding_bag(t, i, o, "sum", w, 2)  # noqa: E731
        parts = w if offsets is None else cut(w)
        expected = by_hand(bags, "sum", 2, parts)
        np.testing.assert_allclose(fn(TABLE, w).asnumpy(), expected, 1e-12, 1e-14)
        assert gradcheck(fn, TABLE, w, order=2).ok


@pytest.mark.parametrize("mode", REDUCTIONS)
def test_bags_of_each_example(mode):
    tables = rng.normal(size=(2, 6, 3))
    indices = np.stack([FLAT, FLAT[::-1]])
    offsets = np.stack([OFFSETS, OFFSETS // 2])
    fn = lambda t, i, o: ops.embedding_bag(t, i, o, mode)  # noqa: E731
    apart = [fn(*each).asnumpy() for each in zip(tables, indices, offsets, strict=True)]
    got = ml.vmap(fn)(tables, indices, offsets).asnumpy()
    np.testing.assert_allclose(got, apart, 1e-12, 1e-14)


def test_long_bags_and_what_equal_elements_learn():
    table = rng.integers(0, 4, (50, 2)).astype(float)
    flat, offsets = rng.integers(0, 50, 200), np.sort(rng.integers(0, 200, 9))
    bags = [flat[b:e] for b, e in zip(offsets, [*offsets[1:], 200], strict=True)]
    got = ops.embedding_bag(table, flat, offsets, "max").asnumpy()
    np.testing.assert_array_equal(got, by_hand(bags, "max", table=table))
    slope = grad(lambda t: ops.sum(ops.embedding_bag(t, flat, offsets, "max")))(table).asnumpy()
    expected = np.zeros_like(table)
    for bag in bags:
        for column in range(2 * bool(len(bag))):
            expected[bag[np.argmax(table[bag, column])], column] += 1
    np.testing.assert_array_equal(slope, expected)


def test_ends_of_bags():
    assert ops.embedding_bag(TABLE, np.zeros((2, 0), int)).tolist() == [[0] * 3] * 2
    for mode in REDUCTIONS:
        assert ops.embedding_bag(TABLE, np.zeros((0, 2), int), mode=mode).shape == (0, 3)
        assert ops.embedding_bag(TABLE, np.zeros((2, 0), int), mode=mode).shape == (2, 3)
        assert ops.embedding_bag(TABLE, np.zeros(0, int), [0, 0], mode).tolist() == [[0] * 3] * 2
        assert ops.embedding_bag(TABLE, [1], np.zeros(0, int), mode).shape == (0, 3)
        assert np.isnan(ops.embedding_bag(TABLE, [1, 2], [1, 0], mode).asnumpy()).all()
    spoilt = np.where(np.arange(6)[:, None] == 2, np.nan, TABLE)
    for mode in REDUCTIONS:
        with_nan = ops.embedding_bag(spoilt, [1, 2, 0], [0, 2], mode).asnumpy()
        assert np.isnan(with_nan).all(1).tolist() == [True, False]
        without = ops.embedding_bag(spoilt, [1, 2, 0], [0, 2], mode, None, 2).asnumpy()
        assert np.isfinite(without).all()
    for dtype in (ml.float16, ml.bfloat16, ml.float32):
        table = ml.Tensor(TABLE, dtype=dtype)
        for mode in REDUCTIONS:
            assert ops.embedding_bag(table, np.int32(ROWS), mode=mode).dtype == dtype
            assert ops.embedding_bag(table, np.uint8([1, 2]), [0, 1], mode).dtype == dtype


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((TABLE[0], ROWS), ShapeError, r"weight of shape \(3,\) and indices of shape \(3, 4\)"),
        ((TABLE, FLAT), ShapeError, r"or indices \(n,\) with offsets \(B,\)"),
        ((TABLE, ROWS, OFFSETS), ShapeError, r"with offsets of shape \(5,\); expected"),
        ((TABLE, FLAT, 0), ShapeError, r"with offsets of shape \(\)"),
        ((TABLE, FLAT, [0, 10]), OutOfRangeError, "offset"),
        ((TABLE, FLAT, [-1, 2]), OutOfRangeError, "offset"),
        ((TABLE, [[6]]), OutOfRangeError, "6"),
        ((TABLE, [[0.5]]), DTypeError, "needs integer indices"),
        ((TABLE.astype(int), ROWS), DTypeError, "embedding_bag needs a float tensor"),
        ((TABLE, ROWS, None, "median"), ValueRefusedError, "mode='median'; expected one"),
        ((TABLE, ROWS, None, "mean", ROWS * 0.5), AttributeRefusedError, "sums are weighted"),
        ((TABLE, ROWS, None, "sum", ROWS[0] * 0.5), ShapeError, "there is one for each index"),
        (
            (TABLE, ROWS, None, "sum", None, 6),
            ValueRefusedError,
            "padding_index=6; expected",
        ),
    ],
)
def test_refusals(given, error, says):
    with pytest.raises(error, match=says):
        ops.embedding_bag(*given)


@pytest.mark.parametrize("mode", REDUCTIONS)
def test_the_layer_learns_the_rows_of_its_bags(mode):
    layer = nn.EmbeddingBag(6, 3, mode, padding_index=2)
    before = layer.weight.asnumpy().copy()
    expected = by_hand(ROWS, mode, 2, table=before)
    np.testing.assert_allclose(layer(ROWS).asnumpy(), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(
        layer(FLAT, OFFSETS).asnumpy(), by_hand(cut(FLAT), mode, 2, table=before), 1e-5, 1e-6
    )
    step = ml.train_step(layer, nn.MSELoss(), ml.optim.SGD(layer.trainable_params(), lr=0.1))
    step(ROWS, np.zeros((3, 3), np.float32))
    moved = (layer.weight.asnumpy() != before).any(1)
    assert not moved[[2, 3]].any()
    assert moved[[0, 1, 4, 5]].any()
    assert repr(layer) == (
        "EmbeddingBag(6, 3, padding_index=2)" if mode == "mean"
        else f"EmbeddingBag(6, 3, mode='{mode}', padding_index=2)"
    )  # fmt: skip
