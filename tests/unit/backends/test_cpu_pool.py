"""Pooling kernels against the references of their rows, for windows of every kind."""

import numpy as np
import pytest

from miniml.backends.cpu import images
from miniml.backends.kernel import scalars

from ...opinfo import images as rows

NO_PAD = ((0, 0), (0, 0))

# shape of the images, kernel, stride, padding
CASES = {
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
NAMES = ("kernel_size", "stride", "padding")
POOLS = {name: (case[0], dict(zip(NAMES, case[1:]))) for name, case in CASES.items()}


@pytest.fixture(params=[1, images.SCRATCH], ids=["image by image", "together"])
def scratch(request, monkeypatch):
    """Room for one image at a time, and the usual room."""
    monkeypatch.setattr(images, "SCRATCH", request.param)


@pytest.fixture(params=[0, 1], ids=["by taps", "all at once"])
def few(request, monkeypatch):
    """No images that are few, and the usual ones."""
    for name in ("FEW", "FEW_PLACES"):
        monkeypatch.setattr(images, name, request.param * getattr(images, name))
    images.averaging.cache_clear()
    yield request.param
    images.averaging.cache_clear()


def draw(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def unwritten(shape, dtype=np.float64):
    return np.full(shape, 77, dtype)


def average(x, attrs, out):
    images.averaging(x.shape, out.shape, x.dtype, **attrs)(x, out=out)


def max_pool2d(x, attrs):
    shape = rows.out_shape(x.shape, attrs)
    out = unwritten(shape, x.dtype), unwritten(shape, np.int64)
    images.max_pool2d(x, **attrs, out=out)
    return out


def check_max_pool(x, attrs):
    expected = rows.max_pool2d(x.astype(np.float64), **attrs)
    for got, want in zip(max_pool2d(x, attrs), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.int64])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.usefixtures("scratch", "few")
def test_max_pool(case, dtype):
    shape, attrs = POOLS[case]
    check_max_pool((3 * draw(shape)).astype(dtype), attrs)  # as integers, with many ties


@pytest.mark.parametrize("case", ["halving", "overlap", "asymmetric", "whole plane", "many taps"])
@pytest.mark.usefixtures("few")
def test_max_pool_of_nan_infinity_and_lowest(case):
    shape, attrs = POOLS[case]
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
        check_max_pool(x, attrs)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.usefixtures("scratch", "few")
def test_max_pool_gradient_and_gather(case, dtype):
    shape, attrs = POOLS[case]
    x = draw(shape, 1, dtype)
    values, indices = max_pool2d(x, attrs)
    dout = draw(values.shape, 2, dtype)
    expected = rows.max_pool2d_grad(dout, indices, shape[2:])
    dx, again = unwritten(shape, dtype), unwritten(values.shape, dtype)
    images.max_pool2d_grad(dout, indices, input_shape=shape[2:], out=dx)
    np.testing.assert_allclose(dx, expected, rtol=np.finfo(dtype).eps, atol=1e-6)
    images.max_pool2d_gather(x, indices, out=again)
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("case", POOLS)
@pytest.mark.usefixtures("scratch", "few")
def test_average_pool_and_its_transpose(case, included):
    shape, attrs = POOLS[case]
    attrs = {**attrs, "count_include_pad": included}
    x, dout = draw(shape, 1), draw(rows.out_shape(shape, attrs), 2)
    expected = rows.avg_pool2d(x, **attrs)
    dexpected = rows.avg_pool2d_grad(dout, shape[2:], **attrs)
    for dtype in (np.float64, np.float32, np.float16):  # half with sums in single
        out, dx = unwritten(dout.shape, dtype), unwritten(shape, dtype)
        average(x.astype(dtype), attrs, out)
        np.testing.assert_allclose(out, expected, atol=4 * np.finfo(dtype).eps)
        average(dout.astype(dtype), {**attrs, "input_shape": shape[2:]}, dx)
        np.testing.assert_allclose(dx, dexpected, atol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.usefixtures("few")
def test_what_is_not_finite_reaches_its_own_windows_only(odd):
    attrs = {**POOLS["halving"][1], "count_include_pad": True}
    x, dout = np.ones((1, 2, 4, 4), np.float32), np.ones((1, 2, 2, 2), np.float32)
    x[0, 1, 3, 0] = dout[0, 1, 1, 0] = odd
    out, dx = unwritten(dout.shape, np.float32), unwritten(x.shape, np.float32)
    with np.errstate(all="ignore"):  # as the runtime calls kernels
        average(x, attrs, out)
        average(dout, {**attrs, "input_shape": (4, 4)}, dx)
    np.testing.assert_array_equal(out, dout)
    np.testing.assert_array_equal(dx, dout.repeat(2, 2).repeat(2, 3) / 4)


def test_means_of_few_pixels_are_a_product_of_any_strides():
    shape, attrs = POOLS["overlap"]
    attrs, x = {**attrs, "count_include_pad": False}, draw(shape, 1)
    out = unwritten(rows.out_shape(shape, attrs))
    average(x[::-1, :, ::-1], attrs, out)
    np.testing.assert_allclose(out, rows.avg_pool2d(x[::-1, :, ::-1], **attrs), atol=1e-15)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 2), (3, 3)])
def test_the_mean_of_negative_zeros_is_positive(size):
    x, out = np.full((1, 1, 6, 6), -0.0, np.float32), np.empty((1, 1, 2, 2), np.float32)
    attrs = {**dict(zip(NAMES, (size, (3, 3), NO_PAD))), "count_include_pad": True}
    average(x, attrs, out)
    assert not np.signbit(out).any()


@pytest.mark.usefixtures("few")
def test_pools_read_any_strides():
    shape, attrs = POOLS["overlap"]
    x = draw(shape, 1)
    odd = np.ascontiguousarray(x.transpose(3, 1, 0, 2)[::-1])[::-1].transpose(2, 1, 3, 0)
    odd.flags.writeable = False
    assert min(odd.strides) < 0
    values, indices = max_pool2d(x, attrs)
    for got, want in zip(max_pool2d(odd, attrs), (values, indices), strict=True):
        np.testing.assert_array_equal(got, want)
    turned = indices.swapaxes(2, 3).copy().swapaxes(2, 3)
    again, dx, expected = unwritten(values.shape), unwritten(shape), unwritten(shape)
    images.max_pool2d_gather(odd, turned, out=again)
    np.testing.assert_array_equal(again, values)
    ones = np.broadcast_to(np.float64(1), values.shape)
    images.max_pool2d_grad(ones, turned, input_shape=shape[2:], out=dx)
    images.max_pool2d_grad(ones.copy(), indices, input_shape=shape[2:], out=expected)
    np.testing.assert_array_equal(dx, expected)
    assert dx.sum() == values.size


def test_zeros_of_either_sign_are_the_same_number_in_any_order():
    """Kernels add it, and -0.0 + -0.0 would be another result after another call."""
    for value in (-0.0, 0, 0.0):
        (zero,) = scalars(np.dtype("f8"), value, 17.0)[:1]
        assert not np.signbit(zero)
