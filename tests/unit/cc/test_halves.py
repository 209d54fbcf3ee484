"""Loops over float16 and bfloat16: the bits of NumPy's arithmetic, with and without the
processor's conversions."""

from functools import partial

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.graph.passes import run_passes
from miniml.runtime.jit import program_target
from miniml.runtime.lowering import lower
from tests.frame.native import needs_compiler

from .programs import in_c

pytestmark = needs_compiler
RNG = np.random.default_rng(5)
ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
MASKED = [(), ("f16c",), ("avx512f",), ("avx", "avx2", "avx512f", "fma3", "f16c")]


def same_bits(found, expected):
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view("u2")[~nan], expected.view("u2")[~nan])


@pytest.mark.parametrize("without", MASKED, ids=" ".join)
def test_arithmetic_of_float16_has_numpys_bits(without):
    x, y, row = RNG.choice(ALL, (5, 1029)), RNG.choice(ALL, (1029, 5)).T, RNG.choice(ALL, 1029)
    between = ALL.astype(np.float32).view(np.uint32)[:, None] + np.array([0x0FFF, 0x1000, 0x1001])
    numbers = between.astype(np.uint32).view(np.float32)  # next to halves of the steps

    def fn(x, y, row, every, numbers):
        kept = x * y
        made = x + y, kept, kept - x, x / row, x[:, 3:] - x[:, :-3], ops.max(x, -1)
        return *made, every * 1, ops.cast(numbers, ml.float16)

    with ml.context(without=without, providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x, y, row, ALL, numbers)]
    with np.errstate(all="ignore"):
        made = x + y, x * y, x * y - x, x / row, x[:, 3:] - x[:, :-3], x.max(-1)
        expected = *made, ALL, numbers.astype(np.float16)
    for ours, numpys in zip(found, expected, strict=True):
        same_bits(ours, numpys)


def test_runs_of_any_length_have_numpys_bits():
    xs = [RNG.choice(ALL, (3, n)) for n in (1, 7, 8, 9, 17, 511, 513)]
    y = RNG.choice(ALL, (3, 1))
    found = in_c([(lambda x, y: x * y + x, (x, y)) for x in xs])
    with np.errstate(all="ignore"):
        for x, out in zip(xs, found, strict=True):
            same_bits(out.asnumpy(), x * y + x)


HALVES = [ml.float16, ml.bfloat16]
PAIRS = [
    ((1, 1), (1, 1)), ((5, 7), (7, 3)), ((4, 33), (33, 129)), ((65, 9), (9, 17)), ((40,), (40, 5)),
    ((3, 40), (40,)), ((19,), (19,)), ((2, 3, 5, 7), (7, 6)), ((3, 1, 5, 7), (2, 7, 9)),
    ((0, 4), (4, 3)), ((3, 0), (0, 4)), ((3, 130), (130, 256)),
]  # fmt: skip
AS_THEY_ARE = np.array([np.nan, np.inf, -np.inf, 65504, -65504, 6e-8, -6e-8, 1e-5, 0, -0.0])


def numbers(shape, dtype):
    """Normal numbers, and among those of matrices NaN, infinities, great and subnormal ones."""
    x = RNG.normal(size=shape)
    if x.size > 30:
        x.flat[RNG.choice(x.size, 6, replace=False)] = RNG.choice(AS_THEY_ARE, 6)
    return x.astype(dtype)


def wide(x):
    return np.asarray(x).astype(np.float64)


def rounded_once(found, product, *operands):
    """The result is the exact one, but for the roundings of sums in float32, rounded once."""
    with np.errstate(all="ignore"):
        exact, size = product(*operands), product(*map(np.abs, operands))
        finite = np.isfinite(size)
        terms = max(x.size for x in operands)
        room = np.where(finite, size, 0) * terms * 2.0**-24 + terms * 2.0**-149
        low, high = (wide((exact + e).astype(found.dtype)) for e in (-room, room))
        found = wide(found)
        np.testing.assert_array_equal(found[~finite], exact[~finite])
        assert np.all((low <= found)[finite] & (found <= high)[finite])


def in_c_alone(explained):
    return {row.provider for row in explained.rows} == {"cc"}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("without", [(), ("f16c", "avx512f")], ids=" ".join)
def test_products_are_sums_in_float32_rounded_once(dtype, without):
    pairs = [tuple(numbers(shape, dtype) for shape in pair) for pair in PAIRS]
    with ml.context(without=without, providers=("cc",)):
        found = ml.jit(lambda pairs: [ops.matmul(x, y) for x, y in pairs])(pairs)
    for out, (x, y) in zip(found, pairs, strict=True):
        assert out.dtype == dtype
        rounded_once(out.asnumpy(), np.matmul, wide(x), wide(y))


# x, y and which of them are transposed: a matrix times one row or column, as it lies in memory.
VECTORS = {
    "matrix by vector": ((50, 136), (136,), {}),
    "long lines": ((3, 1031), (1031,), {}),
    "short lines": ((50, 17), (17,), {}),
    "vector by matrix": ((70,), (70, 45), {}),
    "row by matrix": ((1, 130), (130, 9), {}),
    "row by transposed": ((1, 128), (33, 128), {"transpose_y": True}),
    "transposed by column": ((90, 31), (90, 1), {"transpose_x": True}),
    "column, transposed": ((31, 160), (1, 160), {"transpose_y": True}),
    "row, transposed": ((70, 1), (70, 20), {"transpose_x": True}),
    "two vectors": ((300,), (300,), {}),
    "outer": ((40, 1), (1, 30), {}),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_products_with_one_row_or_column_are_sums_rounded_once(dtype):
    calls = []
    for left, right, turned in VECTORS.values():
        small = min(left, right, key=np.prod)  # whose numbers are finite, or no result would be
        drawn = (RNG.normal(size=s).astype(dtype) if s == small else numbers(s, dtype)
                 for s in (left, right))  # fmt: skip
        calls.append((partial(ops.matmul, **turned), tuple(drawn)))
    for name, (fn, (x, y)), out in zip(VECTORS, calls, in_c(calls), strict=True):
        left, right, turned = VECTORS[name]
        assert out.dtype == dtype
        with ml.context(providers=("cc",)):
            graph = lower(run_passes(ml.trace(fn, x, y)), program_target("cpu"))
        assert ("MatMul" in str(graph)) == (name == "short lines"), name

        def product(x, y, turned=turned):
            return (x.T if "transpose_x" in turned else x) @ (y.T if "transpose_y" in turned else y)

        assert out.shape == product(np.ones(left), np.ones(right)).shape
        rounded_once(out.asnumpy(), product, wide(x), wide(y))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_of_a_dense_layer_are_products_rounded_once(dtype):
    x, w, b, dout = (RNG.normal(size=s).astype(dtype) for s in ((9, 37), (37, 21), 21, (9, 21)))

    def layer(x, w, b):
        return ops.relu(ops.matmul(x, w) + b)

    def step(x, w, b, dout):
        out, pull = ml.grad.vjp(layer, x, w, b)
        return out, *pull(dout)

    with ml.context(providers=("cc",)):
        assert in_c_alone(ml.explain(step, x, w, b, dout))
        out, dx, dw, db = (a.asnumpy() for a in ml.jit(step)(x, w, b, dout))
    made = (x.astype(np.float32) @ w.astype(np.float32)).astype(dtype) + b
    np.testing.assert_allclose(wide(out), np.maximum(wide(made), 0), atol=0.05)
    slopes = np.where(wide(out) > 0, wide(dout), 0)
    rounded_once(dx, np.matmul, slopes, wide(w).T)
    rounded_once(dw, np.matmul, wide(x).T, slopes)
    rounded_once(db, np.matmul, np.ones(9), slopes)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_numpy_computes_in_float32_is_c_for_float32(dtype):
    """Convolutions, attention, pools, sorts and sums along an axis."""
    x, w = RNG.normal(size=(2, 3, 9, 8)).astype(dtype), RNG.normal(size=(4, 3, 3, 3)).astype(dtype)

    def fn(x, w):
        pooled, sorted_ = ops.max_pool2d(x, 2), ops.sort(x)
        return ops.conv2d(x, w), pooled, sorted_, ops.argsort(x, 2), ops.cumsum(x, 1)

    with ml.context(providers=("cc",)):
        assert in_c_alone(ml.explain(fn, x, w))
        convolved, pooled, sorted_, order, sums = (a.asnumpy() for a in ml.jit(fn)(x, w))
    windows = np.lib.stride_tricks.sliding_window_view(wide(x), (3, 3), (2, 3))
    rounded_once(convolved, lambda a, b: np.einsum("nchwij,ocij->nohw", a, b), windows, wide(w))
    np.testing.assert_array_equal(
        wide(pooled), wide(x)[:, :, :8].reshape(2, 3, 4, 2, 4, 2).max((3, 5))
    )
    np.testing.assert_array_equal(wide(sorted_), np.sort(wide(x)))
    np.testing.assert_array_equal(order, np.argsort(wide(x), 2, kind="stable"))
    rounded_once(sums, lambda a: a.cumsum(1), wide(x))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_result_in_the_middle_of_a_loop_is_rounded_as_by_a_store(dtype):
    """Of floats next to those that 16 bits hold and to halves of their steps, and of any others."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    halfway = 1 << 12 if dtype == ml.float16 else 1 << 15
    around = every.view(np.int32)[:, None] + np.array([-1, 0, 1, halfway - 1, halfway, halfway + 1])
    others = RNG.integers(-(2**31), 2**31, 1 << 16)
    x = np.concatenate([around.ravel(), others]).astype(np.int32).view(np.float32)
    with ml.context(providers=("cc",)), np.errstate(all="ignore"):
        found = ml.jit(lambda x: ops.cast(ops.cast(x, dtype), ml.float32) * 1.0)(x).asnumpy()
        expected = x.astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_picks_one_of_its_arguments_has_numpys_bits(dtype):
    x, y = (RNG.choice(np.arange(1 << 16, dtype=np.uint16), 2049).view(dtype) for _ in range(2))

    def fn(x, y):
        made = ops.maximum(x, y), ops.floor(x), ops.round(-x), ops.sign(x), ops.abs(x)
        picked = ops.where(x > y, x, y), ops.clip(x, -0.1, 0.3), ops.relu(x)
        return [out * y for out in (*made, *picked)]

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x, y)]
    with ml.context(jit=False, providers=("miniml",)):
        expected = [out.asnumpy() for out in fn(ml.Tensor(x), ml.Tensor(y))]
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_array_equal(wide(ours), wide(numpys))
