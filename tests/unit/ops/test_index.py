"""Indexing against NumPy's, for indices that no row of samples would think of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import miniml as ml
from miniml import ops
from miniml.errors import (
    DTypeError,
    OutOfRangeError,
    ShapeError,
    TracedValueError,
    ValueRefusedError,
)
from miniml.grad import grad, jvp, vjp
from miniml.testing import gradcheck

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
X = np.arange(24.0).reshape(2, 3, 4)


def counted(shape):
    return np.arange(float(np.prod(shape, dtype=int))).reshape(shape) + 1


def weighted(f):
    """sum(f(x) * weights): what reaches an element of x names the outputs it went to."""

    def loss(x):
        out = f(x)
        return ops.sum(out * counted(out.shape))

    return loss


def assert_as_numpy(x, index):
    """The same elements as x[index], and the gradient that np.add.at gives."""
    expected = x[index]
    out = ml.Tensor(x)[index]
    assert out.shape == np.shape(expected)
    np.testing.assert_array_equal(out.asnumpy(), expected)
    sums = np.zeros_like(x)
    np.add.at(sums, index, counted(np.shape(expected)))
    dx = grad(weighted(lambda t: t[index]))(ml.Tensor(x))
    np.testing.assert_array_equal(dx.asnumpy(), sums)


@given(st.data())
def test_basic_index(data):
    x = counted(data.draw(SHAPES))
    assert_as_numpy(x, data.draw(hnp.basic_indices(x.shape, allow_newaxis=True)))


@given(st.data())
def test_integer_arrays_on_all_axes(data):
    x = counted(data.draw(hnp.array_shapes(max_dims=3, max_side=4)))
    assert_as_numpy(x, data.draw(hnp.integer_array_indices(x.shape)))


@st.composite
def mixed_indices(draw, shape):
    """Ints, slices, arrays that broadcast together, new axes, one "..." for any number of axes."""
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    items = []
    for n in shape:
        kind = draw(st.sampled_from(["int", "slice", "array", "array"]))
        if kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            items.append(draw(st.slices(n)))
        else:
            cut = draw(st.integers(0, len(common)))
            items.append(draw(hnp.arrays(np.int64, common[cut:], elements=st.integers(-n, n - 1))))
    places = st.integers(0, len(items))
    if draw(st.booleans()):
        first, last = sorted((draw(places), draw(places)))
        items[first:last] = [Ellipsis]
    for place in draw(st.lists(st.integers(0, len(items)), max_size=2)):
        items.insert(place, None)
    return tuple(items)


@given(st.data())
def test_any_mixture_stands_where_numpy_puts_it(data):
    x = counted(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3)))
    assert_as_numpy(x, data.draw(mixed_indices(x.shape)))


I = np.array([0, 1])  # noqa: E741 - as in the formulas


@pytest.mark.parametrize(
    "index",
    [
        (I, 0, slice(None)), (0, slice(None), I), (slice(None), 0, I), (I, ..., I),
        (slice(None), I, ..., I), (I, None, I), (0, I), (slice(None), [True, False, True]),
        (slice(None), *(X[0] > 3).nonzero()), X > 5, (X[:, :, 0] > 5, 1), (..., X[0, 0] > 1), ([],),
        (slice(None, None, -2), slice(5, 0, -1), slice(-1, None, -3)),
    ],
    ids=str,
)  # fmt: skip
def test_index(index):
    assert_as_numpy(X, index)


def test_masks_and_tensors_index_a_tensor():
    x = ml.Tensor(X)
    assert x[x > 5].tolist() == X[X > 5].tolist()
    assert x[ml.Tensor(1), ml.Tensor([2, 0], "uint8")].tolist() == X[1, [2, 0]].tolist()
    assert x[ml.Tensor([1], "int32"), ml.Tensor([2])].tolist() == X[[1], [2]].tolist()
    dx = grad(lambda t: ops.sum(t[t > 5] ** 2))(x)
    np.testing.assert_array_equal(dx.asnumpy(), np.where(X > 5, 2 * X, 0))


def test_membership_looks_at_every_element():
    t = ml.Tensor([[1.0, 2.0], [3.0, np.nan]])
    assert 2.0 in t
    assert np.float32(3.0) in t
    assert 5.0 not in t
    assert 1 not in ml.Tensor(np.ones((0, 2)))


def test_iteration_and_integers_from_numpy():
    assert [r.tolist() for r in ml.Tensor(X)] == X.tolist()
    assert ml.Tensor(X)[np.int32(-1), np.uint8(2)].tolist() == X[-1, 2].tolist()


def test_a_traced_mask_is_refused_and_names_where():
    masked = ml.jit(lambda t: t[t > 0])
    with pytest.raises(TracedValueError, match=r"traced boolean mask bool\[2, 3, 4\].*ops.where"):
        masked(ml.Tensor(X))


def test_a_traced_index_is_an_input():
    picked = ml.jit(lambda t, i: t[i, :, 0])
    for i in (0, -1):
        np.testing.assert_array_equal(picked(ml.Tensor(X), ml.Tensor(i)).asnumpy(), X[i, :, 0])
    with pytest.raises(OutOfRangeError, match="index 2 for axis 0 of extent 2"):
        picked(ml.Tensor(X), ml.Tensor(2))


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (
            2,
            OutOfRangeError,
            "getitem got index 2 for axis 0 of extent 2; indices run",
        ),
        ((0, -4), OutOfRangeError, "index -4 for axis 1 of extent 3"),
        ([0, 2], OutOfRangeError, "Gather got index 2 for axis 0 of extent 2"),
        (([0, 1], [0, 3]), OutOfRangeError, "Index got index 3 for axis 1 of extent 3"),
        ((0, 0, 0, 0), ShapeError, "4 indices for a tensor of shape"),
        ((..., ...), ShapeError, "write it once"),
        (slice(None, None, 0), ShapeError, "step 0"),
        (X[0] > 1, ShapeError, "a mask has the shape of the axes it covers"),
        (True, DTypeError, "True as an index"),
        (1.0, DTypeError, "1.0 as an index"),
        ("a", DTypeError, "'a' as an index"),
        ([0.5], DTypeError, "needs integer indices; got float"),
        (slice(0, 1.5), DTypeError, "the ends and the step of a slice are ints"),
        (([0, 1], [0, 1, 2]), ShapeError, "Index indices cannot broadcast shapes"),
    ],
    ids=str,
)
def test_refused_index(index, error, text):
    with pytest.raises(error) as caught:
        ml.Tensor(X)[index]
    assert text in str(caught.value)


def test_out_of_range_is_an_index_error_with_the_callers_line():
    with pytest.raises(IndexError) as caught:
        ops.gather(ml.Tensor(X), [7])
    assert "ops.gather(ml.Tensor(X), [7])" in "".join(caught.value.__notes__)


# Adding at indices


@pytest.mark.parametrize(
    ("rows", "count", "width"), [(5, 7, 1), (5, 40, 3), (50, 2000, 16), (3, 0, 2)]
)
def test_repeated_rows_accumulate_by_every_path_of_the_kernel(rows, count, width):
    rng = np.random.default_rng(0)
    places = rng.integers(-rows, rows, count)
    updates = rng.normal(size=(count, width))
    expected = np.zeros((rows, width))
    np.add.at(expected, places, updates)
    got = ops.IndexAdd((0,), 0, (rows, width))(updates, places)
    np.testing.assert_allclose(got.asnumpy(), expected, rtol=1e-12, atol=1e-12)
    x = rng.normal(size=(rows, width))
    got = ops.scatter_add(x, places, updates)
    np.testing.assert_allclose(got.asnumpy(), x + expected, rtol=1e-12, atol=1e-12)


def test_scatter_add_keeps_the_dtype_of_x():
    x = ml.Tensor([1, 2, 3], "float16")
    assert ops.scatter_add(x, [0, 0], 1.5).tolist() == [4, 2, 3]
    assert ops.scatter_add(x, [0], ml.Tensor([2])).dtype == ml.float16
    with pytest.raises(DTypeError, match="float32 values for a float16 tensor"):
        ops.scatter_add(x, [0], ml.Tensor([2.0]))
    with pytest.raises(DTypeError, match="float32 values for a int64 tensor"):
        ops.scatter_add(ml.Tensor([1]), [0], 0.5)


def test_gradients_of_a_gather_with_repeats():
    x = ml.Tensor([1.0, 2.0, 3.0])

    def f(x):
        return ops.sum(ops.gather(x, [0, 0, 2]) ** 3)

    assert grad(f)(x).tolist() == [6, 0, 27]
    assert grad(lambda x: ops.sum(grad(f)(x)))(x).tolist() == [12, 0, 18]
    third = grad(lambda x: ops.sum(grad(lambda x: ops.sum(grad(f)(x)))(x)))
    assert third(x).tolist() == [12, 0, 6]


# Putting values at indices


@given(st.data())
def test_scatter_puts_what_numpy_puts(data):
    x = counted(data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3)))
    index = data.draw(mixed_indices(x.shape))
    value = -counted(np.shape(x[index]))
    expected = x.copy()
    expected[index] = value
    np.testing.assert_array_equal(ops.scatter(ml.Tensor(x), index, value).asnumpy(), expected)
    # With one gradient per element of the output, x keeps those it still shows, and so does value.
    weights = counted(x.shape)
    dx, dv = grad(lambda t, v: ops.sum(ops.scatter(t, index, v) * weights), (0, 1))(
        ml.Tensor(x), ml.Tensor(value)
    )
    np.testing.assert_array_equal(dx.asnumpy(), np.where(expected == x, weights, 0))
    shown = np.where(np.isin(value, expected), weights[index], 0)
    np.testing.assert_array_equal(dv.asnumpy(), shown)


def test_scatter_takes_masks_and_numbers():
    x = ml.Tensor([1.0, -2.0, 3.0])
    assert ops.scatter(x, x < 0, 0.0).tolist() == [1, 0, 3]
    assert ops.scatter(x, slice(None, None, 2), [7, 8]).tolist() == [7, -2, 8]
    assert ops.scatter(x, ..., 5).dtype == ml.float32
    assert x.tolist() == [1, -2, 3]


def test_scatter_refuses():
    x = ml.Tensor([1.0, 2.0])
    with pytest.raises(OutOfRangeError, match="Scatter refuses its indices: index 2 is out of"):
        ops.scatter(x, [2], 0.0)
    with pytest.raises(ShapeError, match=r"value of shape \(3,\) for a place of shape \(2,\)"):
        ops.scatter(x, ..., np.ones(3, np.float32))
    with pytest.raises(TracedValueError, match="scatter got a traced boolean mask"):
        ml.jit(lambda t: ops.scatter(t, t > 0, 0.0))(x)


# Order

NAN = np.nan


def test_ties_keep_their_order_and_nan_is_the_largest():
    x = ml.Tensor([2.0, NAN, 1.0, 2.0, NAN, 1.0])
    assert ops.argsort(x).tolist() == [2, 5, 0, 3, 1, 4]
    assert ops.argsort(x, descending=True).tolist() == [1, 4, 0, 3, 2, 5]
    np.testing.assert_array_equal(ops.sort(x).asnumpy(), [1, 1, 2, 2, NAN, NAN])
    assert ops.topk(x, 3)[1].tolist() == [1, 4, 0]
    assert ops.topk(x, 3, largest=False)[1].tolist() == [2, 5, 0]


@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int8, np.uint8, np.bool_]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
    ),
    st.booleans(),
    st.data(),
)
def test_sort_is_numpys(x, descending, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    values, indices = ops.Sort(axis, descending)(x)
    expected = np.sort(x, axis=axis)
    np.testing.assert_array_equal(
        values.asnumpy(), np.flip(expected, axis) if descending else expected
    )
    np.testing.assert_array_equal(np.take_along_axis(x, indices.asnumpy(), axis), values.asnumpy())


def test_gradients_follow_the_values():
    x = ml.Tensor([3.0, 1.0, 2.0])
    weights = np.array([1, 10, 100], np.float32)
    assert grad(lambda x: ops.sum(ops.sort(x) * weights))(x).tolist() == [100, 1, 10]
    assert grad(lambda x: ops.sum(ops.topk(x, 2)[0] ** 2))(x).tolist() == [6, 0, 4]
    second = grad(lambda x: ops.sum(grad(lambda x: ops.sum(ops.topk(x, 2)[0] ** 3))(x)))
    assert second(x).tolist() == [18, 0, 12]


# Scatter by mode

MODES = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
ROWS, TWOS = np.array([[0, 1], [1, -1]]), np.array([2, 2])
PLACES = (
    (ROWS,), (slice(None), TWOS), (ROWS, slice(None), TWOS), (slice(1, 2), TWOS), (0, TWOS),
    (0, slice(None), TWOS), (..., TWOS), (None, ROWS), (slice(None, None, -1), slice(0, 2)), (1,),
    X[:, 0, 0] > 5, (ROWS, TWOS), ([],), (),
)  # fmt: skip


def combined(x, index, value, mode):
    out = x.copy()
    MODES[mode].at(out, index, np.broadcast_to(value, x[index].shape))
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", PLACES, ids=str)
def test_scatter_combines_as_numpys_at(mode, index):
    rng = np.random.default_rng(0)
    x, value = rng.normal(size=X.shape), rng.normal(size=X[index].shape)
    expected = combined(x, index, value, mode)

    def fn(x, value):
        return ops.scatter(x, index, value, mode)

    for run in (fn, ml.jit(fn)):
        np.testing.assert_allclose(run(x, value).asnumpy(), expected, 1e-12)
    spread = ops.scatter(x, index, 0.5, mode).asnumpy()
    np.testing.assert_allclose(spread, combined(x, index, 0.5, mode), 1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_scatter_by_mode(mode):
    rng = np.random.default_rng(1)
    x, value = rng.normal(size=(3, 4)), rng.normal(size=(2, 2, 4))
    assert gradcheck(lambda x, v: ops.scatter(x, ROWS, v, mode), x, value, order=2).ok
    x, value = rng.normal(size=(3, 4)), rng.normal(size=(2,))
    assert gradcheck(lambda x, v: ops.scatter(x, (slice(1, 3), TWOS), v, mode), x, value).ok


def test_products_have_gradients_where_factors_are_zero():
    x = np.array([1.0, 2.0, 3.0])
    value = np.array([0.0, 4.0, 0.0, 5.0, 0.0, 7.0])
    at = np.array([0, 0, 1, 2, 1, 0])
    got = grad(lambda v: ops.sum(ops.scatter(x, at, v, "mul")))(value)
    assert got.tolist() == [28.0, 0.0, 0.0, 3.0, 0.0, 0.0]
    assert gradcheck(lambda v: ops.scatter(x, at, v, "mul"), value, order=2).ok


def test_equal_extrema_share_the_gradient():
    ids, value = np.array([0, 0, 0, 1]), np.array([3.0, 3.0, 1.0, 2.0])
    shared = grad(lambda v: ops.sum(ops.segment_max(v, ids, 3)[:2] * [6.0, 10.0]))(value)
    assert shared.tolist() == [3.0, 3.0, 0.0, 10.0]
    dx, dv = grad(lambda x, v: ops.sum(ops.scatter(x, ids, v, "max")), (0, 1))(
        np.array([3.0, 5.0]), value
    )
    assert (dx.tolist(), dv.tolist()) == ([0.5, 1.0], [0.25, 0.25, 0.0, 0.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint8", "int64"])
@pytest.mark.parametrize("mode", ["add", "mul", "min", "max"])
def test_dtypes_of_scatter_by_mode(mode, dtype):
    x = ml.Tensor([[1, 2], [3, 4]]).astype(dtype)
    out = ops.scatter(x, [0, 0], x, mode)
    expected = {"add": [[5, 8], [3, 4]], "mul": [[3, 16], [3, 4]],
                "min": [[1, 2], [3, 4]], "max": [[3, 4], [3, 4]]}[mode]  # fmt: skip
    assert (out.dtype, out.tolist()) == (x.dtype, expected)


def test_nan_stays_in_products_and_extrema():
    for mode in MODES:
        out = ops.scatter([1.0, 2.0], [0, 0], [np.nan, 5.0], mode).tolist()
        assert np.isnan(out[0])
        assert out[1] == 2


@pytest.mark.parametrize("mode", ["set", *MODES])
@pytest.mark.parametrize(
    ("shape", "index", "value"),
    [
        ((4,), ("tensor",), (6,)), ((4,), ("tensor",), ()), ((3, 5), ("tensor", "tensor"), (6,)),
        ((2, 3, 5), ("tensor", slice(1, 3), "tensor"), (6, 1)),
        ((2, 3, 5), (slice(None), 1, "tensor"), (2, 6)), ((2, 3), (None, "tensor"), (1, 6, 3)),
        ((2, 3, 5), (0, slice(None), "tensor"), (6, 3)), ((2, 3), (..., "tensor"), (2, 6)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("mapped", [(True, True), (False, True), (True, False), (False, False)])
def test_scatter_at_other_indices_for_each_example(mode, shape, index, value, mapped):
    rng = np.random.default_rng(2)
    x, v = (rng.normal(size=(3,) * on + s) for on, s in zip(mapped, (shape, value)))
    named = rng.integers(-2, 2, (3, 6))

    def fn(x, v, named):
        items = tuple(named if item == "tensor" else item for item in index)
        return ops.scatter(x, items, v, mode)

    axes = tuple(0 if on else None for on in mapped)
    whole = ml.vmap(fn, (*axes, 0))(x, v, named).asnumpy()
    for i in range(3):
        each = [a[i] if on else a for a, on in zip((x, v), mapped)]
        np.testing.assert_allclose(whole[i], fn(*each, named[i]).asnumpy(), 1e-12)


def test_tangents_of_scatter_by_mode():
    rng = np.random.default_rng(3)
    x, v, at = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), np.array([0, 2, 0, 0, 2])
    for mode in MODES:
        fn = lambda x, v, m=mode: ops.scatter(x, at, v, m)  # noqa: E731
        _, tangent = jvp(fn, (x, v), (np.sin(x), np.cos(v)))
        _, pull = vjp(fn, x, v)
        dx, dv = pull(np.ones_like(x))
        both = np.sum(dx.asnumpy() * np.sin(x)) + np.sum(dv.asnumpy() * np.cos(v))
        np.testing.assert_allclose(np.sum(tangent.asnumpy()), both, 1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.scatter(X, 0, 1, "sum"), ValueRefusedError, "scatter got mode='sum'; expected"
         " one of 'set', 'add', 'mul', 'min', 'max'"),
        (lambda: ops.scatter(X, [0], np.ones(5), "max"), ShapeError, r"a value of shape \(5,\) for "
         r"a place of shape \(1, 3, 4\)"),
        (lambda: ops.scatter(X > 1, [0], True, "max"), DTypeError, "scatter has no meaning for"),
        (lambda: ops.scatter([1, 2], [0], [0.5], "add"), DTypeError, "float32 values for a int64"),
        (lambda: ops.scatter(X, [2], 1, "mul"), OutOfRangeError, "index 2 for axis 0 of extent 2"),
        (lambda: ops.scatter_nd(X, [[0, 0, 0, 0]], 1), ShapeError, "scatter_nd got indices of"),
        (lambda: ops.scatter_nd(X, [[]], 1), ShapeError, "names no axis of x"),
        (lambda: ops.scatter_nd(X, [[0.5]], 1), DTypeError, "scatter_nd needs integer indices"),
        (lambda: ops.scatter_nd(X, [[0]], 1, "no"), ValueRefusedError, "scatter_nd got mode='no'"),
    ],
)  # fmt: skip
def test_refusals_of_scatter_by_mode(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("mode", ["set", *MODES])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_scatter_nd_puts_what_gather_nd_takes(mode, k):
    rng = np.random.default_rng(k)
    at = rng.integers(0, 2, (3, 2, k))
    value = rng.normal(size=(3, 2, *X.shape[k:]))
    index = tuple(np.moveaxis(at, -1, 0))
    expected = X.copy()
    if mode == "set":
        for place in np.ndindex(3, 2):
            expected[tuple(at[place])] = value[place]
    else:
        expected = combined(X, index, value, mode)

    def fn(x, at, value):
        return ops.scatter_nd(x, at, value, mode)

    for run in (fn, ml.jit(fn)):
        np.testing.assert_allclose(run(X, at, value).asnumpy(), expected, 1e-12)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_many_elements_along_an_axis_of_any_memory(axis, dtype):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((9, 30, 8)).astype("f")
    shape = [9, 30, 8]
    shape[axis] = 21
    places = rng.integers(0, x.shape[axis], shape).astype(dtype)
    for array in (x, x[::-1], np.asfortranarray(x)):
        for at in (places, places - x.shape[axis]):
            got = ops.take_along_axis(ml.Tensor(array), ml.Tensor(at), axis).asnumpy()
            np.testing.assert_array_equal(got, np.take_along_axis(array, places, axis))
    of_one = ops.take_along_axis(ml.Tensor(x[:1]), ml.Tensor(places), axis) if axis else None
    if axis:  # the other axes broadcast
        whole = np.broadcast_to(x[:1], x.shape)
        np.testing.assert_array_equal(of_one.asnumpy(), np.take_along_axis(whole, places, axis))
