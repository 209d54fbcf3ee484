"""Groups of threads that work on one row and combine their results, as kernels of rows share
them."""

from __future__ import annotations

from math import prod

BLOCK = 256
THREADS = 1 << 18  # about as many as a large GPU runs at a time

# A group is one thread, a warp or a block. All threads of its warps take part in a shuffle, so a
# block has whole warps and its loops run equally often in all threads of a group.
GROUPS = r"""
template <typename Op> __device__ __forceinline__ typename Op::A combined(
    typename Op::A a, int lanes) {
  typedef typename Op::A A;
  if (lanes == 1) return a;
  for (int o = 16; o > 0; o >>= 1) a = Op::combine(a, Op::crossed(a, o));
  if (lanes == 32) return a;
  __shared__ A warps[32];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, count = blockDim.x >> 5;
  __syncthreads();
  if (lane == 0) warps[warp] = a;
  __syncthreads();
  a = warps[0];
  for (int w = 1; w < count; ++w) a = Op::combine(a, warps[w]);
  return a;
}
// The number of this thread's group among all groups of the grid, and how many there are.
__device__ __forceinline__ long long group_index(int lanes) {
  return ((long long)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
}
__device__ __forceinline__ long long group_count(int lanes) {
  return (long long)gridDim.x * blockDim.x / lanes;
}
// Group g of those that share rows of n elements, each row cut in `split` parts of `length`. Lone
// threads that are neighbours have rows that are, so that they read along with each other.
struct Part { long long row, number, begin, end; };
__device__ __forceinline__ Part part_of(
    long long g, long long rows, long long n, long long split, long long length, int lanes) {
  const long long number = lanes == 1 ? g / rows : g % split, begin = number * length;
  return {lanes == 1 ? g % rows : g / split, number, begin,
          begin + length < n ? begin + length : n};
}
template <typename S> struct Total {
  typedef S A;
  static __device__ __forceinline__ A combine(A a, A b) { return a + b; }
  static __device__ __forceinline__ A crossed(A a, int o) {
    return __shfl_xor_sync(0xffffffffu, a, o);
  }
};
"""


def lanes_for(length: int, neighbours: int) -> int:
    """How many threads share a row: one if rows are short or interleaved in memory, so that
    neighbouring threads read neighbouring elements; else a warp or a block."""
    if length <= 8 or (neighbours >= 32 and length <= 1024):
        return 1
    return 32 if length <= 2048 else BLOCK


def grid_for(groups: int, lanes: int) -> tuple[tuple[int], tuple[int]]:
    """Grid and block for that many groups of threads; at least one of each."""
    threads = max(groups, 1) * lanes
    block = BLOCK if lanes == BLOCK else min(BLOCK, -(-threads // 32) * 32)
    return (min(-(-threads // block), 1 << 20),), (block,)


def parts(rows: int, n: int, lanes: int) -> int:
    """The number of parts into which rows are cut to keep a GPU busy: THREADS threads with at least
    64 elements each."""
    return max(1, min(THREADS // max(rows * lanes, 1), n // (lanes * 64)))


def along(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, n, inner): element i of row (o, j) is number (o * n + i) * inner + j."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
