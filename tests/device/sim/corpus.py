"""Kernels that are right, and what breaks each of them: the faults the simulator must report.

Every kernel is written once. `broken` replaces a part of its text; the fault must then be reported
with its kind, on a line that bears the mark //!.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniml.backends.cuda import emucupy as cp


@dataclass(frozen=True)
class Case:
    """A kernel `text` (@ stands for its head), its launch, and the replacement that breaks it."""

    name: str
    kind: str
    text: str
    broken: tuple[str, str]
    args: Callable[[], tuple[Any, ...]]
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (64,)
    shared_mem: int = 0
    broken_args: Callable[[], tuple[Any, ...]] | None = None
    broken_shared_mem: int | None = None

    def source(self, breaks: bool) -> str:
        text = self.text.strip("\n")
        if breaks:
            old, new = self.broken
            assert old in text or not old, self.name
            text = text.replace(old, new, 1) if old else text
        return text.replace("@", f'extern "C" __global__ void {self.name}', 1) + "\n"


def f(n: int) -> Any:
    """0, 1, 2, ... in device memory."""
    return cp.asarray(np.arange(n, dtype=np.float32))


def z(n: int, dtype: Any = np.float32) -> Any:
    return cp.zeros(n, dtype)


def e(n: int, dtype: Any = np.float32) -> Any:
    return cp.empty(n, dtype)


def i(*values: int) -> Any:
    return cp.asarray(np.array(values, np.int32))


n32 = np.int32

# fmt: off
RACES = (
    Case("reversed_row", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x]; //!
  __syncthreads();
  s[threadIdx.x] = 0; //!
}""", ("  __syncthreads();\n  s[threadIdx.x] = 0", "  s[threadIdx.x] = 0"), lambda: (f(64), e(64))),
    Case("tree_sum", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int o = 32; o > 0; o >>= 1) {
    if (t < o) s[t] += s[t + o]; //!
    __syncthreads();
  }
  if (t == 0) y[0] = s[0]; //!
}""", ("[t + o]; //!\n    __syncthreads();", "[t + o]; //!"), lambda: (f(64), e(1))),
    Case("partials_used_twice", "race", """
@(const float* x, float* y) {
  __shared__ float part[2];
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  float v = x[threadIdx.x];
  for (int round = 0; round < 2; ++round) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    if (lane == 0) part[w] = v; //!
    __syncthreads();
    v = part[0] + part[1]; //!
    __syncthreads();
  }
  y[threadIdx.x] = v;
}""", ("part[1]; //!\n    __syncthreads();", "part[1]; //!"), lambda: (f(64), e(64))),
    Case("tiled_product", "race", """
@(const float* a, const float* b, float* c) {
  __shared__ float s[8][8], r[8][8];
  int x = threadIdx.x, y = threadIdx.y;
  float sum = 0;
  for (int k = 0; k < 16; k += 8) {
    s[y][x] = a[y * 16 + k + x]; //!
    r[y][x] = b[(k + y) * 8 + x]; //!
    __syncthreads();
    for (int j = 0; j < 8; ++j)
      sum += s[y][j] * r[j][x]; //!
    __syncthreads();
  }
  c[y * 8 + x] = sum;
}""", ("[x]; //!\n    __syncthreads();\n  }", "[x]; //!\n  }"), lambda: (f(128), f(128), e(64)), block=(8, 8)),
    Case("lanes_through_memory", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncwarp();
  y[t] = s[t ^ 1]; //!
  __syncwarp();
  s[t] = y[t]; //!
}""", ("y[t] = s[t ^ 1]; //!\n  __syncwarp();", "y[t] = s[t ^ 1]; //!"), lambda: (f(64), e(64))),
    Case("half_warps_in_step", "race", """
@(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = 0;
  __syncwarp();
  s[t] = x[t]; //!
  __syncwarp(0xffffffffu);
  y[t] = s[31 - t]; //!
}""", ("__syncwarp(0xffffffffu)", "__syncwarp(t < 16 ? 0xffffu : 0xffff0000u)"), lambda: (f(32), e(32)),
         block=(32,)),
    Case("histogram", "race", """
@(const int* x, int* y) {
  __shared__ int bins[4];
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[x[threadIdx.x]], 1); //!
  __syncthreads();
  if (threadIdx.x < 4) y[threadIdx.x] = bins[threadIdx.x];
}""", ("atomicAdd(&bins[x[threadIdx.x]], 1)", "bins[x[threadIdx.x]] += 1"),
         lambda: (i(*(k % 4 for k in range(64))), e(4, n32))),
    Case("scan_in_place", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int o = 1; o < 64; o <<= 1) {
    float v = t >= o ? s[t - o] : 0.0f; //!
    __syncthreads();
    s[t] += v; //!
    __syncthreads();
  }
  y[t] = s[t];
}""", (": 0.0f; //!\n    __syncthreads();", ": 0.0f; //!"), lambda: (f(64), e(64))),
    Case("bitonic_pass", "race", """
@(float* x) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 2; k <= 64; k <<= 1)
    for (int j = k >> 1; j > 0; j >>= 1) {
      float a = s[t], b = s[t ^ j]; //!
      __syncthreads();
      s[t] = (t < (t ^ j)) == ((t & k) == 0) ? fminf(a, b) : fmaxf(a, b); //!
      __syncthreads();
    }
  x[t] = s[t];
}""", ("b); //!\n      __syncthreads();", "b); //!"), lambda: (f(64),)),
    Case("flag_of_the_first", "race", """
@(const float* x, float* y) {
  __shared__ bool negative;
  if (threadIdx.x == 0) negative = x[0] < 0; //!
  __syncthreads();
  y[threadIdx.x] = negative ? 0 : x[threadIdx.x]; //!
  __syncthreads();
  if (threadIdx.x == 63) negative = true; //!
}""", ("x[threadIdx.x]; //!\n  __syncthreads();", "x[threadIdx.x]; //!"), lambda: (f(64), e(64))),
    Case("transposed_tile", "race", """
@(float* x) {
  int c = threadIdx.x, r = threadIdx.y;
  float v = x[r * 8 + c]; //!
  __syncthreads();
  x[c * 8 + r] = v; //!
}""", ("  __syncthreads();\n", ""), lambda: (f(64),), block=(8, 8)),
    Case("dynamic_rotation", "race", """
@(const float* x, float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = 0;
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x]; //!
  __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 7) % 64]; //!
}""", ("//!\n  __syncthreads();", "//!"), lambda: (f(64), e(64)), shared_mem=256),
    Case("bytes_side_by_side", "race", """
@(unsigned char* x) {
  __shared__ unsigned char s[64];
  s[threadIdx.x] = x[threadIdx.x]; //!
  __syncthreads();
  x[threadIdx.x] = s[threadIdx.x]; //!
}""", ("s[threadIdx.x] = x", "s[threadIdx.x & ~1] = x"), lambda: (z(64, np.uint8),)),
    Case("blocks_on_one_row", "race", """
@(const float* x, float* y) {
  y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x]; //!
}""", ("blockIdx.x * 64 + threadIdx.x", "threadIdx.x"), lambda: (f(64), e(128)), grid=(2,)),
    Case("scatter_add", "race", """
@(const float* x, const int* at, float* y) {
  int k = blockIdx.x * 64 + threadIdx.x;
  atomicAdd(&y[at[k]], x[k]); //!
}""", ("atomicAdd(&y[at[k]], x[k])", "y[at[k]] += x[k]"),
         lambda: (f(128), i(*(k % 5 for k in range(128))), z(5)), grid=(2,)),
    Case("sum_of_blocks", "race", """
@(const float* x, float* y) {
  float v = x[blockIdx.x * 32 + threadIdx.x];
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  if (threadIdx.x == 0) atomicAdd(y, v); //!
}""", ("atomicAdd(y, v)", "*y += v"), lambda: (f(128), z(1)), grid=(4,), block=(32,)),
    Case("last_block_sums", "race", """
@(const float* x, float* part, unsigned* count, float* y) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    part[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    last = atomicAdd(count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0;
    for (int b = 0; b < 4; ++b) sum += ((volatile float*)part)[b]; //!
    *y = sum;
  }
}""", ("__threadfence();", ""), lambda: (f(4), e(4), z(1, np.uint32), e(1)), grid=(4,)),
    Case("counter_read_plainly", "race", """
@(unsigned* count, unsigned* y) {
  unsigned mine = atomicAdd(count, 1u); //!
  y[blockIdx.x] = mine; //!
}""", ("= mine", "= *count"), lambda: (z(1, np.uint32), e(4, np.uint32)), grid=(4,), block=(1,)),
    Case("halo_in_place", "race", """
@(float* x, float* y) {
  int k = blockIdx.x * 32 + threadIdx.x;
  float left = k ? x[k - 1] : 0, right = k < 63 ? x[k + 1] : 0; //!
  y[k] = left + right; //!
}""", ("y[k] =", "x[k] ="), lambda: (f(64), e(64)), grid=(2,), block=(32,)),
)

BOUNDS = (
    Case("unguarded_tail", "out-of-bounds", """
@(const float* x, float* y, int n) {
  int k = blockIdx.x * 64 + threadIdx.x;
  if (k < n)
    y[k] = x[k]; //!
}""", ("if (k < n)", ""), lambda: (f(100), e(100), n32(100)), grid=(2,)),
    Case("one_too_many", "out-of-bounds", """
@(const float* x, float* y, int n) {
  for (int k = threadIdx.x; k < n; k += 64)
    y[k] = x[k]; //!
}""", ("k < n", "k <= n"), lambda: (f(100), e(100), n32(100))),
    Case("left_neighbour", "out-of-bounds", """
@(const float* x, float* y) {
  int k = (int)threadIdx.x;
  y[k] = k > 0 ? x[k - 1] : 0; //!
}""", ("k > 0", "k >= 0"), lambda: (f(64), e(64))),
    Case("stride_of_rows", "out-of-bounds", """
@(const float* x, float* y) {
  int r = threadIdx.y, c = threadIdx.x;
  y[r * 16 + c] = x[r * 16 + c]; //!
}""", ("x[r * 16 + c]", "x[r * 17 + c]"), lambda: (f(64), e(64)), block=(16, 4)),
    Case("shared_past_its_end", "out-of-bounds", """
@(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x]; //!
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}""", ("s[threadIdx.x] = x", "s[threadIdx.x + 1] = x"), lambda: (f(64), e(64))),
    Case("inner_index_of_shared", "out-of-bounds", """
@(const float* x, float* y) {
  __shared__ float s[4][16];
  int t = threadIdx.x;
  s[t / 16][t % 16] = x[t];
  __syncthreads();
  y[t] = s[t / 16][15 - t % 16]; //!
}""", ("[15 - t % 16]", "[16 - t % 16]"), lambda: (f(64), e(64))),
    Case("little_dynamic_memory", "out-of-bounds", """
@(const float* x, float* y, int n) {
  extern __shared__ float s[];
  s[threadIdx.x % n] = x[threadIdx.x % n]; //!
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x % n];
}""", ("", ""), lambda: (f(64), e(64), n32(64)), shared_mem=256,
         broken_shared_mem=128),
    Case("vector_past_the_end", "out-of-bounds", """
@(const float4* x, float4* y, int n) {
  int k = threadIdx.x;
  if (k < n / 4)
    y[k] = x[k]; //!
}""", ("n / 4", "(n + 3) / 4"), lambda: (f(62), e(62), n32(62))),
    Case("row_chosen_by_data", "out-of-bounds", """
@(const float* x, const int* at, float* y) {
  int k = at[threadIdx.x];
  y[threadIdx.x] = k < 0 ? 0 : x[k]; //!
}""", ("k < 0 ? 0 : ", ""), lambda: (f(4), i(*((k % 5) - 1 for k in range(64))), e(64))),
    Case("local_array", "out-of-bounds", """
@(const int* at, float* y) {
  float own[4] = {0, 1, 2, 3};
  int k = at[threadIdx.x];
  y[threadIdx.x] = own[k & 3]; //!
}""", ("own[k & 3]", "own[k]"), lambda: (i(*(k % 6 for k in range(64))), e(64))),
    Case("absent_bias", "out-of-bounds", """
@(const float* x, const float* bias, float* y) {
  float v = x[threadIdx.x];
  y[threadIdx.x] = bias ? v + bias[threadIdx.x] : v; //!
}""", ("bias ? v + bias[threadIdx.x] : v", "v + bias[threadIdx.x]"), lambda: (f(64), np.intp(0), e(64))),
    Case("column_guard", "out-of-bounds", """
@(float* y, int rows, int columns) {
  int r = blockIdx.y * 8 + threadIdx.y, c = blockIdx.x * 8 + threadIdx.x;
  if (r < rows && c < columns)
    y[r * columns + c] = 1; //!
}""", ("r < rows && ", ""), lambda: (e(15 * 10), n32(15), n32(10)), grid=(2, 2), block=(8, 8)),
    Case("slice_of_a_block", "out-of-bounds", """
@(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x % 32]; //!
}""", ("x[threadIdx.x % 32]", "x[threadIdx.x]"), lambda: (f(256)[64:96], e(64))),
    Case("wild_address", "out-of-bounds", """
@(float* y) {
  y[threadIdx.x] = 1; //!
}""", ("y[threadIdx.x]", "y[threadIdx.x + 1000000000ll]"), lambda: (e(64),)),
    Case("locals_of_another", "out-of-bounds", """
@(float* y) {
  __shared__ float* shown;
  float own = 1;
  if (threadIdx.x == 0) shown = &own;
  __syncthreads();
  y[threadIdx.x] = *(threadIdx.x == 0 ? shown : &own); //!
  __syncthreads();
}""", ("threadIdx.x == 0 ? shown : &own", "shown"), lambda: (e(64),)),
)

MEMORY = (
    Case("vector_off_by_one", "misaligned", """
@(const float* x, float* y) {
  int k = threadIdx.x;
  *(float4*)(y + 4 * k) = *(const float4*)(x + 4 * k); //!
}""", ("(x + 4 * k)", "(x + 4 * k + 1)"), lambda: (f(64), e(64)), block=(8,)),
    Case("double_in_bytes", "misaligned", """
@(unsigned char* raw, double* y) {
  y[threadIdx.x] = ((const double*)(raw + 8))[threadIdx.x]; //!
}""", ("raw + 8", "raw + 4"), lambda: (z(128, np.uint8), e(8, np.float64)), block=(8,)),
    Case("view_at_odd_bytes", "misaligned", """
@(const unsigned char* raw, int* y) {
  y[threadIdx.x] = *(const int*)(raw + 4 * threadIdx.x); //!
}""", ("", ""), lambda: (z(64, np.uint8)[4:40], e(8, n32)), block=(8,),
         broken_args=lambda: (z(64, np.uint8)[1:40], e(8, n32))),
    Case("partials_of_absent_warps", "uninitialised", """
@(const float* x, float* y) {
  __shared__ float part[32];
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  if (lane == 0) part[w] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = lane < 2 ? part[lane] : 0; //!
}""", ("lane < 2 ? part[lane] : 0", "part[lane]"), lambda: (f(64), e(64))),
    Case("sum_into_nothing", "uninitialised", """
@(const float* x, float* y) {
  atomicAdd(y, x[threadIdx.x]); //!
}""", ("", ""), lambda: (f(64), z(1)), broken_args=lambda: (f(64), e(1))),
    Case("accumulates_into_output", "uninitialised", """
@(const float* x, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x]; //!
}""", ("y[threadIdx.x] =", "y[threadIdx.x] +="), lambda: (f(64), e(64))),
    Case("dynamic_never_written", "uninitialised", """
@(const float* x, float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x]; //!
}""", ("s[threadIdx.x] = x[threadIdx.x];", "if (threadIdx.x < 60) s[threadIdx.x] = x[threadIdx.x];"),
         lambda: (f(64), e(64)), shared_mem=256),
    Case("workspace_of_last_block", "uninitialised", """
@(float* work, float* y) {
  work[blockIdx.x * 32 + threadIdx.x] = 1;
  y[blockIdx.x * 32 + threadIdx.x] = work[blockIdx.x * 32 + threadIdx.x]; //!
}""", ("work[blockIdx.x * 32 + threadIdx.x] = 1", "if (blockIdx.x == 0) work[threadIdx.x] = 1"),
         lambda: (e(64), e(64)), grid=(2,), block=(32,)),
    Case("shared_of_the_block_before", "uninitialised", """
@(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = threadIdx.x;
  y[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x]; //!
}""", ("s[threadIdx.x] = threadIdx.x", "if (blockIdx.x % 2 == 0) s[threadIdx.x] = threadIdx.x"),
         lambda: (e(128),), grid=(4,), block=(32,)),
    Case("writes_its_input", "const-write", """
@(const float* x, float* y) {
  float* out = y;
  out[threadIdx.x] = 2 * x[threadIdx.x]; //!
}""", ("out = y", "out = const_cast<float*>(x)"), lambda: (f(64), e(64))),
    Case("writes_a_table", "const-write", """
__constant__ float weights_of_table[4] = {1, 2, 3, 4};
@(float* y) {
  float copy[4];
  float* table = threadIdx.x < 64 ? copy : const_cast<float*>(weights_of_table);
  table[threadIdx.x & 3] = 0; //!
  y[threadIdx.x] = weights_of_table[threadIdx.x & 3];
}""", ("threadIdx.x < 64", "threadIdx.x < 1"), lambda: (e(64),)),
)

MEETINGS = (
    Case("barrier_in_a_branch", "divergent-barrier", """
@(float* y) {
  if (threadIdx.x < 64)
    __syncthreads(); //!
  y[threadIdx.x] = 1;
}""", ("threadIdx.x < 64", "threadIdx.x < 32"), lambda: (e(64),)),
    Case("early_return", "divergent-barrier", """
@(const float* x, float* y, int n) {
  if (threadIdx.x >= n && n > 64) return;
  __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : 0;
  __syncthreads(); //!
  y[threadIdx.x] = s[63 - threadIdx.x];
}""", ("&& n > 64", ""), lambda: (f(60), e(64), n32(60))),
    Case("two_barriers", "divergent-barrier", """
@(float* y) {
  if (threadIdx.x < 64) {
    __syncthreads(); //!
  } else {
    __syncthreads(); //!
  }
  y[threadIdx.x] = 1;
}""", ("threadIdx.x < 64", "threadIdx.x < 32"), lambda: (e(64),)),
    Case("barriers_by_count", "divergent-barrier", """
@(const int* n, float* y) {
  for (int k = 0; k < n[0]; ++k)
    __syncthreads(); //!
  y[threadIdx.x] = 1;
}""", ("n[0]", "n[threadIdx.x]"), lambda: (i(*(2 + k // 32 for k in range(64))), e(64))),
    Case("count_in_a_branch", "divergent-barrier", """
@(const float* x, int* y) {
  bool big = x[threadIdx.x] > 10;
  if (threadIdx.x < 64)
    y[threadIdx.x] = __syncthreads_count(big); //!
  else
    __syncthreads(); //!
}""", ("threadIdx.x < 64", "big"), lambda: (f(64), e(64, n32))),
    Case("mask_of_half_a_warp", "warp-mask", """
@(const float* x, float* y) {
  float v = x[threadIdx.x];
  v += __shfl_xor_sync(0xffffffffu, v, 1); //!
  y[threadIdx.x] = v;
}""", ("0xffffffffu", "0x0000ffffu"), lambda: (f(32), e(32)), block=(32,)),
    Case("full_mask_in_half_a_warp", "warp-mask", """
@(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16)
    v += __shfl_xor_sync(0x0000ffffu, v, 1); //!
  __syncwarp(); //!
  y[threadIdx.x] = v;
}""", ("0x0000ffffu", "0xffffffffu"), lambda: (f(32), e(32)), block=(32,)),
    Case("shuffle_from_outside", "warp-mask", """
@(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 16)
    v = __shfl_sync(0xffffu, v, 3); //!
  y[threadIdx.x] = v;
}""", ("v, 3", "v, 20"), lambda: (f(32), e(32)), block=(32,)),
    Case("votes_and_shuffles", "warp-mask", """
@(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 32)
    v = __shfl_down_sync(0xffffffffu, v, 1); //!
  else
    v = (float)__ballot_sync(0xffffffffu, v > 1); //!
  y[threadIdx.x] = v;
}""", ("threadIdx.x < 32", "threadIdx.x < 16"), lambda: (f(32), e(32)), block=(32,)),
    Case("masks_that_overlap", "warp-mask", """
@(float* y) {
  unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  __syncwarp(mask); //!
  y[threadIdx.x] = 1;
  __syncwarp(); //!
}""", ("0x0000ffffu", "0x0001ffffu"), lambda: (e(32),), block=(32,)),
    Case("lane_beyond_the_block", "warp-mask", """
@(const float* x, float* y) {
  float v = x[threadIdx.x];
  y[threadIdx.x] = __shfl_sync(0xffffffffu, v, 15); //!
}""", ("v, 15", "v, 31"), lambda: (f(48), e(48)), block=(48,)),
    Case("vote_without_the_rest", "warp-mask", """
@(const float* x, float* y) {
  for (int k = threadIdx.x; k < 48; k += 64) {
    y[k] = __any_sync(k < 32 ? 0xffffffffu : 0x0000ffffu, x[k] > 3); //!
  }
  __syncthreads();
}""", ("k < 32 ? 0xffffffffu : 0x0000ffffu", "0xffffffffu"), lambda: (f(48), e(48))),
)

NUMBERS = (
    Case("product_of_extents", "overflow", """
@(const float* x, float* y, int rows, int columns) {
  long long k = (long long)rows * columns + threadIdx.x; //!
  if (k < 64) y[k] = x[k];
}""", ("(long long)rows", "rows"), lambda: (f(64), e(64), n32(100000), n32(100000))),
    Case("sum_of_indices", "overflow", """
@(float* y, int start) {
  long long k = (long long)start + (int)threadIdx.x; //!
  y[threadIdx.x] = k < 0;
}""", ("(long long)start", "start"), lambda: (e(64), n32(2**31 - 10))),
    Case("float_as_index", "conversion", """
@(const float* x, int* y) {
  y[threadIdx.x] = (int)(x[threadIdx.x] * 1e3f); //!
}""", ("1e3f", "1e10f"), lambda: (f(64), e(64, n32))),
    Case("shift_by_the_lane", "shift", """
@(int* y) {
  y[threadIdx.x] = (int)(1u << (threadIdx.x & 31)); //!
}""", ("threadIdx.x & 31", "threadIdx.x"), lambda: (e(64, n32),)),
    Case("quotient_by_zero", "division", """
@(const int* x, int* y) {
  y[threadIdx.x] = x[threadIdx.x] ? 100 / x[threadIdx.x] : 0; //!
}""", ("x[threadIdx.x] ? 100 / x[threadIdx.x] : 0", "100 / x[threadIdx.x]"),
         lambda: (i(*range(64)), e(64, n32))),
)

ENDS = (
    Case("deep_recursion", "stack-overflow", """
__device__ __noinline__ int descend(int n) {
  volatile int own[64];
  own[n & 63] = n; //!
  return n <= 0 ? 0 : descend(n - 1) + own[n & 63]; //!
}
@(int* y) {
  y[threadIdx.x] = descend(10); //!
}""", ("descend(10)", "descend(100000)"), lambda: (e(64, n32),)),
    Case("assertion", "assert", """
@(const float* x, float* y) {
  assert(x[threadIdx.x] < 64); //!
  y[threadIdx.x] = x[threadIdx.x];
}""", ("< 64", "< 63"), lambda: (f(64), e(64))),
    Case("gives_up", "trap", """
@(const float* x, float* y) {
  if (x[threadIdx.x] > 100) __trap(); //!
  y[threadIdx.x] = 1;
}""", ("> 100", "> 50"), lambda: (f(64), e(64))),
    Case("waits_for_a_block", "hang", """
@(volatile int* ready, float* y) {
  if (threadIdx.x == 0) ready[blockIdx.x] = 1;
  while (ready[blockIdx.x] == 0) {} //!
  y[blockIdx.x] = 1;
}""", ("ready[blockIdx.x] ==", "ready[1 - blockIdx.x] =="), lambda: (z(2, n32), e(2)), grid=(2,), block=(1,)),
    Case("much_shared_memory", "shared-limit", """
@(float* y) {
  __shared__ float s[6000], r[6000];
  s[threadIdx.x] = r[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x] + r[63 - threadIdx.x];
}""", ("s[6000], r[6000]", "s[8000], r[8000]"), lambda: (e(64),)),
)

CASES = RACES + BOUNDS + MEMORY + MEETINGS + NUMBERS + ENDS
