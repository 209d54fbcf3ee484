"""Kernels of users over lists: elementwise, sorting, sparse rows, compaction."""

import numpy as np

from .case import SYNC, UserKernel, f, i32, k, o

# fmt: off
KERNELS = (
    UserKernel("saxpy", """
@(const float* x, const float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    z[i] = 2.0f * x[i] + y[i]; //!
}""", lambda: (f(100), f(100, seed=2), o(100)), lambda x, y: 2 * x + y, (
        ("out-of-bounds", "i < n", "i <= n"),
        ("out-of-bounds", "if (i < n)", ""),
        ("race", "blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
        ("out-of-bounds", "+ y[i]", "+ y[i + 1]"),
        ("out-of-bounds", "x[i]", "x[i - 1]"),
        ("uninitialised", "+ y[i]", "+ z[i]"),
    ), (i32(100),), (2,)),
    UserKernel("grid_stride", """
@(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) //!
    y[i] = sqrtf(fabsf(x[i])); //!
}""", lambda: (f(300), o(300)), lambda x: np.sqrt(abs(x)), (
        ("race", "i += blockDim.x * gridDim.x", "i += blockDim.x"),
        ("out-of-bounds", "i < n;", "i < n + blockDim.x;"),
        ("hang", "i += blockDim.x * gridDim.x", "i += 0"),
        ("overflow", "i < n; i += blockDim.x * gridDim.x", "n - i > 0; i += 2147483647"),
    ), (i32(300),), (2,)),
    UserKernel("bitonic_sort", """
@(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t]; //!
  for (int size = 2; size <= 64; size *= 2)
    for (int o = size / 2; o > 0; o /= 2) { //!
      __syncthreads(); // step //!
      int other = t ^ o; //!
      if (other > t) { //!
        float a = s[t], b = s[other]; //!
        if ((a > b) == ((t & size) == 0)) s[t] = b, s[other] = a; //!
      }
    }
  __syncthreads(); // sorted
  y[t] = s[t]; //!
}""", lambda: (f(64), o(64)), np.sort, (
        ("uninitialised", SYNC + " // step", "//!"),
        ("race", SYNC + " // sorted", ""),
        ("race", "if (other > t)", "if (o)"),
        ("out-of-bounds", "int other = t ^ o", "int other = t + size"),
        ("hang", "o > 0; o /= 2", "o > 0; o |= 1"),
    )),
    UserKernel("sparse_rows", """
@(const int* start, const int* column, const float* value, const float* x, float* y, int rows) {
  int r = blockIdx.x * 32 + threadIdx.x;
  if (r < rows) {
    float sum = 0;
    for (int i = start[r]; i < start[r + 1]; ++i)  //!
      sum += value[i] * x[column[i]]; //!
    y[r] = sum; //!
  }
}""", lambda: (np.arange(0, 123, 3).astype(i32), k(50, 120), f(120), f(50, seed=3), o(40)),
        lambda s, c, v, x: (v * x[c]).reshape(40, 3).sum(1), (
        ("out-of-bounds", "r < rows", "r <= rows"),
        ("out-of-bounds", "x[column[i]]", "x[column[i] + 10]"),
        ("out-of-bounds", "start[r + 1]", "start[r + 2]"),
        ("race", "y[r] = sum", "y[r / 2] = sum"),
        ("const-write", "y[r] = sum", "const_cast<float*>(x)[r] = sum"),
        ("hang", "++i)  //!\n      sum += value[i] * x[column[i]]",
         ")  //!\n      sum += value[i] * x[column[i]]"),
    ), (i32(40),), (2,), (32,)),
    UserKernel("compaction", """
@(const int* x, int* count, int* kept) {
  int v = x[threadIdx.x];
  unsigned lanes = __ballot_sync(0xffffffffu, v % 2); //!
  int lane = threadIdx.x % 32, start = 0;
  if (lane == 0) start = atomicAdd(count, __popc(lanes)); //!
  start = __shfl_sync(0xffffffffu, start, 0); //!
  if (v % 2) kept[start + __popc(lanes & ((1u << lane) - 1))] = v; //!
}""", lambda: (np.arange(64).astype(i32), o(1, dtype=i32), o(64, dtype=i32)),
        lambda x, c: np.concatenate([x[x % 2 == 1], np.zeros(32, i32)]), (
        ("shift", "1u << lane", "1u << threadIdx.x"),
        ("warp-mask", "v % 2) kept", "__any_sync(0xffffu, v)) kept"),
        ("warp-mask", "unsigned lanes = __ballot_sync(0xffffffffu",
         "unsigned lanes = __ballot_sync(0xfffffffeu"),
        ("race", "start = atomicAdd(count, __popc(lanes))",
         "start = *count, *count += __popc(lanes)"),
        ("race", "kept[start + ", "kept["),
        ("warp-mask", "start = __shfl_sync", "if (v % 2) start = __shfl_sync"),
    ), zeroed=True),
    UserKernel("quantised", """
@(const float* x, signed char* y, float scale) {
  int i = threadIdx.x;
  float v = fminf(fmaxf(rintf(x[i] / scale), -127.0f), 127.0f); //!
  y[i] = (signed char)v; //!
}""", lambda: (f(64), o(64, dtype=np.int8)),
        lambda x: np.clip(np.rint(x / np.float32(0.01)), -127, 127).astype(np.int8), (
        ("conversion", "fminf(fmaxf(rintf(x[i] / scale), -127.0f), 127.0f)",
         "rintf(x[i] / scale) * 1e9f"),
        ("conversion", "(signed char)v", "(signed char)(int)(v / (scale - scale))"),
        ("division", "(signed char)v", "(signed char)((int)v / (int)scale)"),
    ), (np.float32(0.01),)),
)
