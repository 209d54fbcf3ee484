"""Operations whose kernel is NumPy's are plain loops in C."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import (
    aligned,
    built,
    bytes_of,
    compiler,
    fences,
    pointers,
    ran,
    rng,
)

__all__ = ["compiler", "fences", "rng"]
pytestmark = needs_compiler


def whole_numbers(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize(
    ("dtype", "x", "y", "turned"),
    [
        (np.int32, (3, 5), (5, 4), (False, False)),
        (np.int8, (2, 1, 5, 3), (3, 4, 5), (True, True)),
        (np.int64, (5,), (2, 5, 4), (False, False)),
        (np.uint8, (2, 4, 5), (5,), (False, False)),
    ],
)
def test_products_of_integers_wrap_as_numpys(rng, tmp_path, compiler, dtype, x, y, turned):
    a, b = whole_numbers(rng, dtype, *x), whole_numbers(rng, dtype, *y)
    (out,), _ = ran(compiler, lambda a, b: ops.matmul(a, b, *turned), tmp_path, a, b)
    sides = [v.swapaxes(-1, -2) if t else v for v, t in zip((a, b), turned, strict=True)]
    np.testing.assert_array_equal(out, np.matmul(*sides))


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda: ops.full((70_000,), 0.1), np.full(70_000, 0.1, np.float32)),
        (lambda: ops.ones((300, 400), ml.bool_), np.ones((300, 400), bool)),
        (lambda: ops.full((70_000,), -7, ml.int8), np.full(70_000, -7, np.int8)),
        (lambda: ops.eye(300, 200, dtype=ml.float64), np.eye(300, 200)),
        (lambda: ops.arange(5, 200_005, 3, dtype=ml.int32), np.arange(5, 200_005, 3, np.int32)),
        (lambda: ops.arange(0.0, 9e3, 0.1, dtype=ml.float64), np.arange(90_000) * 0.1),
        (lambda: ops.linspace(-1.0, 3.0, 70_000), np.linspace(-1, 3, 70_000, dtype=np.float32)),
        (lambda: ops.full((70_000,), 1.5, ml.bfloat16), np.full(70_000, 1.5, ml.bfloat16)),
    ],
    ids="float32 bool int8 eye arange steps linspace bfloat16".split(),
)
def test_large_tensors_of_numbers_alone(tmp_path, compiler, fn, expected):
    """Small ones stand in the file."""
    outs, known = ran(compiler, lambda x: (fn(), x), tmp_path, np.ones(1, np.float32))
    np.testing.assert_array_equal(outs[0], expected)
    np.testing.assert_array_equal(outs[0], known[0])


def test_rows_with_a_one(rng, tmp_path, compiler):
    indices = np.array([[0, 3], [-1, 2]], np.int32)
    (out,), _ = ran(compiler, lambda i: ops.one_hot(i, 3), tmp_path, indices)
    np.testing.assert_array_equal(out, indices[..., None] == np.arange(3))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_along_an_axis(rng, tmp_path, compiler, axis):
    x = rng.standard_normal((3, 4, 5))
    shape = [3, 4, 5]
    shape[axis] = 2
    shape[axis - 1] = 1
    indices = rng.integers(-x.shape[axis], x.shape[axis], shape)
    fn = lambda x, i: ops.take_along_axis(x, i, axis)  # noqa: E731
    (out,), _ = ran(compiler, fn, tmp_path, x, indices)
    np.testing.assert_array_equal(out, np.take_along_axis(x, indices, axis))
    indices[0, 0, 0] = x.shape[axis]
    library = built(compiler, tmp_path / "net.c")
    arena = aligned(bytes_of(tmp_path / "net.c", "NET_ARENA_BYTES"))
    library.net_run(*pointers(arena, x, indices, out))
    assert np.isnan(out).all()


@pytest.mark.parametrize("order", ["NC16HW", "CHWN"])
def test_bytes_enter_and_leave_the_order_of_convolutions(rng, tmp_path, compiler, order):
    """As files of quantized networks have them; the last block has four of sixteen channels."""
    x = rng.integers(-9, 10, (16, 4, 6, 6)).astype(np.int8)
    weight = rng.integers(-3, 4, (20, 4, 3, 3)).astype(np.float32)
    again = rng.integers(-3, 4, (4, 20, 2, 2)).astype(np.float32)

    def rounded(x, weight, again):
        y = ops.relu(ops.conv2d(ops.cast(x, np.float32), weight) / 16)
        y = ops.cast(ops.max_pool2d(y, 2), np.int8)
        return ops.reshape(y, (16, -1)), ops.conv2d(ops.cast(y, np.float32), again)

    with ml.context(formats=(order,)):
        outs, expected = ran(compiler, rounded, tmp_path, x, weight, again)
    plain = rounded(x, weight, again)
    for out, known, eager in zip(outs, expected, plain, strict=True):
        np.testing.assert_array_equal(out, known)
        np.testing.assert_array_equal(out, eager.asnumpy())
    assert (tmp_path / "net.c").read_text().count("net_convert") >= 2


@pytest.mark.parametrize("order", ["NCHW", "NC16HW"])
@pytest.mark.parametrize("dtype", [ml.bfloat16, pytest.param(ml.float16, marks=pytest.mark.deep)])
def test_images_of_16_bits(rng, tmp_path, compiler, dtype, order):
    """Whole numbers, so that sums are exact in any order."""
    x = rng.integers(-4, 5, (2, 4, 7, 6)).astype(dtype)
    weight = rng.integers(-2, 3, (18, 2, 3, 2)).astype(dtype)

    def convolved(x, weight):
        padding = (1, 0), (1, 2)
        return ops.conv2d(x, weight, stride=(2, 1), padding=padding, dilation=(1, 2), groups=2)

    def pooled(x, weight):
        y = ops.relu(convolved(x, weight))
        mean = ops.avg_pool2d(y, 2, stride=1, padding=1, count_include_pad=False)
        slopes = grad(lambda *args: ops.sum(convolved(*args)), (0, 1))(x, weight)
        return y, ops.max_pool2d(y, 3, stride=2, padding=1), mean, *slopes

    with ml.context(formats=(order,)):
        outs, expected = ran(compiler, pooled, tmp_path, x, weight)
    for out, known, eager in zip(outs, expected, pooled(x, weight), strict=True):
        np.testing.assert_array_equal(out.astype(np.float64), known.astype(np.float64))
        np.testing.assert_array_equal(out.astype(np.float64), eager.asnumpy().astype(np.float64))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["floats", "bools"])
@pytest.mark.parametrize("dtype", [ml.bfloat16, pytest.param(ml.float16, marks=pytest.mark.deep)])
def test_attention_of_16_bits(rng, tmp_path, compiler, dtype, mask, causal):
    q, k, v = (rng.standard_normal((2, 3, n, 4)).astype(dtype) for n in (5, 7, 7))
    given = rng.standard_normal((3, 1, 7)).astype(dtype)
    if mask == "bools":
        given = rng.random((2, 1, 5, 7)) < 0.6
        given[1, 0, 2] = False  # a query that sees nothing

    def attended(q, k, v, mask):
        return ops.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

    (out,), _ = ran(compiler, attended, tmp_path, q, k, v, given)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / 2
    scores = np.where(given, scores, -np.inf) if mask == "bools" else scores + given.astype(float)
    if causal:
        scores = np.where(np.tri(5, 7, dtype=bool), scores, -np.inf)
    weights = np.exp(scores)
    expected = weights @ v / np.maximum(weights.sum(-1, keepdims=True), 1e-9)
    bound = 2.0**-8 if dtype == ml.bfloat16 else 2.0**-11
    np.testing.assert_allclose(out.astype(np.float64), expected, bound, bound / 8)
