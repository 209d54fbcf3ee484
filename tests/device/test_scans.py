"""Running sums on a CUDA device: a thread, a warp or a block for a row, and rows that are cut."""

import ml_dtypes
import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.sim.memory import SCHEDULES, using
from miniml.backends.cuda.text.source import BLOCK, parts

CUT = 2 * 64 * BLOCK  # the shortest row that is cut
SHAPES = (
    *((3, n) for n in (0, 1, 2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 2049)),
    (CUT - 1,), (CUT + 5,), (2, 127, 33), (128 + 3, 40), (300, 40), (5, 50, 3),
)  # fmt: skip


def running(x, axis, reverse, exclusive):
    """The running sums in float64, or exactly."""
    wide = x.astype(np.float64 if x.dtype.kind in "fV" else np.int64)
    wide = np.flip(wide, axis) if reverse else wide
    sums = np.cumsum(wide, axis)
    if exclusive and x.shape[axis]:
        sums = np.roll(sums, 1, axis)
        np.moveaxis(sums, axis, 0)[0] = 0
    return np.flip(sums, axis) if reverse else sums


def check(x, axis, reverse, exclusive):
    """CumSum against NumPy: a tree of sums errs by at most some dozen roundings of sum |x|."""
    got = ops.cumsum(ml.Tensor(x), axis, reverse, exclusive).asnumpy()
    right = running(x, axis, reverse, exclusive)
    if x.dtype.kind not in "fV":
        assert np.array_equal(got.astype(np.int64), right)
        return
    own = float(ml_dtypes.finfo(x.dtype).eps)
    summed = min(own, float(np.finfo(np.float32).eps))
    bound = 64 * summed * np.abs(x.astype(np.float64)).sum(axis, keepdims=True)
    assert np.all(np.abs(got.astype(np.float64) - right) <= bound + own * np.abs(right))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_way_to_share_a_row(on_device, schedule, shape):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    axis = min(1, x.ndim - 1) if x.shape[-1] != 40 else 0
    with using(schedule=schedule, seed=2):
        check(x, axis, reverse=False, exclusive=schedule == "reverse")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("shape", [(7,), (2, 200), (1100,), (CUT + 1,), (140, 33)], ids=str)
def test_both_directions(on_device, shape, reverse, exclusive):
    x = np.random.default_rng(4).integers(-9, 9, shape).astype(np.int32)
    check(x, 0 if shape[-1] == 33 else -1, reverse, exclusive)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.uint64, np.float16, ml_dtypes.bfloat16,
                                   np.float64])  # fmt: skip
def test_dtypes(on_device, dtype):
    x = np.random.default_rng(5).integers(0, 2, (2, 1500)).astype(dtype)
    check(x, 1, reverse=False, exclusive=False)


def test_what_comes_before_a_number_that_is_not_finite_stays(on_device):
    x = np.ones(1500, np.float32)
    x[700], x[1200] = np.inf, np.nan
    for exclusive in (False, True):
        got = ops.cumsum(ml.Tensor(x), 0, False, exclusive).asnumpy()
        right = running(x, 0, False, exclusive)
        assert np.array_equal(got, right.astype(np.float32), equal_nan=True)


def test_long_rows_are_cut_and_short_ones_are_not():
    assert parts(1, CUT - 1, BLOCK) == 1
    assert parts(1, CUT, BLOCK) == 2
    assert parts(1, 1 << 30, BLOCK) == 1024
    assert parts(1 << 20, 1 << 20, BLOCK) == 1


@pytest.mark.parametrize("shape", [(3, 33), (1100,), (CUT + 5,), (300, 40), (2, 0)], ids=str)
def test_products_and_extrema(on_device, shape):
    x = np.random.default_rng(6).integers(-9, 9, shape)
    signs = np.where(x < 0, -1.0, 1.0).astype(np.float32)
    for reverse, exclusive in ((False, False), (True, True)):
        got = ops.cumprod(ml.Tensor(signs), 0, reverse, exclusive).asnumpy()
        turned = np.flip(signs, 0) if reverse else signs
        right = np.cumprod(turned, 0)
        if exclusive:
            right = np.roll(right, 1, 0)
            right[:1] = 1
        np.testing.assert_array_equal(got, np.flip(right, 0) if reverse else right)
    for fn, ufunc in ((ops.cummax, np.maximum), (ops.cummin, np.minimum)):
        for dtype in (np.int8, np.float32):
            given = x.astype(dtype)
            got, places = fn(ml.Tensor(given), -1)
            np.testing.assert_array_equal(got.asnumpy(), ufunc.accumulate(given, axis=-1))
            with ml.context(device_target="cpu"):
                np.testing.assert_array_equal(places.asnumpy(), fn(given, -1)[1].asnumpy())


@pytest.mark.parametrize("shape", [(3, 33), (1100,), (CUT + 5,), (300, 40), (2, 0)], ids=str)
def test_sums_of_exponentials(on_device, shape):
    x = (100 * np.random.default_rng(7).standard_normal(shape)).astype(np.float32)
    x[..., :2] = -np.inf
    for axis, reverse in ((-1, False), (0, True)):
        turned = np.flip(x, axis) if reverse else x
        right = np.logaddexp.accumulate(turned.astype(np.float64), axis)
        got = ops.logcumsumexp(ml.Tensor(x), axis, reverse).asnumpy()
        right = np.flip(right, axis) if reverse else right
        np.testing.assert_allclose(got, right, 1e-6, 1e-5)


def test_sums_of_exponentials_beside_what_is_not_finite(on_device):
    x = np.array([-np.inf, -np.inf, 1.0, 2.0, np.inf, np.inf, 3.0, np.nan, 1.0], np.float32)
    with np.errstate(invalid="ignore"):
        right = np.logaddexp.accumulate(x)
    np.testing.assert_allclose(ops.logcumsumexp(ml.Tensor(x), 0).asnumpy(), right, 1e-6)


def test_extrema_of_what_is_not_finite(on_device):
    x = np.zeros(1500, np.float32)
    x[500], x[700], x[1200] = -np.inf, np.inf, np.nan
    for fn, ufunc in ((ops.cummax, np.maximum), (ops.cummin, np.minimum)):
        np.testing.assert_array_equal(fn(ml.Tensor(x), 0)[0].asnumpy(), ufunc.accumulate(x))
