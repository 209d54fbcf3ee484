"""Accesses outside of what the kernel was given."""

import numpy as np

from .case import Case, e, f, i, n32

# fmt: off
CASES = (
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
    Case("shared_into_its_neighbour", "out-of-bounds", """
@(const float* x, float* y) {
  __shared__ float s[64], r[64];
  float* p = threadIdx.x < 32 ? s : r;
  int at = threadIdx.x % 32 + (int)x[threadIdx.x] % 2;
  r[threadIdx.x] = s[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % 2 == 0)
    p[at + 16] = 1; //!
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x] + r[threadIdx.x];
}""", ("p[at + 16]", "p[at + 48]"), lambda: (f(64), e(64))),
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
}""", ("bias ? v + bias[threadIdx.x] : v", "v + bias[threadIdx.x]"),
         lambda: (f(64), np.intp(0), e(64))),
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
