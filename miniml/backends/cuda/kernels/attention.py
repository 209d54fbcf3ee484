"""CUDA attention in tiles of 32 queries and 32 keys, whose scores stay in registers.

Source: Dao et al. 2022, "FlashAttention". A block of four warps takes a tile of rows and goes
through the columns tile by tile; a warp has eight of the rows, a lane one of the columns. Rows are
queries and columns keys, but the other way round for the gradients of keys and values, so that
no block adds to what another one writes.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ....core.signature import ATTENTION, ATTENTION_GRAD, ATTENTION_MASK_GRAD, FLOAT, with_sums
from ...kernel import Kernel, KernelNode
from ...product import broadcast_steps, dense_strides, merged
from ...registry import kernel
from ..text.source import bounded, layout, spread, unit
from .random import PHILOX

TEXT = (
    PHILOX
    + r"""
#define TILE 32
#define OWN 8  // rows of a warp
typedef T_OUT0 T;
struct Call {
  const T *q, *k, *v;
  const Mask* mask;
  const unsigned long long* state;
};
__device__ __forceinline__ REAL masked(REAL score, bool sees) {
  return sees ? score : REAL(-INFINITY);
}
__device__ __forceinline__ REAL masked(REAL score, T bias) { return score + load(bias); }
__device__ __forceinline__ REAL seen(
    REAL score, const Call& c, const Sizes& s, long long at, long long i, long long j) {
  if (i >= s.t || j >= s.s || (s.causal && j > i)) return -INFINITY;
  return masked(score * REAL(s.scale), c.mask[at + i * s.mask_row + j * s.mask_column]);
}
// 1 / (1 - dropout) for a weight that stays, else 0: the draw of Bernoulli.
__device__ __noinline__ REAL factor(
    const Call& c, const Sizes& s, long long batch, long long i, long long j) {
  if (!s.drops || i >= s.t || j >= s.s) return REAL(1);
  const unsigned long long e = (batch * s.t + i) * s.s + j;
  const Words w = philox(c.state[0], c.state[1] + s.skip + e / 4);
  return (long long)(w.w[e % 4] >> 8) < s.threshold ? REAL(s.factor) : REAL(0);
}
__device__ __forceinline__ REAL fetched(
    const T* x, long long row, long long rows, long long column, long long columns) {
  return row < rows && column < columns ? REAL(load(x[row * columns + column])) : REAL(0);
}
// sums[r] = row `row + r` of x times row `column + lane` of y.
__device__ __forceinline__ void products(
    const T* x, long long rows, long long row, const T* y, long long columns, long long column,
    long long depth, REAL (*left)[TILE + 1], REAL (*right)[TILE + 1], REAL* sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = 0; r < OWN; ++r) sums[r] = REAL(0);
  for (long long d = 0; d < depth; d += TILE) {
    __syncthreads();
    for (int r = warp; r < TILE; r += 4) {
      left[r][lane] = fetched(x, row + r, rows, d + lane, depth);
      right[r][lane] = fetched(y, column + r, columns, d + lane, depth);
    }
    __syncthreads();
    for (int l = 0; l < TILE; ++l)
      for (int r = 0; r < OWN; ++r) sums[r] += left[warp * OWN + r][l] * right[lane][l];
  }
}
// sums[r][c] += the weights of row r times column `first + 32 c + lane` of y.
__device__ __forceinline__ void gather(
    const REAL* own, const T* y, long long rows, long long row, long long width, long long first,
    REAL (*left)[TILE + 1], REAL (*right)[TILE + 1], REAL (*sums)[PARTS]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  for (int r = 0; r < OWN; ++r) left[warp * OWN + r][lane] = own[r];
  for (int c = 0; c < PARTS && first + c * 32 < width; ++c) {
    __syncthreads();
    for (int r = warp; r < TILE; r += 4)
      right[r][lane] = fetched(y, row + r, rows, first + c * 32 + lane, width);
    __syncthreads();
    for (int l = 0; l < TILE; ++l)
      for (int r = 0; r < OWN; ++r) sums[r][c] += left[warp * OWN + r][l] * right[l][lane];
  }
}
__device__ __forceinline__ void put(
    T* out, long long rows, long long row, long long width, long long first,
    REAL (*sums)[PARTS], const REAL* scale) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = 0; r < OWN; ++r)
    for (int c = 0; c < PARTS; ++c) {
      const long long i = row + warp * OWN + r, column = first + c * 32 + lane;
      if (i < rows && column < width) out[i * width + column] = store<T>(sums[r][c] * scale[r]);
    }
}
// Which tile of rows a block has, of which matrix, and from which column of the output on.
struct Share { long long batch, row, first; };
__device__ __forceinline__ Share share_of(const Sizes& s, long long rows) {
  const long long tiles = (rows + TILE - 1) / TILE, n = blockIdx.x;
  return {n / tiles / s.splits, n % tiles * TILE, n / tiles % s.splits * PARTS * 32};
}
extern "C" __global__ void attend(
    const T* q, const T* k, const T* v, const Mask* mask, const unsigned long long* state, T* out,
    REAL* lse, Sizes s, Layout<1> where) {
  __shared__ REAL left[TILE][TILE + 1], right[TILE][TILE + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Share at = share_of(s, s.t);
  const Call c = {q + at.batch * s.t * s.e, k + at.batch * s.s * s.e, v + at.batch * s.s * s.f,
                  mask, state};
  long long mask_at;
  locate(where, at.batch, &mask_at);
  REAL sums[OWN][PARTS] = {}, x[OWN], best[OWN], total[OWN];
  for (int r = 0; r < OWN; ++r) best[r] = -INFINITY, total[r] = REAL(0);
  const long long past = s.causal && at.row + TILE < s.s ? at.row + TILE : s.s;
  for (long long j = 0; j < past; j += TILE) {
    products(c.q, s.t, at.row, c.k, s.s, j, s.e, left, right, x);
    for (int r = 0; r < OWN; ++r) {
      const long long i = at.row + warp * OWN + r;
      x[r] = seen(x[r], c, s, mask_at, i, j + lane);
      const REAL top = combined<Largest<REAL> >(x[r], 32), peak = top > best[r] ? top : best[r];
      const REAL base = peak == REAL(-INFINITY) ? REAL(0) : peak, fade = exp(best[r] - base);
      x[r] = exp(x[r] - base);
      total[r] = total[r] * fade + combined<Total<REAL> >(x[r], 32);
      for (int p = 0; p < PARTS; ++p) sums[r][p] *= fade;
      best[r] = peak;
      x[r] *= factor(c, s, at.batch, i, j + lane);
    }
    gather(x, c.v, s.s, j, s.f, at.first, left, right, sums);
  }
  for (int r = 0; r < OWN; ++r) {
    const long long i = at.row + warp * OWN + r;
    const bool empty = total[r] == REAL(0);
    if (lane == 0 && at.first == 0 && i < s.t)
      lse[at.batch * s.t + i] = empty ? REAL(INFINITY) : best[r] + log(total[r]);
    x[r] = REAL(1) / (empty ? REAL(1) : total[r]);
  }
  put(out + at.batch * s.t * s.f, s.t, at.row, s.f, at.first, sums, x);
}
enum { OF_Q, OF_K, OF_V };
template <int OF> __device__ __forceinline__ void pull(
    const T* q, const T* k, const T* v, const Mask* mask, const unsigned long long* state,
    const REAL* lse, const REAL* delta, const T* dout, T* out, const Sizes& s,
    const Layout<1>& where) {
  __shared__ REAL left[TILE][TILE + 1], right[TILE][TILE + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long rows = OF == OF_Q ? s.t : s.s, columns = OF == OF_Q ? s.s : s.t;
  const Share at = share_of(s, rows);
  const Call c = {q + at.batch * s.t * s.e, k + at.batch * s.s * s.e, v + at.batch * s.s * s.f,
                  mask, state};
  dout += at.batch * s.t * s.f;
  lse += at.batch * s.t;
  delta += at.batch * s.t;
  const T *a = OF == OF_Q ? c.q : c.k, *b = OF == OF_Q ? c.k : c.q;
  const T *x = OF == OF_Q ? dout : c.v, *y = OF == OF_Q ? c.v : dout;
  long long mask_at;
  locate(where, at.batch, &mask_at);
  REAL sums[OWN][PARTS] = {}, w[OWN], z[OWN];
  const long long width = OF == OF_V ? s.f : s.e;
  const bool cut = OF == OF_Q && s.causal && at.row + TILE < columns;
  const long long begin = OF != OF_Q && s.causal ? at.row : 0;
  for (long long column = begin; column < (cut ? at.row + TILE : columns); column += TILE) {
    products(a, rows, at.row, b, columns, column, s.e, left, right, w);
    if (OF != OF_V) products(x, rows, at.row, y, columns, column, s.f, left, right, z);
    for (int r = 0; r < OWN; ++r) {
      const long long m = at.row + warp * OWN + r, n = column + lane;
      const long long i = OF == OF_Q ? m : n, j = OF == OF_Q ? n : m;
      const bool inside = i < s.t && j < s.s;
      const REAL weight = inside ? exp(seen(w[r], c, s, mask_at, i, j) - lse[i]) : REAL(0);
      const REAL kept = factor(c, s, at.batch, i, j);
      if (OF == OF_V) w[r] = weight * kept;
      else w[r] = inside ? weight * (kept * z[r] - delta[i]) : REAL(0);
    }
    gather(w, OF == OF_V ? dout : b, columns, column, width, at.first, left, right, sums);
  }
  for (int r = 0; r < OWN; ++r) z[r] = OF == OF_V ? REAL(1) : REAL(s.scale);
  put(out + at.batch * rows * width, rows, at.row, width, at.first, sums, z);
}
#define PULL(NAME, OF)                                                                          \
  extern "C" __global__ void NAME(                                                              \
      const T* q, const T* k, const T* v, const Mask* mask, const unsigned long long* state,    \
      const REAL* lse, const REAL* delta, const T* dout, T* out, Sizes s, Layout<1> where) {    \
    pull<OF>(q, k, v, mask, state, lse, delta, dout, out, s, where);                            \
  }
PULL(pull_q, OF_Q)
PULL(pull_k, OF_K)
PULL(pull_v, OF_V)
__device__ __forceinline__ REAL dot(const T* x, const T* y, long long n) {
  REAL sum = REAL(0);
  for (long long i = 0; i < n; ++i) sum += REAL(load(x[i])) * REAL(load(y[i]));
  return sum;
}
// A thread for an element of the mask: the sum over all scores that it is added to.
extern "C" __global__ void pull_mask(
    const T* q, const T* k, const T* v, const Mask* mask, const unsigned long long* state,
    const REAL* lse, const REAL* delta, const T* dout, T* out, Sizes s, Layout<1> where,
    long long n) {
  const Call c = {q, k, v, mask, state};
  MINIML_FOR(m, n) {
    const long long plane = s.mask_rows * s.mask_columns, at = m / plane * plane;
    const long long row = (m - at) / s.mask_columns, column = m % s.mask_columns;
    REAL sum = REAL(0);
    for (long long b = 0; b < s.batches; ++b) {
      long long here;
      locate(where, b, &here);
      if (here != at) continue;
      for (long long i = s.mask_rows == 1 ? 0 : row; i < (s.mask_rows == 1 ? s.t : row + 1); ++i)
        for (long long j = s.mask_columns == 1 ? 0 : column;
             j < (s.mask_columns == 1 ? s.s : column + 1); ++j) {
          const long long query = b * s.t + i, key = b * s.s + j;
          const REAL score = dot(q + query * s.e, k + key * s.e, s.e);
          const REAL slope = dot(dout + query * s.f, v + key * s.f, s.f);
          const REAL weight = exp(seen(score, c, s, at, i, j) - lse[query]);
          sum += weight * (factor(c, s, b, i, j) * slope - delta[query]);
        }
    }
    out[m] = store<T>(sum);
  }
}
"""
)
_COUNTS = (
    "t s e f batches splits mask_row mask_column mask_rows mask_columns causal drops threshold"
)
SIZES = np.dtype(
    [(name, np.int64) for name in _COUNTS.split()]
    + [("skip", np.uint64), ("scale", np.float64), ("factor", np.float64)]
)
PARTS = 4  # times 32 columns of the output that a block sums in registers


class Attend(Kernel):
    """One launch for each output, with a block for 32 of its rows and up to 128 of its columns."""

    entries: ClassVar[tuple[str, ...]] = ("attend",)

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        q, _, v, mask = (x.shape for x in node.inputs[:4])
        self.lead, (t, e), (s, f) = q[:-2], q[-2:], v[-2:]
        rows, columns = ((1, 1) + mask)[-2:]
        full = (*self.lead, t, s)
        *lead, row, column = broadcast_steps(mask, full, dense_strides(mask, 1))
        axes = merged(self.lead, [tuple(lead)])
        self.where = layout(bounded(axes, node.name))
        self.batches = math.prod(self.lead)
        attrs = node.attrs
        kept = 1.0 - attrs["dropout"]
        # In the order of the fields.
        self.sizes = np.array(
            [(
                t, s, e, f, self.batches, 1, row, column, rows, columns, attrs["causal"],
                kept < 1.0, math.ceil(kept * 2.0**24), attrs["skip"], attrs["scale"],
                1.0 / kept if kept else 0.0,
            )],
            SIZES,
        )  # fmt: skip
        self.parts = min(PARTS, -(-max(e, f, 1) // 32))
        dtypes = {"T_OUT0": node.inputs[0].dtype, "Mask": node.inputs[3].dtype}
        code = unit(TEXT, **dtypes, Sizes=SIZES, PARTS=self.parts)
        self.functions = node.device.compiler.functions(code, *self.entries)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        self.one(0, inputs, outputs, outputs[0].shape)

    def one(self, number: int, inputs: Any, outputs: Any, shape: tuple[int, ...]) -> None:
        """Launch for an output of that shape, unless there is nothing in any."""
        rows, width = shape[-2:]
        sizes = self.sizes.copy()
        sizes["splits"] = splits = max(-(-width // (32 * self.parts)), 1)
        grid = self.batches * -(-rows // 32) * splits
        if grid:
            arrays = [a.flat for a in (*inputs, *outputs)]
            self.functions[number]((grid,), (128,), (*arrays, sizes, self.where))


class Pull(Attend):
    entries = ("pull_q", "pull_k", "pull_v")

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        for number, out in enumerate(outputs):
            if 0 not in out.shape:
                self.one(number, inputs, (out,), out.shape)


class PullMask(Attend):
    entries = ("pull_mask",)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        n = math.prod(outputs[0].shape)
        arrays = [a.flat for a in (*inputs, *outputs)]
        self.functions[0](*spread(n, 1), (*arrays, self.sizes, self.where, np.int64(n)))


NAME = "ScaledDotProductAttention"
kernel(NAME, "cuda", *with_sums(FLOAT, *ATTENTION))(Attend)
kernel(f"{NAME}Grad", "cuda", *with_sums(FLOAT, *ATTENTION_GRAD))(Pull)
kernel(f"{NAME}MaskGrad", "cuda", *with_sums(FLOAT, *ATTENTION_MASK_GRAD))(PullMask)
