"""Triangles, diagonals, rolls, repeats, grids, slices and fills, against NumPy."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    TracedValueError,
    ValueRefusedError,
)
from miniml.grad import grad
from miniml.testing import gradcheck

X = np.arange(1.0, 25.0).reshape(2, 3, 4)
M = X[0]


def cases():
    """(name, function of x, the same in NumPy, x)."""
    for k in (-9, -2, -1, 0, 1, 3, 9):
        yield f"tril {k}", lambda x, k=k: ops.tril(x, k), lambda x, k=k: np.tril(x, k), X
        yield f"triu {k}", lambda x, k=k: ops.triu(x, k), lambda x, k=k: np.triu(x, k), X
        for x in (M, M.T, M[0]):
            yield f"diag {k}", lambda x, k=k: ops.diag(x, k), lambda x, k=k: np.diag(x, k), x
    for by, axis in ((1, None), (-30, None), (5, 0), (-1, -1), ((1, 2), (0, 0)), (1, (0, 2)),
                     ((1, 2), 1), ((1, 3), None), (0, 1)):  # fmt: skip
        yield (
            f"roll {by} {axis}",
            lambda x, by=by, axis=axis: ops.roll(x, by, axis),
            lambda x, by=by, axis=axis: np.roll(x, by, axis),
            X,
        )
    for n, axis in ((2, None), (0, 1), (3, 0), (2, -1), ((1, 0, 2), 1), ((2,), 2), ([3, 1], 0)):
        yield (
            f"repeat {n} {axis}",
            lambda x, n=n, axis=axis: ops.repeat(x, n, axis),
            lambda x, n=n, axis=axis: np.repeat(x, n, axis),
            X,
        )
    for axis in (0, 1, -1):
        yield (
            f"unstack {axis}",
            lambda x, axis=axis: ops.stack(ops.unstack(x, axis)),
            lambda x, axis=axis: np.moveaxis(x, axis, 0),
            X,
        )
    for indexing in ("xy", "ij"):
        yield (
            f"meshgrid {indexing}",
            lambda x, i=indexing: ops.stack(ops.meshgrid(x, x[:2], x[1:], indexing=i)),
            lambda x, i=indexing: np.stack(np.meshgrid(x, x[:2], x[1:], indexing=i)),
            M[0],
        )
    mask = np.arange(4) % 2 == 0
    yield (
        "masked_fill", lambda x: ops.masked_fill(x, mask, -1), lambda x: np.where(mask, -1, x), X
    )  # fmt: skip


CASES = list(cases())


@pytest.mark.parametrize(("name", "fn", "reference", "x"), CASES, ids=[c[0] for c in CASES])
def test_rearranging_is_numpys(name, fn, reference, x):
    for given in (x, x.astype(np.int32), np.where(x > 4, np.nan, x).astype(np.float16)):
        expected = reference(given)
        got = fn(given)
        assert (got.shape, got.dtype) == (expected.shape, given.dtype)
        np.testing.assert_array_equal(got.asnumpy(), expected)
    np.testing.assert_array_equal(ml.jit(fn)(x).asnumpy(), reference(x))


SMOOTH = ("tril 1", "diag -1", "roll (1, 2) (0, 0)", "repeat 2 -1", "repeat (1, 0, 2) 1",
          "unstack 1", "meshgrid xy", "masked_fill")  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_rearranging(name):
    for _, fn, _, x in (c for c in CASES if c[0] == name):
        assert gradcheck(lambda v, fn=fn: ops.square(fn(v)), x, order=2).ok


def test_bools_and_what_is_empty_or_has_no_axes():
    bools = M % 2 == 0
    np.testing.assert_array_equal(ops.tril(bools).asnumpy(), np.tril(bools))
    assert ops.tril(bools).dtype == ops.diag(bools).dtype == ml.bool_
    assert ops.triu(np.zeros((0, 10**6, 10**6))).shape == (0, 10**6, 10**6)
    assert ops.diag(np.zeros((0, 3))).shape == ops.diag(np.zeros((3, 0)), 1).shape == (0,)
    np.testing.assert_array_equal(ops.diag(np.zeros(0), 2).asnumpy(), np.zeros((2, 2)))
    assert ops.roll(np.zeros((0, 3)), 2, 0).shape == ops.repeat(np.zeros((0, 3)), 2, 0).shape
    assert ops.roll(5.0, 1).shape == ()
    assert ops.repeat(5.0, 2).tolist() == [5, 5]
    assert ops.unstack(np.zeros((2, 0)), 1) == ()
    assert len(ops.unstack(np.zeros((2, 0)))) == 2
    assert ops.meshgrid() == ()
    assert [g.shape for g in ops.meshgrid(1.0, [1, 2])] == [(2, 1), (2, 1)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.tril(M[0]), ShapeError, r"tril got x of shape \(4,\); it takes matrices"),
        (lambda: ops.triu(M, 1.5), AttributeRefusedError, "triu got k=1.5; it takes"),
        (lambda: ops.diag(X), ShapeError, r"diag got x of shape \(2, 3, 4\)"),
        (lambda: ops.roll(X, 1, 3), ShapeError, "roll got axis 3"),
        (lambda: ops.roll(X, (1, 2, 3), (0, 1)), ShapeError, "3 shifts for 2 axes"),
        (lambda: ops.repeat(X, -1, 0), ShapeError, "repeats=-1 for axis 0"),
        (lambda: ops.repeat(X, (1, 2), 1), ShapeError, "or 3 of them"),
        (lambda: ops.repeat(X, True, 0), AttributeRefusedError, "repeat got repeats=True"),
        (lambda: ops.meshgrid(M), ShapeError, r"meshgrid got tensors of shape \(3, 4\)"),
        (lambda: ops.meshgrid([1], indexing="yx"), ValueRefusedError, "one of 'xy', 'ij'"),
        (lambda: ops.unstack(1.0), ShapeError, "unstack got axis 0"),
        (lambda: ops.masked_fill(M, [True], M[None]), ShapeError, r"a value of shape \(1, 3, 4\)"),
        (lambda: ops.masked_fill(M, [True] * 3, 0), ShapeError, r"a mask of shape \(3,\) for x"),
        (lambda: ops.masked_fill(np.arange(2), [True, False], 0.5), DTypeError, "masked_fill got"),
        (lambda: ops.masked_fill(M, M, 0), DTypeError, "needs a bool condition"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Counts and norms


@pytest.mark.parametrize("ord", [2, 1, 0, 3, 2.5, 0.5, -1, -2, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 0, (0, -1)])
def test_norm_and_count_nonzero_are_numpys(ord, axis):
    x = np.where(X % 5 == 0, 0, X - 9)
    for keepdims in (False, True):
        options = {"axis": axis, "keepdims": keepdims}
        with np.errstate(divide="ignore"):
            expected = np.linalg.vector_norm(x, ord=ord, **options)
        got = ops.norm(x, ord, **options)
        np.testing.assert_allclose(got.asnumpy(), expected, 1e-13)
        counts = ops.count_nonzero(x, **options)
        np.testing.assert_array_equal(counts.asnumpy(), np.count_nonzero(x, **options))
    np.testing.assert_allclose(ml.jit(lambda v: ops.norm(v, ord, axis))(x).asnumpy(),
                               ops.norm(x, ord, axis).asnumpy(), 1e-13)  # fmt: skip
    if ord != 0:
        distinct = np.sin(X) * X
        assert gradcheck(lambda v: ops.norm(v, ord, axis), distinct, order=2).ok


@pytest.mark.parametrize("ord", [2, 3, 1.5])
@pytest.mark.parametrize("size", [1e-44, 1e-30, 1.0, 3e37])
def test_norms_of_float32_of_any_size_and_their_gradients(ord, size):
    x = (np.random.default_rng(0).normal(size=(5, 7)).clip(-3, 3) * size).astype(np.float32)
    wide, eps = x.astype(np.float64), np.finfo(np.float32).eps
    sizes = (np.abs(wide) ** ord).sum(-1, keepdims=True) ** (1 / ord)
    slopes = np.sign(wide) * (np.abs(wide) / sizes) ** (ord - 1)
    norm = lambda v: ops.norm(v, ord, -1, True)  # noqa: E731
    for fn in (norm, ml.jit(norm)):
        np.testing.assert_allclose(fn(x).asnumpy(), sizes, eps, 2.0**-149)
        slope = grad(lambda v, fn=fn: ops.sum(fn(v)))(x).asnumpy()
        np.testing.assert_allclose(slope, slopes, 4 * eps, 1e-37)


def test_norm_of_zeros_of_nothing_and_of_other_dtypes():
    for ord in (1, 1.5, 2, 3):
        assert grad(lambda x, ord=ord: ops.norm(x, ord))(np.zeros(3)).tolist() == [0, 0, 0]
    second = grad(lambda x: ops.sum(grad(ops.norm)(x) * np.arange(3.0)))
    assert second(np.zeros(3)).tolist() == [0, 0, 0]
    assert ops.norm(np.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]
    assert np.isnan(ops.norm([1.0, np.nan]).item())
    assert (ops.norm([3, 4]).item(), ops.norm([3, 4]).dtype) == (5, ml.float32)
    narrow = ml.Tensor([300.0, 400.0], dtype=ml.float16)  # squares leave float16's range
    assert (ops.norm(narrow).item(), ops.norm(narrow).dtype) == (500, ml.float16)
    assert ops.count_nonzero([np.nan, 0.0, -0.0, 1.0]).item() == 2
    assert ops.count_nonzero([[True], [False]], 0).tolist() == [1]
    with pytest.raises(ShapeError, match="Max cannot reduce axis 0"):
        ops.norm(np.zeros(0), np.inf)
    with pytest.raises(AttributeRefusedError, match="norm got ord='fro'"):
        ops.norm(M, "fro")


# Turns, diagonals, axes


def turned():
    """(function, the same in NumPy)."""
    for k in (-1, 0, 1, 2, 7):
        for axes in ((0, 1), (2, 0), (-1, 1)):
            yield (
                lambda x, k=k, a=axes: ops.rot90(x, k, a),
                lambda x, k=k, a=axes: np.rot90(x, k, a),
            )
    for offset in (-5, -1, 0, 2, 9):
        for axes in ((0, 1), (2, 0), (-1, 1)):
            given = (offset, *axes)
            yield lambda x, g=given: ops.diagonal(x, *g), lambda x, g=given: np.diagonal(x, *g)
            yield lambda x, g=given: ops.trace(x, *g), lambda x, g=given: np.trace(x, *g)


@pytest.mark.parametrize(("fn", "reference"), list(turned()))
def test_turns_and_diagonals_are_numpys(fn, reference):
    for run in (fn, ml.jit(fn)):
        np.testing.assert_array_equal(run(X).asnumpy(), reference(X))
    np.testing.assert_array_equal(
        ml.vmap(fn)(np.stack([X, X + 1])).asnumpy(), np.stack([reference(X), reference(X + 1)])
    )
    assert fn(X.astype(np.float16)).dtype == ml.float16
    assert fn(np.zeros((0, 3, 4))).shape == reference(np.zeros((0, 3, 4))).shape
    if np.any(reference(X)):
        assert gradcheck(lambda x: ops.square(fn(x)), X).ok


@pytest.mark.parametrize("x", [np.array(5), M[0], M, X], ids=np.ndim)
def test_axes_are_added_as_numpy_adds_them(x):
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        np.testing.assert_array_equal(getattr(ops, name)(x).asnumpy(), getattr(np, name)(x))
        one, two = getattr(ops, name)(x, 2)
        assert (one.shape, two.shape) == tuple(a.shape for a in getattr(np, name)(x, 2))
    assert ops.atleast_1d() == ()


def test_masked_select_takes_elements_and_sends_gradients_to_them():
    for x, mask in ((X, X > 5), (X, M[0] > 2), (M[0], np.ones((2, 1), bool)), (5.0, True)):
        expected = np.broadcast_arrays(x, mask)[0][np.broadcast_arrays(x, mask)[1]]
        got = ops.masked_select(x, mask)
        np.testing.assert_array_equal(got.asnumpy(), expected)
        known = ml.jit(lambda x, mask=mask: ops.masked_select(x, mask))(x)
        np.testing.assert_array_equal(known.asnumpy(), expected)
    assert ops.masked_select(X, X > 99).shape == (0,)
    dx = grad(lambda x: ops.sum(ops.square(ops.masked_select(x, x > 5))))(X)
    np.testing.assert_array_equal(dx.asnumpy(), np.where(X > 5, 2 * X, 0))
    rows = ml.vmap(lambda x: ops.masked_select(x, [True, False, True, True]))(M)
    np.testing.assert_array_equal(rows.asnumpy(), M[:, [0, 2, 3]])


# Segments

IDS = np.array([2, 0, 2, 2, 0, 4, -1])
STARTS = {"sum": (0, np.add), "prod": (1, np.multiply), "max": (-np.inf, np.maximum),
          "min": (np.inf, np.minimum)}  # fmt: skip


def segments(name, x, ids, count):
    if name == "mean":
        n = segments("sum", np.ones(ids.shape), ids, count)
        each = np.maximum(n, 1).reshape(-1, *[1] * (x.ndim - ids.ndim))
        return segments("sum", x, ids, count) / each
    start, combine = STARTS[name]
    out = np.full((count, *x.shape[ids.ndim :]), float(start))
    combine.at(out, ids, x)
    return out


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "ids"), [((7,), IDS), ((7, 3), IDS), ((1, 7, 2), IDS[None]), ((7, 0), IDS),
                       ((0, 3), IDS[:0]), ((7, 3), np.sort(IDS % 5).astype(np.int32))]
)  # fmt: skip
def test_segments(name, shape, ids):
    fn = getattr(ops, f"segment_{name}")
    x = np.random.default_rng(0).normal(size=shape)
    expected = segments(name, x, ids, 5)
    for run in (lambda x, i: fn(x, i, 5), ml.jit(lambda x, i: fn(x, i, 5))):
        np.testing.assert_allclose(run(x, ids).asnumpy(), expected, 1e-12)
    for narrow in (np.float16, ml.bfloat16):
        low = fn(x.astype(narrow), ids, 5)
        assert low.dtype == ml.Tensor(x.astype(narrow)).dtype
        np.testing.assert_allclose(low.astype("float64").asnumpy(), expected, 0.03, 0.03)
    stacked = np.stack([x, 2 * x])
    both = np.stack([ids, ids[::-1]])
    each = ml.vmap(lambda x, i: fn(x, i, 5))(stacked, both).asnumpy()
    for i in range(2):
        np.testing.assert_allclose(each[i], segments(name, stacked[i], both[i], 5), 1e-12)
    if x.size:
        finite = np.isfinite(expected)
        assert gradcheck(lambda v: ops.where(finite, fn(v, ids, 5), 0.0), x, order=2).ok


def test_segments_of_integers_and_of_sixteen_bits():
    x = np.array([3, -7, 5], np.int8)
    assert ops.segment_max(x, [0, 0, 2], 3).tolist() == [3, -128, 5]
    assert ops.segment_min(x, [0, 0, 2], 3).tolist() == [-7, 127, 5]
    assert ops.segment_prod(x, [0, 0, 2], 3).tolist() == [-21, 1, 5]
    assert ops.segment_mean(x, [0, 0, 2], 3).dtype == ml.float32
    many = np.full(4000, 40, np.float16)  # a sum beyond float16
    assert ops.segment_mean(many, np.zeros(4000, int), 1).tolist() == [40]
    assert ops.segment_sum(np.zeros((0, 3)), np.zeros(0, int), 0).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.rot90(X, 1, (0, 3)), ShapeError, "rot90 got axis 3"),
        (lambda: ops.rot90(X, 1, (0, -3)), ShapeError, "names one axis twice"),
        (lambda: ops.rot90(X, 1, (0, 1, 2)), ShapeError, "it takes two axes"),
        (lambda: ops.rot90(X, 0.5), AttributeRefusedError, "rot90 got k=0.5"),
        (lambda: ops.diagonal(M[0]), ShapeError, "it takes two axes at least"),
        (lambda: ops.diagonal(X, 0, 1, -2), ShapeError, "names one axis twice"),
        (lambda: ops.diagonal(X, 0.5), AttributeRefusedError, "diagonal got offset=0.5"),
        (lambda: ops.masked_select(X, X), DTypeError, "needs a bool mask; got float64"),
        (lambda: ops.masked_select(X, [True, False]), ShapeError, "masked_select cannot"),
        (lambda: ml.jit(lambda x: ops.masked_select(x, x > 1))(X), TracedValueError,
         "masked_select got a traced boolean mask"),
        (lambda: ops.segment_sum(X, [0], 2), ShapeError, r"segment_ids of shape \(1,\) for x of"),
        (lambda: ops.segment_sum(X, 0, 2), ShapeError, r"segment_ids of shape \(\) for x of"),
        (lambda: ops.segment_max(X, [0, 2], 2), OutOfRangeError, "index 2 for axis 0 of extent 2"),
        (lambda: ops.segment_min(X, [0, 1], 2.5), AttributeRefusedError, "num_segments=2.5"),
        (lambda: ops.segment_mean(X, [0.0, 1.0], 2), DTypeError, "needs integer indices"),
        (lambda: ops.segment_sum(X > 1, [0, 1], 2), DTypeError, "no meaning for bool"),
    ],
)  # fmt: skip
def test_refusals_of_turns_and_segments(call, error, message):
    with pytest.raises(error, match=message):
        call()
