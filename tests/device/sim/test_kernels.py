"""Kernels of every pattern against NumPy: both modes, three schedules."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from miniml.backends.cuda.sim.memory import MODES, SCHEDULES, using
from tests.device import emucupy as cp

i32, i64, f32, f64 = np.int32, np.int64, np.float32, np.float64
rng = np.random.default_rng(7)


@cache
def unit() -> Any:
    return cp.RawModule(code=(Path(__file__).parent / "kernels" / "basic.cu").read_text())


@pytest.fixture(params=[(m, s) for m in MODES for s in SCHEDULES], ids="-".join)
def run(request):
    """run(kernel, grid, block, *arguments), in each mode and schedule."""
    mode, schedule = request.param

    def launch(name, grid, block, *args, shared_mem=0):
        unit().get_function(name)(grid, block, args, shared_mem=shared_mem)

    with using(mode=mode, schedule=schedule, seed=3):
        yield launch


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(f32)


def test_elementwise(run):
    x, y = normal(1000), normal(1000)
    z = cp.empty(1000)
    run("add", (3,), (128,), cp.asarray(x), cp.asarray(y), z, i64(1000))
    np.testing.assert_array_equal(z.get(), x + y)
    z = cp.empty(1000)
    run("add_vectors", (2,), (128,), cp.asarray(x), cp.asarray(y), z, i32(250))
    np.testing.assert_array_equal(z.get(), x + y)


@pytest.mark.parametrize("columns", [1, 33, 300])
def test_softmax(run, columns):
    x, y = normal(3, columns), cp.empty((3, columns))
    run("softmax", (2,), (96,), cp.asarray(x), y, i32(3), i32(columns))
    np.testing.assert_allclose(y.get(), scipy.special.softmax(x, 1), rtol=1e-5)


def test_product_of_matrices(run):
    a, b, c = normal(13, 20), normal(20, 17), cp.empty((13, 17))
    run("product", (3, 2), (8, 8), cp.asarray(a), cp.asarray(b), c, i32(13), i32(17), i32(20))
    np.testing.assert_allclose(c.get(), a @ b, rtol=1e-4, atol=1e-5)


def test_scatter(run):
    v, at, y = normal(300), rng.integers(0, 7, 300), cp.zeros(7)
    run("scatter", (3,), (128,), cp.asarray(v), cp.asarray(at), y, i32(300))
    np.testing.assert_allclose(y.get(), np.bincount(at, v), rtol=1e-4, atol=1e-4)


def test_a_structure_as_argument(run):
    x, y = normal(4, 5, 6), cp.empty(120)
    dtype = np.dtype([("shape", i64, 4), ("stride", i64, 4), ("axes", i32), ("unused", i32)])
    strides = np.array(((6, 4, 5, 0), (1, 30, 6, 0), 3, 0), dtype)
    run("copy_strided", (2,), (64,), cp.asarray(x), y, strides, i64(120))
    np.testing.assert_array_equal(y.get(), x.transpose(2, 0, 1).ravel())


def test_dynamic_shared_memory(run):
    x, y = rng.standard_normal(1000), cp.zeros(1, f64)
    run("sum_dynamic", (3,), (64,), cp.asarray(x), y, i32(1000), shared_mem=512)
    np.testing.assert_allclose(y.get(), [x.sum()], rtol=1e-12)


def test_scan_and_sort(run):
    x, y = rng.integers(-9, 9, 300).astype(i32), cp.empty(300, i32)
    run("scan", (1,), (128,), cp.asarray(x), y, i32(300))
    np.testing.assert_array_equal(y.get(), np.cumsum(x))
    x = normal(128)
    y = cp.asarray(x)
    run("sort64", (2,), (64,), y)
    np.testing.assert_array_equal(y.get(), np.sort(x.reshape(2, 64)).ravel())


def test_philox_gives_the_published_bits(run):
    """The known answer for counter and key of all ones in Random123's kat_vectors."""
    ones = np.uint32(0xFFFFFFFF)
    uint4 = np.dtype([(c, np.uint32) for c in "xyzw"])
    uint2 = np.dtype([(c, np.uint32) for c in "xy"])
    y = cp.empty(4, np.uint32)
    run("philox", (1,), (1,), y, np.array((ones,) * 4, uint4), np.array((ones,) * 2, uint2))
    assert [hex(v) for v in y.get()] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def test_votes_of_a_warp_and_a_half(run):
    x = np.arange(48, dtype=i32) - 5
    y = cp.empty(18, np.uint32)
    run("votes", (1,), (48,), cp.asarray(x), y)
    for w, own in enumerate((x[:32], x[32:])):
        equal = own % 4 == own[0] % 4
        expected = [bits(own > 0), (own > 40).any(), 1, bits(equal), own.sum(), own.max(), 42, 0, 0]
        np.testing.assert_array_equal(y.get()[9 * w : 9 * w + 9], expected)


def bits(flags: Any) -> int:
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def test_shuffles(run):
    x, y = np.arange(32.0), cp.empty(128, f64)
    run("shuffles", (1,), (32,), cp.asarray(x), y)
    k = np.arange(32)
    sources = (
        k // 8 * 8 + 3,
        np.where(k % 16 + 2 < 16, k + 2, k),
        np.where(k % 4 >= 1, k - 1, k),
        k ^ 5,
    )
    np.testing.assert_array_equal(y.get().reshape(4, 32), np.array(sources, f64))


def test_the_last_block_to_finish(run):
    x, y = normal(1000), cp.empty(1)
    run("last_block", (4,), (64,), cp.asarray(x), cp.empty(4), cp.zeros(1, np.uint32), y, i32(1000))
    np.testing.assert_allclose(y.get(), [x.sum()], rtol=1e-4)


def test_atomics(run):
    x = rng.integers(-50, 50, 100).astype(i32)
    y, u = (
        cp.asarray(np.array([0, 0, -99, 99], i32)),
        cp.asarray(np.array([-1, 0, 0, 0, 0], i32).view("u4")),
    )
    top = cp.asarray(np.array([-1e9], f32))
    run("atomics", (2,), (64,), cp.asarray(x), y, u, top, i32(100))
    np.testing.assert_array_equal(y.get(), [x.sum(), -x.sum(), x.max(), x.min()])
    logical = [np.bitwise_and.reduce(x | 1), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    np.testing.assert_array_equal(u.get()[:3].view(i32), logical)
    np.testing.assert_array_equal(u.get()[3:], [100 % 5, -100 % 10])
    np.testing.assert_array_equal(top.get(), [x.max()])


def test_half(run):
    x, y = normal(100).astype("e"), normal(100).astype("e")
    z = cp.asarray(y)
    run("half_axpy", (2,), (64,), cp.asarray(x), z, f32(1.5), i32(100))
    np.testing.assert_array_equal(z.get(), (f32(1.5) * x.astype(f32) + y.astype(f32)).astype("e"))
    z = cp.empty(300, "e")
    run("half_sums", (1,), (128,), cp.asarray(x), cp.asarray(y), z, i32(100))
    np.testing.assert_array_equal(z.get(), np.concatenate([x + y, x * y, x / y]))


def test_16_bits_round_once_and_to_even(run):
    """Every 61st half and bfloat16, the middles between neighbours, and just beside the middles."""
    parts = [np.array([0.0, 1e9, 65519.99, 65520, 1e39, 1e-9, 2.0**-25, 1.5 * 2.0**-24, np.inf])]
    for dtype, infinity in ((np.dtype("e"), 0x7C00), (np.dtype(ml_dtypes.bfloat16), 0x7F80)):
        every = np.arange(0, infinity - 1, 61, dtype=np.uint16)
        low = every.view(dtype).astype(f64)
        high = (every + np.uint16(1)).view(dtype).astype(f64)
        middle = (low + high) / 2
        parts += [low, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)]
    x = np.concatenate([*parts, *(-p for p in parts)])
    n = len(x)
    h, b, back = cp.empty(n, "e"), cp.empty(n, np.uint16), cp.empty(2 * n)
    run("round_to_16", (n // 256 + 1,), (256,), cp.asarray(x), h, b, back, i32(n))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(h.get(), x.astype("e"))
    np.testing.assert_array_equal(back.get()[:n], h.get().astype(f32))
    given = b.get().view(ml_dtypes.bfloat16).astype(f32)
    np.testing.assert_array_equal(back.get()[n:], given)
    np.testing.assert_array_equal(given, nearest_bfloat16(x))


def nearest_bfloat16(x: Any) -> Any:
    """By the definition: of the two neighbours the nearer, of two as near the even one."""
    with np.errstate(over="ignore", invalid="ignore"):
        cut = (x.astype(f32).view(np.uint32) & np.uint32(0xFFFF0000)).view(f32)
        cut = np.where(
            abs(cut.astype(f64)) > abs(x), (cut.view(np.uint32) - 0x10000).view(f32), cut
        )
        next_up = (cut.view(np.uint32) + 0x10000).view(f32)
        middle = (
            cut.astype(f64) + np.where(np.isinf(next_up), np.copysign(2.0**128, x), next_up)
        ) / 2
        even = cut.view(np.uint32) >> 16 & 1 == 0
        up = (abs(x) > abs(middle)) | ((x == middle) & ~even)
        return np.where(
            np.isfinite(x) & np.isfinite(cut), np.where(up, next_up, cut), x.astype(f32)
        )


def test_tensor_cores(run):
    a, b, c = normal(32, 32).astype("e"), normal(32, 32).astype("e"), cp.empty((32, 32))
    run("tensor_cores", (2, 2), (32,), cp.asarray(a), cp.asarray(b), c, i32(32))
    np.testing.assert_allclose(c.get(), a.astype(f32) @ b.astype(f32), rtol=1e-4, atol=1e-4)


def test_indices_of_three_axes(run):
    y = cp.empty((4, 9, 10), i32)
    run("indices", (2, 3, 2), (5, 3, 2), y)
    z, r, x = np.indices((4, 9, 10))
    np.testing.assert_array_equal(y.get(), (z * 100 + r) * 100 + x)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("erfinv", scipy.special.erfinv),
        ("erfcinv", scipy.special.erfcinv),
        ("normcdf", scipy.special.ndtr),
        ("normcdfinv", lambda x: scipy.special.ndtri(x**4)),
        ("rsqrt", lambda x: 1 / np.sqrt(abs(x))),
        ("sinpi", lambda x: np.sin(np.pi * x)),
        ("to_int", lambda x: np.clip(np.trunc(x * 1e10), -(2.0**31), 2.0**31 - 1)),
    ],
)
def test_functions_that_cuda_adds(run, name, function):
    x = np.concatenate([np.linspace(-0.999, 0.999, 40), [1e-12, 1e-75, 1 - 1e-14, -1 + 1e-9]])
    y = cp.empty(len(x), f64)
    run(f"unary_{name}", (1,), (64,), cp.asarray(x), y, i32(len(x)))
    np.testing.assert_allclose(y.get(), function(x), rtol=1e-11, atol=1e-15)
