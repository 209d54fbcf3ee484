"""Sorting on a CUDA device: one run, several rows in a block, merges of runs, every schedule."""

import ml_dtypes
import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.kernels.reduce import PART, RUN
from miniml.backends.cuda.sim.memory import SCHEDULES, using

LENGTHS = (0, 1, 2, 3, 31, 32, 33, 127, 128, 129, RUN - 1, RUN, RUN + 1)
DTYPES = ("?", "b", "H", "L", "e", "d")


def expected(x, axis, descending):
    """The order by NumPy's stable sort."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    turned = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(turned, axis)


def check(x, axis=-1, descending=False, k=None):
    """Sort, or TopK, against NumPy: values and indices."""
    order = expected(x, axis, descending)
    t = ml.Tensor(x)
    if k is None:
        values, indices = ops.Sort(axis, descending)(t)
    else:
        values, indices = ops.TopK(k, axis, descending)(t)
        order = np.take(order, np.arange(k), axis)
    assert np.array_equal(indices.asnumpy(), order)
    right = np.take_along_axis(x, order, axis)
    assert np.array_equal(
        values.asnumpy().astype(right.dtype), right, equal_nan=x.dtype.kind in "fV"
    )


def draws(*shape, letter="f", ties=50):
    """Numbers of a dtype, many of them equal."""
    drawn = np.random.default_rng(len(shape)).integers(0, ties, shape)
    return drawn.astype(letter) if letter in "?BHIL" else (drawn - ties // 2).astype(letter)


@pytest.fixture(params=SCHEDULES)
def scheduled(request, on_device):
    """Each order of blocks and threads."""
    with using(schedule=request.param, seed=5):
        yield


@pytest.mark.parametrize("n", LENGTHS)
def test_rows_of_every_length(scheduled, n):
    check(draws(3, n))
    check(draws(3, n), descending=True)


@pytest.mark.parametrize("n", [2 * RUN, 2 * RUN + 1, 5 * RUN + 7])
@pytest.mark.parametrize("descending", [False, True])
def test_runs_are_merged(scheduled, n, descending):
    check(draws(n), descending=descending)


@pytest.mark.parametrize("k", [1, 7, RUN, RUN + 5, PART + 1, 4 * RUN + 3])
def test_the_first_of_long_rows(scheduled, k):
    check(draws(2, 4 * RUN + 3), k=k, descending=True)


@pytest.mark.parametrize("shape", [(1, 1), (70, 3), (7, 40, 5), (3, 1100, 2), (2000, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_any_axis(on_device, shape, axis):
    check(draws(*shape), axis)
    if shape[axis]:
        check(draws(*shape), axis, k=1)


@pytest.mark.parametrize("letter", DTYPES)
def test_every_dtype(on_device, letter):
    check(draws(2, 40, letter=letter))
    check(draws(RUN + 30, letter=letter), descending=True)


def test_the_ends_of_integers(on_device):
    for letter in "bHL":
        ends = np.iinfo(letter)
        x = np.array([0, ends.max, ends.min, 1, ends.max, ends.min], letter)
        check(x)
        check(x, descending=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("n", [40, RUN + 30])
def test_nan_is_the_largest_and_zeros_are_equal(on_device, dtype, n):
    x = draws(n).astype(dtype)
    x[::7], x[3::11], x[5::11], x[1::5], x[2::5] = np.nan, np.inf, -np.inf, 0.0, -0.0
    wide = x.astype(np.float64)
    for descending in (False, True):
        values, indices = ops.Sort(-1, descending)(ml.Tensor(x))
        order = expected(wide, -1, descending)
        assert np.array_equal(indices.asnumpy(), order)
        assert np.array_equal(values.asnumpy().astype(np.float64), wide[order], equal_nan=True)
