"""Convolution kernels against the references of their rows and SciPy, for windows of every kind."""

from itertools import product

import numpy as np
import pytest
from scipy import signal

from miniml.backends.cpu import images as window
from miniml.backends.registry import in_float32

from ...opinfo import images as rows

NO_PAD = ((0, 0), (0, 0))

# images, (H, W), input and output channels, kernel, stride, padding, dilation, groups
CONVOLUTIONS = {
    "same": (2, (5, 6), 3, 4, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "valid": (3, (6, 5), 2, 3, (2, 3), (1, 1), NO_PAD, (1, 1), 1),
    "one image": (1, (4, 4), 1, 1, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
    "empty batch": (0, (5, 5), 2, 3, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "pointwise": (2, (4, 3), 3, 2, (1, 1), (1, 1), NO_PAD, (1, 1), 1),
    "pointwise in groups": (2, (4, 3), 4, 6, (1, 1), (1, 1), NO_PAD, (1, 1), 2),
    "pointwise padded": (2, (4, 3), 3, 2, (1, 1), (1, 1), ((1, 0), (0, 2)), (1, 1), 1),
    "asymmetric": (2, (5, 6), 2, 3, (3, 2), (1, 1), ((0, 2), (1, 0)), (1, 1), 1),
    "too much padding": (2, (3, 4), 2, 2, (2, 2), (1, 1), ((3, 4), (4, 3)), (1, 1), 1),
    "stride": (2, (7, 8), 2, 3, (3, 3), (2, 3), ((1, 1), (1, 1)), (1, 1), 1),
    "stride over kernel": (2, (9, 9), 2, 2, (2, 2), (3, 4), ((1, 0), (0, 1)), (1, 1), 1),
    "pointwise stride": (2, (5, 6), 2, 3, (1, 1), (2, 2), NO_PAD, (1, 1), 1),
    "dilation": (2, (8, 7), 2, 3, (3, 2), (1, 1), ((2, 2), (1, 3)), (2, 3), 1),
    "dilation and stride": (2, (9, 8), 2, 3, (2, 3), (2, 1), ((1, 2), (2, 1)), (3, 2), 1),
    "groups": (2, (5, 5), 4, 6, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    "depthwise": (3, (6, 6), 4, 4, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    "depthwise multiplied": (2, (6, 6), 3, 6, (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 3),
    "few inputs": (2, (6, 6), 1, 8, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "kernel as large as image": (2, (4, 5), 2, 3, (4, 5), (1, 1), NO_PAD, (1, 1), 1),
    "no input channels": (2, (4, 4), 0, 2, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "no output channels": (2, (4, 4), 2, 0, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "no windows": (2, (2, 4), 2, 2, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
}


@pytest.fixture(params=[1, window.SCRATCH], ids=["image by image", "together"])
def scratch(request, monkeypatch):
    """Room for one image at a time, and the usual room."""
    monkeypatch.setattr(window, "SCRATCH", request.param)


def draw(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def unwritten(shape, dtype=np.float64):
    return np.full(shape, 77, dtype)


def convolution(case, dtype=np.float64):
    images, plane, inputs, outputs, kernel, stride, padding, dilation, groups = CONVOLUTIONS[case]
    x = draw((images, inputs, *plane), 1, dtype)
    w = draw((outputs, inputs // groups, *kernel), 2, dtype)
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, w, attrs, rows.conv2d(x, w, **attrs)


def all_three(x, w, dout, attrs):
    """As they are registered, for float16 too."""
    out = unwritten(dout.shape, x.dtype)
    dx, dw = unwritten(x.shape, x.dtype), unwritten(w.shape, x.dtype)
    in_float32(window.conv2d)(x, w, **attrs, out=out)
    in_float32(window.conv2d_input_grad)(dout, w, input_shape=x.shape[2:], **attrs, out=dx)
    in_float32(window.conv2d_weight_grad)(x, dout, kernel_shape=w.shape[2:], **attrs, out=dw)
    return out, dx, dw


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.usefixtures("scratch")
def test_convolution_and_its_transposes(case):
    x, w, attrs, expected = convolution(case)
    dout = draw(expected.shape, 3)
    dx = rows.input_grad(dout, w, x.shape[2:], **attrs)
    dw = rows.weight_grad(x, dout, w.shape[2:], **attrs)
    for got, want in zip(all_three(x, w, dout, attrs), (expected, dx, dw), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_convolution_against_scipy():
    x, w = draw((2, 3, 9, 8), 1), draw((4, 3, 3, 4), 2)
    out = unwritten((2, 4, 7, 5))
    attrs = {"stride": (1, 1), "padding": NO_PAD, "dilation": (1, 1), "groups": 1}
    window.conv2d(x, w, **attrs, out=out)
    for n, o in product(range(2), range(4)):
        np.testing.assert_allclose(out[n, o], signal.correlate(x[n], w[o], mode="valid")[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("case", ["same", "pointwise", "stride", "depthwise", "few inputs"])
def test_convolution_in_half_and_single(case, dtype):
    x, w, attrs, expected = convolution(case, dtype)
    dout = draw(expected.shape, 3, dtype)
    exact = all_three(*(a.astype(np.float64) for a in (x, w, dout)), attrs)
    for got, want in zip(all_three(x, w, dout, attrs), exact, strict=True):
        assert got.dtype == dtype
        # One rounding of the result: sums of float16 are taken in float32.
        unit = np.finfo(dtype).eps * (0.51 if dtype == np.float16 else 32)
        np.testing.assert_allclose(got, want, rtol=unit, atol=unit * np.abs(want).max() / 8)


def test_half_precision_sums_do_not_stall():
    x, w = np.ones((1, 64, 8, 8), np.float16), np.ones((1, 64, 7, 7), np.float16)
    attrs = {"stride": (1, 1), "padding": NO_PAD, "dilation": (1, 1), "groups": 1}
    out, _, dw = all_three(x, w, np.ones((1, 1, 2, 2), np.float16), attrs)
    assert (out == 64 * 49).all()  # float16 counts to 2048 only
    assert (dw == 4).all()


@pytest.mark.parametrize("case", ["same", "pointwise", "stride", "few inputs"])
def test_convolution_reads_any_strides(case):
    x, w, attrs, expected = convolution(case)
    dout = draw(expected.shape, 3)
    plain = all_three(x, w, dout, attrs)

    def odd(a):
        view = np.repeat(a, 2, axis=1)[:, ::-2][:, ::-1].swapaxes(2, 3).copy().swapaxes(2, 3)
        view = np.ascontiguousarray(view[..., ::-1])[..., ::-1]
        view.flags.writeable = False
        return view

    assert odd(x).strides[3] < 0
    for got, want in zip(all_three(odd(x), odd(w), odd(dout), attrs), plain, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-13)
    spread = np.broadcast_to(x[:1], x.shape)  # stride 0 along the batch
    np.testing.assert_allclose(
        all_three(spread, w, dout, attrs)[0], rows.conv2d(spread, w, **attrs), atol=1e-13
    )


def test_infinities_stay_where_they_belong():
    """A wrapped window meets the last pixel of one row and the first of the next: no sum does."""
    x, w, attrs, _ = convolution("same")
    x[0, 0, 2, 5] = np.inf
    with np.errstate(all="ignore"):
        expected = rows.conv2d(x, w, **attrs)
        dout = np.ones(expected.shape)
        out, dx, dw = all_three(x, w, dout, attrs)
    np.testing.assert_array_equal(np.isfinite(out), np.isfinite(expected))
    assert np.isfinite(dx).all()
    # The pixel stands in the last column: no tap at the left edge of a window in column 5 + 1.
    assert np.isfinite(dw[:, 0, :, 0]).all()
    assert np.isinf(dw[:, 0, :, 1:]).all()
    dout[0, 0, 2, 5] = np.nan
    with np.errstate(all="ignore"):
        _, dx, _ = all_three(x, w, dout, attrs)
    assert np.isnan(dx[0, :, 1:4, 4:]).all()
    assert np.isfinite(dx[0, :, :, :4]).all()


def test_infinite_weight_reaches_its_own_pixels_only():
    """Where windows are added back, that of tap (0, 0) never ends in the last row or column."""
    x, w, attrs, expected = convolution("few inputs")
    w[0, 0, 0, 0] = np.inf
    with np.errstate(all="ignore"):
        _, dx, _ = all_three(x, w, np.ones(expected.shape), attrs)
    assert np.isposinf(dx[..., :-1, :-1]).all()
    assert np.isfinite(dx[..., -1, :]).all()
    assert np.isfinite(dx[..., -1]).all()


def test_negative_padding_is_refused():
    """The kernel would read memory of others."""
    x, w, attrs, expected = convolution("same")
    attrs["padding"] = ((-1, 3), (1, 1))
    with pytest.raises(ValueError, match="padding"):
        window.conv2d(x, w, **attrs, out=unwritten(expected.shape))
