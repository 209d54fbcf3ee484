"""Pooling kernels against loops over every window."""

from itertools import product

import numpy as np
import pytest

from miniml.backends.cpu import pool

NO_PAD = ((0, 0), (0, 0))

# shape of the images, kernel, stride, padding
POOLS = {
    "halving": ((2, 3, 6, 8), (2, 2), (2, 2), NO_PAD),
    "leftover": ((2, 3, 7, 5), (2, 2), (2, 2), NO_PAD),
    "overlap": ((2, 2, 6, 7), (3, 3), (1, 1), ((1, 1), (1, 1))),
    "overlap in strides": ((2, 2, 7, 8), (3, 2), (2, 1), ((1, 1), (1, 0))),
    "asymmetric": ((1, 2, 5, 6), (3, 3), (2, 2), ((0, 2), (2, 1))),
    "gaps": ((2, 2, 9, 9), (2, 2), (3, 4), ((1, 0), (0, 1))),
    "single pixels": ((2, 2, 4, 5), (1, 1), (1, 1), NO_PAD),
    "sparse pixels": ((2, 2, 4, 5), (1, 1), (2, 3), NO_PAD),
    "whole plane": ((2, 3, 4, 5), (4, 5), (4, 5), NO_PAD),
    "many taps": ((1, 1, 17, 18), (17, 17), (1, 1), ((8, 8), (0, 0))),
    "empty batch": ((0, 3, 6, 8), (2, 2), (2, 2), NO_PAD),
    "no channels": ((2, 0, 6, 8), (2, 2), (2, 2), NO_PAD),
    "no windows": ((2, 2, 1, 4), (2, 2), (2, 2), NO_PAD),
}


@pytest.fixture(params=[1, pool.SCRATCH], ids=["image by image", "together"])
def scratch(request, monkeypatch):
    """Room for one image at a time, and the usual room."""
    monkeypatch.setattr(pool, "SCRATCH", request.param)


def draw(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def unwritten(shape, dtype=np.float64):
    return np.full(shape, 77, dtype)


def pooled_windows(shape, kernel_size, stride, padding):
    """The shape of the result, and for each of its planes' entries the rows and columns pooled."""
    starts = []
    for k in (0, 1):
        last = shape[2 + k] + sum(padding[k]) - kernel_size[k]
        starts.append([s - padding[k][0] for s in range(0, last + 1, stride[k])])

    def inside(start, k):
        return range(max(start, 0), min(start + kernel_size[k], shape[2 + k]))

    cells = {
        (r, q): (inside(top, 0), inside(left, 1))
        for r, top in enumerate(starts[0])
        for q, left in enumerate(starts[1])
    }
    return (*shape[:2], len(starts[0]), len(starts[1])), cells


def naive_max_pool2d(x, kernel_size, stride, padding):
    shape, cells = pooled_windows(x.shape, kernel_size, stride, padding)
    values, indices = np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    for n, c, (cell, (rows, columns)) in product(range(shape[0]), range(shape[1]), cells.items()):
        best = None
        for i, j in product(rows, columns):
            pixel = x[n, c, i, j]
            if best is None or (best == best and not pixel <= best):
                best, place = pixel, i * x.shape[3] + j
        values[n, c][cell], indices[n, c][cell] = best, place
    return values, indices


def max_pool2d(x, kernel_size, stride, padding):
    shape, _ = pooled_windows(x.shape, kernel_size, stride, padding)
    out = unwritten(shape, x.dtype), unwritten(shape, np.int64)
    pool.max_pool2d(x, kernel_size=kernel_size, stride=stride, padding=padding, out=out)
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.int64])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.usefixtures("scratch")
def test_max_pool(case, dtype):
    shape, *attrs = POOLS[case]
    x = (3 * draw(shape)).astype(dtype)  # as integers, with many ties
    for got, want in zip(max_pool2d(x, *attrs), naive_max_pool2d(x, *attrs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", ["halving", "overlap", "asymmetric", "whole plane", "many taps"])
def test_max_pool_of_nan_infinity_and_lowest(case):
    shape, *attrs = POOLS[case]
    random = np.random.default_rng(0)
    mixed = random.choice(
        [-np.inf, -1.0, 2.0, np.inf, np.nan], shape, p=[0.5, 0.2, 0.2, 0.05, 0.05]
    )
    for x in (
        mixed,
        np.full(shape, -np.inf),
        np.full(shape, -128, np.int8),
        np.full(shape, np.nan),
    ):
        for got, want in zip(max_pool2d(x, *attrs), naive_max_pool2d(x, *attrs), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.usefixtures("scratch")
def test_max_pool_gradient_and_gather(case, dtype):
    shape, *attrs = POOLS[case]
    x = draw(shape, 1, dtype)
    values, indices = max_pool2d(x, *attrs)
    dout = draw(values.shape, 2, dtype)
    expected = np.zeros(shape)
    for n, c, r, q in product(*map(range, values.shape)):
        expected[n, c].flat[indices[n, c, r, q]] += dout[n, c, r, q]
    dx, again = unwritten(shape, dtype), unwritten(values.shape, dtype)
    pool.max_pool2d_grad(dout, indices, input_shape=shape[2:], out=dx)
    np.testing.assert_allclose(dx, expected, rtol=np.finfo(dtype).eps, atol=1e-6)
    pool.max_pool2d_gather(x, indices, out=again)
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.usefixtures("scratch")
def test_average_pool_and_its_transpose(case, included):
    shape, kernel, stride, padding = POOLS[case]
    x = draw(shape, 1)
    attrs = {"kernel_size": kernel, "stride": stride, "padding": padding}
    attrs["count_include_pad"] = included
    small, cells = pooled_windows(shape, kernel, stride, padding)
    expected, dexpected, dout = np.zeros(small), np.zeros(shape), draw(small, 2)
    for cell, (rows, columns) in cells.items():
        here = (..., slice(rows.start, rows.stop), slice(columns.start, columns.stop))
        count = kernel[0] * kernel[1] if included else len(rows) * len(columns)
        expected[(..., *cell)] = x[here].sum(axis=(2, 3)) / count
        dexpected[here] += dout[(..., *cell)][..., None, None] / count
    out, dx = unwritten(small), unwritten(shape)
    pool.avg_pool2d(x, **attrs, out=out)
    np.testing.assert_allclose(out, expected, atol=1e-13)
    pool.avg_pool2d_grad(dout, input_shape=shape[2:], **attrs, out=dx)
    np.testing.assert_allclose(dx, dexpected, atol=1e-13)
    # Single precision, and half with sums in single.
    for dtype in (np.float32, np.float16):
        out, dx = unwritten(small, dtype), unwritten(shape, dtype)
        pool.avg_pool2d(x.astype(dtype), **attrs, out=out)
        np.testing.assert_allclose(out, expected, atol=4 * np.finfo(dtype).eps)
        pool.avg_pool2d_grad(dout.astype(dtype), input_shape=shape[2:], **attrs, out=dx)
        np.testing.assert_allclose(dx, dexpected, atol=8 * np.finfo(dtype).eps)


def test_pools_read_any_strides():
    shape, *attrs = POOLS["overlap"]
    x = draw(shape, 1)
    odd = np.ascontiguousarray(x.transpose(3, 1, 0, 2)[::-1])[::-1].transpose(2, 1, 3, 0)
    odd.flags.writeable = False
    assert min(odd.strides) < 0
    values, indices = max_pool2d(x, *attrs)
    for got, want in zip(max_pool2d(odd, *attrs), (values, indices), strict=True):
        np.testing.assert_array_equal(got, want)
    turned = indices.swapaxes(2, 3).copy().swapaxes(2, 3)
    again, dx, expected = unwritten(values.shape), unwritten(shape), unwritten(shape)
    pool.max_pool2d_gather(odd, turned, out=again)
    np.testing.assert_array_equal(again, values)
    ones = np.broadcast_to(np.float64(1), values.shape)
    pool.max_pool2d_grad(ones, turned, input_shape=shape[2:], out=dx)
    pool.max_pool2d_grad(ones.copy(), indices, input_shape=shape[2:], out=expected)
    np.testing.assert_array_equal(dx, expected)
    assert dx.sum() == values.size
