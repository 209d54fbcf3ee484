"""What users of CuPy write against NumPy, and what they are told of what is not there."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from miniml.backends.cuda.driver import placed
from miniml.backends.cuda.sim import unit as dialect
from miniml.backends.cuda.sim.memory import using
from miniml.backends.cuda.text.source import prelude
from miniml.errors import CompileError, KernelFaultError, LaunchError
from tests.device import emucupy as cp

i32, u32, f16, f32, f64 = np.int32, np.uint32, np.float16, np.float32, np.float64
TEXT = (Path(__file__).parent / "kernels" / "idioms.cu").read_text()
rng = np.random.default_rng(11)


@cache
def unit() -> Any:
    return cp.RawModule(code=TEXT)


@pytest.fixture(
    params=[
        ("check", "forward"),
        ("check", "reverse"),
        ("check", "shuffled"),
        pytest.param(("fast", "forward"), marks=pytest.mark.deep),
        pytest.param(("fast", "shuffled"), marks=pytest.mark.deep),
    ],
    ids="-".join,
)
def run(request):
    """run(kernel, *arguments): one block of 64 threads unless said otherwise."""
    mode, schedule = request.param

    def launch(name: str, *args: Any, block: Any = (64,), grid: Any = (1,)) -> None:
        unit().get_function(name)(grid, block, args)

    with using(mode=mode, schedule=schedule, seed=5):
        yield launch


def near(got: Any, expected: Any, dtype: Any) -> None:
    """Equal but for the last place of the dtype."""
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(got, f64), np.asarray(expected, f64), 2 * eps, eps)


def test_constants_that_the_host_sets(run):
    x = rng.standard_normal(67).astype(f32)
    taps = np.array([1, -2, 0.5, 3], f32)
    placed((4,), f32, unit().get_global("taps")).set(taps)
    visits = placed((1,), i32, unit().get_global("visits"))
    visits.fill(0)
    y = cp.empty(64)
    run("constants_of_host", cp.asarray(x), y)
    windows = np.lib.stride_tricks.sliding_window_view(x, 4)
    np.testing.assert_allclose(y.get(), 2 * windows @ (taps * [2, 3, 5, 7]), rtol=1e-5, atol=1e-5)
    assert visits.get().tolist() == [64]


def test_an_unknown_constant_names_those_that_exist():
    with pytest.raises(LaunchError, match=r"no variable or constant 'taps2' .* it has .*taps"):
        unit().get_global("taps2")
    with pytest.raises(ValueError, match="20 bytes do not fit 16 of memory"):
        placed((5,), f32, unit().get_global("taps"))


def test_static_shared_is_shared(run):
    x = rng.standard_normal(64).astype(f32)
    run("static_shared", cp.asarray(x), y := cp.empty(64))
    np.testing.assert_array_equal(y.get(), x[::-1])


def test_pairs_of_halves(run):
    a = rng.uniform(-3, 3, (8, 2)).astype(f16)
    b = rng.uniform(0.5, 3, (8, 2)).astype(f16)
    run("half_pairs", cp.asarray(a), cp.asarray(b), out := cp.empty((8, 16, 2), f16), block=(8,))
    x, y = a.astype(f64), b.astype(f64)
    expected = [
        x + y, x - y, x * y, x / y, -x, np.maximum(x, y), np.minimum(x, y), np.exp(x), np.sqrt(y),
        x * y + x, x > y, abs(x), np.log(y), x[:, ::-1], np.stack([y[:, 0]] * 2, 1),
        np.stack([np.sin(x[:, 0]), np.cos(x[:, 1])], 1),
    ]  # fmt: skip
    near(out.get(), np.stack(expected, 1), f16)


def test_pairs_of_bfloats(run):
    x = rng.uniform(-2, 2, 16).astype(ml_dtypes.bfloat16)
    run("bfloat_pairs", cp.asarray(x.view(np.uint16)), out := cp.empty(16), block=(8,))
    expected = (x.astype(f32) * 2).astype(x.dtype).astype(f32) + 2
    near(out.get()[::2], expected[::2], x.dtype)
    near(out.get()[1::2], np.exp(x[1::2].astype(f32)), x.dtype)


def test_halves_become_integers(run):
    x = np.array([1.5, -2.5, 0.49, 1000, -7.75, 2.5, 65504, -0.0], f16)
    run("half_to_integers", cp.asarray(x), out := cp.empty((8, 4), i32), block=(8,))
    expected = [np.rint(x), np.trunc(x), np.floor(x), np.rint(abs(x))]
    np.testing.assert_array_equal(out.get(), np.stack(expected, 1).astype(i32))


def test_norms(run):
    x = rng.standard_normal((8, 4)).astype(f32)
    run("norms", cp.asarray(x), y := cp.empty((8, 4)), block=(8,))
    expected = [
        np.linalg.norm(x[:, :3], axis=1), 1 / np.linalg.norm(x, axis=1),
        1 / np.linalg.norm(x[:, :2], axis=1), x[:, 0] / x[:, 3],
    ]  # fmt: skip
    near(y.get(), np.stack(expected, 1), f32)


def test_numbers_by_name(run):
    run("named_numbers", y := cp.empty(7), d := cp.empty(4, f64), block=(1,))
    expected = [math.pi, math.inf, math.log2(math.e), math.sqrt(2), math.log(2), math.nan, 1e-45]
    np.testing.assert_array_equal(y.get(), np.array(expected, f32))
    assert d.get().tolist() == [math.pi, math.log(2), math.sqrt(0.5), 2 / math.pi]


def test_bytes_of_words(run):
    a, b = (rng.integers(0, 256, (16, 4)).astype(np.uint8) for _ in range(2))
    a[:, 0] = b[:, 0]
    words = [cp.asarray(x.view(u32).ravel()) for x in (a, b)]
    run("bytes_of_words", *words, out := cp.empty((16, 8), u32), block=(16,))
    x, y = a.astype(int), b.astype(int)
    smaller = np.minimum(a.view(np.int8), b.view(np.int8)).astype(int)
    expected = [
        x + y, x - y, np.maximum(x, y), smaller, abs(x - y), np.where(x == y, 255, 0), None,
        (x + y + 1) // 2,
    ]  # fmt: skip
    got = out.get()
    for k, each in enumerate(expected):
        if each is None:
            np.testing.assert_array_equal(got[:, k], abs(x - y).sum(1))
        else:
            in_bytes = got[:, k].copy().view(np.uint8).reshape(16, 4)
            np.testing.assert_array_equal(in_bytes, each & 255)


def test_atomics_of_vectors(run):
    run("pairs_added", sums := cp.zeros(4), fours := cp.zeros(4))
    t = np.arange(64)
    assert sums.get().tolist() == [32, t[::2].sum(), 32, t[1::2].sum()]
    assert fours.get().tolist() == [64, 128, 192, t.sum()]


def test_a_little_of_the_standard_library(run):
    x = rng.standard_normal(9).astype(f32)
    run("assumed", cp.asarray(x), y := cp.empty(4), i32(9), block=(1,))
    np.testing.assert_array_equal(
        y.get(), np.array([x.max(), 2.0**31, x[0] + x[1], np.finfo(f32).eps], f32)
    )


def test_tiles_of_a_warp(run):
    x = rng.standard_normal(64).astype(f32)
    run("group_sums", cp.asarray(x), y := cp.empty(1))
    np.testing.assert_allclose(y.get(), [x.sum()], rtol=1e-5, atol=1e-5)


def test_functions_of_a_tile(run):
    x = rng.integers(0, 64, 64).astype(i32)
    run("group_functions", cp.asarray(x), y := cp.empty((64, 12), i32))
    for tile, got in zip(x.reshape(8, 8), y.get().reshape(8, 8, 12), strict=True):
        r = np.arange(8)
        running = np.cumsum(tile)
        equal = [bits(tile % 3 == v % 3) for v in tile]
        expected = [
            tile[[3] * 8], tile[np.where(r >= 2, r - 2, r)], tile[r ^ 5], [(tile == 5).any()] * 8,
            [(tile < 60).all()] * 8, [bits(tile % 2)] * 8, [tile.sum()] * 8, [tile.max()] * 8,
            running, running - tile, equal, [8] * 8,
        ]  # fmt: skip
        np.testing.assert_array_equal(got, np.stack(expected, 1))


def bits(flags: Any) -> int:
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def test_places_in_groups(run):
    run("group_places", y := cp.empty((2, 32, 4), i32), block=(8, 4), grid=(2,))
    expected = [[[t, b, 4, 1] for t in range(32)] for b in range(2)]
    assert y.get().tolist() == expected


def test_lanes_that_meet_in_a_branch(run):
    x = rng.integers(0, 100, 64).astype(i32)
    count, kept = cp.zeros(1, i32), cp.empty(64, i32)
    run("aggregated_atomics", cp.asarray(x), count, kept)
    expected = sorted(x[x % 3 == 0].tolist())
    assert count.get()[0] == len(expected)
    assert sorted(kept.get()[: len(expected)].tolist()) == expected
    run("active_lanes", cp.asarray(x), y := cp.empty(64, i32))
    sums = np.where(x % 2, x, 0).reshape(2, 32).sum(1)
    np.testing.assert_array_equal(y.get(), np.where(x % 2, sums.repeat(32), 0))


def test_sums_of_cub(run):
    x = rng.standard_normal(64).astype(f32)
    run("cub_sums", cp.asarray(x), y := cp.empty(3), i32(10))
    np.testing.assert_allclose(y.get(), [x.sum(), x.max(), x[:10].sum()], rtol=1e-5, atol=1e-6)


def test_scans_of_cub(run):
    x = rng.integers(-9, 9, 64).astype(i32)
    run("cub_scans", cp.asarray(x), y := cp.empty((64, 4), i32))
    s = np.cumsum(x)
    expected = np.stack([s, s - x, [s[-1]] * 64, np.maximum.accumulate(x)], 1)
    np.testing.assert_array_equal(y.get(), expected)


@pytest.mark.parametrize("n", [128, 101])
def test_items_of_cub(run, n):
    x = rng.integers(-9, 9, n).astype(i32)
    run("cub_items", cp.asarray(x), y := cp.empty(n, i32), i32(n), block=(32,))
    np.testing.assert_array_equal(y.get(), np.cumsum(x) - x)


def test_warps_of_cub(run):
    x = rng.integers(-9, 9, 64).astype(i32)
    run("cub_warps", cp.asarray(x), y := cp.empty((64, 2), i32))
    sums = np.zeros((2, 32), i32)
    sums[:, 0] = x.reshape(2, 32).sum(1)
    running = np.cumsum(x.reshape(4, 16), 1)
    np.testing.assert_array_equal(y.get(), np.stack([sums.ravel(), running.ravel()], 1))


FAULTY = """
#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
__constant__ float table[4];
extern "C" __global__ void temp_used_twice(const float* x, float* y) {
  typedef cub::BlockReduce<float, 64> Reduce;
  __shared__ typename Reduce::TempStorage temp;
  float sum = Reduce(temp).Sum(x[threadIdx.x]);
  sum += Reduce(temp).Sum(2 * x[threadIdx.x]);
  if (threadIdx.x == 0) y[0] = sum;
}
extern "C" __global__ void half_a_block(float* y) {
  if (threadIdx.x < 32)
    cooperative_groups::this_thread_block().sync();
  y[threadIdx.x] = 0;
}
extern "C" __global__ void tile_in_a_branch(float* y) {
  auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
  if (threadIdx.x % 16 < 8)
    tile.sync();
  __syncthreads();
  y[threadIdx.x] = 0;
}
extern "C" __global__ void writes_constant(float* y) {
  table[threadIdx.x % 4] = 1;
  y[threadIdx.x] = table[0];
}
"""


@cache
def faulty() -> Any:
    return cp.RawModule(code=FAULTY)


@pytest.mark.parametrize(
    ("name", "kind", "lines"),
    [
        ("temp_used_twice", "race", {8, 9}),
        ("half_a_block", "divergent-barrier", {14}),
        ("tile_in_a_branch", "warp-mask", {20}),
        ("writes_constant", "const-write", {25}),
    ],
)
def test_faults_inside_of_headers_stand_on_the_users_line(name, kind, lines):
    args = (cp.zeros(64), cp.empty(64)) if name == "temp_used_twice" else (cp.empty(64),)
    with using(mode="check"), pytest.raises(KernelFaultError) as caught:
        faulty().get_function(name)((1,), (64,), args)
    first = caught.value.faults[0]
    assert first.kind == kind
    assert first.line in lines, str(caught.value)


ABSENT = {
    'asm volatile("mov.u32 %0, %%laneid;" : "=r"(n));': "no inline PTX",
    "cudaTextureObject_t t; y[0] = tex2D<float>(t, 0, 0);": "no textures",
    "k<<<1, 1>>>(y);": "dynamic parallelism",
    "float* p = (float*)malloc(8);": "no memory from inside a kernel",
    "y[0] = std::max(y[0], 1.0f);": "no std beyond move and forward",
    "y[0] = __shfl_down(y[0], 1);": "__shfl_sync(mask, ...)",
    "cooperative_groups::this_grid().sync();": "no barrier of a whole grid",
    "cooperative_groups::this_cluster();": "no clusters",
}
HEADERS = {
    "stdint.h": "NVRTC has no headers of the host either",
    "cmath": "NVRTC has no headers of the host either",
    "cub/cub.cuh": "include cub/block/block_reduce.cuh",
    "cub/block/block_radix_sort.cuh": "of cub it has BlockReduce",
    "curand_kernel.h": "draw with miniml.ops",
    "cuda/atomic": "use atomicAdd",
    "cuda_fp8.h": "it knows half and bfloat16",
    "mine.h": "put it into the text",
}


def refusal(text: str) -> str:
    with pytest.raises(CompileError) as caught:
        cp.RawModule(code=text).get_function("k")
    first, *log = str(caught.value).splitlines()
    assert any("rror" in line for line in log)
    return first


@pytest.mark.parametrize("body", ABSENT)
def test_what_is_absent_is_said_before_the_compilers_log(body):
    text = f'extern "C" __global__ void k(float* y) {{ int n = 0; {body} }}'
    first = refusal(text)
    assert first.startswith("the CUDA source does not compile: the simulator has ")
    assert ABSENT[body] in first


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_is_absent_is_named(name):
    first = refusal(f'#include <{name}>\nextern "C" __global__ void k(float* y) {{}}')
    assert f"the simulator has no <{name}>: " in first
    assert HEADERS[name] in first


def test_another_mistake_is_not_taken_for_something_absent():
    text = prelude({np.dtype(f16)}) + '// asm("x"), malloc\nvoid f() { wrong; }'
    assert dialect.absent(text, "kernel.cu:2:1: error") == []
