"""Barriers and functions of a warp that not all reach."""

from .case import Case, e, f, i, n32

# fmt: off
CASES = (
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
    Case("two_barriers_on_one_line", "divergent-barrier", """
@(float* y) {
  if (threadIdx.x < 64) __syncthreads(); else __syncthreads(); //!
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
