"""Numbers out of range, and kernels that end badly or never."""

from .case import Case, e, f, i, n32, z

# fmt: off
CASES = (
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
    Case("deep_recursion", "stack-overflow", """
__device__ __noinline__ int descend(int n) { //!
  volatile int own[64]; //!
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
}""", ("ready[blockIdx.x] ==", "ready[1 - blockIdx.x] =="),
         lambda: (z(2, n32), e(2)), grid=(2,), block=(1,)),
    Case("computes_for_ever", "hang", """
@(const float* x, float* y) {
  float v = x[threadIdx.x];
  while (v < 1e30f) //!
    v = v * 1.5f + 0.001f; //!
  y[threadIdx.x] = v;
}""", ("1.5f", "0.999f"), lambda: (f(64), e(64))),
    Case("spins_for_a_lock", "hang", """
@(int* lock, float* y) {
  while (atomicCAS(lock, 0, 1) != 0) {} //!
  y[threadIdx.x] = 1;
  atomicExch(lock, 0);
}""", ("atomicExch(lock, 0);", ""), lambda: (i(0), e(64))),
    Case("static_and_dynamic_shared", "shared-limit", """
@(float* y) {
  __shared__ float s[6000];
  extern __shared__ float r[];
  s[threadIdx.x] = r[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x] + r[63 - threadIdx.x];
}""", ("", ""), lambda: (e(64),), shared_mem=24000, broken_shared_mem=32000),
    Case("much_shared_memory", "shared-limit", """
@(float* y) {
  __shared__ float s[6000], r[6000];
  s[threadIdx.x] = r[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x] + r[63 - threadIdx.x];
}""", ("s[6000], r[6000]", "s[8000], r[8000]"), lambda: (e(64),)),
)
