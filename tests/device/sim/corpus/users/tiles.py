"""Kernels of users that share tiles of an array."""

from typing import Any

import numpy as np

from .case import SYNC, UserKernel, f, i32, o


def gravity(body: Any) -> Any:
    d = body[None, :, :3] - body[:, None, :3]
    s = body[None, :, 3:] / ((d**2).sum(2, keepdims=True) + 0.1) ** 1.5
    return np.concatenate([(d * s).sum(1), np.zeros((len(body), 1))], 1)


def escapes(size: int, most: int) -> Any:
    count = np.zeros((size, size), i32)
    for r, c in np.ndindex(size, size):
        z, a = 0j, complex(c * 3 / size - 2, r * 2 / size - 1)
        while count[r, c] < most and abs(z) < 2:
            z, count[r, c] = z * z + a, count[r, c] + 1
    return count


# fmt: off
KERNELS = (
    UserKernel("tiled_matmul", """
@(const float* a, const float* b, float* c) {
  __shared__ float s[8][8], t[8][8];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, column = blockIdx.x * 8 + x;
  float sum = 0;
  for (int tile = 0; tile < 2; ++tile) {
    s[y][x] = a[row * 16 + tile * 8 + x]; //!
    t[y][x] = b[(tile * 8 + y) * 16 + column]; //!
    __syncthreads(); // loaded
    for (int i = 0; i < 8; ++i)
      sum += s[y][i] * t[i][x]; //!
    __syncthreads(); // used
  }
  c[row * 16 + column] = sum; //!
}""", lambda: (f(16, 16), f(16, 16, seed=2), o(16, 16)), lambda a, b: a @ b, (
        ("race", SYNC + " // used", ""),
        ("uninitialised", SYNC + " // loaded", ""),
        ("out-of-bounds", "i < 8; ++i", "i <= 8; ++i"),
        ("out-of-bounds", "tile < 2", "tile < 3"),
        ("race", "row * 16 + column] = sum", "y * 16 + x] = sum"),
        ("divergent-barrier", SYNC + " // used", "if (x < 4) __syncthreads(); //!"),
        ("out-of-bounds", "t[8][8]", "t[8][7]"),
    ), (), (2, 2), (8, 8)),
    UserKernel("transpose", """
@(const float* x, float* y, int rows, int columns) {
  __shared__ float tile[8][9];
  int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < columns)
    tile[threadIdx.y][threadIdx.x] = x[r * columns + c]; //!
  __syncthreads(); // tile
  int c2 = blockIdx.y * 8 + threadIdx.x, r2 = blockIdx.x * 8 + threadIdx.y;
  if (r2 < columns && c2 < rows)
    y[r2 * rows + c2] = tile[threadIdx.x][threadIdx.y]; //!
}""", lambda: (f(13, 10), o(10, 13)), lambda x: x.T, (
        ("uninitialised", SYNC + " // tile", ""),
        ("out-of-bounds", "if (r < rows && c < columns)", "if (c < columns)"),
        ("uninitialised", "if (r2 < columns && c2 < rows)", "if (r2 < columns)"),
        ("race", "y[r2 * rows + c2]", "y[r2 * rows]"),
    ), (i32(13), i32(10)), (2, 2), (8, 8)),
    UserKernel("stencil", """
@(const float* x, float* y, int h, int w) {
  __shared__ float s[10][10];
  int c = blockIdx.x * 8 + threadIdx.x - 1, r = blockIdx.y * 8 + threadIdx.y - 1;
  bool inside = r >= 0 && r < h && c >= 0 && c < w;
  s[threadIdx.y][threadIdx.x] = inside ? x[r * w + c] : 0; //!
  __syncthreads(); // tile
  int i = threadIdx.y, j = threadIdx.x;
  if (i > 0 && i < 9 && j > 0 && j < 9 && inside)
    y[r * w + c] = s[i][j - 1] + s[i][j + 1] + s[i - 1][j] + s[i + 1][j]; //!
}""", lambda: (f(16, 16), o(16, 16)),
        lambda x: (p := np.pad(x, 1))[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1], (
        ("uninitialised", SYNC + " // tile", ""),
        ("out-of-bounds", "r >= 0 && ", ""),
        ("out-of-bounds", "s[10][10]", "s[10][9]"),
        ("out-of-bounds", "i < 9 && ", ""),
        ("divergent-barrier", SYNC + " // tile", "if (inside) __syncthreads(); //!"),
        ("divergent-barrier", "  __syncthreads(); // tile",
         "  if (!inside) return;\n  __syncthreads(); //!"),
    ), (i32(16), i32(16)), (2, 2), (10, 10)),
    UserKernel("bodies", """
__device__ float3 helper_pull(float4 a, float4 b) {
  float3 d = make_float3(b.x - a.x, b.y - a.y, b.z - a.z);
  float r = rsqrtf(d.x * d.x + d.y * d.y + d.z * d.z + 0.1f), s = b.w * r * r * r;
  return make_float3(d.x * s, d.y * s, d.z * s);
}
@(const float4* body, float4* force, int n) {
  __shared__ float4 tile[16];
  int i = blockIdx.x * 16 + threadIdx.x;
  float3 sum = make_float3(0, 0, 0);
  for (int j = 0; j < n; j += 16) {
    tile[threadIdx.x] = body[j + threadIdx.x]; //!
    __syncthreads(); // loaded
    for (int m = 0; m < 16; ++m) {
      float3 pull = helper_pull(body[i], tile[m]); //!
      sum.x += pull.x, sum.y += pull.y, sum.z += pull.z;
    }
    __syncthreads(); // used
  }
  force[i] = make_float4(sum.x, sum.y, sum.z, 0); //!
}""", lambda: (abs(f(32, 4)), o(32, 4)), gravity, (
        ("uninitialised", SYNC + " // loaded", ""),
        ("race", SYNC + " // used", ""),
        ("out-of-bounds", "m < 16; ++m", "m <= 16; ++m"),
        ("out-of-bounds", "helper_pull(body[i]", "helper_pull(body[i + 16]"),
        ("misaligned", "force[i] =", "*(float4*)((float*)force + 4 * i + 1) ="),
        ("out-of-bounds", "j < n", "j <= n"),
    ), (i32(32),), (2,), (16,)),
    UserKernel("attention", """
@(const float* q, const float* key, const float* v, float* out) {
  __shared__ float ks[8][4], vs[8][4];
  int t = threadIdx.x;
  float own[4], sum[4] = {0, 0, 0, 0}, m = -1e30f, l = 0;
  for (int d = 0; d < 4; ++d) own[d] = q[t * 4 + d]; //!
  for (int tile = 0; tile < 16; tile += 8) {
    if (t < 8)
      for (int d = 0; d < 4; ++d)
        ks[t][d] = key[(tile + t) * 4 + d], vs[t][d] = v[(tile + t) * 4 + d]; //!
    __syncthreads(); // loaded
    for (int j = 0; j < 8; ++j) {
      float s = 0;
      for (int d = 0; d < 4; ++d) s += own[d] * ks[j][d]; //!
      float top = fmaxf(m, s), p = expf(s - top), shrink = expf(m - top);
      for (int d = 0; d < 4; ++d) sum[d] = sum[d] * shrink + p * vs[j][d]; //!
      l = l * shrink + p, m = top;
    }
    __syncthreads(); // used
  }
  for (int d = 0; d < 4; ++d) out[t * 4 + d] = sum[d] / l; //!
}""", lambda: (f(16, 4), f(16, 4, seed=2), f(16, 4, seed=3), o(16, 4)),
        lambda q, key, v: (e := np.exp(q @ key.T)) @ v / e.sum(1, keepdims=True), (
        ("uninitialised", SYNC + " // loaded", ""),
        ("race", SYNC + " // used", ""),
        ("uninitialised", "t < 8", "t < 7"),
        ("out-of-bounds", "t < 8", "t < 9"),
        ("out-of-bounds", "d < 4; ++d) s +=", "d <= 4; ++d) s +="),
        ("out-of-bounds", "tile < 16", "tile < 24"),
        ("race", "out[t * 4 + d]", "out[t + d]"),
    ), (), (1,), (16,)),
    UserKernel("mandelbrot", """
@(int* count, int size, int most) {
  int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (c >= size || r >= size) return;
  float x = 0, y = 0, a = c * 3.0f / size - 2, b = r * 2.0f / size - 1;
  int n = 0;
  while (n < most && x * x + y * y < 4) { //!
    float t = x * x - y * y + a; //!
    y = 2 * x * y + b, x = t, ++n; //!
  }
  count[r * size + c] = n; //!
}""", lambda: (o(12, 12, dtype=i32),), lambda: escapes(12, 50), (
        ("hang", "n < most && ", ""),
        ("out-of-bounds", "c >= size || r >= size", "c > size || r >= size"),
        ("out-of-bounds", "if (c >= size || r >= size) return;", ""),
        ("race", "r * size + c", "r + c"),
        ("hang", ", ++n", ""),
    ), (i32(12), i32(50)), (2, 2), (8, 8)),
)
