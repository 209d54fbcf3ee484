"""Reductions on a CUDA device: who shares a row, rows that are cut, packs, every schedule."""

import ml_dtypes
import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.sim.memory import SCHEDULES, using
from miniml.backends.cuda.text.source import BLOCK

CUT = 2 * 64 * BLOCK  # the shortest row that is cut
CASES = (
    *(((3, n), 1) for n in (0, 1, 7, 8, 9, 31, 32, 33, 1023, 1024, 1025, 2047, 2048, 2049, 2052)),
    ((CUT - 1,), 0), ((CUT + 3,), None), ((2, CUT + 8), 1), ((CUT // 64, 64), None),
    ((127, 33), 0), ((131, 9), 0), ((1100, 3), 0), ((300, 2, 40), 0), ((2, 150, 40), 1),
    ((6, 5, 8, 12), (0, 2, 3)), ((6, 5, 7, 3), (0, 2, 3)), ((5, 6, 7), (0, 2)), ((4, 5, 6), ()),
)  # fmt: skip


def sum_error(x, axis, dtype):
    """What a tree of sums of some hundred numbers each may err by."""
    eps = float(np.finfo(np.float64 if dtype == np.float64 else np.float32).eps)
    return 256 * eps * np.abs(x).sum(axis)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_sums_and_places(on_device, shape, axis, schedule):
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    wide, t = x.astype(np.float64), ml.Tensor(x)
    with using(schedule=schedule, seed=4):
        got = ops.sum(t, axis).asnumpy()
        assert np.all(np.abs(got - wide.sum(axis)) <= sum_error(wide, axis, x.dtype))
        if not isinstance(axis, tuple) and x.size:
            assert np.array_equal(ops.argmax(t, axis).asnumpy(), x.argmax(axis))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("shape", [(2, 2064), (3, 1001), (70, 48)])
def test_widths_of_packs(on_device, dtype, shape):
    x = np.random.default_rng(3).integers(0, 2, shape).astype(dtype)
    for axis in (0, 1, None):
        got = ops.max(ml.Tensor(x), axis).asnumpy()
        assert np.array_equal(got, np.max(x.astype(np.float64), axis).astype(dtype))
    first = ops.argmin(ml.Tensor(x), 1).asnumpy()
    assert np.array_equal(first, x.astype(np.float64).argmin(1))


def test_rows_that_are_not_aligned(on_device):
    x = np.arange(41 * 64, dtype=np.float32).reshape(41, 64)
    seen = ml.Tensor(x.ravel())[3 : 3 + 40 * 64].reshape(40, 64)
    assert np.array_equal(ops.max(seen, 1).asnumpy(), np.arange(1, 41) * 64 + 2)
