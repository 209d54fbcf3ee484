"""Matrices of tensor cores, and shared arrays of 16-bit numbers."""

import numpy as np

from .case import Case, e, z

HALF = np.float16

# fmt: off
CASES = (
    Case("matrix_between_steps", "misaligned", """
#include <mma.h>
@(const __half* x, float* y) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> a;
  load_matrix_sync(a, x + 16, 16); //!
  y[threadIdx.x] = a.x[0];
}""", ("x + 16", "x + 8"), lambda: (z(272, HALF), e(32)), block=(32,)),
    Case("matrix_with_odd_rows", "misaligned", """
#include <mma.h>
@(float* y) {
  using namespace nvcuda::wmma;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  store_matrix_sync(y, sum, 20, mem_row_major); //!
}""", ("sum, 20", "sum, 17"), lambda: (e(320),), block=(32,)),
    Case("matrix_past_the_end", "out-of-bounds", """
#include <mma.h>
@(const __half* x, float* y) {
  using namespace nvcuda::wmma;
  fragment<matrix_b, 16, 16, 16, __half, col_major> b;
  load_matrix_sync(b, x, 16);
  y[threadIdx.x] = b.x[0];
}""", ("x, 16", "x + 16, 16"), lambda: (z(256, HALF), e(32)), block=(32,)),
    Case("matrix_of_half_a_warp", "warp-mask", """
#include <mma.h>
@(float* y) {
  using namespace nvcuda::wmma;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 1.0f);
  if (threadIdx.x < 32)
    store_matrix_sync(y, sum, 16, mem_row_major); //!
}""", ("threadIdx.x < 32", "threadIdx.x < 16"), lambda: (e(256),), block=(32,)),
    Case("matrix_read_at_once", "race", """
#include <mma.h>
@(float* y) {
  using namespace nvcuda::wmma;
  __shared__ __align__(32) float c[256];
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 1.0f);
  for (int k = threadIdx.x; k < 256; k += 32) c[k] = 0;
  __syncwarp();
  store_matrix_sync(c, sum, 16, mem_row_major); //!
  __syncwarp(0xffffffffu);
  y[threadIdx.x] = c[255 - threadIdx.x]; //!
}""", ("__syncwarp(0xffffffffu);", ""), lambda: (e(32),), block=(32,)),
    Case("halves_never_written", "uninitialised", """
@(const __half* x, __half* y) {
  __shared__ __half s[32];
  if (threadIdx.x < 32) s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[31 - threadIdx.x]; //!
}""", ("threadIdx.x < 32", "threadIdx.x < 31"), lambda: (z(32, HALF), e(32, HALF)), block=(32,)),
)
