"""unfold and fold: PyTorch's columns, each the transpose of the other."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ShapeError
from miniml.grad import grad
from miniml.testing import gradcheck

from .windows import counts, padded, window

# Extents, kernel, dilation, padding, stride.
CASES = [
    ((6,), (3,), (1,), ((0, 0),), (1,)),
    ((5, 4), (2, 3), (1, 1), ((1, 0), (0, 2)), (2, 1)),
    ((6, 7), (2, 2), (3, 2), ((1, 1), (0, 0)), (2, 3)),  # pixels that no window has
    ((3, 4, 3), (2, 1, 2), (1, 1, 2), ((0, 0), (1, 1), (1, 0)), (1, 3, 1)),
]


def unfolded(x, kernel, dilation, padding, stride):
    """A column for each window: its channels, each with its elements in row-major order."""
    wide = padded(x, padding)
    places = np.ndindex(*counts(x.shape[2:], kernel, stride, padding, dilation))
    columns = [wide[:, :, *window(p, kernel, stride, dilation)].reshape(len(x), -1) for p in places]
    return np.stack(columns, -1)


@pytest.mark.parametrize("case", CASES)
def test_columns_and_what_they_sum_to(case):
    extents, *rest = case
    x = np.random.default_rng(0).normal(size=(2, 3, *extents))
    expected = unfolded(x, *rest)
    np.testing.assert_array_equal(ops.unfold(x, *rest).asnumpy(), expected)
    dout = np.random.default_rng(1).normal(size=expected.shape)
    slope = grad(lambda x: ops.sum(ops.unfold(x, *rest) * dout))(x)
    folded = ops.fold(dout, extents, *rest).asnumpy()
    assert folded.shape == x.shape
    np.testing.assert_allclose(folded, slope.asnumpy(), 1e-12, 1e-12)
    np.testing.assert_allclose((folded * x).sum(), (dout * expected).sum(), 1e-10)


def test_what_pytorch_gives():
    """Golden numbers of torch.nn.functional 2.13."""
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    assert ops.unfold(x, (2, 3), padding=(0, 1), stride=(1, 2)).tolist() == [
        [[0, 1, 0, 5], [0, 2, 4, 6], [1, 3, 5, 7], [0, 5, 0, 9], [4, 6, 8, 10], [5, 7, 9, 11]]
    ]
    columns = np.arange(16.0).reshape(1, 4, 4)
    assert ops.fold(columns, (3, 3), 2).tolist() == [[[[0, 5, 5], [10, 30, 20], [10, 25, 15]]]]


def test_two_derivatives_and_a_compiled_call():
    x = np.random.default_rng(2).normal(size=(1, 2, 4, 3))
    f = lambda x: ops.fold(ops.unfold(x, 2, padding=1) ** 2, (4, 3), 2, padding=1)  # noqa: E731
    assert gradcheck(f, x, order=2).ok
    np.testing.assert_allclose(ml.jit(f)(x).asnumpy(), f(x).asnumpy(), 1e-12)


def test_batches_without_images_and_dtypes():
    assert ops.unfold(np.zeros((0, 3, 4, 4)), 2).shape == (0, 12, 9)
    assert ops.fold(np.zeros((0, 12, 9)), 4, 2).shape == (0, 3, 4, 4)
    assert ops.unfold(np.arange(4)[None, None], 2).tolist() == [[[0, 1, 2], [1, 2, 3]]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ops.unfold(np.ones((1, 1, 2, 2)), 3), r"2 \+ 0 \+ 0 = 2 pixels for a window of 3"),
        (lambda: ops.unfold(np.ones((3, 3)), 2), "of 0 axes behind"),
        (lambda: ops.fold(np.ones((1, 5, 4)), 3, 2), r"takes \(N, C \* 4, 4\)"),
        (lambda: ops.fold(np.ones((1, 4, 5)), 3, 2), r"x of shape \(1, 4, 5\)"),
        (lambda: ops.fold(np.ones((4, 4)), 3, 2), r"of shape \(4, 4\)"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(ShapeError, match=says):
        call()
