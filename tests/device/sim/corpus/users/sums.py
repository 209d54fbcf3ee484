"""Sums, scans and histograms of users."""

import numpy as np

from .case import SYNC, UserKernel, f, i32, k, o

# fmt: off
KERNELS = (
    UserKernel("tree_sum", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t]; //!
  __syncthreads(); // all
  for (int half = 32; half > 0; half /= 2) {
    if (t < half)
      s[t] += s[t + half]; //!
    __syncthreads(); // half
  }
  if (t == 0) y[blockIdx.x] = s[0]; //!
}""", lambda: (f(4, 64), o(4)), lambda x: x.sum(1), (
        ("uninitialised", SYNC + " // all", ""),
        ("race", SYNC + " // half", ""),
        ("race", "if (t == 0) y[blockIdx.x]", "y[blockIdx.x]"),
        ("out-of-bounds", "half = 32", "half = 64"),
    ), (), (4,)),
    UserKernel("volatile_sum", """
@(const float* x, float* y) {
  __shared__ volatile float s[64];
  int t = threadIdx.x;
  s[t] = x[t]; //!
  __syncthreads(); // all
  if (t < 32) {
    float v = s[t] + s[t + 32]; //!
    for (int o = 16; o > 0; o /= 2) {
      s[t] = v; //!
      __syncwarp(); // stored
      float other = s[t ^ o]; //!
      __syncwarp(); // read
      v += other;
    }
    if (t == 0) y[0] = v;
  }
}""", lambda: (f(64), o(1)), lambda x: x.sum(keepdims=True), (
        ("race", "__syncwarp(); // stored", ""),
        ("race", "__syncwarp(); // read", ""),
        ("uninitialised", SYNC + " // all", ""),
        ("race", "__syncwarp(); // read", "__syncwarp(1u << t);"),
    )),
    UserKernel("shuffle_sum", """
@(const float* x, float* y) {
  __shared__ float part[2];
  float v = x[threadIdx.x];
  for (int o = 16; o > 0; o /= 2)
    v += __shfl_down_sync(0xffffffffu, v, o); //!
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v; //!
  __syncthreads(); // parts
  if (threadIdx.x == 0) y[0] = part[0] + part[1]; //!
}""", lambda: (f(64), o(1)), lambda x: x.sum(keepdims=True), (
        ("warp-mask", "0xffffffffu", "0xffffu"),
        ("uninitialised", SYNC + " // parts", ""),
        ("race", "if (threadIdx.x % 32 == 0) part", "part"),
        ("out-of-bounds", "part[0] + part[1]", "part[0] + part[2]"),
        ("warp-mask", "v += __shfl", "if (threadIdx.x % 32 < 16) v += __shfl"),
        ("warp-mask", "__shfl_down_sync(0xffffffffu, v, o)",
         "__shfl_sync(__ballot_sync(~0u, threadIdx.x % 2), v, o)"),
    )),
    UserKernel("scan", """
@(const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x, from = 0;
  s[0][t] = x[t]; //!
  __syncthreads(); // first
  for (int o = 1; o < 64; o *= 2) {
    s[1 - from][t] = s[from][t] + (t >= o ? s[from][t - o] : 0); //!
    from = 1 - from;
    __syncthreads(); // step
  }
  y[t] = s[from][t]; //!
}""", lambda: (f(64), o(64)), np.cumsum, (
        ("race", SYNC + " // first", ""),
        ("uninitialised", SYNC + " // step", ""),
        ("out-of-bounds", "t >= o ? s[from][t - o] : 0", "s[from][t - o]"),
        ("race", "s[1 - from][t] =", "s[from][t] ="),
    )),
    UserKernel("blelloch", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[2 * t] = x[2 * t], s[2 * t + 1] = x[2 * t + 1]; //!
  for (int d = 32, o = 1; d > 0; d /= 2, o *= 2) {
    __syncthreads(); // up
    if (t < d) s[o * (2 * t + 2) - 1] += s[o * (2 * t + 1) - 1]; //!
  }
  if (t == 0) s[63] = 0; //!
  for (int d = 1, o = 32; d < 64; d *= 2, o /= 2) {
    __syncthreads(); // down
    if (t < d) {
      int a = o * (2 * t + 1) - 1, b = o * (2 * t + 2) - 1;
      float held = s[a]; //!
      s[a] = s[b], s[b] += held; //!
    }
  }
  __syncthreads(); // out
  y[2 * t] = s[2 * t], y[2 * t + 1] = s[2 * t + 1]; //!
}""", lambda: (f(64), o(64)), lambda x: np.cumsum(x) - x, (
        ("race", SYNC + " // up", "__syncwarp(1u << t);"),
        ("race", SYNC + " // down", "__syncwarp(1u << t);"),
        ("out-of-bounds", "(t < d) s[", "(t <= d) s["),
        ("race", "if (t == 0) s[63]", "if (t < 2) s[63]"),
    ), (), (1,), (32,)),
    UserKernel("histogram", """
@(const int* x, int* bins, int n) {
  __shared__ int own[8];
  if (threadIdx.x < 8) own[threadIdx.x] = 0; //!
  __syncthreads(); // zero
  for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += 128)
    atomicAdd(&own[x[i]], 1); //!
  __syncthreads(); // counted
  if (threadIdx.x < 8) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]); //!
}""", lambda: (k(8, 300), o(8, dtype=i32)), lambda x: np.bincount(x, minlength=8), (
        ("race", "atomicAdd(&own[x[i]], 1)", "own[x[i]]++"),
        ("race", SYNC + " // zero", "__syncwarp();"),
        ("race", SYNC + " // counted", ""),
        ("uninitialised", "own[threadIdx.x] = 0", "(void)0"),
        ("race", "atomicAdd(&bins[threadIdx.x], own[threadIdx.x])",
         "bins[threadIdx.x] += own[threadIdx.x]"),
        ("out-of-bounds", "own[8]", "own[7]"),
        ("out-of-bounds", "i < n", "i <= n"),
        ("out-of-bounds", "threadIdx.x < 8) atomicAdd", "threadIdx.x < 9) atomicAdd"),
    ), (i32(300),), (2,), zeroed=True),
    UserKernel("welford", """
struct Pair_ { float mean, m2; int count; };
__device__ Pair_ helper_merge(Pair_ a, Pair_ b) {
  int n = a.count + b.count;
  float d = b.mean - a.mean;
  if (!n) return a;
  return {a.mean + d * b.count / n, a.m2 + b.m2 + d * d * a.count * b.count / n, n};
}
@(const float* x, float* y, int n) {
  __shared__ Pair_ parts[32];
  int t = threadIdx.x;
  Pair_ own = {0, 0, 0};
  for (int i = t; i < n; i += 32)
    own = helper_merge(own, {x[i], 0, 1}); //!
  parts[t] = own; //!
  __syncthreads(); // parts
  for (int o = 16; o > 0; o /= 2) {
    if (t < o)
      parts[t] = helper_merge(parts[t], parts[t + o]); //!
    __syncthreads(); // merged
  }
  for (int i = t; i < n; i += 32)
    y[i] = (x[i] - parts[0].mean) * rsqrtf(parts[0].m2 / n + 1e-5f); //!
}""", lambda: (f(50), o(50)), lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-5), (
        ("uninitialised", SYNC + " // parts", "__syncwarp(1u << t);"),
        ("race", SYNC + " // merged", ""),
        ("out-of-bounds", "parts[t + o]", "parts[t + 2 * o]"),
        ("uninitialised", "parts[t] = own", "if (t) parts[t] = own"),
        ("out-of-bounds", "i < n; i += 32)\n    own", "i <= n + 31; i += 32)\n    own"),
    ), (i32(50),), (1,), (32,)),
    UserKernel("online_softmax", """
@(const float* x, float* y, int n) {
  __shared__ float best[64], sum[64];
  int t = threadIdx.x;
  const float* row = x + blockIdx.x * n;
  float m = -1e30f, s = 0;
  for (int i = t; i < n; i += 64) {
    float v = row[i], top = fmaxf(m, v); //!
    s = s * expf(m - top) + expf(v - top), m = top;
  }
  best[t] = m, sum[t] = s; //!
  for (int o = 32; o > 0; o /= 2) {
    __syncthreads(); // step
    if (t < o) {
      float top = fmaxf(best[t], best[t + o]); //!
      sum[t] = sum[t] * expf(best[t] - top) + sum[t + o] * expf(best[t + o] - top); //!
      best[t] = top; //!
    }
  }
  __syncthreads(); // all
  for (int i = t; i < n; i += 64)
    y[blockIdx.x * n + i] = expf(row[i] - best[0]) / sum[0]; //!
}""", lambda: (f(3, 100), o(3, 100)),
        lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True), (
        ("race", SYNC + " // all", ""),
        ("uninitialised", SYNC + " // step", "__syncwarp();"),
        ("out-of-bounds", "i < n; i += 64) {", "i <= n + 299; i += 64) {"),
        ("race", "y[blockIdx.x * n + i]", "y[i]"),
        ("uninitialised", "best[t] = m, sum[t] = s", "best[t] = m"),
        ("out-of-bounds", "o = 32", "o = 64"),
    ), (i32(100),), (3,)),
    UserKernel("dynamic_dot", """
@(const float* x, const float* y, float* out) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x] * y[threadIdx.x]; //!
  __syncthreads(); // all
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 64; ++i) sum += s[i]; //!
    out[0] = sum;
  }
}""", lambda: (f(64), f(64, seed=2), o(1)), lambda x, y: np.sum(x * y, keepdims=True), (
        ("uninitialised", SYNC + " // all", ""),
        ("out-of-bounds", "i < 64", "i < 65"),
        ("out-of-bounds", "s[threadIdx.x] =", "s[threadIdx.x + 1] ="),
    ), shared_mem=256),
    UserKernel("largest_by_cas", """
@(const float* x, float* best) {
  int* p = (int*)best;
  int seen = *(volatile int*)p; //!
  while (__int_as_float(seen) < x[blockIdx.x * 64 + threadIdx.x]) { //!
    int before = atomicCAS(p, seen, __float_as_int(x[blockIdx.x * 64 + threadIdx.x])); //!
    if (before == seen) break; //!
    seen = before; //!
  }
}""", lambda: (abs(f(128)), o(1)), lambda x: x.max(keepdims=True), (
        ("hang", "if (before == seen) break; //!\n    seen = before;", "if (before == -1) break;"),
        ("out-of-bounds", "seen) < x[blockIdx.x * 64", "seen) < x[blockIdx.x * 640"),
        ("race", "int before = atomicCAS(p, seen,", "int before = seen; *p = (seen,"),
    ), (), (2,), zeroed=True),
)
