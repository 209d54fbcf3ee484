"""Threads that read and write one place without an order between them."""

import numpy as np

from .case import Case, e, f, i, n32, z

# fmt: off
CASES = (
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
}""", ("[x]; //!\n    __syncthreads();\n  }", "[x]; //!\n  }"),
         lambda: (f(128), f(128), e(64)), block=(8, 8)),
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
    Case("volatile_lanes", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  volatile float* v = s;
  int t = threadIdx.x;
  v[t] = x[t];
  __syncthreads();
  if (t < 32) {
    float sum = v[t] + v[t + 32]; //!
    __syncwarp();
    v[t] = sum; //!
    __syncwarp();
    sum += v[t ^ 16]; //!
    y[t] = sum;
  }
}""", ("v[t] = sum; //!\n    __syncwarp();", "v[t] = sum; //!"), lambda: (f(64), e(32))),
    Case("read_by_two_warps", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  y[t] = s[0]; //!
  __syncwarp();
  __syncthreads();
  if (t == 34) s[0] = 0; //!
}""", ("__syncwarp();\n  __syncthreads();", "__syncwarp();"), lambda: (f(64), e(64))),
    Case("read_by_two_warps_first_writes", "race", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  y[t] = s[0]; //!
  __syncwarp();
  __syncthreads();
  if (t == 2) s[0] = 0; //!
}""", ("__syncwarp();\n  __syncthreads();", "__syncwarp();"), lambda: (f(64), e(64))),
    Case("half_warps_in_step", "race", """
@(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = 0;
  __syncwarp();
  s[t] = x[t]; //!
  __syncwarp(0xffffffffu);
  y[t] = s[31 - t]; //!
}""", ("__syncwarp(0xffffffffu)", "__syncwarp(t < 16 ? 0xffffu : 0xffff0000u)"),
         lambda: (f(32), e(32)),
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
