"""Softmax, normalisation and cross entropy on a CUDA device: rows kept, rows read again, packs."""

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import miniml as ml
from miniml import ops
from miniml.backends.cuda.sim.memory import SCHEDULES, using
from miniml.backends.cuda.text.loops import SHARED
from miniml.backends.cuda.text.source import BLOCK

WARP = SHARED // 4 // (BLOCK // 32)  # the longest row of float32 that a warp keeps
WHOLE = SHARED // 4  # the longest that a block keeps
LENGTHS = (1, 8, 9, 31, 32, 33, 36, 1023, 1024, 1025, WARP, WARP + 1, WARP + 4, WHOLE, WHOLE + 4)
EPS = 128 * float(np.finfo(np.float32).eps)  # some dozen roundings, exponents up to 16


def rows(*shape, dtype=np.float32):
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def near(got, right, dtype=np.float32, scale=0.0):
    """Within what sums in float32 (float64) and one rounding to the dtype may err by."""
    own = float(ml_dtypes.finfo(dtype).eps)
    sums = 128 * own if dtype == np.float64 else EPS
    error = np.abs(got.astype(np.float64) - right)
    assert np.all(error <= (sums + own) * (np.abs(right) + scale) + 1e-7)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("n", LENGTHS)
def test_softmax_of_every_length(on_device, n, schedule):
    x = rows(3, n)
    with using(schedule=schedule, seed=6):
        near(ops.softmax(ml.Tensor(x), 1).asnumpy(), scipy.special.softmax(x.astype("d"), 1))


@pytest.mark.parametrize("n", [5, 33, WARP + 1, WHOLE + 1])
def test_logarithm_of_softmax(on_device, n):
    x = rows(2, n)
    got = ops.log_softmax(ml.Tensor(x), 1).asnumpy()
    near(got, scipy.special.log_softmax(x.astype("d"), 1), scale=8.0)


@pytest.mark.parametrize(("shape", "axis"), [((3, 40, 33), 1), ((2, 1030, 32), 1), ((50, 3), 0)])
def test_rows_whose_elements_stand_apart(on_device, shape, axis):
    x = rows(*shape)
    got = ops.softmax(ml.Tensor(x), axis).asnumpy()
    near(got, scipy.special.softmax(x.astype("d"), axis))


@pytest.mark.parametrize("n", [4, 36, WHOLE + 4])
def test_what_is_not_finite(on_device, n):
    x = rows(5, n)
    x[0, 0], x[1, -1], x[2, 1], x[3] = -np.inf, np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        right = np.exp(x - x.max(1, keepdims=True))
        right /= right.sum(1, keepdims=True)
    got = ops.softmax(ml.Tensor(x), 1).asnumpy()
    assert np.array_equal(np.isnan(got), np.isnan(right))
    assert np.allclose(got, right, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("n", [36, 37, 1284])
def test_dtypes(on_device, n, dtype):
    x = rows(3, n, dtype=dtype)
    wide = x.astype("d")
    near(ops.softmax(ml.Tensor(x), 1).asnumpy(), scipy.special.softmax(wide, 1), dtype)
    got = normalised(x, np.ones(n, dtype), np.zeros(n, dtype))
    near(got, (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True), dtype, 1.0)


def normalised(x, gamma, beta):
    return ops.LayerNorm(0.0)(ml.Tensor(x), ml.Tensor(gamma), ml.Tensor(beta))[0].asnumpy()


@pytest.mark.parametrize("n", [3, 8, 31, 32, 36, 1025, WARP, WARP + 1, WHOLE, WHOLE + 4])
def test_layer_norm_of_every_length(on_device, n):
    x, gamma, beta = 3 + rows(3, n), rows(n), rows(n)[::-1].copy()
    wide = x.astype("d")
    right = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True) * gamma + beta
    near(normalised(x, gamma, beta), right, scale=4.0 + 4.0 * np.abs(gamma))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "shape", [(2, 3), (5, 3, 7), (4, 2, 5, 8), (40, 2, 6, 9), (2, 1, 128, 132), (3, 1, 128, 131)]
)
def test_batch_norm(on_device, shape, schedule):
    x, gamma, beta = 2 + rows(*shape), rows(shape[1]), np.ones(shape[1], np.float32)
    axes = (0, *range(2, len(shape)))
    with using(schedule=schedule, seed=1):
        out = ops.BatchNorm(1e-5)(*map(ml.Tensor, (x, gamma, beta)))
    got, mean, var = (o.asnumpy() for o in out)
    wide = np.moveaxis(x.astype("d"), 1, -1)
    near(mean, x.astype("d").mean(axes), scale=1.0)
    near(var, x.astype("d").var(axes), scale=1.0)
    right = (wide - wide.mean((*range(wide.ndim - 1),))) / np.sqrt(x.astype("d").var(axes) + 1e-5)
    near(got, np.moveaxis(right * gamma + beta, -1, 1), scale=8.0)


@pytest.mark.parametrize("labels", ["b", "H", "i", "L"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(1, 3), (300, 10), (5, 36), (3, WARP + 1), (2, WHOLE + 1)])
def test_cross_entropy(on_device, shape, reduction, labels):
    x, named = rows(*shape), np.arange(shape[0]) % min(shape[1], 100)
    loss, probs = ops.CrossEntropy(reduction)(ml.Tensor(x), ml.Tensor(named.astype(labels)))
    right = -scipy.special.log_softmax(x.astype("d"), 1)[np.arange(shape[0]), named]
    right = {"none": right, "sum": right.sum(), "mean": right.mean()}[reduction]
    near(loss.asnumpy(), right, scale=8.0)
    near(probs.asnumpy(), scipy.special.softmax(x.astype("d"), 1))
