"""Convolutions of one to three axes and their transposes, against windows written out."""

import inspect
import pickle
import re

import numpy as np
import pytest
from scipy import signal

import miniml as ml
from miniml import ops
from miniml.errors import ShapeError, ValueRefusedError
from miniml.grad import grad, value_and_grad
from miniml.ops.composed import convolution
from miniml.testing import gradcheck

from .windows import conv, conv_transpose

CONV = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}
TRANSPOSE = {1: ops.conv_transpose1d, 2: ops.conv_transpose2d, 3: ops.conv_transpose3d}
# Extents, taps, stride, padding, dilation, groups, and the output padding of the transpose.
CASES = {
    "a signal": ((7,), (3,), (1,), ((0, 0),), (1,), 1, (0,)),
    "strides": ((8,), (2,), (3,), ((1, 0),), (1,), 1, (2,)),
    "dilation": ((6,), (3,), (1,), ((2, 2),), (2,), 2, (1,)),  # more behind than the stride
    "groups": ((9,), (4,), (2,), ((1, 3),), (2,), 2, (0,)),
    "an image": ((5, 4), (2, 3), (2, 1), ((1, 0), (0, 2)), (1, 1), 2, (1, 0)),
    "a volume": ((3, 4, 3), (2, 1, 3), (1,) * 3, ((0, 0), (0, 0), (1, 1)), (1,) * 3, 1, (0,) * 3),
    "every option": (
        (5, 4, 6), (2, 3, 2), (2, 1, 3), ((1, 2), (1, 1), (0, 1)), (1, 1, 2), 2, (1, 0, 2)
    ),
    "gaps in depth": ((6, 3, 3), (3, 1, 2), (1, 2, 1), ((2, 0),) * 3, (2, 1, 1), 1, (1, 1, 0)),
}  # fmt: skip


def drawn(case, n=2, transposed=False):
    extents, kernel, *_, groups, _ = CASES[case]
    rng = np.random.default_rng(len(case))
    w = (4, 6 // groups, *kernel) if transposed else (6, 4 // groups, *kernel)
    return rng.normal(size=(n, 4, *extents)), rng.normal(size=w), rng.normal(size=6)


@pytest.mark.parametrize("case", CASES)
def test_convolutions(case):
    _, kernel, *rest, _ = CASES[case]
    x, w, bias = drawn(case)
    expected = conv(x, w, *rest) + bias.reshape(-1, *(1,) * len(kernel))
    np.testing.assert_allclose(CONV[len(kernel)](x, w, bias, *rest).asnumpy(), expected, 1e-9, 1e-9)


@pytest.mark.parametrize("case", CASES)
def test_transposes(case):
    _, kernel, stride, padding, dilation, groups, more = CASES[case]
    x, w, bias = drawn(case, transposed=True)
    expected = conv_transpose(x, w, stride, padding, dilation, groups, more)
    expected += bias.reshape(-1, *(1,) * len(kernel))
    got = TRANSPOSE[len(kernel)](x, w, bias, stride, padding, more, groups, dilation)
    np.testing.assert_allclose(got.asnumpy(), expected, 1e-9, 1e-9)


def test_they_are_what_scipy_correlates_and_convolves():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 6, 7)), rng.normal(size=(3, 2, 4))
    one = ops.conv3d(x[None, None], w[None, None]).asnumpy()[0, 0]
    np.testing.assert_allclose(one, signal.correlate(x, w, "valid"), 1e-9)
    whole = ops.conv_transpose3d(x[None, None], w[None, None]).asnumpy()[0, 0]
    np.testing.assert_allclose(whole, signal.convolve(x, w, "full"), 1e-9, 1e-12)


@pytest.mark.parametrize("case", ["groups", "gaps in depth"])
def test_two_derivatives(case):
    (*_, kernel, stride, padding, dilation, groups, more) = CASES[case]
    n = len(kernel)
    x, w, bias = drawn(case, 1)
    assert gradcheck(
        lambda *a: CONV[n](*a, stride, padding, dilation, groups), x, w, bias, order=2
    ).ok
    w = drawn(case, 1, transposed=True)[1]
    others = stride, padding, more, groups, dilation
    assert gradcheck(lambda *a: TRANSPOSE[n](*a, *others), x, w, bias, order=2).ok


@pytest.mark.parametrize("n", [1, 3])
def test_the_transpose_is_the_gradient_in_the_image(n):
    case = {1: "strides", 3: "every option"}[n]
    extents, _, stride, padding, dilation, groups, _ = CASES[case]
    x, w, _ = drawn(case)
    f = lambda x: CONV[n](x, w, None, stride, padding, dilation, groups)  # noqa: E731
    dout = np.random.default_rng(2).normal(size=f(x).shape)
    slope = grad(lambda x: ops.sum(f(x) * dout))(x).asnumpy()
    bare = TRANSPOSE[n](dout, w, None, stride, padding, 0, groups, dilation)
    more = tuple(a - b for a, b in zip(extents, bare.shape[2:], strict=True))
    got = TRANSPOSE[n](dout, w, None, stride, padding, more, groups, dilation)
    np.testing.assert_allclose(got.asnumpy(), slope, 1e-9, 1e-12)


def test_a_transpose_of_which_only_output_padding_is_left():
    x = ops.conv_transpose1d([[[3.0]]], [[[2.0]]], [7.0], 1, 2, 4, dilation=5)
    assert x.tolist() == [[[7.0]]]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_batches_without_images(n):
    x, w = np.zeros((0, 4, *(5,) * n)), np.ones((6, 4, *(2,) * n))
    assert CONV[n](x, w, np.ones(6)).shape == (0, 6, *(4,) * n)
    assert TRANSPOSE[n](x, w.swapaxes(0, 1), stride=2).shape == (0, 6, *(10,) * n)
    slopes = grad(lambda x, w: ops.sum(CONV[n](x, w)), (0, 1))(x, w)
    assert [s.shape for s in slopes] == [x.shape, w.shape]
    assert not slopes[1].asnumpy().any()


@pytest.mark.parametrize("n", [1, 3])
def test_same_keeps_the_extents_and_what_a_call_may_be_given(n):
    x, w = np.ones((1, 2, *(5,) * n), np.float32), np.ones((3, 2, *(4,) * n), np.float32)
    assert CONV[n](x, w, padding="same").shape == (1, 3, *(5,) * n)
    assert CONV[n](x, w, padding="same", stride=2).shape == (1, 3, *(3,) * n)
    assert CONV[n](x, w, padding="valid").shape == (1, 3, *(2,) * n)
    assert CONV[n](x, w, padding=[[1, 2]] * n, stride=[2] * n).shape == (1, 3, *(3,) * n)
    assert CONV[n](x.astype(int), w).dtype == ml.float32
    assert CONV[n](x.astype(np.float16), w.astype(np.float16)).dtype == ml.float16


def everything(x, w, v, volume, cube):
    """A network of all of them."""
    h = ops.conv1d(x, w, padding=1, stride=2)
    h = ops.conv_transpose1d(h, v, stride=2, output_padding=1)
    y = ops.conv_transpose3d(ops.conv3d(volume, cube, padding=1), cube, stride=2)
    return ops.add(ops.sum(ops.square(h)), ops.sum(ops.square(y)))


@pytest.mark.parametrize("providers", [("miniml",), ("cc",)])
def test_compiled_and_eager_agree(providers):
    rng = np.random.default_rng(3)
    shapes = (2, 4, 9), (6, 4, 3), (6, 2, 3), (1, 2, 3, 4, 3), (2, 2, 2, 3, 2)
    args = [rng.normal(size=s) for s in shapes]
    derived = value_and_grad(everything, tuple(range(5)))
    with ml.context(providers=providers):
        eager, compiled = derived(*args), ml.jit(derived)(*args)
    for one, two in zip((eager[0], *eager[1]), (compiled[0], *compiled[1]), strict=True):
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), 1e-10, 1e-10)


X, W = np.ones((2, 4, 5)), np.ones((6, 4, 3))
CUBE = np.ones((1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ops.conv1d(X[0], W), r"conv1d needs x of shape \(N, C, L\); got shape \(4, 5\)"),
        (lambda: ops.conv1d(X, W[0]), r"w of shape \(O, C // groups, K\)"),
        (lambda: ops.conv1d(X, W[:, :3]), "x has 4 channels and the filters take 3"),
        (lambda: ops.conv1d(X, W, groups=4), "cannot split 6 filters into groups=4"),
        (lambda: ops.conv1d(X, W, dilation=3), r"5 \+ 0 \+ 0 = 5 pixels for a window of 7"),
        (lambda: ops.conv3d(CUBE, np.ones((1, 2, 2, 7, 2)), padding=1), r"4 \+ 1 \+ 1 = 6 pixels"),
        (lambda: ops.conv3d(CUBE, W), r"\(O, C // groups, KD, KH, KW\)"),
        (lambda: ops.conv1d(X, W, stride=(1, 2)), r"conv1d got stride=\(1, 2\); expected one int"),
        (lambda: ops.conv1d(X, W, padding=(1, 2)), r"padding=\(1, 2\); expected one int or pair"),
        (lambda: ops.conv3d(CUBE, CUBE, np.ones(3)), "conv3d got a bias of shape"),
        (lambda: ops.conv_transpose1d(X, W), "x has 4 channels and the filters take 6"),
        (lambda: ops.conv_transpose1d(X, W[:4], padding=4), r"leave \(L\) = \(-1,\); pad less"),
        (lambda: ops.conv_transpose1d(X, W[:4], padding="same"), "padding='same'"),
        (lambda: ops.conv_transpose1d(X, W[:4], stride=2, output_padding=2), "less than the lar"),
        (lambda: ops.conv_transpose1d(X[..., :0], W[:4]), "have no pixels"),
    ],
)  # fmt: skip
def test_refusals(call, says):
    with pytest.raises((ShapeError, ValueRefusedError), match=says) as caught:
        call()
    assert "lambda: " in str(caught.value) + "".join(caught.value.__notes__)


@pytest.mark.parametrize("name", convolution.__all__)
def test_functions_of_one_to_three_axes_are_functions_of_their_own(name):
    f, n = getattr(ops, name), int(name[-2])
    assert (f.__name__, f.__module__) == (name, "miniml.ops.composed.convolution")
    assert pickle.loads(pickle.dumps(f)) is f
    assert next(iter(inspect.signature(f).parameters)) == "x"
    assert set(f.__annotations__) == {*inspect.signature(f).parameters, "return"}
    text = inspect.getdoc(f)
    assert ["(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)"][n - 1] in text
    assert not re.search(r"[{}]", text)
    assert (f">>> {name}(" in text) == (n == 1)
    assert max(map(len, text.splitlines())) <= 100
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing . required positional argument"):
        f(np.ones((1,) * (n + 2), np.float32))
