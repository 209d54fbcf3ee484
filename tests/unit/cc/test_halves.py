"""Loops over float16 and bfloat16: the bits of NumPy's arithmetic, with and without the
processor's conversions."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from tests.frame.native import needs_compiler

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


@pytest.mark.parametrize("n", [1, 7, 8, 9, 17, 511, 513])
def test_runs_of_any_length_have_numpys_bits(n):
    x, y = RNG.choice(ALL, (3, n)), RNG.choice(ALL, (3, 1))
    with ml.context(providers=("cc",)), np.errstate(all="ignore"):
        same_bits(ml.jit(lambda x, y: x * y + x)(x, y).asnumpy(), x * y + x)
