"""Sorting: bitonic networks in shared memory for runs of a row, then merges of pairs of runs; and
searching in rows that are sorted.

Sorting is stable. Of TopK's rows every run keeps its first k elements only, so that the merges are
short.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....dtype import int32, uint32, uint64
from ...expressions.types import computed
from ...kernel import Kernel, KernelNode, Launch
from ...registry import kernel, raw_kernel
from ...signature import ArraySpec
from ...typecodes import ANY
from ..text.groups import along
from ..text.layout import spread
from ..text.source import unit

RUN = 1024  # elements that a block sorts, two for each thread
PART = 2048  # elements of a block's part of a merge
PER_THREAD = 8  # threads; a block has at least two warps, which find the part's ends
MANY = 1 << 20  # blocks of a grid; each block loops over its share of more work
FIELDS = "n inner rows keep length runs slot pitch merged_slot merged_pitch descending".split()
SHAPE = np.dtype([(field, np.int64) for field in FIELDS])

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
    """One launch."""

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
            NUMBER=self.number, RUN=RUN, PART=PART, PER_THREAD=PER_THREAD, Shape=SHAPE,
        )  # fmt: skip
        self.functions = [node.device.compiler.function(code, p.entry) for p in self.passes]

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
            record, last = np.array([fields], SHAPE), new.number == 1
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


# A thread finds the place of one value, of which there are `each` to a row.
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
