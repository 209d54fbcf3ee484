"""The pass 'formats': images in the order that kernels ask for, from one to the next."""

from collections import Counter

import numpy as np
import pytest

import miniml as ml
import miniml.backends.cc
from miniml import Kernel, Primitive, kernel, ops
from miniml.backends.selection import Target, get_device
from miniml.core.abstract import OTHERS, moves
from miniml.grad import value_and_grad
from miniml.graph.passes import run_passes
from miniml.runtime.lowering import lower

NATIVE = {"providers": ("cc", "miniml"), "verify_passes": True}


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, W, V = draw(16, 2, 9, 8), draw(3, 2, 3, 3, seed=1), draw(4, 3, 2, 2, seed=2)
BIAS = draw(3, seed=3)


def names(fn, *args):
    """How often each primitive occurs in the lowered graph; Convert where it moves images."""
    target = Target(get_device("cpu", "check"), ("cc",))
    graph = lower(run_passes(ml.trace(fn, *args)), target, disabled=("fuse",))
    return Counter(n.primitive.name for n in graph.nodes if not free(n))


def free(node):
    """True for a conversion that changes no order in memory."""
    ends = node.inputs + node.outputs
    formats = [v.abstract.format for v in ends]
    return node.primitive.name == "Convert" and not moves(ends[0].abstract.shape, *formats)


def chain(x, w, bias, v):
    y = ops.max_pool2d(ops.relu(ops.conv2d(x, w, bias, padding=1)), 2)
    return ops.conv2d(y, v)


def loss(x, w, bias, v):
    return ops.sum(ops.square(chain(x, w, bias, v)))


def both(fn, *args):
    """The results with native kernels and formats, and by NumPy alone."""
    with ml.context(**NATIVE):
        got = ml.jit(fn)(*args)
    with ml.context(providers=("miniml",)):
        return got, ml.jit(fn)(*args)


def close(got, expected):
    # Sums of a few thousand products of numbers of order one.
    np.testing.assert_allclose(got.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-3)


def test_a_chain_is_brought_into_order_once_and_back_once():
    found = names(chain, X, W, BIAS, V)
    assert found["Convert"] == 2
    assert found["Conv2D"] == 2
    assert found["MaxPool2D"] == found["ReLU"] == 1


def test_the_gradient_of_a_chain_moves_images_only_at_its_ends():
    found = names(value_and_grad(loss, argnums=(1, 2, 3)), X, W, BIAS, V)
    assert found["Convert"] <= 2  # x; the squares are summed in the usual order


def inverted(x, expand, depth, project, bias, again):
    """An inverted residual block: pointwise, depthwise, pointwise."""
    y = ops.clip(ops.conv2d(x, expand), 0.0, 6.0)
    y = ops.clip(ops.conv2d(y, depth, padding=1, groups=32), 0.0, 6.0)
    y = ops.conv2d(y, project, bias)  # whose 24 channels leave a block half empty
    return ops.conv2d(ops.tanh(y) + y, again)


INVERTED = (
    draw(1, 16, 9, 8), draw(32, 16, 1, 1), draw(32, 1, 3, 3, seed=1),
    draw(24, 32, 1, 1, seed=2), draw(24, seed=3), draw(16, 24, 1, 1, seed=4),
)  # fmt: skip


def test_depthwise_convolutions_keep_their_neighbours_in_blocks():
    assert names(inverted, *INVERTED)["Convert"] == 3  # x, the numbers of the bias, the result
    close(*both(inverted, *INVERTED))
    with ml.context(**NATIVE):
        groups = ml.explain(inverted, *INVERTED).groups
    assert [g.split(";")[0] for g in groups] == ["Conv2D Clip"] * 2 + ["Conv2D Add Tanh Add"]


def test_the_gradient_of_depthwise_convolutions_in_blocks():
    fn = value_and_grad(lambda *a: ops.mean(ops.square(inverted(*a))), argnums=tuple(range(6)))
    (got, slopes), (loss_, expected) = both(fn, *INVERTED)
    close(got, loss_)
    for one, two in zip(slopes, expected, strict=True):
        close(one, two)


def test_a_chain_computes_what_it_computes_without_formats():
    close(*both(chain, X, W, BIAS, V))


def test_gradients_are_those_of_the_chain_without_formats():
    def fn(*args):
        value, grads = value_and_grad(loss, argnums=(0, 1, 2, 3))(*args)
        return value, *grads

    for got, expected in zip(*both(fn, X, W, BIAS, V), strict=True):
        close(got, expected)


def normalized(x, w, gamma, beta, v):
    y = ops.batch_norm(ops.conv2d(x, w, padding=1), gamma, beta, training=True)[0]
    y = ops.conv2d(ops.relu(y), v)
    return ops.sum(ops.square(ops.mean(y, (2, 3))))


def test_batch_norm_and_the_mean_of_a_plane_move_no_images():
    args = X, W, BIAS + 2, BIAS, V
    found = names(value_and_grad(normalized, argnums=(0, 1, 2, 3, 4)), *args)
    # x and its gradient, and the gradients of the means, (N, C) numbers.
    assert found["Convert"] == 3


def test_batch_norm_between_convolutions_computes_what_it_computes_without_formats():
    def fn(*args):
        value, grads = value_and_grad(normalized, argnums=(0, 1, 2, 3, 4))(*args)
        return value, *grads

    for got, expected in zip(*both(fn, X, W, BIAS + 2, BIAS, V), strict=True):
        close(got, expected)


@pytest.mark.parametrize("images", [1, 3, 17])
def test_a_batch_that_fills_no_line_stays_outermost(images):
    x = draw(images, 2, 9, 8)
    assert not names(chain, x, W, BIAS, V)["Convert"]
    close(*both(chain, x, W, BIAS, V))


def between(fn):
    """fn of the images between two convolutions."""
    return lambda x, w, v: ops.conv2d(fn(ops.conv2d(x, w)), v)


SCALES = draw(16, 1, 1, 1, seed=4)
BETWEEN = {
    "a number": lambda y: y * 2.0,
    "a number of each channel": lambda y: y + ops.reshape(ml.Tensor(BIAS), (3, 1, 1)),
    "a number of each pixel": lambda y: y * draw(7, 6, seed=5),
    "a number of each image": lambda y: y * SCALES,
    "more images": lambda y: y[:, :1] * y,
    "itself": lambda y: y * y,
    "a mean": lambda y: y - ops.mean(y, axis=0, keepdims=True),
    "a mean of each channel": lambda y: y - ops.reshape(ops.mean(y, axis=(0, -1, 2)), (3, 1, 1)),
    "a mean of each image": lambda y: y * ops.mean(y, axis=(1, 2, 3), keepdims=True),
    "the mean of a plane": lambda y: y + ops.reshape(ops.mean(y, axis=(2, 3)), (16, 3, 1, 1)),
    "the greatest": lambda y: y - ops.max(y),
    "a sum of rows": lambda y: y + ops.sum(y, axis=2, keepdims=True),
    "a comparison": lambda y: ops.where(y > 0, y, ops.exp(y)),
    "another dtype": lambda y: ops.cast(ops.cast(y, ml.float64), ml.float32),
    "a mean of all images, spread": lambda y: y + ops.broadcast_to(ops.mean(y, 0), y.shape),
    "a turn": lambda y: ops.transpose(y, (0, 1, 3, 2)),
    "means of windows": lambda y: ops.avg_pool2d(y, 2, padding=1),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_what_stands_between_two_convolutions_computes_the_same(what):
    close(*both(between(BETWEEN[what]), X, W, V))


@pytest.mark.parametrize("form", OTHERS)
@pytest.mark.parametrize("what", BETWEEN)
def test_what_stands_between_two_convolutions_computes_the_same_in_numpy(what, form):
    fn = between(BETWEEN[what])
    with ml.context(providers=("miniml",)):
        expected = ml.jit(fn)(X, W, V)
    with ml.context(providers=("miniml",), formats=(form,), verify_passes=True):
        close(ml.jit(fn)(X, W, V), expected)


def test_what_a_caller_receives_is_row_major():
    def fn(x, w):
        y = ops.conv2d(x, w)
        return (y, *ops.MaxPool2D((2, 2), (2, 2))(ops.relu(y)))

    for got, expected in zip(*both(fn, X, W), strict=True):
        assert got.dtype == expected.dtype
        close(got, expected)


@pytest.mark.parametrize("dtype", [ml.bool_, ml.int32, ml.float16])
def test_other_dtypes_come_back_too(dtype):
    def fn(x, w):
        y = ops.conv2d(x, w)
        return y > 0 if dtype == ml.bool_ else ops.cast(ops.cast(y, dtype) + 1, dtype)

    assert names(fn, X, W)["Convert"] == 2
    got, expected = both(fn, X, W)
    assert got.dtype == dtype
    np.testing.assert_allclose(
        got.asnumpy().astype(float), expected.asnumpy().astype(float), rtol=2e-3, atol=1
    )


def test_the_pass_can_be_switched_off():
    with ml.context(**NATIVE, disabled_passes=("formats",)):
        assert "Convert" not in str(ml.explain(chain, X, W, BIAS, V))
    with ml.context(**NATIVE):
        assert "Convert" in str(ml.explain(chain, X, W, BIAS, V))


def test_a_users_primitive_takes_the_formats_of_its_neighbours_where_it_says_so():
    seen = []

    class AboutMean(Primitive):
        """Not elementwise, and the same in every order of the elements."""

        any_format = True

        def infer_shape(self, x):
            return x

    @kernel("AboutMean", "cpu", "f->f")
    class AboutMeanCPU(Kernel):
        def prepare(self, node):
            super().prepare(node)
            seen.append(node.inputs[0].format)

        def launch(self, inputs, workspace, outputs, stream):
            assert inputs[0].shape == outputs[0].shape
            np.subtract(inputs[0], inputs[0].mean(), out=outputs[0])

    def between(x, w, bias, v):
        return ops.conv2d(AboutMean()(ops.conv2d(x, w, bias, padding=1)), v)

    assert names(between, X, W, BIAS, V)["Convert"] == 2
    close(*both(between, X, W, BIAS, V))
    assert "CHWN" in seen


def test_another_primitive_gets_images_in_row_major_order():
    seen = []

    class RowMean(Primitive):
        def infer_shape(self, x):
            return x

    @kernel("RowMean", "cpu", "f->f")
    class RowMeanCPU(Kernel):
        def prepare(self, node):
            super().prepare(node)
            seen.append(node.inputs[0].format)

        def launch(self, inputs, workspace, outputs, stream):
            np.subtract(inputs[0], inputs[0].mean((1, 2, 3), keepdims=True), out=outputs[0])

    def between(x, w, bias, v):
        return ops.conv2d(RowMean()(ops.conv2d(x, w, bias, padding=1)), v)

    close(*both(between, X, W, BIAS, V))
    assert set(seen) == {None}


@pytest.mark.parametrize("format", [*OTHERS])
@pytest.mark.parametrize("providers", [("cc",), ("miniml",)])
def test_small_pools_and_sums_fill_images_in_every_format(format, providers):
    def squares(x, w):
        y = ops.avg_pool2d(ops.conv2d(x, w, padding=1), 2)
        return ops.sum(ops.square(ops.conv2d(y, w) - ops.mean(y)))

    fn, given = value_and_grad(squares, (0, 1)), (draw(2, 4, 8, 8), draw(4, 4, 3, 3, seed=1))
    with ml.context(providers=providers, formats=(format,)):
        value, gradients = ml.jit(fn)(*given)
    plain, expected = fn(*given)
    np.testing.assert_allclose(float(value), float(plain), rtol=1e-4)
    for got, right in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(got.asnumpy(), right.asnumpy(), rtol=1e-3, atol=1e-2)
