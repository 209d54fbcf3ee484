"""Convolution and its two transposes as products of matrices that are never stored.

Of each group, a is the matrix that is in memory (filters, or dout), b the one whose columns are
gathered from images while tiles of both are loaded to shared memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

STEP = 16  # the depth of a tile: products summed at a time
FORWARD, INPUT, WEIGHT = range(3)

# Row k of b stands for a tap (or, for the weights, a pixel of dout) of one channel, a column for
# a pixel (a tap). a[i, k] = left[begin + i * a_step + row.a]; an element of b is that pixel of the
# plane at column.base + row.b where the two shifts meet; product [i, j] goes to
# column.out + i * out_step.
TILES = r"""
struct Row { long long a, b; int y, x; };
struct Column { long long base, out; int y, x; };
__device__ __forceinline__ Row row_of(const Window& s, int k) {
  const long long inner = s.c / s.groups;
  const int pixels = (int)(s.oh * s.ow), taps = (int)(s.kh * s.kw);
  Row r;
  if (KIND == WEIGHT) {
    const int image = k / pixels, p = k % pixels;
    r.a = image * s.o * pixels + p, r.b = image * s.c * s.h * s.w;
    r.y = p / (int)s.ow * (int)s.sh, r.x = p % (int)s.ow * (int)s.sw;
    return r;
  }
  const int channel = k / taps, tap = k % taps;
  const int dy = tap / (int)s.kw * (int)s.dh, dx = tap % (int)s.kw * (int)s.dw;
  if (KIND == FORWARD) {
    r.a = k, r.b = channel * s.h * s.w, r.y = dy, r.x = dx;
  } else {
    r.a = channel * inner * taps + tap, r.b = channel * s.oh * s.ow;
    r.y = -dy, r.x = -dx;
  }
  return r;
}
__device__ __forceinline__ Column column_of(const Window& s, int group, int j) {
  const long long outer = s.o / s.groups, inner = s.c / s.groups;
  Column c;
  if (KIND == WEIGHT) {
    const int taps = (int)(s.kh * s.kw), channel = j / taps, tap = j % taps;
    c.base = (group * inner + channel) * s.h * s.w, c.out = group * outer * inner * taps + j;
    c.y = tap / (int)s.kw * (int)s.dh - (int)s.top;
    c.x = tap % (int)s.kw * (int)s.dw - (int)s.left;
    return c;
  }
  const int width = (int)(KIND == FORWARD ? s.ow : s.w);
  const int pixels = (int)(KIND == FORWARD ? s.oh : s.h) * width;
  const int image = j / pixels, p = j % pixels;
  if (KIND == FORWARD) {
    c.base = (image * s.c + group * inner) * s.h * s.w;
    c.out = (image * s.o + group * outer) * pixels + p;
    c.y = p / width * (int)s.sh - (int)s.top, c.x = p % width * (int)s.sw - (int)s.left;
  } else {
    c.base = (image * s.o + group * outer) * s.oh * s.ow;
    c.out = (image * s.c + group * inner) * pixels + p;
    c.y = p / width + (int)s.top, c.x = p % width + (int)s.left;
  }
  return c;
}
__device__ __forceinline__ C gathered(
    const T* images, const Window& s, const Row& r, const Column& c) {
  int y = r.y + c.y, x = r.x + c.x;
  if (y < 0 || x < 0) return C(0);
  if (KIND == INPUT) {
    const int sh = (int)s.sh, sw = (int)s.sw;
    if (y % sh || x % sw || y / sh >= s.oh || x / sw >= s.ow) return C(0);
    return load(images[c.base + r.b + (long long)(y / sh) * s.ow + x / sw]);
  }
  return y < s.h && x < s.w ? load(images[c.base + r.b + (long long)y * s.w + x]) : C(0);
}
// A block of 256 threads computes M x N products, a thread 4 x 4 of them; M * N is 4096.
template <int M, int N> __device__ __forceinline__ void tile(
    const T* left, const T* images, T* out, C* parts, const Window& s, const Product& p,
    long long number) {
  __shared__ Row rows[STEP];
  __shared__ Pack<C, 4> as[STEP][M / 4 + 1], bs[STEP][N / 4];
  const int t = threadIdx.x, tiles_m = (p.m + M - 1) / M, tiles_n = (p.n + N - 1) / N;
  const int m0 = (int)(number % tiles_m) * M, n0 = (int)(number / tiles_m % tiles_n) * N;
  const int group = (int)(number / tiles_m / tiles_n % p.groups);
  const int part = (int)(number / tiles_m / tiles_n / p.groups), begin = part * p.length;
  const int end = begin + p.length < p.k ? begin + p.length : p.k;
  const int column = n0 + t % N, i0 = t / (N / 4) * 4, j0 = t % (N / 4) * 4;
  const Column own = column_of(s, group, column < p.n ? column : 0);
  const T* a = left + group * p.a_group;
  C sums[4][4] = {};
  for (int k0 = begin; k0 < end; k0 += STEP) {
    if (t < STEP) rows[t] = row_of(s, k0 + t < end ? k0 + t : begin);
    __syncthreads();
    const int ka = t % STEP;
    for (int i = t / STEP; i < M; i += 256 / STEP)
      as[ka][i / 4].at[i % 4] =
          m0 + i < p.m && k0 + ka < end ? load(a[(m0 + i) * p.a_step + rows[ka].a]) : C(0);
    for (int k = t / N; k < STEP; k += 256 / N)
      bs[k][t % N / 4].at[t % 4] =
          column < p.n && k0 + k < end ? gathered(images, s, rows[k], own) : C(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEP; ++k) {
      const Pack<C, 4> x = as[k][i0 / 4], y = bs[k][j0 / 4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += x.at[i] * y.at[j];
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (n0 + j0 + j >= p.n) continue;
    const Column to = column_of(s, group, n0 + j0 + j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (m0 + i0 + i >= p.m) continue;
      const long long at = to.out + (m0 + i0 + i) * p.out_step;
      if (p.split > 1) parts[part * p.size + at] = sums[i][j];
      else out[at] = store<T>(sums[i][j]);
    }
  }
}
extern "C" __global__ void __launch_bounds__(256, 2) tiles_64(
    const T* left, const T* images, T* out, C* parts, Window s, Product p, long long tiles) {
  for (long long g = blockIdx.x; g < tiles; g += gridDim.x)
    tile<64, 64>(left, images, out, parts, s, p, g);
}
extern "C" __global__ void __launch_bounds__(256, 2) tiles_32(
    const T* left, const T* images, T* out, C* parts, Window s, Product p, long long tiles) {
  for (long long g = blockIdx.x; g < tiles; g += gridDim.x)
    tile<32, 128>(left, images, out, parts, s, p, g);
}
extern "C" __global__ void sum_parts(const C* parts, T* out, Product p) {
  MINIML_FOR(i, p.size) {
    C sum = C(0);
    for (int part = 0; part < p.split; ++part) sum += parts[part * p.size + i];
    out[i] = store<T>(sum);
  }
}
"""
NAMES = {"STEP": STEP, "FORWARD": FORWARD, "INPUT": INPUT, "WEIGHT": WEIGHT}
_LONG, _SHORT = ("a_step", "out_step", "a_group", "size"), "m n k groups split length".split()
PRODUCT = np.dtype([*((f, np.int64) for f in _LONG), *((f, np.int32) for f in _SHORT)])


class Tiled(NamedTuple):
    """The launch of a convolution by tiles."""

    entry: str
    grid: tuple[int]
    product: Any
    tiles: np.int64
    split: int


def tiled(kind: int, window: Any) -> Tiled | None:
    """How to compute a convolution by tiles; None if it is too small for them, or has too many rows
    or columns for 32 bits.

    The weights' gradient has few elements and long sums: these are cut into parts.
    """
    s = {name: int(window[name][0]) for name in window.dtype.names}
    outer, inner, taps = s["o"] // s["groups"], s["c"] // s["groups"], s["kh"] * s["kw"]
    pixels, plane = s["oh"] * s["ow"], s["h"] * s["w"]
    m, n, k, a_step, out_step, a_group = {
        FORWARD: (outer, s["n"] * pixels, inner * taps, inner * taps, pixels, outer * inner * taps),
        INPUT: (inner, s["n"] * plane, outer * taps, taps, plane, outer * inner * taps),
        WEIGHT: (outer, inner * taps, s["n"] * pixels, pixels, inner * taps, outer * pixels),
    }[kind]
    if m < 8 or n < 16 or k < STEP or max(n, k) >= 1 << 31:
        return None
    entry, high, wide = ("tiles_64", 64, 64) if m > 32 else ("tiles_32", 32, 128)
    tiles = -(-m // high) * -(-n // wide) * s["groups"]
    split = max(1, min(512 // tiles, k // (8 * STEP))) if kind == WEIGHT else 1
    length = -(-k // (split * STEP)) * STEP
    split = -(-k // length)
    size = s["o"] * inner * taps
    fields = (a_step, out_step, a_group, size, m, n, k, s["groups"], split, length)
    record, count = np.array([fields], PRODUCT), tiles * split
    return Tiled(entry, (min(count, 1 << 20),), record, np.int64(count), split)
