"""CUDA reductions, scans and sorting along axes.

Parts: reductions of rows of elements, each by its entry in `expressions.reduce`; scans, the running
sums, products and extrema; sorting and searching.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....core.abstract import ArraySpec, DType, int32, int64, uint8, uint32, uint64
from ....core.signature import ANY, FLOAT, INT, WHOLE, same
from ...expressions import ROWS, Row, accumulation, computed, ends
from ...kernel import Kernel, KernelNode, Launch
from ...product import Axis, dense_strides
from ...registry import kernel, raw_kernel
from ..text.source import (
    BLOCK,
    along,
    grid_for,
    lanes_for,
    layout,
    merged,
    parts,
    spread,
    structure,
    unit,
)

# --- Reductions -----------------------------------------------------------------------------------


PACK = 16  # bytes that a thread loads at once

REDUCTION = r"""
__device__ __forceinline__ OUT finished(Op::A a, long long n) {
  (void)n; return store<OUT>(RESULT(FINISH));
}
// Where element i of a row is; without a loop where one step says it, so that loads overlap.
template <bool ONE_STEP> __device__ __forceinline__ long long address_of(
    const Layout<1>& over, long long i) {
  long long address;
  if (ONE_STEP) return over.start[0] + i * over.step[0][0];
  locate(over, i, &address);
  return address;
}
// Elements [begin, end) of a row: packs of neighbours if they come in such, then single ones.
template <bool ONE_STEP> __device__ __forceinline__ Op::A taken(
    const IN* x, const Layout<1>& over, long long begin, long long end, int lane, int lanes,
    bool packed) {
  Op::A a = Op::identity();
  if (packed && begin < end) {
    const long long rest = end - (end - begin) % WIDTH;
#pragma unroll (ONE_STEP ? 8 : 1)
    for (long long i = begin + WIDTH * lane; i < rest; i += WIDTH * lanes) {
      typedef Pack<IN, WIDTH> Taken;
      const Taken pack = *(const Taken*)(x + (ONE_STEP ? i : address_of<false>(over, i)));
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) a = Op::combine(a, Op::element(load(pack.at[v]), i + v));
    }
    begin = rest;
  }
#pragma unroll (ONE_STEP ? 8 : 1)
  for (long long i = begin + lane; i < end; i += lanes)
    a = Op::combine(a, Op::element(load(x[address_of<ONE_STEP>(over, i)]), i));
  return a;
}
extern "C" __global__ void reduce_elements(
    const IN* x, OUT* out, unsigned char* scratch, Layout<1> kept, Layout<1> over, Shape s,
    int lanes, int packed) {
  const int lane = threadIdx.x % lanes;
  for (long long g = group_index(lanes); g < s.outer * s.split; g += group_count(lanes)) {
    const Part p = part_of(g, s.outer, s.n, s.split, s.length, lanes);
    long long base;
    locate(kept, p.row, &base);
    Op::A a = over.rank == 1 ? taken<true>(x + base, over, p.begin, p.end, lane, lanes, packed)
                             : taken<false>(x + base, over, p.begin, p.end, lane, lanes, packed);
    a = combined<Op>(a, lanes);
    if (lane == 0) {
      if (s.split > 1) ((Op::A*)scratch)[p.row * s.split + p.number] = a;
      else out[p.row] = finished(a, s.n);
    }
  }
}
extern "C" __global__ void reduce_parts(const unsigned char* scratch, OUT* out, Shape s) {
  const int lane = threadIdx.x % 32;
  const Op::A* parts = (const Op::A*)scratch;
  for (long long row = group_index(32); row < s.outer; row += group_count(32)) {
    Op::A a = Op::identity();
    for (long long i = lane; i < s.split; i += 32) a = Op::combine(a, parts[row * s.split + i]);
    a = combined<Op>(a, 32);
    if (lane == 0) out[row] = finished(a, s.n);
  }
}
"""
SHAPE = np.dtype([(f, np.int64) for f in ("outer", "n", "split", "length")])


class Reduce(Kernel):
    """A reduction of one row: a group of threads for each output, or, where outputs are few and
    long, several groups whose parts a second launch combines."""

    row: ClassVar[Row]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        shape, dtype, _ = node.inputs[0]
        axes = reduced_axes(node)
        kept = tuple(i for i in range(len(shape)) if i not in axes)
        outer, n = prod(shape[i] for i in kept), prod(shape[i] for i in axes)
        steps = dense_strides(shape, 1)
        kept_axes, over = (
            merged(tuple(shape[i] for i in of), [tuple(steps[i] for i in of)], node.name)
            for of in (kept, axes)
        )
        self.where = layout(kept_axes), layout(over)
        self.width = packable(kept_axes, over, n, PACK // dtype.itemsize)
        neighbours = prod(shape[max(axes, default=-1) + 1 :])
        self.lanes = 1 if neighbours >= 8 else lanes_for(n, neighbours)
        self.split = parts(outer, n, self.lanes)
        length = -(-n // (self.split * self.width)) * self.width
        self.outer, self.sizes = outer, np.array([(outer, n, self.split, length)], SHAPE)
        code = reduction_text(self.row, dtype, node.outputs[0].dtype)
        names = ("reduce_elements", "reduce_parts")[: 1 + (self.split > 1)]
        self.functions = node.device.compiler.functions(code, *names)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((16 * self.outer * self.split if self.split > 1 else 16,), uint8),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (x,), (out,), (scratch,) = inputs, outputs, workspace
        first, *more = self.functions
        packed = np.int32(self.width > 1 and x.offset % 16 == 0)
        rest = *self.where, self.sizes, np.int32(self.lanes), packed
        first(
            *grid_for(self.outer * self.split, self.lanes), (x.flat, out.flat, scratch.flat, *rest)
        )
        for second in more:
            second(*grid_for(self.outer, 32), (scratch.flat, out.flat, self.sizes))


def packable(kept: list[Axis], over: list[Axis], n: int, width: int) -> int:
    """`width` if the reduced rows consist of whole packs of that many neighbours, else 1."""
    (extent, (step,)), rest = over[-1], [*kept, *over[:-1]]
    whole = extent % width == 0 or (len(over) == 1 and kept[0][0] == 1)
    apart = any(step % width for _, (step,) in rest)
    return width if whole and step == 1 and not apart and n >= width else 1


def reduced_axes(node: KernelNode) -> tuple[int, ...]:
    """The axes of the input that the output does not have, ascending."""
    shape = node.inputs[0].shape
    if node.name == "SumTo":
        target = node.outputs[0].shape
        lead = len(shape) - len(target)
        ones = (lead + i for i, n in enumerate(target) if n == 1 and shape[lead + i] != 1)
        return (*range(lead), *ones)
    axis = node.attrs["axis"]
    if axis is None:
        return tuple(range(len(shape)))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(a % len(shape) for a in axes))


def reduction_text(row: Row, dtype: DType, out: DType) -> str:
    """The unit of a reduction of one dtype."""
    whole = row.value == "S" and out.kind in "iu"
    text = f"using namespace miniml;\n{structure('Op', row, dtype)}{REDUCTION}"
    return unit(
        text, IN=dtype, OUT=out, C=computed(dtype), S=accumulation(dtype), FINISH=row.finish,
        RESULT=uint64 if whole else computed(out), WIDTH=PACK // dtype.itemsize, Shape=SHAPE,
    )  # fmt: skip


for _names, _signatures in (
    ("Sum Prod", same(1, FLOAT) + WHOLE),
    ("SumTo", same(1, FLOAT + INT)),
    ("Mean LogSumExp", same(1, FLOAT)),
    ("Max Min", same(1, ANY)),
    ("ArgMax ArgMin", same(1, ANY, "l")),
    ("Any All", same(1, ANY, "?")),
):
    for _name in _names.split():
        _class = type(_name, (Reduce,), {"row": ROWS[_name], "__module__": __name__})
        kernel(_name, "cuda", *_signatures)(_class)


# --- Scans ----------------------------------------------------------------------------------------


# Threads, warps or blocks scan a row, or its parts. The texts speak of sums: JOIN combines two of
# them, and NONE is the empty one. For a row that is cut, the parts are summed first, then these
# sums are scanned; the last launch begins each part with the sum before it.

CHUNKS = 4  # of 32 elements, which a warp loads before it scans the first

# Every warp of a group scans 4 * 32 neighbours at a time, then adds the sums of the warps before
# it; `carry` is the sum before all of them.
SCAN = r"""
using namespace miniml;
struct Joined : OfNumbers<S> {
  static __device__ __forceinline__ S combine(S a, S b) { return JOIN(a, b); }
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
SCANNED = np.dtype([(f, np.int64) for f in "rows n inner split length".split()])


class Scan(Kernel):
    """The elements up to each one along an axis, combined by JOIN in the type S."""

    join: ClassVar[str]
    none: ClassVar[str]
    wide: ClassVar[bool]

    def sum_type(self, dtype: DType) -> DType:
        """The dtype in which elements are joined; integers are wide, as shuffles require."""
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
        self.sizes = np.array([(rows, n, inner, self.split, length)], SCANNED)
        self.flags = tuple(np.int32(node.attrs.get(f, 0)) for f in ("reverse", "exclusive"))
        self.sum_dtype = self.sum_type(dtype)
        out, (low, high) = node.outputs[0].dtype, ends(self.sum_dtype)
        texts = {"JOIN(a, b)": self.join, "NONE": self.none, "LOWEST": low, "HIGHEST": high}
        code = unit(SCAN, T=dtype, OUT=out, S=self.sum_dtype, CHUNKS=CHUNKS, Rows=SCANNED, **texts)
        names = ("scan", "sum_parts", "scan_sums") if self.split > 1 else ("scan",)
        self.functions = node.device.compiler.functions(code, *names)

    def workspace(self) -> tuple[ArraySpec, ...]:
        rows = int(self.sizes["rows"][0])
        return (ArraySpec((rows * self.split if self.split > 1 else 1,), self.sum_dtype),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        x, sums, reverse = inputs[0].flat, workspace[0].flat, self.flags[0]
        rows, lanes = self.sizes["rows"][0], np.int32(self.lanes)
        grid, block = grid_for(int(rows) * self.split, self.lanes)
        scan, *more = self.functions
        if more:
            sum_parts, scan_sums = more
            sum_parts(grid, block, (x, sums, self.sizes, lanes, reverse))
            scan_sums(*grid_for(int(rows), BLOCK), (sums, rows, np.int64(self.split)))
        scan(grid, block, (x, outputs[0].flat, sums, self.sizes, lanes, *self.flags))


# JOIN, NONE, and False for extrema, which have the type of the elements.
_JOINS = {
    "CumSum": ("S((a) + (b))", "S(0)", True),
    "CumProd": ("S((a) * (b))", "S(1)", True),
    "LogCumSumExp": ("log_add(S(a), S(b))", "-INFINITY", True),
    "CumMax": ("nan_max(a, b)", "S(LOWEST)", False),
    "CumMin": ("nan_min(a, b)", "S(HIGHEST)", False),
}
for _name, (_join, _none, _wide) in _JOINS.items():
    _fields = {"join": _join, "none": _none, "wide": _wide, "__module__": __name__}
    _whole = WHOLE if _wide and _name != "LogCumSumExp" else []
    _signatures = [*same(1, FLOAT), *_whole] if _wide else same(1, ANY)
    kernel(_name, "cuda", *_signatures)(type(_name, (Scan,), _fields))


# --- Sorting and searching ------------------------------------------------------------------------


# Bitonic networks in shared memory sort runs of a row, then pairs of runs are merged. Sorting is
# stable. Of TopK's rows every run keeps its first k elements only, so that the merges are short.

RUN = 1024  # elements that a block sorts, two for each thread
PART = 2048  # elements of a block's part of a merge
PER_THREAD = 8  # threads; a block has at least two warps, which find the part's ends
MANY = 1 << 20  # blocks of a grid; each block loops over its share of more work
FIELDS = "n inner rows keep length runs slot pitch merged_slot merged_pitch descending".split()
ROWS_OF_SORT = np.dtype([(field, np.int64) for field in FIELDS])

# A KEY is the type in which elements are compared, at least 4 bytes: narrower ones share banks of
# shared memory. A NUMBER is an element's number in its row.
COMMON = r"""
using namespace miniml;
// NaN counts as the largest.
__device__ __forceinline__ bool smaller(KEY a, KEY b) { return a < b || (is_nan(b) && !is_nan(a)); }
__device__ __forceinline__ bool before(KEY a, KEY b, bool descending) {
  return descending ? smaller(b, a) : smaller(a, b);
}
__device__ __forceinline__ long long least(long long a, long long b) { return a < b ? a : b; }
// How many elements a run of the row has, of those that are kept.
__device__ __forceinline__ long long kept(const Shape& s, long long run) {
  return run < s.runs ? least(s.keep, least(s.length, s.n - run * s.length)) : 0;
}
// Where element i of a run goes: to workspace, where rows are contiguous, or to the output.
__device__ __forceinline__ long long goes(
    const Shape& s, bool last, long long row, long long run, long long i, long long slot,
    long long pitch) {
  if (!last) return row * pitch + run * slot + i;
  return (row / s.inner * s.keep + i) * s.inner + row % s.inner;
}
"""

# Threads exchange pairs that are `apart` slots apart; up to 32, they are a warp's own 64 slots.
SORT_RUNS = r"""
template <typename I> __device__ __forceinline__ void sorted_runs(
    const T* x, T* values, I* indices, const Shape& s, int width, int count, bool last) {
  __shared__ KEY keys[RUN];
  __shared__ int own[RUN];
  const bool descending = s.descending != 0, side_by_side = s.inner > 1;
  const int size = width * count, t = threadIdx.x;
  const long long total = s.rows * s.runs, groups = (total + count - 1) / count;
  for (long long group = blockIdx.x; group < groups; group += gridDim.x) {
    for (int e = t; e < size; e += blockDim.x) {
      const int which = side_by_side ? e % count : e / width;
      const int i = side_by_side ? e / count : e % width;
      const long long g = group * count + which, row = g / s.runs, run = g % s.runs;
      const long long at = run * s.length + i;
      const bool inside = g < total && at < s.n;
      keys[which * width + i] =
          inside ? KEY(load(x[(row / s.inner * s.n + at) * s.inner + row % s.inner])) : KEY(0);
      own[which * width + i] = i;
    }
    const long long mine = (group * count + 2 * t / width) % s.runs;
    const int present = (int)least(s.length, s.n - mine * s.length);
    int previous = 64;
    for (int block = 2; block <= width; block *= 2) {
      for (int apart = block / 2; apart > 0; apart /= 2) {
        if (apart > 32 || previous > 32) __syncthreads();
        else __syncwarp();
        previous = apart;
        if (2 * t >= size) continue;
        const int a = 2 * t - (t & (apart - 1)), b = a + apart;
        const KEY x0 = keys[a], x1 = keys[b];
        const int i0 = own[a], i1 = own[b];
        bool wrong;  // the second comes first; what fills the run up stays behind
        if (i0 >= present || i1 >= present) wrong = i1 < i0;
        else wrong = before(x1, x0, descending) || (!before(x0, x1, descending) && i1 < i0);
        if (wrong == ((a & (width - 1) & block) == 0)) {
          keys[a] = x1, keys[b] = x0;
          own[a] = i1, own[b] = i0;
        }
      }
    }
    __syncthreads();
    for (int e = t; e < size; e += blockDim.x) {
      const int which = side_by_side ? e % count : e / width;
      const int i = side_by_side ? e / count : e % width;
      const long long g = group * count + which, row = g / s.runs, run = g % s.runs;
      if (g >= total || i >= kept(s, run)) continue;
      const long long to = goes(s, last, row, run, i, s.slot, s.pitch);
      values[to] = store<T>(keys[which * width + i]);
      indices[to] = I(run * s.length + own[which * width + i]);
    }
    __syncthreads();
  }
}
extern "C" __global__ void sort_runs(
    const T* x, T* values, NUMBER* indices, Shape s, int width, int count) {
  sorted_runs(x, values, indices, s, width, count, false);
}
extern "C" __global__ void sort_rows(
    const T* x, T* values, long long* indices, Shape s, int width, int count) {
  sorted_runs(x, values, indices, s, width, count, true);
}
"""

# `taken` finds how many of the first d elements of a merge come from a, by bisection.
MERGE_RUNS = r"""
template <typename A> __device__ __forceinline__ long long taken(
    const A* a, long long a_size, const A* b, long long b_size, long long d, bool descending) {
  long long low = d > b_size ? d - b_size : 0, high = d < a_size ? d : a_size;
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (before(KEY(load(b[d - 1 - middle])), KEY(load(a[middle])), descending)) high = middle;
    else low = middle + 1;
  }
  return low;
}
template <typename I> __device__ __forceinline__ void merged_runs(
    const T* x, const NUMBER* numbers, T* values, I* indices, const Shape& s, bool last) {
  __shared__ KEY keys[PART];
  __shared__ int from[PART];
  __shared__ long long ends[2];
  const bool descending = s.descending != 0;
  const long long pairs = (s.runs + 1) / 2, parts = (s.merged_slot + PART - 1) / PART;
  const int t = threadIdx.x;
  for (long long g = blockIdx.x; g < s.rows * pairs * parts; g += gridDim.x) {
    const long long row = g / (pairs * parts), pair = g / parts % pairs;
    const long long a_size = kept(s, 2 * pair), b_size = kept(s, 2 * pair + 1);
    const long long total = least(s.keep, a_size + b_size);
    const long long begin = least(g % parts * PART, total), end = least(begin + PART, total);
    const T* a = x + row * s.pitch + 2 * pair * s.slot;
    const T* b = b_size ? a + s.slot : a;
    const NUMBER* a_numbers = numbers + (a - x);
    const NUMBER* b_numbers = numbers + (b - x);
    if (t % 32 == 0 && t < 64)
      ends[t / 32] = taken(a, a_size, b, b_size, t ? end : begin, descending);
    __syncthreads();
    const long long a_begin = ends[0], b_begin = begin - a_begin;
    const int size = (int)(end - begin), split = (int)(ends[1] - a_begin);
    for (int i = t; i < size; i += blockDim.x)
      keys[i] = KEY(load(i < split ? a[a_begin + i] : b[b_begin + i - split]));
    __syncthreads();
    const int first = t * PER_THREAD;
    if (first < size) {
      int i = (int)taken(keys, split, keys + split, size - split, first, descending);
      int j = split + first - i;
      for (int e = first; e < first + PER_THREAD && e < size; ++e) {
        const bool second = i >= split || (j < size && before(keys[j], keys[i], descending));
        from[e] = second ? j++ : i++;
      }
    }
    __syncthreads();
    for (int e = t; e < size; e += blockDim.x) {
      const int i = from[e];
      const long long to = goes(s, last, row, pair, begin + e, s.merged_slot, s.merged_pitch);
      values[to] = store<T>(keys[i]);
      indices[to] = I(i < split ? a_numbers[a_begin + i] : b_numbers[b_begin + i - split]);
    }
    __syncthreads();
  }
}
extern "C" __global__ void merge_runs(
    const T* x, const NUMBER* numbers, T* values, NUMBER* indices, Shape s) {
  merged_runs(x, numbers, values, indices, s, false);
}
extern "C" __global__ void merge_last(
    const T* x, const NUMBER* numbers, T* values, long long* indices, Shape s) {
  merged_runs(x, numbers, values, indices, s, true);
}
"""


_SIGNATURES = [f"{c}->{c}l" for c in ANY]


class Runs(NamedTuple):
    """The sorted runs of each row: run r of row i begins at i * pitch + r * slot."""

    length: int
    number: int
    slot: int
    pitch: int


def runs_of(n: int, keep: int, length: int) -> Runs:
    """Rows of n elements in runs of `length`, each of which keeps `keep` elements."""
    number, slot = -(-n // length), min(length, keep)
    return Runs(length, number, slot, min(n, number * slot))


class SortPass(NamedTuple):
    """One launch of a sort."""

    entry: str
    grid: tuple[int]
    block: tuple[int]
    args: tuple[Any, ...]


@kernel("Sort", "cuda", *_SIGNATURES)
@kernel("TopK", "cuda", *_SIGNATURES)
class Sorting(Kernel):
    """Sorted rows, or the first k elements of each."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        shape, dtype, _ = node.inputs[0]
        attrs = node.attrs
        outer, n, inner = along(shape, attrs["axis"])
        keep = attrs.get("k", n)
        descending = attrs["largest" if "k" in attrs else "descending"]
        self.dtype, self.number = dtype, uint32 if n <= 1 << 32 else uint64
        self.scratch = [0, 0]  # elements of the two workspaces between which merges alternate
        self.passes = self.plan(n, inner, outer * inner, keep, descending) if n * keep else []
        narrow = dtype.kind in "biu" and dtype.itemsize < 4
        code = unit(
            COMMON + SORT_RUNS + MERGE_RUNS, T=dtype, KEY=int32 if narrow else computed(dtype),
            NUMBER=self.number, RUN=RUN, PART=PART, PER_THREAD=PER_THREAD, Shape=ROWS_OF_SORT,
        )  # fmt: skip
        self.functions = node.device.compiler.functions(code, *(p.entry for p in self.passes))

    def plan(self, n: int, inner: int, rows: int, keep: int, descending: bool) -> list[SortPass]:
        """The launches, of which the last one fills the outputs."""
        width = max(2, 1 << (min(n, RUN) - 1).bit_length())
        count = max(1, min(256 // width, 1 << (rows - 1).bit_length()))
        lengths = [RUN]
        while lengths[-1] < n:
            lengths.append(2 * lengths[-1])
        passes = []
        for i, after in enumerate(lengths):
            old, new = runs_of(n, keep, lengths[max(i - 1, 0)]), runs_of(n, keep, after)
            fields = (n, inner, rows, keep, *old, *new[2:], descending)
            record, last = np.array([fields], ROWS_OF_SORT), new.number == 1
            if i:
                blocks, threads = rows * new.number * -(-new.slot // PART), PART // PER_THREAD
                entry = "merge_last" if last else "merge_runs"
                args: tuple[Any, ...] = (record,)
            else:
                blocks, threads = -(-rows * new.number // count), max(32, width * count // 2)
                entry = "sort_rows" if last else "sort_runs"
                args = record, np.int32(width), np.int32(count)
            passes.append(SortPass(entry, (min(blocks, MANY),), (threads,), args))
            if not last:
                self.scratch[i % 2] = max(self.scratch[i % 2], rows * new.pitch)
        return passes

    def workspace(self) -> tuple[ArraySpec, ...]:
        sizes = [size for size in self.scratch if size]
        return tuple(ArraySpec((size,), d) for size in sizes for d in (self.dtype, self.number))

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        buffers = [[a.flat for a in workspace[i : i + 2]] for i in (0, 2)]
        source = [inputs[0].flat]
        for i, (step, function) in enumerate(zip(self.passes, self.functions, strict=True)):
            last = i == len(self.passes) - 1
            target = [a.flat for a in outputs] if last else buffers[i % 2]
            function(step.grid, step.block, (*source, *target, *step.args))
            source = target


# A thread finds the insertion index of one value; a row has `each` of them.
SEARCH = r"""
using namespace miniml;
typedef Compute<T_IN0>::type KEY;
__device__ __forceinline__ bool smaller(KEY a, KEY b) { return a < b || (is_nan(b) && !is_nan(a)); }
extern "C" __global__ void search(
    const T_IN0* x, const T_IN1* values, T_OUT0* out, long long n, long long each, int right,
    long long count) {
  MINIML_FOR(i, count) {
    const KEY value = load(values[i]);
    const T_IN0* row = x + i / each * n;
    long long low = 0, high = n;
    while (low < high) {
      const long long middle = (low + high) / 2;
      const KEY found = load(row[middle]);
      if (right ? smaller(value, found) : !smaller(found, value)) high = middle;
      else low = middle + 1;
    }
    out[i] = low;
  }
}
"""


def search(node: KernelNode) -> Launch:
    x, values = (a.shape for a in node.inputs)
    count, right = prod(values), np.int32(node.attrs["side"] == "right")
    each = count if len(x) == 1 else values[-1]
    return Launch(*spread(count), (np.int64(x[-1]), np.int64(each), right, np.int64(count)))


_PAIRS = [f"{c}{c}->l" for c in ANY]
raw_kernel("SearchSorted", *_PAIRS, entry="search", source=SEARCH, launch=search)
