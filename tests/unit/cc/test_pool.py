"""Pooling in C against loops in float64, with ties, NaN and both orders of axes."""

import numpy as np
import pytest

from miniml import ArraySpec
from miniml.backends.cc.pool import Pooling
from tests.frame.native import needs_compiler
from tests.opinfo import images as rows
from tests.unit.cc.native import BATCH_INNERMOST, BLOCKS, Call, prepared, results

pytestmark = needs_compiler

# the shape of x; windows
CASES = {
    "halving": ((3, 2, 4, 6), {"kernel_size": (2, 2), "stride": (2, 2)}),
    "odd": ((17, 1, 7, 5), {"kernel_size": (2, 2), "stride": (2, 2)}),
    "overlapping": ((2, 3, 5, 9), {"kernel_size": (3, 2), "stride": (2, 1)}),
    "padded": ((2, 2, 5, 4), {
        "kernel_size": (3, 3), "stride": (2, 1), "padding": ((1, 2), (2, 1)),
    }),
    "gaps": ((1, 1, 7, 8), {"kernel_size": (2, 3), "stride": (3, 4)}),
    "rows of vectors": ((1, 2, 4, 37), {"kernel_size": (2, 2), "stride": (2, 2)}),
    "rows of vectors, padded": ((2, 1, 3, 39), {
        "kernel_size": (3, 5), "stride": (1, 2), "padding": ((1, 1), (2, 2)),
    }),
    "one long row": ((1, 1, 1, 9000), {"kernel_size": (1, 3), "stride": (1, 2)}),
    "one window": ((1, 3, 2, 3), {"kernel_size": (2, 3), "stride": (1, 1)}),
    "one pixel": ((2, 1, 1, 1), {"kernel_size": (1, 1), "stride": (1, 1)}),
}  # fmt: skip
ORDERS = (None, BATCH_INNERMOST, "NHWC", BLOCKS)


def orders(case, dtype):
    """Those of a case in which it is tried with this dtype; in the others it is with the other."""
    return ORDERS[([*CASES].index(case) + (dtype == "d")) % 2 :: 2]


BOTH = pytest.mark.parametrize("dtype", ["f", "d"])


def call(name, arrays, shape, attrs, order, *, indices=False):
    specs = (ArraySpec(shape, arrays[0].dtype), ArraySpec(shape, np.dtype(np.int64)))
    outs = specs if indices else specs[:1]
    attrs = {"padding": rows.NO_PAD, **attrs}
    return Call(Pooling, name, tuple(arrays), outs, attrs, (order,) * (len(arrays) + len(outs)))


def ties(shape, dtype, seed=0):
    """Few different numbers, so that many windows have several maxima, and some have NaN."""
    rng = np.random.default_rng(seed)
    return rng.choice(np.array([-np.inf, -1, 0, 2, np.nan, np.inf], dtype), shape)


def draw(shape, dtype, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@BOTH
def test_the_maximum_and_where_it_is(dtype):
    made = [
        (ties(shape, dtype), attrs, order)
        for case, (shape, attrs) in CASES.items()
        for order in orders(case, dtype)
    ]
    expected = [rows.max_pool2d(x.astype(np.float64), **attrs) for x, attrs, _ in made]
    found = results([
        call("MaxPool2D", (x,), out.shape, attrs, order, indices=True)
        for (x, attrs, order), (out, _) in zip(made, expected, strict=True)
    ])  # fmt: skip
    for (got, places), (out, indices) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, out)
        np.testing.assert_array_equal(places, indices)


@BOTH
def test_the_gradient_of_the_maximum_goes_to_the_indices_and_back(dtype):
    rng, made = np.random.default_rng(2), []
    for case, (shape, attrs) in CASES.items():
        places = rows.indexed_samples(rng, shape, attrs)
        both = draw(places.shape, dtype), draw(shape, dtype)
        made += [(*both, places, order) for order in orders(case, dtype)]
    calls = []
    for dout, x, places, order in made:
        attrs = {"input_shape": x.shape[2:]}
        calls.append(call("MaxPool2DGrad", (dout, places), x.shape, attrs, order))
        calls.append(call("MaxPool2DGather", (x, places), dout.shape, {}, order))
    found = iter(results(calls))
    for dout, x, places, _ in made:
        grad = rows.max_pool2d_grad(dout.astype(np.float64), places, x.shape[2:])
        # A pixel sums the slopes of the windows that name it, each of at most 5.
        np.testing.assert_allclose(
            next(found)[0], grad, rtol=0, atol=5 * places[0, 0].size ** 2 * np.finfo(dtype).eps
        )
        np.testing.assert_array_equal(next(found)[0], rows.max_pool2d_gather(x, places))


def test_indices_outside_of_the_plane_reach_no_memory():
    places = np.array([[[[-1, 4], [2**40, -(2**40)]]]])
    x, dout = draw((1, 1, 2, 2), "f"), np.ones((1, 1, 2, 2), "f")
    ((read,),) = results([call("MaxPool2DGather", (x, places), x.shape, {}, None)])
    assert set(read.ravel()) <= set(x.ravel())
    around = np.full(12, 7, "f")
    dx = around[4:8].reshape(x.shape)
    back = prepared(call("MaxPool2DGrad", (dout, places), x.shape, {"input_shape": (2, 2)}, None))
    back.launch((dout, places), (), (dx,), None)
    np.testing.assert_array_equal(around, [7] * 4 + [0] * 4 + [7] * 4)


@BOTH
def test_the_mean_and_its_gradient(dtype):
    made, calls = [], []
    for case, (shape, attrs) in CASES.items():
        for order in orders(case, dtype):
            for included in {True, "padding" not in attrs}:
                whole = {**attrs, "count_include_pad": included}
                x = draw(shape, dtype)
                dout = draw(rows.out_shape(shape, attrs), dtype)
                made.append((x, dout, whole))
                calls.append(call("AvgPool2D", (x,), dout.shape, whole, order))
                sizes = {**whole, "input_shape": shape[2:]}
                calls.append(call("AvgPool2DGrad", (dout,), x.shape, sizes, order))
    found = iter(results(calls))
    for x, dout, attrs in made:
        # Sums of at most 9 numbers of at most 5, divided once.
        bound = {"rtol": 0, "atol": 5 * 10 * np.finfo(dtype).eps}
        wide = rows.avg_pool2d(x.astype(np.float64), **attrs)
        np.testing.assert_allclose(next(found)[0], wide, **bound)
        back = rows.avg_pool2d_grad(dout.astype(np.float64), x.shape[2:], **attrs)
        np.testing.assert_allclose(next(found)[0], back, **bound)
