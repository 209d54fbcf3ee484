"""pad by modes, and pooling by norms: NumPy's numbers, derivatives, dtypes, many examples."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, ShapeError
from miniml.grad import grad
from miniml.testing import gradcheck

MODES = ("edge", "reflect", "symmetric", "wrap")
CASES = [
    ((5,), (2, 3)),
    ((4,), (11, 9)),
    ((1,), (3, 2)),
    ((2,), (5, 4)),
    ((3, 4), ((1, 0), (9, 2))),
    ((2, 3, 4), ((0, 0), (0, 0), (4, 4))),
    ((0, 3), ((0, 0), (2, 1))),
    ((3,), 0),
    ((), ()),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "padding"), CASES)
def test_modes_are_those_of_numpy(mode, shape, padding):
    x = np.random.default_rng(0).normal(size=shape)
    expected = np.pad(x, padding, mode) if shape else x
    for fn in (ops.pad, ml.jit(ops.pad)):
        got = fn(x, padding, mode=mode)
        np.testing.assert_array_equal(got.asnumpy(), expected)


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_and_many_examples_of_padding(mode):
    x = np.random.default_rng(0).normal(size=(2, 3))
    pads = ((1, 2), (3, 0))
    assert gradcheck(lambda x: ops.pad(x, pads, mode=mode) ** 2, x, order=2).ok
    # Each element counts as often as it occurs.
    counts = grad(lambda x: ops.sum(ops.pad(x, pads, mode=mode)))(x).asnumpy()
    where = np.pad(np.arange(6).reshape(2, 3), pads, mode)
    np.testing.assert_array_equal(counts.ravel(), np.bincount(where.ravel(), minlength=6))
    rows = ml.vmap(lambda x: ops.pad(x, (2, 1), mode=mode))(x)
    np.testing.assert_array_equal(rows.asnumpy(), np.pad(x, ((0, 0), (2, 1)), mode))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float32"])
def test_the_dtype_of_padding_stays(dtype):
    x = np.array([1, 0, 1]).astype(dtype)
    got = ops.pad(x, 2, mode="reflect")
    assert got.dtype == dtype
    assert got.tolist() == np.pad(x, 2, "reflect").tolist()
    assert ops.pad(ml.Tensor([1.0, 2.0], dtype=ml.bfloat16), 1, mode="wrap").dtype == ml.bfloat16


def test_not_a_number_is_repeated_where_it_is():
    got = ops.pad([np.nan, 1.0, np.inf], 1, mode="edge").asnumpy()
    np.testing.assert_array_equal(got, [np.nan, np.nan, 1, np.inf, np.inf])


# Pooling by norms


def by_hand(x, p, size, stride, before=0, behind=0):
    """The p-norm of the windows of each row of x."""
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, behind)])
    starts = range(0, x.shape[-1] - size + 1, stride)
    parts = [np.linalg.norm(x[..., i : i + size], p, -1) for i in starts]
    return np.stack(parts, -1)


@pytest.mark.parametrize("p", [1, 2, 2.5, 7.0])
def test_norms_of_windows(p):
    x = np.random.default_rng(0).normal(size=(2, 3, 9))
    for size, stride in ((2, 2), (3, 1), (4, 3)):
        expected = by_hand(x, p, size, stride)
        fn = lambda x, size=size, stride=stride: ops.lp_pool1d(x, p, size, stride)  # noqa: E731
        np.testing.assert_allclose(fn(x).asnumpy(), expected, 1e-12)
        np.testing.assert_allclose(ml.jit(fn)(x).asnumpy(), expected, 1e-12)
    # A last window beyond x has fewer elements.
    expected = by_hand(x, p, 4, 4, behind=3)
    got = ops.lp_pool1d(x, p, 4, ceil_mode=True).asnumpy()
    np.testing.assert_allclose(got, expected, 1e-12)
    got = ops.lp_pool1d(x, p, 3, 2, padding=((2, 1),)).asnumpy()
    np.testing.assert_allclose(got, by_hand(x, p, 3, 2, 2, 1), 1e-12)
    got = ops.lp_pool1d(x, p, 2, 1, dilation=3).asnumpy()
    np.testing.assert_allclose(got, (np.abs(x[..., :6]) ** p + np.abs(x[..., 3:]) ** p) ** (1 / p))


def test_norms_of_windows_of_two_and_three_axes():
    x = np.random.default_rng(0).normal(size=(2, 1, 4, 6, 2))
    blocks = x.reshape(2, 1, 2, 2, 2, 3, 2)
    expected = np.sqrt((blocks**2).sum((3, 5)))
    got = ops.lp_pool3d(x, 2, (2, 3, 1)).asnumpy()
    np.testing.assert_allclose(got, expected, 1e-12)
    got = ops.lp_pool2d(x[..., 0], 2, (2, 3)).asnumpy()
    np.testing.assert_allclose(got, expected[..., 0], 1e-12)


def test_derivatives_and_ends_of_norms():
    x = np.random.default_rng(0).normal(size=(1, 2, 6))
    for p in (1.0, 2.0, 3.0):
        assert gradcheck(lambda x, p=p: ops.lp_pool1d(x, p, 3, 2), x, order=2).ok
    assert gradcheck(ml.vmap(lambda r: ops.lp_pool1d(r[None], 2, 2)), x).ok
    zeros = np.zeros((1, 1, 4))
    for p in (1, 2, 3.5):
        assert grad(lambda x, p=p: ops.sum(ops.lp_pool1d(x, p, 2)))(zeros).tolist() == [[[0] * 4]]
    half = ml.Tensor([[[300.0, 400.0]]], dtype=ml.float16)  # whose squares overflow
    assert ops.lp_pool1d(half, 2, 2).tolist() == [[[500.0]]]
    assert ops.lp_pool1d(half, 2, 2).dtype == ml.float16
    assert np.isnan(ops.lp_pool1d([[[np.nan, 1.0]]], 2, 2).item())
    assert ops.lp_pool1d([[[np.inf, 1.0]]], 2, 2).item() == np.inf
    assert ops.lp_pool2d(np.zeros((0, 2, 4, 4)), 2, 2).shape == (0, 2, 2, 2)
    with pytest.raises(DTypeError, match="lp_pool1d needs a float tensor"):
        ops.lp_pool1d(np.ones((1, 1, 4), int), 2, 2)
    with pytest.raises(ShapeError, match="lp_pool2d needs x of shape"):
        ops.lp_pool2d(zeros, 2, 2)
