"""Softmax at its ends, cross entropy against its parts, and statistics of batches."""

import re

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import ops
from miniml.errors import OutOfRangeError, ShapeError
from miniml.grad import grad, value_and_grad, vjp

RNG = np.random.default_rng(0)
LOGITS, LABELS = RNG.standard_normal((5, 4)), np.array([3, 0, 1, 1, 2])


def test_softmax_far_out():
    far = np.array([[1e4, 0.0], [-1e4, 0.0]], np.float32)
    assert ops.softmax(far).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert ops.log_softmax(far).tolist() == [[0.0, -1e4], [-1e4, 0.0]]
    assert not np.isnan(grad(lambda x: ops.sum(ops.log_softmax(x)[:, 0]))(far).asnumpy()).any()


@pytest.mark.parametrize("largest", [1.0, 31.0, 33.0, 90.0, 800.0])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_of_numbers_small_and_large(largest, axis):
    x = np.random.default_rng(0).uniform(-largest, largest, (3, 40, 2))
    x[0, 0, 0], x[-1, -1, -1] = largest, -largest
    want = special.softmax(x, axis)
    np.testing.assert_allclose(ops.softmax(x, axis).asnumpy(), want, 1e-14, 1e-300)
    got, want = (
        ops.softmax(x.astype(np.float32), axis),
        special.softmax(np.float32(x).astype(float), axis),
    )
    np.testing.assert_allclose(got.asnumpy(), want, 2e-7 * max(10, largest), 1e-37)


def test_masked_places_have_probability_zero_and_rows_of_nothing_are_nan():
    masked = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    assert ops.softmax(masked).asnumpy()[0].tolist() == [1.0, 0.0]
    assert ops.log_softmax(masked).asnumpy()[0].tolist() == [0.0, -np.inf]
    for function in (ops.softmax, ops.log_softmax):
        assert np.isnan(function(masked).asnumpy()[1]).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_what_it_is_made_of(reduction):
    def parts(logits):
        chosen = ops.log_softmax(logits) * np.eye(4)[LABELS]
        losses = -ops.sum(chosen, axis=1)
        return {"mean": ops.mean, "sum": ops.sum, "none": lambda x: x}[reduction](losses)

    def whole(logits):
        return ops.cross_entropy(logits, LABELS, reduction)

    np.testing.assert_allclose(whole(LOGITS).asnumpy(), parts(LOGITS).asnumpy())
    wanted = grad(lambda x: ops.sum(ops.square(parts(x))))(LOGITS)
    slope = grad(lambda x: ops.sum(ops.square(whole(x))))(LOGITS)
    np.testing.assert_allclose(slope.asnumpy(), wanted.asnumpy())


def test_its_gradient_is_two_kernels():
    """The probabilities are kept from the forward pass, and no term for them is computed."""
    graph = ml.trace(value_and_grad(ops.cross_entropy), LOGITS, LABELS)
    names = {node.primitive.name for node in graph.nodes} - {"Full"}
    assert names == {"CrossEntropy", "CrossEntropyGrad"}


def test_the_probabilities_pass_gradients_too():
    op = ops.CrossEntropy()
    slope = grad(lambda x: ops.sum(ops.square(op(x, LABELS)[1])))(LOGITS)
    wanted = grad(lambda x: ops.sum(ops.square(ops.softmax(x))))(LOGITS)
    np.testing.assert_allclose(slope.asnumpy(), wanted.asnumpy())


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.array([0, 4, 1, 1, 1]), "label 4 for 4 classes; labels are 0 to 3"),
        (np.array([0, 1, -2, 1, 1], np.int8), "label -2 for 4 classes"),
        (np.array([0, 1, 2**63, 1, 1], np.uint64), "label 9223372036854775808 for 4"),
        (np.array([0, 1, -(2**63), 1, 1]), "label -9223372036854775808 for 4"),
    ],
)
def test_labels_out_of_range(mode, labels, says):
    function = ops.cross_entropy if mode == "eager" else ml.jit(ops.cross_entropy)
    with pytest.raises(OutOfRangeError, match=says):
        function(LOGITS, labels)


def test_more_classes_than_a_narrow_label_can_name():
    logits = np.zeros((2, 300))
    assert ops.cross_entropy(logits, np.array([255, 0], np.uint8)).item() == pytest.approx(
        np.log(300)
    )
    with pytest.raises(OutOfRangeError, match="label -1 for 300 classes"):
        ops.cross_entropy(logits, np.array([-1, 0], np.int8))


def test_an_empty_batch():
    empty, none = np.ones((0, 3)), np.zeros(0, int)
    assert np.isnan(ops.cross_entropy(empty, none).item())
    assert ops.cross_entropy(empty, none, "sum").item() == 0.0
    _, mean, var = ops.batch_norm(empty, np.ones(3), np.ones(3), training=True)
    assert np.isnan([mean.asnumpy(), var.asnumpy()]).all()


def test_batch_norm_by_the_batch_and_by_given_statistics():
    x, gamma, beta = RNG.standard_normal((4, 3, 2, 5)), RNG.standard_normal(3), np.ones(3)
    out, mean, var = ops.batch_norm(x, gamma, beta, training=True)
    np.testing.assert_allclose(mean.asnumpy(), x.mean((0, 2, 3)))
    np.testing.assert_allclose(var.asnumpy(), x.var((0, 2, 3)))
    again, same, _ = ops.batch_norm(x, gamma, beta, mean, var)
    np.testing.assert_allclose(again.asnumpy(), out.asnumpy())
    assert same is mean
    with pytest.raises(ShapeError, match="needs mean and var"):
        ops.batch_norm(x, gamma, beta)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_given_statistics_far_from_zero_cost_no_digits(dtype):
    """x - mean is exact here; x * scale and mean * scale alone are 1,000 times what is left."""
    x = (1024 + RNG.integers(-3, 4, (8, 2))).astype(dtype)
    given = [np.array(v, dtype) for v in ([1.5, 0.75], [0.5, -0.25], [1024, 1025], [4, 2])]
    dout = RNG.standard_normal((8, 2)).astype(dtype)
    gamma, beta, mean, var = (v.astype(float) for v in given)
    normal = (x.astype(float) - mean) / np.sqrt(var + 1e-5)
    out, pull = vjp(lambda *args: ops.batch_norm(*args)[0], x, *given)
    few = 8 * np.finfo(dtype).eps  # of what is near 1 to 8
    np.testing.assert_allclose(out.asnumpy(), normal * gamma + beta, few, few)
    np.testing.assert_allclose(pull(dout)[1], (normal * dout).sum(0), few, 4 * few)


@pytest.mark.parametrize(
    "shapes",
    [((3,), (3,), (3,), (3,), (3,)), ((2, 3), (1,), (3,), (3,), (3,)),
     ((2, 3), (3,), (6,), (3,), (3,)), ((2, 3, 4), (3,), (3,), (4,), (3,)),
     ((2, 3), (3,), (3,), (3,), ())],
)  # fmt: skip
def test_given_statistics_have_one_number_a_channel(shapes):
    got = ", ".join(map(str, shapes[1:]))
    with pytest.raises(ShapeError, match=f"batch_norm got x .* of {re.escape(got)}; x has shape"):
        ops.batch_norm(*map(np.ones, shapes))
    assert ops.batch_norm([[1.0, 2.0]], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 4.0])[0].ndim == 2


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_statistics_of_large_numbers(shift):
    """var is the mean of squared differences: no digits are lost to the square of the mean."""
    x = (RNG.standard_normal((64, 2)) + shift).astype(np.float32)
    _, _, var = ops.batch_norm(x, np.ones(2, np.float32), np.zeros(2, np.float32), training=True)
    np.testing.assert_allclose(var.asnumpy(), x.astype(float).var(0), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_gradients_of_what_hardly_varies(dtype):
    """A constant channel: 1 / variance leaves float16's range, the gradient does not."""
    x, dout = np.full((4, 2, 3), 2.0, dtype), RNG.standard_normal((4, 2, 3)).astype(dtype)
    ones = np.ones(2, dtype)
    _, pull = vjp(lambda x: ops.batch_norm(x, ones, ones, training=True)[0], x)
    exact = dout.astype(float)
    expected = (exact - exact.mean((0, 2), keepdims=True)) / np.sqrt(1e-5)
    np.testing.assert_allclose(pull(dout)[0], expected, 4e-3, 0.4 if dtype == np.float16 else 1e-3)


def test_the_gradient_of_layer_norm_sums_what_float16_cannot_hold():
    """1,024 cotangents of 100 each: their sum leaves the range, their mean does not."""
    x, ones = RNG.standard_normal((2, 1024)), np.ones(1024)
    dout = 100 + RNG.standard_normal((2, 1024))

    def pulled(dtype):
        gamma, beta = ones.astype(dtype), ones.astype(dtype)
        _, pull = vjp(lambda x: ops.layer_norm(x, gamma, beta), x.astype(dtype))
        return pull(dout.astype(dtype))[0].asnumpy()

    np.testing.assert_allclose(pulled(np.float16), pulled(np.float64), atol=0.3)


def test_the_gradient_of_log_softmax_does_not_depend_on_how_its_output_is_rounded():
    """Logarithms next to -9 are 1/128 apart in float16, and probabilities then 0.8 %."""
    x = np.append(np.linspace(-9.1, -8.9, 25), 0.0).astype(np.float16)[None]
    got = grad(lambda x: -ops.log_softmax(x)[0, -1])(ml.Tensor(x)).asnumpy()
    shares = np.exp(x.astype(float))
    np.testing.assert_allclose(got[0, :-1], (shares / shares.sum())[0, :-1], 1e-3)


def test_layer_norm_over_two_axes():
    x = RNG.standard_normal((2, 3, 4))
    out = ops.layer_norm(x, np.ones((3, 4)), np.zeros((3, 4)), eps=0.0).asnumpy()
    np.testing.assert_allclose(out.mean((1, 2)), 0.0, atol=1e-12)
    np.testing.assert_allclose(out.var((1, 2)), 1.0)


def test_gradients_of_the_statistics():
    """mean and var are functions of x like out, also where only they are used."""
    x, ones, op = RNG.standard_normal((6, 3)), np.ones(3), ops.BatchNorm()
    by_mean = grad(lambda x: ops.sum(op(x, ones, ones)[1]))(x)
    np.testing.assert_allclose(by_mean.asnumpy(), np.full((6, 3), 1 / 6), atol=1e-15)
    by_var = grad(lambda x: ops.sum(op(x, ones, ones)[2]))(x)
    np.testing.assert_allclose(by_var.asnumpy(), 2 * (x - x.mean(0)) / 6, atol=1e-15)


def test_compiled_and_eager_agree():
    x, gamma, beta = RNG.standard_normal((5, 4)), RNG.standard_normal(4), RNG.standard_normal(4)

    def network(x, gamma, beta):
        hidden = ops.layer_norm(ops.batch_norm(x, gamma, beta, training=True)[0], gamma, beta)
        return ops.cross_entropy(hidden, LABELS)

    derived = value_and_grad(network, (0, 1, 2))
    eager, compiled = derived(x, gamma, beta), ml.jit(derived)(x, gamma, beta)
    for one, two in zip((eager[0], *eager[1]), (compiled[0], *compiled[1])):
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), rtol=1e-9, atol=1e-12)
