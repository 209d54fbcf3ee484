"""Sorting, searching, running results and indices of extrema in C: NumPy's bits."""

from functools import partial

import numpy as np
import pytest
from ml_dtypes import bfloat16

import miniml as ml
from miniml import ops
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
# Short and long rows, along the last axis or another one.
SHAPES = [((7,), 0), ((3, 300), 0), ((2, 70, 5), 1), ((1, 9000), 1)]
FLOATS = [np.float32, np.float64, np.float16, bfloat16]
INTEGERS = [np.int32, np.int64, np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64]
DTYPES = [*FLOATS, *INTEGERS, np.bool_]
compiled_together = pytest.mark.parametrize(
    "dtypes",
    [[*FLOATS, np.bool_], INTEGERS[:4], INTEGERS[4:]],
    ids=["floats", "signed", "unsigned"],
)


def numbers(dtype, shape):
    """Many equal ones, both zeros, infinities and NaN."""
    rng = np.random.default_rng(4)
    x = np.round(rng.standard_normal(shape) * 40)
    x = (x.astype(np.int64) if dtype in INTEGERS else x > 9 if dtype == np.bool_ else x).astype(
        dtype
    )
    flat = x.reshape(-1)
    if dtype in FLOATS:
        some = flat[:: max(1, x.size // 9)]
        some[:] = np.resize([-0.0, 0.0, np.inf, -np.inf, np.nan, 5e-40], some.size)
    elif dtype in INTEGERS:
        flat[0], flat[-1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return x


def wide(x):
    """The same numbers, of 16 bits as float32."""
    return x.astype(np.float32) if x.dtype in (np.float16, bfloat16) else x


def same_bits(fn, *arrays, zeros=True):
    """Compiled by C alone, and op by op by NumPy. zeros: with their signs."""
    all_have_same_bits([(fn, arrays)], zeros)


def all_have_same_bits(cases, zeros=True):
    """The same of several functions with their arrays, in one program: the compiler is called once
    for kernels that are those of programs of their own."""
    fns, given = zip(*cases, strict=True)
    with ml.context(providers=("cc",)):
        found = ml.jit(lambda *given: [f(*xs) for f, xs in zip(fns, given, strict=True)])(*given)
    for got, fn, arrays in zip(found, fns, given, strict=True):
        for one, other in zip(got, fn(*map(ml.Tensor, arrays)), strict=True):
            a, b = (wide(x.asnumpy()) for x in (one, other))
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(a, b, str(one.dtype))
            if a.dtype.kind == "f" and zeros:
                known = ~np.isnan(a)
                np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])


@compiled_together
def test_sorting(dtypes):
    """Each count of the greatest or least with every size of elements, for each shape."""

    def fn(turn, *xs):
        found = []
        for i, (x, (shape, axis)) in enumerate(zip(xs, SHAPES, strict=True)):
            n = shape[axis]
            found += [*ops.Sort(axis, False)(x), *ops.Sort(axis, True)(x)]
            for j, k in enumerate(sorted({0, 1, min(5, n), n // 5, n // 2, n})):
                if (turn // 2 + i + j) % 2:
                    found += ops.TopK(k, axis, bool((turn + j // 2) % 2))(x)
        return tuple(found)

    given = ([numbers(dtype, shape) for shape, _ in SHAPES] for dtype in dtypes)
    all_have_same_bits([(partial(fn, DTYPES.index(d)), xs) for d, xs in zip(dtypes, given)])


@compiled_together
def test_running_results_and_indices_of_extrema(dtypes):
    """Every way to run with some shape, and every shape with some way."""
    ways = (False, False), (True, False), (True, True)

    def fn(turn, *xs):
        found = []
        for i, (x, (_, axis)) in enumerate(zip(xs, SHAPES, strict=True), turn):
            whole = (axis, None) if i % 2 else (None, axis)
            found += [f(x, a) for f, a in zip((ops.argmax, ops.argmin), whole, strict=True)]
            found += [ops.cumsum(x, axis, *ways[i % 3]), ops.cumprod(x, axis, *ways[(i + 1) % 3])]
        return tuple(found)

    def extrema(turn, *xs):
        cases = enumerate(zip(xs, SHAPES, strict=True), turn)
        return tuple((ops.CumMax, ops.CumMin)[i % 2](axis)(x) for i, (x, (_, axis)) in cases)

    given = [[numbers(dtype, shape) for shape, _ in SHAPES] for dtype in dtypes]
    turns = [*map(DTYPES.index, dtypes)]
    with np.errstate(all="ignore"):
        all_have_same_bits([(partial(fn, turn), xs) for turn, xs in zip(turns, given)])
    all_have_same_bits([(partial(extrema, t), xs) for t, xs in zip(turns, given)], zeros=False)


def before_and_after(shape, axis, dtype):
    """Nothing so far is -inf, and NaN stays."""
    x = (np.random.default_rng(5).standard_normal(shape) * 8).astype(dtype)
    flat = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])
    flat[0, :2] = -np.inf
    flat[-1, -1] = np.nan
    return np.moveaxis(flat.reshape(np.moveaxis(x, axis, -1).shape), -1, axis).copy()


@pytest.mark.parametrize("dtype", FLOATS)
def test_running_sums_of_exponentials(dtype):
    """Near those of float64."""
    cases = [(*case, reverse) for case in SHAPES for reverse in (False, True)]
    xs = [before_and_after(shape, axis, dtype) for shape, axis, _ in cases]

    def fn(*xs):
        pairs = zip(xs, cases, strict=True)
        return tuple(ops.LogCumSumExp(axis, reverse)(x) for x, (_, axis, reverse) in pairs)

    with ml.context(providers=("cc",)):
        found = ml.jit(fn)(*xs)
    atol = {np.float32: 1e-3, np.float64: 1e-10, np.float16: 2e-2, bfloat16: 0.13}[dtype]
    for got, x, (_, axis, reverse) in zip(found, xs, cases, strict=True):
        there = np.flip(x, axis) if reverse else x
        with np.errstate(invalid="ignore"):
            expected = np.logaddexp.accumulate(there.astype(np.float64), axis)
        expected = np.flip(expected, axis) if reverse else expected
        np.testing.assert_allclose(wide(got.asnumpy()), expected, rtol=0, atol=atol)


def test_the_first_nan_is_the_extremum_wherever_it_is():
    x = np.random.default_rng(0).standard_normal((140, 140)).astype(np.float32)
    x[np.arange(140), np.arange(140)] = np.nan
    x[:, 130] = np.nan
    same_bits(lambda x: (ops.argmax(x, 1), ops.argmin(x, 1), ops.argmax(x, 0)), x)


def test_they_have_the_same_bits_on_two_threads():
    x, found = numbers(np.float32, (40, 4000)), []
    for threads in (1, 2):
        with ml.context(providers=("cc",), threads=threads):
            outs = ml.jit(lambda x: (*ops.Sort()(x), *ops.topk(x, 9), ops.cumsum(x, 1)))(x)
            found.append([out.asnumpy() for out in outs])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def rising_falling_and_nan(dtype):
    """The calls for a dtype, and their rows."""
    given = []
    for n in (64, 130, 301):
        rising = np.arange(n)
        some = np.where(rising % 67 == 3, 2 * n + rising, -rising)
        x = np.stack([rising, rising[::-1], some, np.full(n, rising[0])])
        if dtype in FLOATS:
            x = np.concatenate([x, x - np.inf, np.where(rising == n // 2 + 3, np.nan, x)])
        given.append(x.astype(dtype))
    turns = (ops.CumMax, ops.CumMin) * 2
    first = DTYPES.index(dtype) % 2
    return lambda *xs: tuple(f(-1)(x) for f, x in zip(turns[first:], xs)), given


@compiled_together
def test_running_extrema_of_rows_that_rise_fall_and_hold_nan(dtypes):
    """Where every element is the best so far, where none is, and where one in a block is."""
    all_have_same_bits([*map(rising_falling_and_nan, dtypes)], zeros=False)


@pytest.mark.parametrize("n", [300, 3000])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_keys_of_64_bits_that_differ_in_their_last_digits(dtype, n):
    """A pair of them, many beside one that is far, many that are equal, and in crowds."""
    rng = np.random.default_rng(6)
    wide = rng.integers(0, 1 << 62, n)
    near, far = wide.copy(), rng.integers(0, 9, n)
    near[7::40] = near[8::40] + 1
    far[11] = 1 << 62
    some = wide // 3 * 2 + rng.integers(-1, 2, n)
    crowds = [(wide >> 50 << 50) + rng.integers(0, 1 << bits, n) for bits in (4, 20)]
    pairs = rng.permutation(np.repeat(wide[: n // 2], 2))
    x = np.stack([wide, near, far, -far, some, rng.integers(0, 3, n), *crowds, pairs, pairs % 999])
    x = x.view(np.float64) if dtype == np.float64 else x
    x = np.where(np.isnan(x), np.inf, x).astype(dtype)
    same_bits(lambda x: (*ops.Sort(-1, False)(x), *ops.Sort(-1, True)(x)), x)


def test_elements_in_order_and_backwards():
    """The worst case of a selection that keeps the best so far."""
    x = np.arange(6000, dtype=np.float32)
    same_bits(
        lambda x, y: (*ops.topk(x, 30), *ops.topk(y, 30), *ops.topk(x, 900)), x, x[::-1].copy()
    )


def searched(dtype):
    """The searches in arrays of a dtype, and these."""
    given, turn = [], DTYPES.index(dtype)
    for rows, n, m in (((), 7, 100), ((), 300, 5), ((), 0, 9), ((3, 2), 33, 17), ((4,), 1, 1)):
        x, values = numbers(dtype, (*rows, n + 1))[..., :n], numbers(dtype, (*rows, m))
        x = np.sort(wide(x)).astype(dtype)  # NumPy does not sort bfloat16 with NaN
        given += [x, np.concatenate([values, x], -1)]

    def fn(*given):
        pairs = enumerate(zip(given[::2], given[1::2], strict=True), turn)
        return tuple(ops.searchsorted(x, v, ("left", "right")[i % 2]) for i, (x, v) in pairs)

    return fn, given


@compiled_together
def test_searching(dtypes):
    all_have_same_bits([*map(searched, dtypes)])
