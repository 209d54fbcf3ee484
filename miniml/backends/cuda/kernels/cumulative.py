"""Running sums, products and extrema: threads, warps or blocks scan a row, or its parts.

The texts speak of sums: JOIN is what joins two of them, and NONE that of nothing. For a row that is
cut, the parts are summed first, then these sums are scanned; the last launch begins each part with
the sum before it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ....dtype import DType, int64, uint64
from ...expressions.types import accumulation, computed, ends
from ...kernel import Kernel, KernelNode
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import ANY, FLOAT, WHOLE, same
from ..text.groups import BLOCK, along, grid_for, parts
from ..text.source import unit

CHUNKS = 4  # of 32 elements, which a warp loads before it scans the first

# Every warp of a group scans 4 * 32 neighbours at a time, then adds the sums of the warps before
# it; `carry` is the sum before all of them.
TEXT = r"""
using namespace miniml;
struct Joined {
  typedef S A;
  static __device__ __forceinline__ A combine(A a, A b) { return JOIN(a, b); }
  static __device__ __forceinline__ A crossed(A a, int o) {
    return __shfl_xor_sync(0xffffffffu, a, o);
  }
};
__device__ __forceinline__ S scanned(S sum, int lane) {
  for (int o = 1; o < 32; o <<= 1) {
    const S before = __shfl_up_sync(0xffffffffu, sum, o);
    if (lane >= o) sum = JOIN(before, sum);
  }
  return sum;
}
// The sum of the warps before this one; *carry grows by the sum of all.
__device__ __forceinline__ S before_warp(S own, int lanes, S* carry) {
  S before = *carry;
  if (lanes == 32) {
    *carry = JOIN(*carry, own);
    return before;
  }
  __shared__ S warps[32];
  const int warp = threadIdx.x >> 5, count = blockDim.x >> 5;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) warps[warp] = own;
  __syncthreads();
  S all = before;
  for (int w = 0; w < count; ++w) {
    if (w == warp) before = all;
    all = JOIN(all, warps[w]);
  }
  *carry = all;
  return before;
}
template <typename A, typename B> __device__ __forceinline__ void scan_part(
    const A* x, B* out, long long begin, long long end, long long n, long long inner, S carry,
    int lanes, bool reverse, bool exclusive) {
  const int lane = threadIdx.x & 31, warp = lanes == 32 ? 0 : threadIdx.x >> 5;
  for (long long tile = begin; tile < end; tile += CHUNKS * lanes) {
    const long long first = tile + CHUNKS * 32 * warp + lane;
    S own[CHUNKS], total = NONE;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const long long i = first + 32 * c;
      own[c] = i < end ? S(load(x[(reverse ? n - 1 - i : i) * inner])) : NONE;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const S sum = scanned(own[c], lane), left = __shfl_up_sync(0xffffffffu, sum, 1);
      own[c] = JOIN(total, !exclusive ? sum : lane ? left : NONE);
      total = JOIN(total, S(__shfl_sync(0xffffffffu, sum, 31)));
    }
    const S before = before_warp(total, lanes, &carry);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const long long i = first + 32 * c;
      if (i < end) out[(reverse ? n - 1 - i : i) * inner] = store<B>(JOIN(before, own[c]));
    }
  }
}
extern "C" __global__ void scan(
    const T* x, OUT* out, const S* carries, Rows s, int lanes, int reverse, int exclusive) {
  for (long long g = group_index(lanes); g < s.rows * s.split; g += group_count(lanes)) {
    const Part p = part_of(g, s.rows, s.n, s.split, s.length, lanes);
    const long long base = p.row / s.inner * s.n * s.inner + p.row % s.inner;
    S carry = s.split > 1 ? carries[p.row * s.split + p.number] : NONE;
    if (lanes > 1) {
      scan_part(
          x + base, out + base, p.begin, p.end, s.n, s.inner, carry, lanes, reverse, exclusive);
      continue;
    }
    for (long long i = p.begin; i < p.end; ++i) {
      const long long at = base + (reverse ? s.n - 1 - i : i) * s.inner;
      const S sum = JOIN(carry, S(load(x[at])));
      out[at] = store<OUT>(exclusive ? carry : sum);
      carry = sum;
    }
  }
}
extern "C" __global__ void sum_parts(
    const T* x, S* sums, Rows s, int lanes, int reverse) {
  for (long long g = group_index(lanes); g < s.rows * s.split; g += group_count(lanes)) {
    const Part p = part_of(g, s.rows, s.n, s.split, s.length, lanes);
    const T* from = x + p.row / s.inner * s.n * s.inner + p.row % s.inner;
    S sum = NONE;
#pragma unroll 4
    for (long long i = p.begin + threadIdx.x % lanes; i < p.end; i += lanes)
      sum = JOIN(sum, S(load(from[(reverse ? s.n - 1 - i : i) * s.inner])));
    sum = combined<Joined>(sum, lanes);
    if (threadIdx.x % lanes == 0) sums[p.row * s.split + p.number] = sum;
  }
}
extern "C" __global__ void scan_sums(S* sums, long long rows, long long split) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    S* own = sums + row * split;
    scan_part(own, own, 0, split, split, 1, NONE, blockDim.x, false, true);
    __syncthreads();
  }
}
"""
ROWS = np.dtype([(f, np.int64) for f in "rows n inner split length".split()])


class Scan(Kernel):
    """What JOIN makes of the elements up to each one along an axis, in the type S."""

    join: ClassVar[str]
    none: ClassVar[str]
    wide: ClassVar[bool]

    def sum_type(self, dtype: DType) -> DType:
        """The dtype in which elements are joined; whole ones are wide, as shuffles need them."""
        if self.wide or dtype.kind not in "biu":
            return accumulation(dtype) if self.wide else computed(dtype)
        return uint64 if dtype.kind == "u" else int64

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        shape, dtype, _ = node.inputs[0]
        outer, n, inner = along(shape, node.attrs["axis"])
        rows = outer * inner
        self.lanes = 1 if inner >= 32 or n <= 8 else 32 if n <= 1024 else BLOCK
        self.split = parts(rows, n, self.lanes)
        length = -(-n // self.split)
        self.sizes = np.array([(rows, n, inner, self.split, length)], ROWS)
        self.flags = tuple(np.int32(node.attrs.get(f, 0)) for f in ("reverse", "exclusive"))
        self.sum_dtype = self.sum_type(dtype)
        out, (low, high) = node.outputs[0].dtype, ends(self.sum_dtype)
        texts = {"JOIN(a, b)": self.join, "NONE": self.none, "LOWEST": low, "HIGHEST": high}
        code = unit(TEXT, T=dtype, OUT=out, S=self.sum_dtype, CHUNKS=CHUNKS, Rows=ROWS, **texts)
        get = node.device.compiler.function
        names = ("scan", "sum_parts", "scan_sums") if self.split > 1 else ("scan",)
        self.scan, *self.more = [get(code, name) for name in names]

    def workspace(self) -> tuple[ArraySpec, ...]:
        rows = int(self.sizes["rows"][0])
        return (ArraySpec((rows * self.split if self.split > 1 else 1,), self.sum_dtype),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        x, sums, reverse = inputs[0].flat, workspace[0].flat, self.flags[0]
        rows, lanes = self.sizes["rows"][0], np.int32(self.lanes)
        grid, block = grid_for(int(rows) * self.split, self.lanes)
        if self.more:
            sum_parts, scan_sums = self.more
            sum_parts(grid, block, (x, sums, self.sizes, lanes, reverse))
            scan_sums(*grid_for(int(rows), BLOCK), (sums, rows, np.int64(self.split)))
        self.scan(grid, block, (x, outputs[0].flat, sums, self.sizes, lanes, *self.flags))


# What joins two, and what nothing gives; of extrema, in the type of the elements.
_JOINS = {
    "CumSum": ("S((a) + (b))", "S(0)", True),
    "CumProd": ("S((a) * (b))", "S(1)", True),
    "CumMax": ("nan_max(a, b)", "S(LOWEST)", False),
    "CumMin": ("nan_min(a, b)", "S(HIGHEST)", False),
}
for _name, (_join, _none, _wide) in _JOINS.items():
    _fields = {"join": _join, "none": _none, "wide": _wide, "__module__": __name__}
    _signatures = [*same(1, FLOAT), *WHOLE] if _wide else same(1, ANY)
    kernel(_name, "cuda", *_signatures)(type(_name, (Scan,), _fields))
