"""Shapes, joins and cuts where a row of samples cannot say it: the functions and their refusals."""

import itertools

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ArityError, DTypeError, ShapeError
from miniml.grad import grad, vjp
from miniml.testing import gradcheck

X = np.arange(24.0).reshape(2, 3, 4)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def same(tensor, array):
    np.testing.assert_array_equal(tensor.asnumpy(), array)
    assert tensor.shape == np.shape(array)


# Rearranging


def test_reshape():
    same(ops.reshape(X, -1), X.reshape(-1))
    same(ops.reshape(X, [4, -1]), X.reshape(4, 6))
    same(ops.reshape(ops.transpose(X), (6, 4)), X.T.reshape(6, 4))
    same(ops.reshape([1, 2], (2, 1)), [[1], [2]])
    same(ops.reshape(np.zeros((0, 3)), (5, 0)), np.zeros((5, 0)))
    with pytest.raises(ShapeError, match=r"the 24 elements of shape \(2, 3, 4\) as \(5, 5\)"):
        ops.reshape(X, (5, 5))
    with pytest.raises(ShapeError, match="a shape is a tuple of ints"):
        ops.reshape(X, (2.0, 12))


def test_transposes():
    same(ops.transpose(X), X.T)
    same(ops.transpose(X, (1, -1, 0)), X.transpose(1, 2, 0))
    same(ops.swapaxes(X, 0, -1), X.swapaxes(0, -1))
    same(ops.moveaxis(X, 0, -1), np.moveaxis(X, 0, -1))
    same(ops.moveaxis(X, (0, 1), (-1, 0)), np.moveaxis(X, (0, 1), (-1, 0)))
    same(ops.transpose(3.0), 3.0)
    with pytest.raises(ShapeError, match="2 axes to move to 1 places"):
        ops.moveaxis(X, (0, 1), 0)
    with pytest.raises(ShapeError, match=r"once, or swap two with ops\.swapaxes"):
        ops.transpose(X, (0, 1))
    with pytest.raises(ShapeError, match="swapaxes got axis 3"):
        ops.swapaxes(X, 0, 3)


def test_every_permutation_is_undone_by_its_gradient(rng):
    dout = rng.normal(size=24)
    for axes in itertools.permutations(range(3)):
        out, pull = vjp(lambda x, axes=axes: ops.transpose(x, axes), ml.Tensor(X))
        d = dout.reshape(out.shape)
        same(pull(ml.Tensor(d))[0], d.transpose(np.argsort(axes)))


def test_functions_take_traced_tensors():
    def f(x):
        y = ops.swapaxes(ops.moveaxis(ops.transpose(x), 0, 1), 0, 1)
        y = ops.tile(ops.stack([y, y], 1), (2, 1))
        return ops.sum(ops.pad(ops.slice(y, 1, None, 2), 1) ** 2) + ops.var(x)

    eager = grad(f)(X)
    compiled = ml.jit(grad(f))(ml.Tensor(X))
    np.testing.assert_allclose(compiled.asnumpy(), eager.asnumpy())


@pytest.mark.parametrize(
    "f",
    [
        lambda x: ops.reshape(ops.transpose(2.0 * x), (6, 4)) * 1.5,
        lambda x: ops.reshape(ops.broadcast_to(2.0 * x, (3, 2, 3, 4)), (6, 12)) * 1.5,
        lambda x: ops.reshape(ops.transpose(x), -1) * 1.5,
        lambda x: ops.reshape(ops.transpose(2.0 * x), -1),
    ],
)
def test_compiled_reshapes_that_are_no_views(f):
    compiled = ml.jit(f)
    for scale in (1.0, 3.0):
        x = ml.Tensor(scale * X)
        same(compiled(x), f(x).asnumpy())


@pytest.mark.parametrize(
    "turned",
    [
        lambda y: ops.reshape(ops.transpose(y), (4, 6)),
        lambda y: ops.flip(y, 1),
        lambda y: ops.swapaxes(ops.reshape(y, (2, 2, 6)), 0, 1).reshape(4, 6),
        lambda y: y,
    ],
)
def test_a_parameter_assigned_its_own_elements_in_another_order(turned):
    p = ml.Parameter(X.reshape(4, 6))

    @ml.jit
    def step(x):
        ops.assign(p, turned(p * x))

    expected = X.reshape(4, 6)
    for _ in range(3):
        step(ml.Tensor(2.0))
        expected = turned(ml.Tensor(2 * expected)).asnumpy()
        same(p, expected)


def test_squeeze_and_expand_dims():
    x = X.reshape(2, 1, 12, 1)
    same(ops.squeeze(x), x.squeeze())
    same(ops.squeeze(x, [1, -1]), x.squeeze((1, 3)))
    same(ops.expand_dims(X, (0, -1)), X[None, ..., None])
    with pytest.raises(ShapeError, match=r"axis 0 of shape .* whose extent is 2"):
        ops.squeeze(x, 0)


@pytest.mark.parametrize("reps", [2, (), (2, 1), (1, 2, 3), (2, 1, 1, 3), (0, 1, 1)])
def test_tile_is_numpys(reps):
    same(ops.tile(X, reps), np.tile(X, reps))
    same(ops.tile(5, reps), np.tile(5, reps))


def test_flip_and_broadcast():
    same(ops.flip(X, -1), X[..., ::-1])
    same(ops.flip(X), X[::-1, ::-1, ::-1])
    same(ops.broadcast_to(2, [2, 2]), np.full((2, 2), 2))
    same(ops.sum_to(X, (3, 1)), X.sum(axis=(0, 2))[:, None])
    with pytest.raises(DTypeError, match="cannot sum bool"):
        ops.sum_to([True, False], ())


def test_views_do_not_show_a_parameter_that_changes():
    p = ml.Parameter(np.arange(4.0))
    views = [ops.reshape(p, (2, 2)), ops.flip(p), ops.slice(p, 1), ops.broadcast_to(p, (2, 4))]
    before = [v.asnumpy() for v in views]
    p.set_data(np.zeros(4))
    for view, was in zip(views, before):
        same(view, was)


# Joining and cutting


def test_concat_promotes_and_refuses():
    out = ops.concat(
        [np.ones((2, 1), np.int32), np.zeros((2, 2), np.float32), [[True], [False]]], -1
    )
    assert (out.shape, out.dtype) == ((2, 4), ml.float32)
    with pytest.raises(ArityError, match="at least one"):
        ops.concat([])
    with pytest.raises(
        ShapeError, match=r"input 1 of shape \(3, 3\) after input 0 of shape \(2, 3\)"
    ):
        ops.concat([np.ones((2, 3)), np.ones((3, 3))], 1)


def test_concat_gives_each_part_its_gradient():
    parts = [np.ones((2, 1)), np.ones((2, 0)), np.ones((2, 3))]
    weights = np.arange(8.0).reshape(2, 4)
    found = grad(lambda *xs: ops.sum(ops.concat(xs, 1) * weights), (0, 1, 2))(*parts)
    for got, expected in zip(found, np.split(weights, [1, 1], 1)):
        same(got, expected)


def test_stack():
    for axis in (0, 1, -1):
        same(ops.stack([X, 2 * X], axis), np.stack([X, 2 * X], axis))
    same(ops.stack([1, 2.5]), np.float32([1, 2.5]))
    with pytest.raises(ShapeError, match="all shapes must be equal"):
        ops.stack([np.ones(2), np.ones(3)])
    with pytest.raises(ArityError, match="at least one"):
        ops.stack([])


def test_split():
    for got, expected in zip(ops.split(X, 2, -1), np.split(X, 2, -1)):
        same(got, expected)
    sizes = [part.shape for part in ops.split(X, [1, 0, 2], 1)]
    assert sizes == [(2, 1, 4), (2, 0, 4), (2, 2, 4)]
    assert isinstance(ops.split(X, 1), tuple)
    with pytest.raises(ShapeError, match="cannot cut extent 3 into 2 equal parts"):
        ops.split(X, 2, 1)


def test_a_part_of_split_that_nobody_uses_has_no_gradient():
    found = grad(lambda x: ops.sum(ops.split(x, (1, 2))[1] * 3.0))(np.ones(3))
    same(found, [0, 3, 3])


ENDS = (None, -9, -4, -2, 0, 1, 3, 4, 9)


@pytest.mark.parametrize("step", [None, 1, 2, 5, -1, -2, -5])
def test_slice_is_pythons(step):
    x = np.arange(4.0)
    for begin, end in itertools.product(ENDS, ENDS):
        expected = x[begin:end:step]
        same(ops.slice(x, begin, end, step), expected)
        slope = np.zeros(4)
        slope[begin:end:step] = 1
        same(grad(lambda v, b=begin, e=end: ops.sum(ops.slice(v, b, e, step)))(x), slope)


def test_slice_of_several_axes():
    same(ops.slice(X, (0, -1), (None, None), (1, -2)), X[:, ::-2][:, :2])
    same(ops.slice(X, (1,)), X[1:])
    same(ops.slice(X, (None, 1, 3), (1, 3, 0), (1, 1, -2)), X[:1, 1:3, 3:0:-2])
    same(ops.slice(3.0, None), 3.0)
    same(ops.slice(3.0, ()), 3.0)
    with pytest.raises(ShapeError, match="a stride is not 0"):
        ops.slice(X, 0, 1, 0)
    with pytest.raises(ShapeError, match="4 entries"):
        ops.slice(X, (0, 0, 0, 0))
    with pytest.raises(ShapeError, match="elements 0 to 4 of axis 0"):
        ops.Slice((0,), (5,), (1,))(np.ones(4))


def test_pad():
    same(ops.pad(X, 1), np.pad(X, 1))
    same(ops.pad(X, (1, 2), 7.0), np.pad(X, (1, 2), constant_values=7))
    same(ops.pad(X, [(0, 1), (2, 0), (0, 0)]), np.pad(X, [(0, 1), (2, 0), (0, 0)]))
    same(
        ops.pad(X[0], ((1, 1), (2, 2)), -np.inf),
        np.pad(X[0], ((1, 1), (2, 2)), constant_values=-np.inf),
    )
    same(ops.pad([True], 1, True), [True] * 3)
    assert ops.pad([1, 2], 1).dtype == ml.int64
    with pytest.raises(DTypeError, match=r"number 0\.5, which int64 cannot hold"):
        ops.pad([1, 2], 1, 0.5)
    with pytest.raises(ShapeError, match="one pair"):
        ops.pad(X, [(1, 1), (0, 0)])
    with pytest.raises(ShapeError, match="one per axis"):
        ops.pad(X, [(1, 1, 1)])
    with pytest.raises(ShapeError, match="numbers >= 0"):
        ops.pad(X, -1)


# Windows, flattened and broadcast


@pytest.mark.parametrize(
    ("size", "axis", "step"), [(2, -1, 1), (3, 0, 2), (5, 1, 1), ((2, 3), (1, 0), 1),
                               ((2, 2), (0, -1), (2, 3)), ((1, 4), (-1, 1), 2)]
)  # fmt: skip
def test_windows_are_numpys(size, axis, step):
    x = np.sin(np.arange(6 * 5 * 7.0)).reshape(6, 5, 7)
    expected = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    axes = axis if isinstance(axis, tuple) else (axis,)
    steps = step if isinstance(step, tuple) else (step,) * len(axes)
    for a, by in zip(axes, steps):
        index = [slice(None)] * expected.ndim
        index[a % 3] = slice(None, None, by)
        expected = expected[tuple(index)]

    def fn(x):
        return ops.sliding_window(x, size, axis, step)

    for run in (fn, ml.jit(fn)):
        np.testing.assert_array_equal(run(x).asnumpy(), expected)
    for moved in (x[::-1], x.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
        again = np.asarray(fn(ml.Tensor(moved)))
        np.testing.assert_array_equal(fn(moved).asnumpy(), again)
    np.testing.assert_array_equal(ml.vmap(fn)(x[None]).asnumpy()[0], expected)
    small = x[:, :, :5]
    assert gradcheck(lambda x: ops.square(fn(x)), small).ok
    loss = lambda x: ops.sum(ops.max(ops.square(fn(x)) + 1.0, -1))  # noqa: E731
    dx = [run(small).asnumpy() for run in (grad(loss), ml.jit(grad(loss)))]
    np.testing.assert_allclose(*dx, 1e-12)


def test_windows_share_memory_and_are_not_written():
    x = ml.Tensor(np.arange(1000.0))
    windows = ops.sliding_window(x, 100)
    assert np.shares_memory(windows._data, x._data)
    doubled = ml.jit(lambda x: ops.mul(ops.sliding_window(x * 1.0, 3), 2.0) + 1.0)(x)
    expected = np.lib.stride_tricks.sliding_window_view(np.arange(1000.0), 3) * 2 + 1
    np.testing.assert_array_equal(doubled.asnumpy(), expected)


def test_flattened_and_broadcast():
    x = np.arange(24.0).reshape(2, 3, 4)
    for given in ((), (1,), (0, 1), (-2, -1), (1, 1)):
        assert ops.flatten(x, *given).shape == ml.Tensor(x).flatten(*given).shape
    assert ops.flatten(x, 1).tolist() == x.reshape(2, 12).tolist()
    assert ops.flatten(5.0).shape == (1,)
    assert ops.swap_axes(x, 0, 2).tolist() == np.swapaxes(x, 0, 2).tolist()
    for got, expected in zip(
        ops.broadcast_arrays(x, [1, 2, 3, 4], True), np.broadcast_arrays(x, [1, 2, 3, 4], True)
    ):
        assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())
    assert ops.broadcast_arrays() == ()
    assert ml.Tensor(x).mT.tolist() == np.swapaxes(x, -1, -2).tolist()
    traced = ml.jit(lambda t: t.mT @ t)(x).asnumpy()
    np.testing.assert_allclose(traced, np.swapaxes(x, -1, -2) @ x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.sliding_window(np.ones(3), 4), "size 4 for axis 0 of shape"),
        (lambda: ops.sliding_window(np.ones((3, 3)), (1, 2)), "give one for each axis"),
        (lambda: ops.sliding_window(np.ones((3, 3)), (1, 2), (0, -2)), "names one axis twice"),
        (lambda: ops.sliding_window(1.0, 1), "has none"),
        (lambda: ops.flatten(np.ones(3), 1), "flatten got axis 1"),
        (lambda: ops.flatten(np.ones((3, 3)), 1, 0), "start_dim 1 behind end_dim 0"),
        (lambda: ops.broadcast_arrays(np.ones(2), np.ones(3)), "broadcast_arrays cannot"),
        (lambda: ml.Tensor([1.0]).mT, "mT of a tensor of shape"),
    ],
)
def test_refusals_of_windows(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
