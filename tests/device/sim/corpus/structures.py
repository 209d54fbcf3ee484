"""Structures passed by value straight from memory, and arrays inside of structures."""

from .case import Case, e, f, i

# fmt: off
CASES = (
    Case("vector_by_value", "out-of-bounds", """
__device__ float ends(float4 v) { return v.x + v.w; }
@(const float4* x, float* y) {
  y[threadIdx.x] =
      ends(x[threadIdx.x % 8]); //!
}""", ("threadIdx.x % 8", "threadIdx.x"), lambda: (f(32), e(16)), block=(16,)),
    Case("sum_of_vectors", "out-of-bounds", """
__device__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
@(const float4* x, float4* y) {
  int k = threadIdx.x;
  y[k] = x[k]
      + x[(k + 1) % 16]; //!
}""", ("(k + 1) % 16", "k + 1"), lambda: (f(64), e(64)), block=(16,)),
    Case("tile_by_value", "race", """
__device__ float inner(float4 a, float4 b) { return a.x * b.x + a.w * b.w; }
@(const float4* x, float* y) {
  __shared__ float4 tile[16];
  tile[threadIdx.x] = x[threadIdx.x]; //!
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 16; ++k)
    sum += inner(tile[k], tile[threadIdx.x]); //!
  y[threadIdx.x] = sum;
  __syncthreads();
  tile[threadIdx.x] = make_float4(sum, sum, sum, sum); //!
}""", ("= sum;\n  __syncthreads();", "= sum;"), lambda: (f(64), e(16)), block=(16,)),
    Case("own_structure_by_value", "uninitialised", """
struct Moments { float mean, m2, count; };
__device__ Moments merge(Moments a, Moments b) {
  float n = a.count + b.count, d = b.mean - a.mean;
  return {a.mean + d * b.count / n, a.m2 + b.m2 + d * d * a.count * b.count / n, n};
}
@(const float* x, float* y) {
  __shared__ Moments parts[8];
  if (threadIdx.x < 8) parts[threadIdx.x] = {x[threadIdx.x], 0, 1};
  __syncthreads();
  Moments all = parts[0];
  for (int k = 1; k < 8; ++k)
    all = merge(all, parts[k]); //!
  y[threadIdx.x] = all.m2;
}""", ("threadIdx.x < 8", "threadIdx.x < 7"), lambda: (f(64), e(64))),
    Case("structure_off_by_some", "out-of-bounds", """
struct Point { float x, y, z, w; };
__device__ float height(Point p) { return p.z; }
@(const Point* points, float* y) {
  y[threadIdx.x] = height(points[threadIdx.x]); //!
}""", ("points[threadIdx.x]", "points[threadIdx.x + 1]"),
         lambda: (f(65)[1:], e(16)), block=(16,)),
    Case("array_at_the_end", "out-of-bounds", """
struct Taps { int count; float weight[4]; };
__device__ float weight(const Taps& taps, int k) {
  return taps.weight[k]; //!
}
@(const int* at, float* y) {
  Taps own = {4, {1, 2, 3, 4}};
  y[threadIdx.x] = weight(own, at[threadIdx.x] & 3);
}""", ("at[threadIdx.x] & 3", "at[threadIdx.x]"),
         lambda: (i(*(k % 5 for k in range(64))), e(64))),
)
