"""Pooling of one to three axes: windows written out, ends, ties, derivatives, equal shares."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad, value_and_grad
from miniml.ops.composed.convolution import average, largest
from miniml.ops.images import Axis
from miniml.testing import gradcheck

from .windows import pool

MAX = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
AVG = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}
MAX_SHARES = {
    1: ops.adaptive_max_pool1d, 2: ops.adaptive_max_pool2d, 3: ops.adaptive_max_pool3d,
}  # fmt: skip
AVG_SHARES = {
    1: ops.adaptive_avg_pool1d, 2: ops.adaptive_avg_pool2d, 3: ops.adaptive_avg_pool3d,
}  # fmt: skip
# Extents, kernel, stride, padding, dilation, ceil_mode.
CASES = {
    "halves": ((6,), (2,), (2,), ((0, 0),), (1,), False),
    "a last window": ((7,), (3,), (2,), ((1, 0),), (1,), True),
    "one that would begin in the padding": ((5,), (2,), (3,), ((0, 1),), (1,), True),
    "longer than x": ((3,), (4,), (2,), ((0, 0),), (1,), True),
    "dilated": ((8,), (3,), (2,), ((2, 1),), (2,), False),
    "dilated, a last window": ((9,), (2,), (3,), ((1, 1),), (3,), True),
    "planes": ((5, 6), (3, 2), (2, 3), ((1, 1), (0, 1)), (1, 1), True),
    "dilated planes": ((6, 5), (2, 3), (1, 2), ((0, 1), (1, 1)), (3, 1), False),
    "volumes": ((4, 5, 3), (2, 3, 2), (2, 2, 1), ((0, 1), (1, 1), (1, 0)), (1, 1, 1), False),
    "every option": ((5, 4, 6), (2, 2, 3), (3, 2, 2), ((1, 0),) * 3, (2, 1, 2), True),
}


def drawn(case):
    return np.random.default_rng(len(case)).normal(size=(2, 3, *CASES[case][0]))


@pytest.mark.parametrize("case", CASES)
def test_maxima(case):
    x, (_, kernel, *rest) = drawn(case), CASES[case]
    expected = pool(x, kernel, *rest, lambda seen, _: seen.max(-1))
    np.testing.assert_array_equal(MAX[len(kernel)](x, kernel, *rest).asnumpy(), expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("counted", [True, False])
def test_means(case, counted):
    x, (_, kernel, stride, padding, dilation, ceil) = drawn(case), CASES[case]

    def mean(seen, declared):
        return seen.sum(-1) / (declared if counted else seen.shape[-1])

    expected = pool(x, kernel, stride, padding, dilation, ceil, mean)
    got = AVG[len(kernel)](x, kernel, stride, padding, ceil, counted, dilation)
    np.testing.assert_allclose(got.asnumpy(), expected, 1e-12, 1e-12)


@pytest.mark.parametrize("case", ["a last window", "dilated planes", "every option"])
def test_two_derivatives(case):
    x, (_, kernel, stride, padding, dilation, ceil) = drawn(case)[:1], CASES[case]
    n = len(kernel)
    assert gradcheck(lambda x: MAX[n](x, kernel, *CASES[case][2:]) ** 2, x, order=2).ok
    f = lambda x: AVG[n](x, kernel, stride, padding, ceil, False, dilation) ** 2  # noqa: E731
    assert gradcheck(f, x, order=2).ok


def test_the_gradient_goes_to_the_first_of_equals_in_row_major_order():
    x = np.zeros((1, 1, 2, 2, 2))
    x[0, 0, 0, 1, 0] = x[0, 0, 0, 1, 1] = x[0, 0, 1, 0, 0] = 3.0
    slope = grad(lambda x: ops.sum(ops.max_pool3d(x, 2)))(x).asnumpy()
    assert np.argwhere(slope).tolist() == [[0, 0, 0, 1, 0]]
    equal = np.array([[[1.0, 0.0, 1.0]]])
    far = grad(lambda x: ops.sum(ops.max_pool1d(x, 2, dilation=2)))(equal)
    assert far.tolist() == [[[1.0, 0.0, 0.0]]]


def test_nan_is_the_largest_and_what_lies_outside_never_wins():
    x = np.array([[[-5.0, np.nan, -3.0, -4.0]]])
    np.testing.assert_array_equal(
        ops.max_pool1d(x, 2, 1, 1, 2).asnumpy(), [[[np.nan, -3.0, np.nan, -3.0]]]
    )
    least = np.full((1, 1, 3), -np.inf)
    assert ops.max_pool1d(least, 2, 1, 1).tolist() == [[[-np.inf] * 4]]
    assert np.isinf(ops.adaptive_avg_pool1d(np.array([[[1.0, 2.0, np.inf]]]), 2).asnumpy()[0, 0, 1])


def test_a_window_in_the_padding_alone_is_as_what_lies_there():
    """The functions refuse it; ONNX does not."""
    x, axis = np.array([[[1.0, 2.0]]]), Axis(2, 2, 1, before=2, after=1)
    assert largest(x, (axis,)).tolist() == [[[-np.inf, 1.0, 2.0, 2.0]]]
    assert average(x, (axis,), True).tolist() == [[[0.0, 0.5, 1.5, 1.0]]]


@pytest.mark.parametrize("padding", [0, ((1, 0), (0, 0)), ((0, 1), (0, 0))])
def test_windows_of_many_rows_side_by_side(padding):
    """Rows as many as windows have in all, with padding and without, of few images and of many."""
    for images, size in ((1, 5), (40, 5), (1, 70)):
        x = np.random.default_rng(size).normal(size=(images, 2, 2 * size, 4))
        (top, _), _ = padding or ((0, 0), None)
        rows = [(max(r * size - top, 0), (r + 1) * size - top) for r in (0, 1)]
        seen = [x[:, :, a:b].reshape(images, 2, b - a, 2, 2).swapaxes(3, 4) for a, b in rows]
        for f, expected in ((ops.max_pool2d, np.max), (ops.avg_pool2d, np.mean)):
            named = {"count_include_pad": False} if f is ops.avg_pool2d else {}
            got = f(x, (size, 2), padding=padding, **named).asnumpy()
            for r, part in enumerate(seen):
                np.testing.assert_allclose(
                    got[:, :, r], expected(part, axis=(2, 3)), 1e-12, err_msg=f"{images} {size}"
                )


def test_the_first_example_of_ceil_mode():
    x = np.arange(1.0, 8.0).reshape(1, 1, 7)
    assert ops.max_pool1d(x, 2, 2).tolist() == [[[2, 4, 6]]]
    assert ops.max_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[[2, 4, 6, 7]]]
    assert ops.avg_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[[1.5, 3.5, 5.5, 7]]]
    # A window from 8 on would begin in the padding behind: there is none.
    assert ops.max_pool1d(x, 2, 4, ((0, 2),), ceil_mode=True).shape == (1, 1, 2)


# Extents and output size; shares of different extents overlap.
SHARES = [
    ((7,), (3,)), ((5,), (7,)), ((6,), (3,)), ((5, 7), (2, 7)), ((4, 6), (3, 2)),
    ((3, 5, 4), (2, 5, 3)), ((4, 4, 4), (1, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("extents", "size"), SHARES)
def test_shares(extents, size):
    x = np.random.default_rng(sum(size)).normal(size=(2, 3, *extents))
    mean, top = np.zeros((2, 2, 3, *size))
    for place in np.ndindex(*size):
        rows = zip(place, extents, size, strict=True)
        at = tuple(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in rows)
        seen = x[:, :, *at].reshape(2, 3, -1)
        mean[:, :, *place], top[:, :, *place] = seen.mean(-1), seen.max(-1)
    n = len(size)
    np.testing.assert_allclose(AVG_SHARES[n](x, size).asnumpy(), mean, 1e-12, 1e-12)
    np.testing.assert_array_equal(MAX_SHARES[n](x, size).asnumpy(), top)
    kept = tuple(None if m == e else m for m, e in zip(size, extents, strict=True))
    np.testing.assert_array_equal(MAX_SHARES[n](x, kept).asnumpy(), top)


def test_shares_have_two_derivatives():
    x = np.random.default_rng(5).normal(size=(1, 2, 5, 4))
    for f in (ops.adaptive_avg_pool2d, ops.adaptive_max_pool2d):
        assert gradcheck(lambda x, f=f: f(x, (3, 2)) ** 2, x, order=2).ok


def everything(x, y):
    h = ops.avg_pool1d(ops.max_pool1d(x, 2, dilation=2, ceil_mode=True), 3, 2, 1, True, False)
    v = ops.adaptive_max_pool3d(ops.avg_pool3d(y, 2, 1), (2, 1, 3))
    return ops.add(ops.sum(ops.square(h)), ops.sum(ops.square(ops.adaptive_avg_pool3d(v, 2))))


@pytest.mark.parametrize("providers", [("miniml",), ("cc",)])
def test_compiled_and_eager_agree(providers):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 3, 11)), rng.normal(size=(2, 1, 4, 3, 6))
    derived = value_and_grad(everything, (0, 1))
    with ml.context(providers=providers):
        eager, compiled = derived(x, y), ml.jit(derived)(x, y)
    for one, two in zip((eager[0], *eager[1]), (compiled[0], *compiled[1]), strict=True):
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), 1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_batches_without_images(n):
    x = np.zeros((0, 3, *(5,) * n))
    for out in (MAX[n](x, 2, dilation=2), AVG[n](x, 2, ceil_mode=True)):
        assert out.shape == (0, 3, *(out.shape[2],) * n)
    assert AVG_SHARES[n](x, 3).shape == MAX_SHARES[n](x, 3).shape == (0, 3, *(3,) * n)
    assert grad(lambda x: ops.sum(MAX[n](x, 2)))(x).shape == x.shape


def test_dtypes():
    x = np.ones((1, 1, 5), np.float16)
    for f in (ops.max_pool1d, ops.avg_pool1d):
        assert f(x, 2, ceil_mode=True).dtype == ml.float16
    assert ops.adaptive_avg_pool1d(x, 3).dtype == ml.float16


X = np.ones((2, 3, 5))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ops.max_pool1d(X, 6), r"5 \+ 0 \+ 0 = 5 pixels for a window of 6; pad more"),
        (lambda: ops.max_pool1d(X, 3, dilation=3), "5 pixels for a window of 7"),
        (lambda: ops.avg_pool3d(X[None], 2), r"needs x of shape \(N, C, D, H, W\)"),
        (lambda: ops.max_pool2d(X, 2), r"max_pool2d needs x .*shape \(2, 3, 5\)"),
        (lambda: ops.max_pool1d(X, 2, padding=2), "pad by less than the kernel"),
        (lambda: ops.avg_pool1d(X[..., :1], 2, 1, 1, dilation=3), "in the padding alone"),
        (lambda: ops.max_pool1d(X[..., :0], 2, padding=1), "have no pixels"),
        (lambda: ops.max_pool1d(X, (2, 2)), r"kernel_size=\(2, 2\); expected one int"),
        (lambda: ops.max_pool3d(X[None], 2, stride=0), r"stride=\(0, 0, 0\); expected three ints"),
        (lambda: ops.adaptive_avg_pool1d(X, 0), r"output_size=\(0,\)"),
        (lambda: ops.adaptive_max_pool2d(X[None], (1, 2, 3)), r"output_size=\(1, 2, 3\)"),
        (lambda: ops.adaptive_avg_pool1d(X[..., :0], 2), "images with pixels"),
    ],
)
def test_refusals(call, says):
    with pytest.raises((ShapeError, ValueRefusedError), match=says):
        call()


@pytest.mark.parametrize("f", [ops.max_pool1d, ops.avg_pool1d, ops.adaptive_avg_pool1d])
def test_integers_are_refused_by_name(f):
    with pytest.raises(DTypeError, match=f"{f.__name__} needs a float tensor; got int64"):
        f(X.astype(int), 2)
