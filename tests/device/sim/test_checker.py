"""What the checker must not say, and what it says of itself."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda.emulator import cupy as cp
from miniml.backends.cuda.sim.settings import using
from miniml.errors import KernelWarning

TEXT = """
extern "C" __global__ void many_meetings(int* y, int rounds) {
  __shared__ int s[2];
  int t = threadIdx.x;
  s[t] = 0;
  __syncwarp(3);
  for (int k = 0; k < rounds; ++k) {
    int other = s[1 - t];
    __syncwarp(3);
    s[t] = other + 1;
    __syncwarp(3);
  }
  y[t] = s[t];
}
struct Point { float x, y, z, w; };
extern "C" __global__ void points(const Point* p, Point* q) {
  Point own = p[threadIdx.x];
  q[threadIdx.x] = own;
}
"""


@cache
def unit() -> Any:
    return cp.RawModule(code=TEXT)


def count_meetings(rounds: int) -> None:
    y = cp.empty(2, np.int32)
    with using(mode="check"):
        unit().get_function("many_meetings")((1,), (2,), (y, np.int32(rounds)))
    assert y.get().tolist() == [rounds, rounds]


def test_meetings_of_a_warp_are_counted_beyond_16_bits():
    count_meetings(33_000)


@pytest.mark.deep
def test_meetings_of_a_warp_are_counted_beyond_22_bits():
    count_meetings(2_200_000)


def test_a_structure_is_aligned_as_its_members_are():
    x = cp.asarray(np.arange(33, dtype=np.float32))
    with using(mode="check"):
        unit().get_function("points")((1,), (8,), (x[1:], y := cp.empty(32)))
    np.testing.assert_array_equal(y.get(), np.arange(1, 33))


UNWRITTEN = """
__device__ float sign_of(float x) {
  float s;
  if (x > 0) s = x;
  return s;
}
extern "C" __global__ void always_read(const float* x, float* y) {
  float sum;
  for (int k = 0; k < 4; ++k) sum += x[k];
  y[threadIdx.x] = sum;
}
extern "C" __global__ void guarded_twice(const float* x, float* y) {
  float v;
  if (x[0] > 0) v = x[threadIdx.x];
  __syncthreads();
  if (x[0] > 0) y[threadIdx.x] = v;
}
extern "C" __global__ void passed_on(const float* x, float* y, int n) {
  float v;
  int lane = threadIdx.x;
  if (lane < n) v = x[lane];
  __syncthreads();
  if (lane < n) y[lane] = v;
}
extern "C" __global__ void by_a_function(const float* x, float* y) {
  y[threadIdx.x] = sign_of(x[threadIdx.x]);
}
"""


@pytest.mark.parametrize(
    ("name", "lines", "variables"),
    [
        ("always_read", {5, 9}, {"sum", "s"}),
        ("passed_on", {5}, {"s"}),
        ("by_a_function", {5}, {"s"}),
    ],
)
def test_local_variables_that_nothing_has_written_are_warned_of(name, lines, variables):
    x, y = cp.asarray(np.ones(8, np.float32)), cp.zeros(8)
    more = (np.int32(8),) if name == "passed_on" else ()
    with using(mode="check"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cp.RawModule(code=UNWRITTEN).get_function(name)((1,), (8,), (x, y, *more))
    assert {w.lineno for w in caught} == lines
    assert {w.category for w in caught} == {KernelWarning}
    assert {str(w.message).split("the variable ")[1].split()[0] for w in caught} == variables
    with using(mode="fast"), warnings.catch_warnings():
        warnings.simplefilter("error")
        cp.RawModule(code=UNWRITTEN).get_function(name)((1,), (8,), (x, y, *more))


NO_MEMORY = """
import resource
import numpy as np
from miniml.backends.cuda.emulator import cupy as cp
text = 'extern "C" __global__ void k(char* y, long long n) { while (n) y[--n] = 1; }'
kernel = cp.RawModule(code=text).get_function("k")
y = cp.empty(40_000_000, np.int8)
kernel((1,), (1,), (cp.empty(8, np.int8), np.int64(8)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))
try:
    kernel((1,), (1,), (y, np.int64(8)))
except MemoryError as error:
    print(error)
"""


def test_a_checker_without_memory_does_not_blame_the_kernel():
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True)
    assert done.stdout == (
        "this machine has too little memory to simulate kernel k; smaller arrays or mode 'fast' "
        "take less\n"
    ), done.stderr
