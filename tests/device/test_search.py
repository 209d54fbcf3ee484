"""Searching, counting and what has shapes that depend on values, on a CUDA device."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import OutOfRangeError
from miniml.grad import grad

X = np.array([[3, 0, 1, 3, 2], [0, 0, 4, 1, 1]])


def found(x):
    """Each function, of small whole numbers."""
    y = ops.cast(x, "float32")
    rows = ops.sort(y)
    return (
        ops.median(y, 1), ops.median(rows), ops.bincount(x, 6), ops.bincount(x, 6, rows),
        ops.searchsorted(rows, y), ops.searchsorted(rows[0], rows, "right"),
        ops.gather_nd(x, [[1, 2], [0, -1]]), grad(lambda v: ops.sum(ops.median(v, 0) ** 2))(rows),
    )  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
def test_they_give_what_the_cpu_gives(on_device, compiled):
    got = (ml.jit(found) if compiled else found)(ml.Tensor(X))
    with ml.context(device_target="cpu"):
        expected = found(X)
    for one, two in zip(got, expected, strict=True):
        assert one.device == on_device
        np.testing.assert_array_equal(one.asnumpy(), two.asnumpy(), strict=True)


def test_searching_among_what_is_not_finite(on_device):
    row = np.array([-np.inf, -1, 0, 0, 3, np.inf, np.nan, np.nan], np.float16)
    for side in ("left", "right"):
        got = ops.searchsorted(ml.Tensor(row), ml.Tensor(row[::-1].copy()), side)
        assert got.tolist() == np.searchsorted(row, row[::-1], side).tolist()


def test_shapes_that_depend_on_values(on_device):
    x = ml.Tensor(X)
    for got, right in (
        (ops.nonzero(x), np.argwhere(X)), (ops.unique(x), np.unique(X)),
        (ops.unique_all(x.T)[2], np.unique(X.T, return_inverse=True)[1]),
    ):  # fmt: skip
        assert got.device == on_device
        np.testing.assert_array_equal(got.asnumpy(), right)


def test_negative_numbers_are_not_counted(on_device):
    with pytest.raises(OutOfRangeError, match="bincount got a negative number"):
        ops.bincount(ml.Tensor([0, -1]), 3)
