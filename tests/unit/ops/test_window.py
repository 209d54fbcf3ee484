"""What the functions of convolution and pooling take and give, beyond the primitives' rows."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ShapeError, ValueRefusedError
from miniml.grad import grad, value_and_grad

RNG = np.random.default_rng(0)
X, W, BIAS = (RNG.standard_normal(s) for s in ((2, 3, 7, 6), (4, 3, 3, 2), (4,)))


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        (1, ((1, 1), (1, 1))),
        ((1, 2), ((1, 1), (2, 2))),
        ([[0, 1], [2, 3]], ((0, 1), (2, 3))),
        (((0, 1), 2), ((0, 1), (2, 2))),
        ("valid", ((0, 0), (0, 0))),
        ("same", ((1, 1), (0, 1))),
    ],
)
def test_paddings(given, pairs):
    out = ops.conv2d(X, W, padding=given)
    wide = np.pad(X, ((0, 0), (0, 0), *pairs))
    np.testing.assert_allclose(out.asnumpy(), ops.conv2d(wide, W).asnumpy(), atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2, (3, 2), 5])
@pytest.mark.parametrize("dilation", [1, (2, 3)])
def test_same_gives_the_ceiling(stride, dilation):
    rows, columns = stride if isinstance(stride, tuple) else (stride, stride)
    out = ops.conv2d(X, W, stride=stride, padding="same", dilation=dilation)
    assert out.shape == (2, 4, -(-7 // rows), -(-6 // columns))


def test_bias_is_added_per_channel():
    with_bias, without = ops.conv2d(X, W, BIAS), ops.conv2d(X, W)
    np.testing.assert_allclose(with_bias.asnumpy(), without.asnumpy() + BIAS[:, None, None])
    gradient = grad(lambda b: ops.sum(ops.conv2d(X, W, b)))(BIAS)
    assert gradient.tolist() == [2.0 * 5 * 5] * 4


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ops.conv2d(X, W, np.ones(3)), r"bias of shape \(3,\) for 4 output channels"),
        (lambda: ops.conv2d(X, W, padding="full"), "padding='full'; expected an int"),
        (lambda: ops.conv2d(X, W, padding=(1, 2, 3)), r"for each axis of \(H, W\)"),
        (lambda: ops.conv2d(X, W, padding=-1), "two ints >= 0"),
        (lambda: ops.conv2d(X, W, stride=0), r"conv2d got stride=\(0, 0\)"),
        (lambda: ops.conv2d(X, W, dilation=(1, 1, 1)), r"dilation=\(1, 1, 1\)"),
        (lambda: ops.conv2d(X[0], W, padding="same"), "add the axes that are missing"),
        (lambda: ops.max_pool2d(X, 0), r"max_pool2d got kernel_size=\(0, 0\)"),
        (lambda: ops.max_pool2d(X, 2, padding="same"), "cannot fit|padding='same'"),
        (lambda: ops.avg_pool2d(X, 2, padding=2), "pad by less than the kernel"),
    ],
)
def test_refusals(call, says):
    with pytest.raises((ShapeError, ValueRefusedError), match=says):
        call()


def test_integer_images_are_convolved_as_float32():
    out = ops.conv2d(np.arange(9).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2), np.float32))
    assert out.dtype == ml.float32
    assert out.tolist() == [[[[8.0, 12.0], [20.0, 24.0]]]]


def test_low_precision_is_summed_in_float32():
    ones = np.ones((1, 1, 64, 64), ml.bfloat16)
    assert ops.conv2d(ones, ones).item() == 4096.0
    assert ops.avg_pool2d(ones, 64).item() == 1.0


def test_the_gradient_of_a_maximum_goes_to_the_first_of_a_tie():
    x = np.array([[[[1.0, 3.0, 3.0, 0.0]]]])
    assert ops.max_pool2d(x, (1, 4)).tolist() == [[[[3.0]]]]
    assert grad(lambda x: ops.sum(ops.max_pool2d(x, (1, 4))))(x).tolist() == [[[[0, 1, 0, 0]]]]


def test_overlapping_windows_add_their_gradients():
    x = np.array([[[[0.0, 5.0, 1.0]]]])
    slope = grad(lambda x: ops.sum(ops.max_pool2d(x, (1, 2), stride=1)))(x)
    assert slope.tolist() == [[[[0.0, 2.0, 0.0]]]]


def test_padding_never_wins_and_counts_as_asked():
    x = np.full((1, 1, 2, 2), -3.0)
    assert ops.max_pool2d(x, 2, padding=1).asnumpy().max() == -3.0
    assert ops.avg_pool2d(x, 2, padding=1).tolist() == [[[[-0.75, -0.75], [-0.75, -0.75]]]]
    assert ops.avg_pool2d(x, 2, padding=1, count_include_pad=False).asnumpy().max() == -3.0


def network(x, w, b):
    hidden = ops.max_pool2d(ops.conv2d(x, w, b, padding="same"), 2)
    return ops.sum(ops.square(ops.avg_pool2d(hidden, (2, 1), stride=1)))


def test_compiled_and_eager_agree():
    derived = value_and_grad(network, (0, 1, 2))
    eager, compiled = derived(X, W, BIAS), ml.jit(derived)(X, W, BIAS)
    for one, two in zip((eager[0], *eager[1]), (compiled[0], *compiled[1])):
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), rtol=1e-12)


def test_the_gradient_takes_one_call_per_operand():
    graph = ml.trace(grad(lambda x, w: ops.sum(ops.conv2d(x, w)), (0, 1)), X, W)
    names = [node.primitive.name for node in graph.nodes]
    assert [n for n in names if "Conv" in n] == ["Conv2D", "Conv2DInputGrad", "Conv2DWeightGrad"]
