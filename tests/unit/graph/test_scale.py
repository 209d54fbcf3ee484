"""Scales of channels are put into the weights before them."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.grad import value_and_grad
from miniml.graph.ir import verify
from miniml.graph.passes.rewrite import prune
from miniml.graph.passes.simplify import scale

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(2, 3, 8, 8)), RNG.normal(size=(4, 3, 3, 3))
S, B, T = (RNG.normal(size=(4, 1, 1)) for _ in "sbt")


def body(fn, *args):
    graph = prune(scale(ml.trace(fn, *args)))
    verify(graph)
    lines = [line.strip().replace("float64", "") for line in str(graph).splitlines()]
    return lines[lines.index(next(line for line in lines if line.endswith(":"))) + 1 :]


def stays(fn, *args):
    graph = ml.trace(fn, *args)
    return scale(graph) is graph


def test_the_scale_of_a_convolution_is_one_of_its_filters():
    def fn(x, w, s, b, t):
        return (ops.conv2d(x, w) + b) * s + t

    first, second, third, *rest = body(fn, X, W, S, B, T)
    assert first == "%5: [4, 1, 1, 1] = Reshape(shape=(4, 1, 1, 1)) %2"
    assert second == "%6: [4, 3, 3, 3] = Mul() %1, %5"
    assert third.endswith("%0, %6")
    assert rest == [
        "%8: [4, 1, 1] = Mul() %3, %2",
        "%9: [4, 1, 1] = Add() %8, %4",
        "%10: [2, 4, 6, 6] = Add() %7, %9",
        "return %10",
    ]


def test_the_scale_of_a_product_is_one_of_its_columns_or_rows():
    x, w, s = np.ones((9, 3)), np.ones((3, 4)), np.ones(4)
    assert body(lambda x, w, s: s * (x @ w), x, w, s) == [
        "%3: [3, 4] = Mul() %1, %2",
        "%4: [9, 4] = MatMul(transpose_x=False, transpose_y=False) %0, %3",
        "return %4",
    ]
    turned = body(lambda x, w, s: ops.matmul(x, w, transpose_y=True) * s, x, w.T, s)
    assert turned[:2] == ["%3: [4, 1] = Reshape(shape=(4, 1)) %2", "%4: [4, 3] = Mul() %1, %3"]


def test_what_is_read_otherwise_or_larger_or_no_scale_of_channels_stays():
    def twice(x, w, s):
        y = ops.conv2d(x, w)
        return y * s, y

    def once(x, w, s):
        return ops.conv2d(x, w) * s

    assert stays(twice, X, W, S)
    assert stays(once, X[:1, :, :5, :5], W, S)
    assert stays(once, X, W, np.ones((6, 1)))
    assert stays(once, X, W, np.ones((6, 6)))
    assert stays(lambda x, w, s: (x @ w) * s, np.ones(3), np.ones((3, 1)), np.ones(1))
    assert stays(lambda x, y: ops.exp(x) * ops.ones(()) * (y @ y), X, np.ones((2, 2))[0, 0:1])


@pytest.mark.parametrize("groups", [1, 3])
def test_batch_norm_that_is_not_trained_computes_the_same(groups):
    ml.manual_seed(0)
    conv, norm = nn.Conv2d(3, 6, 3, groups=groups), nn.BatchNorm2d(6)
    norm(ml.Tensor(RNG.normal(2.0, 3.0, (5, 6, 7, 7)).astype(np.float32)))
    net = nn.Sequential(conv, norm, nn.ReLU())
    net.set_train(False)
    x = X.astype(np.float32)

    def loss(x):
        return ops.sum(net(x) ** 2)

    results = []
    for off in (("scale",), ()):
        with ml.context(disabled_passes=off, verify_passes=True):
            value, (dx, weights) = ml.jit(value_and_grad(loss, 0, weights=net))(x)
            found = ml.jit(net)(x)
        results.append([found, value, dx, *weights])
    for expected, got in zip(*results, strict=True):
        expected, got = expected.asnumpy(), got.asnumpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
