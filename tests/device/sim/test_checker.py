"""What the checker must not say, and what it says of itself."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda.sim.memory import SCHEDULES, using
from miniml.backends.cuda.sim.unit import TOOLS
from miniml.errors import KernelFaultError, KernelWarning
from tests.device import emucupy as cp

TEXT = """
extern "C" __global__ void many_barriers(int* y, int rounds) {
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


def count_barriers(rounds: int) -> None:
    y = cp.empty(2, np.int32)
    with using(mode="check"):
        unit().get_function("many_barriers")((1,), (2,), (y, np.int32(rounds)))
    assert y.get().tolist() == [rounds, rounds]


def test_barriers_of_a_warp_are_counted_beyond_16_bits():
    count_barriers(33_000)


@pytest.mark.deep
def test_barriers_of_a_warp_are_counted_beyond_22_bits():
    count_barriers(2_200_000)


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


MEMBERS = """
struct Pair { float a, b; };
struct Vec { float x, y, z; };
struct Ray { Vec from, along; float least; };
struct Hit { float t; int ok; };
__device__ float dot(Vec u, Vec v) { return u.x * v.x + u.y * v.y + u.z * v.z; }
__device__ float flat(const Vec& u) { return u.x * u.x + u.y * u.y; }
__device__ float solid(const Vec& u) { return u.x * u.x + u.y * u.y + u.z * u.z; }
__device__ void fill(Vec& u, float x) { u.x = x; u.y = 1; u.z = 2; }
__device__ Pair pair(float x) {
  Pair p;
  p.a = x;
  return p;
}
extern "C" __global__ void wrong_member(const float* x, float* y) {
  Pair s;
  s.a = x[threadIdx.x];
  y[threadIdx.x] = s.a + s.b;
}
extern "C" __global__ void wrong_vector(const float* x, float* y) {
  float4 v;
  v.x = x[threadIdx.x], v.y = v.z = 1;
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void wrong_by_value(const float* x, float* y) {
  Vec u;
  u.x = x[threadIdx.x], u.y = 1;
  y[threadIdx.x] = dot(u, u);
}
extern "C" __global__ void wrong_by_reference(const float* x, float* y) {
  Vec u;
  u.x = x[threadIdx.x], u.y = 1;
  y[threadIdx.x] = solid(u);
}
extern "C" __global__ void wrong_inside(const float* x, float* y) {
  Ray r;
  fill(r.from, x[threadIdx.x]);
  r.along.x = 1, r.along.y = 0;
  y[threadIdx.x] = r.from.z * r.along.z;
}
extern "C" __global__ void right_result(const float* x, float* y) {
  Pair p = pair(x[threadIdx.x]);
  y[threadIdx.x] = p.a * 2;
}
extern "C" __global__ void wrong_on_a_path(const float* x, float* y) {
  float disc = x[threadIdx.x];
  Hit h;
  h.t = disc;
  if (disc >= 0) h.ok = (int)disc + 1;
  y[threadIdx.x] = h.ok + h.t;
}
extern "C" __global__ void wrong_sum(const float* x, float* y) {
  float2 sum;
  sum.x = 0;
  for (int k = 0; k < 4; ++k) sum.x += x[k], sum.y += x[k] * x[k];
  y[threadIdx.x] = sum.y - sum.x * sum.x;
}
extern "C" __global__ void wrong_flag_on_a_path(const float* x, float* y) {
  Hit h;
  h.t = x[threadIdx.x];
  if (h.t >= 5) h.ok = 1;
  y[threadIdx.x] = h.ok ? h.t : 0;
}
extern "C" __global__ void wrong_constant_on_a_path(const float* x, float* y) {
  int found;
  if (x[threadIdx.x] > 2) found = 1;
  y[threadIdx.x] = found ? x[threadIdx.x] : 0;
}
extern "C" __global__ void right_constant_on_a_path(const float* x, float* y) {
  int found, last;
  bool any = false;
  for (int k = 0; k < 4; ++k)
    if (x[k] > 2) found = 3, any = true;
  if (any) last = 7; else last = 8;
  y[threadIdx.x] = any ? found + last : last;
}
extern "C" __global__ void right_guarded_constant(const float* x, float* y) {
  float v;
  if (x[0] > 5) v = 1;
  __syncthreads();
  if (x[0] > 5) y[threadIdx.x] = v;
}
extern "C" __global__ void right_member_by_member(const float* x, float* y) {
  Pair s;
  s.a = x[threadIdx.x], s.b = 2;
  y[threadIdx.x] = s.a + s.b;
}
extern "C" __global__ void right_unread_member(const float* x, float* y) {
  Vec u, v;
  u.x = x[threadIdx.x], u.y = 1;
  v = u;
  y[threadIdx.x] = flat(v);
}
extern "C" __global__ void right_by_a_function(const float* x, float* y) {
  Vec u;
  fill(u, x[threadIdx.x]);
  y[threadIdx.x] = dot(u, u) + solid(u);
}
extern "C" __global__ void right_with_braces(const float* x, float* y) {
  Ray r = {{x[threadIdx.x], 1, 2}};
  y[threadIdx.x] = r.from.x + r.along.z + r.least;
}
extern "C" __global__ void right_guarded_twice(const float* x, float* y) {
  Hit h;
  if (x[0] >= 0) h.t = x[threadIdx.x], h.ok = (int)h.t;
  if (x[0] >= 0) y[threadIdx.x] = h.ok + h.t;
}
extern "C" __global__ void wrong_on_one_line(const float* x, float* y) {
  float one; if (x[0] >= 0) one = x[threadIdx.x]; y[threadIdx.x] = one;
}
extern "C" __global__ void right_flag(const float* x, float* y) {
  Hit h;
  h.ok = x[threadIdx.x] > 0;
  if (h.ok) h.t = x[threadIdx.x];
  y[threadIdx.x] = h.ok ? h.t : 0;
}
extern "C" __global__ void right_loaded(const float4* x, float* y) {
  float4 v;
  v = x[threadIdx.x / 4];
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
"""
UNSET = {
    "wrong_member": "s.b", "wrong_vector": "v.w", "wrong_by_value": "u.z",
    "wrong_by_reference": "u.z", "wrong_inside": "r.along.z",
    "wrong_on_a_path": "h.ok", "wrong_flag_on_a_path": "h.ok",
    "wrong_constant_on_a_path": "found", "wrong_sum": "sum.y",
    "wrong_on_one_line": "one",
}  # fmt: skip


def kernels_of(text: str) -> list[str]:
    return re.findall(r"__global__ void (\w+)", text)


def warnings_of(text: str, name: str, *arrays: Any) -> list[str]:
    with using(mode="check"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cp.RawModule(code=text).get_function(name)((1,), (8,), arrays)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("name", kernels_of(MEMBERS))
def test_members_of_structures_that_nothing_has_written_are_warned_of(name):
    if "clang" in TOOLS.run(["--version"]):
        pytest.skip("clang does not follow members")
    said = warnings_of(MEMBERS, name, cp.asarray(np.ones(8, np.float32)), cp.zeros(8))
    assert [s.split("the variable ")[1].split()[0] for s in said] == [
        UNSET[name] for _ in range(name.startswith("wrong"))
    ], said


TEMPLATE = """
struct Plus { static __device__ float of(float a, float b) { return a + b; } };
template <class Op> __device__ float all_of(const float* row, int n) {
  float acc; // declared
  for (int k = 0; k < n; ++k)
    acc = Op::of(acc, row[k]); // read
  return acc; // read
}
extern "C" __global__ void wrong_by_a_template(const float* x, float* y) {
  y[threadIdx.x] = all_of<Plus>(x, 4);
}
"""
PASSED_ON = """
#include <cooperative_groups.h>
extern "C" __global__ void wrong_in_a_shuffle(const float* x, float* y) {
  float acc;
  acc = __shfl_sync(0xffu, acc, 3); // read
  y[threadIdx.x] = x[threadIdx.x] + acc;
}
extern "C" __global__ void wrong_beside_a_shuffle(const float* x, float* y) {
  float acc;
  if (threadIdx.x < 4) acc = x[threadIdx.x];
  acc += __shfl_sync(0xffu, acc, 3); // read
  y[threadIdx.x] = acc;
}
extern "C" __global__ void right_from_the_leader(const float* x, float* y) {
  unsigned active = __activemask();
  int leader = __ffs(active) - 1;
  float base;
  if (threadIdx.x == leader) base = atomicAdd(y, x[leader]);
  base = __shfl_sync(active, base, leader);
  if (base > 100) y[threadIdx.x] = base;
}
extern "C" __global__ void right_from_the_leader_of_a_group(const float* x, float* y) {
  auto group = cooperative_groups::coalesced_threads();
  float base;
  if (group.thread_rank() == 0)
    base = atomicAdd(y, x[0]);
  base = group.shfl(base, 0) + group.thread_rank();
  if (base > 100) y[threadIdx.x] = base;
}
"""


@pytest.mark.parametrize(
    ("text", "name"), [(text, name) for text in (TEMPLATE, PASSED_ON) for name in kernels_of(text)]
)
def test_a_warning_shows_its_variable_and_a_value_that_a_shuffle_brings_is_none(text, name):
    said = warnings_of(text, name, cp.asarray(np.ones(8, np.float32)), cp.zeros(8))
    assert bool(said) == name.startswith("wrong"), said
    for sentence in said:
        quoted = sentence.partition(" in '")[2]
        assert re.search(r"\bacc\b.*// (read|declared)", quoted), said


CAUSES = """
extern "C" __global__ void sort_with_half_a_barrier(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  for (int size = 2; size <= 128; size *= 2)
    for (int o = size / 2; o > 0; o /= 2) {
      if (t < 64) __syncthreads(); // divergent-barrier
      int other = t ^ o;
      if (other > t) {
        float a = s[t], b = s[other];
        if ((a > b) == ((t & size) == 0)) s[t] = b, s[other] = a;
      }
    }
  __syncthreads();
  y[t] = s[t];
}
extern "C" __global__ void sum_with_a_barrier_of_those_who_add(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int o = 64; o > 0; o /= 2) {
    if (t < o) {
      s[t] += s[t + o];
      __syncthreads(); // divergent-barrier
    }
  }
  __syncthreads();
  y[t] = s[0];
}
extern "C" __global__ void sum_of_warps(const float* x, float* y) {
  __shared__ float part[4];
  float v = x[threadIdx.x];
  if (threadIdx.x < 8) __syncthreads(); // divergent-barrier
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  y[threadIdx.x] = part[0] + part[1] + part[2] + part[3];
}
extern "C" __global__ void rows_without_a_guard(const float* x, float* y) {
  int i = threadIdx.x / 16, j = threadIdx.x % 16;
  y[i * 15 + j + 10] = x[i]; // out-of-bounds
}
extern "C" __global__ void running_sum_without_a_guard(const float* x, float* y) {
  int t = threadIdx.x;
  y[t] = x[t];
  __syncthreads();
  y[t] += y[t + 1]; // out-of-bounds
}
extern "C" __global__ void by_an_index_that_nothing_has_written(const float* x, float* y) {
  __shared__ int at[128];
  if (threadIdx.x < 100) at[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = x[at[threadIdx.x]]; // uninitialised
}
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", kernels_of(CAUSES))
def test_the_first_fault_is_the_one_that_explains_the_others(name, schedule):
    arrays = cp.asarray(np.arange(128, dtype=np.float32)), cp.empty(128)
    checked = using(mode="check", schedule=schedule, seconds=2.0)
    with checked, pytest.raises(KernelFaultError) as caught:
        cp.RawModule(code=CAUSES).get_function(name)((1,), (128,), arrays)
    first = caught.value.faults[0]
    assert first.source.endswith(f"// {first.kind}"), str(caught.value)
    assert len(caught.value.faults) <= 8


NO_MEMORY = """
import resource
import numpy as np
from tests.device import emucupy as cp
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
