"""Softmax, its logarithm and layer normalisation: a group of threads for each row.

A group of a warp or a block reads its row once and keeps it in shared memory if it fits; longer
rows, and rows that are not contiguous, are read again.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...kernel import KernelNode, Launch
from ...registry import raw_kernel
from ...typecodes import FLOAT
from ..text.groups import BLOCK, along, grid_for

SHARED = 40 * 1024  # bytes that a block keeps of rows; with what it exchanges less than 48 KiB

# V elements at a time: packs where a row has whole ones (side_by_side), else V is 1. A lane keeps
# only elements that it reads again itself, so that no barrier is needed.
ROWS = r"""
using namespace miniml;
typedef Compute<T>::type C;
#define WIDTH (16 / (int)sizeof(C))
__device__ __forceinline__ bool side_by_side(const void* x, long long n) {
  return n % WIDTH == 0 && (unsigned long long)x % (WIDTH * sizeof(T)) == 0;
}
template <int V> __device__ __forceinline__ Pack<C, V> fetched(
    const T* x, long long i, long long step) {
  Pack<C, V> r;
  if constexpr (V == 1) {
    r.at[0] = load(x[i * step]);
  } else {
    const Pack<T, V> pack = *(const Pack<T, V>*)(x + i);
    for (int v = 0; v < V; ++v) r.at[v] = load(pack.at[v]);
  }
  return r;
}
template <int V> __device__ __forceinline__ void put(
    T* out, long long i, long long step, const Pack<C, V>& r) {
  if constexpr (V == 1) {
    out[i * step] = store<T>(r.at[0]);
  } else {
    Pack<T, V> pack;
    for (int v = 0; v < V; ++v) pack.at[v] = store<T>(r.at[v]);
    *(Pack<T, V>*)(out + i) = pack;
  }
}
template <int V, bool KEPT> __device__ __forceinline__ Pack<C, V> again(
    const T* x, const C* kept, long long i, long long step) {
  return KEPT ? *(const Pack<C, V>*)(kept + i) : fetched<V>(x, i, step);
}
// f of a row: kept in packs, kept, or read again.
#define ROW(f, ...)                                     \
  (!keeps  ? f<1, false>(__VA_ARGS__)                   \
   : packs ? f<WIDTH, true>(__VA_ARGS__)                \
           : f<1, true>(__VA_ARGS__))
"""

# sum: that of exp(x - top). Kept at the end: exp(x - top), or x - top for the logarithm.
EXPONENTIALS = r"""
struct Exponentials {
  struct A { C top, sum; };
  static __device__ __forceinline__ C scaled(C sum, C by) {
    return sum == C(0) ? sum : sum * exp(by);
  }
  static __device__ __forceinline__ A combine(A a, A b) {
    A r = {a.top > b.top ? a.top : b.top, C(0)};
    r.sum = scaled(a.sum, a.top - r.top) + scaled(b.sum, b.top - r.top);
    return r;
  }
  static __device__ __forceinline__ A crossed(A a, int o) {
    A r = {__shfl_xor_sync(0xffffffffu, a.top, o), __shfl_xor_sync(0xffffffffu, a.sum, o)};
    return r;
  }
};
// One read: the sum follows the top. A top that is not finite, as in a row of -inf, gives NaN.
__device__ __forceinline__ Exponentials::A sum_along(
    const T* x, long long n, long long step, int lane, int lanes) {
  Exponentials::A a = {-INFINITY, C(0)};
  for (long long i = lane; i < n; i += lanes) {
    const C value = load(x[i * step]);
    if (value <= a.top) {
      if (value > -INFINITY) a.sum += exp(value - a.top);
    } else {
      a.sum = Exponentials::scaled(a.sum, a.top - value) + C(1);
      a.top = value;
    }
  }
  a = combined<Exponentials>(a, lanes);
  if (is_inf(a.top)) a.sum = C(NAN);
  return a;
}
template <int V> __device__ __forceinline__ Exponentials::A sum_kept(
    const T* x, C* kept, long long n, int lane, int lanes) {
  Exponentials::A a = {-INFINITY, C(0)};
#pragma unroll 2
  for (long long i = V * lane; i < n; i += V * lanes) {
    const Pack<C, V> r = fetched<V>(x, i, 1);
    for (int v = 0; v < V; ++v) a.top = nan_max(a.top, r.at[v]);
    *(Pack<C, V>*)(kept + i) = r;
  }
  a.top = combined<Largest<C> >(a.top, lanes);
  for (long long i = V * lane; i < n; i += V * lanes) {
    Pack<C, V> r = *(const Pack<C, V>*)(kept + i);
    for (int v = 0; v < V; ++v) {
      const C power = exp(r.at[v] - a.top);
      r.at[v] = LOGARITHM ? r.at[v] - a.top : power;
      a.sum += power;
    }
    *(Pack<C, V>*)(kept + i) = r;
  }
  a.sum = combined<Total<C> >(a.sum, lanes);
  return a;
}
template <int V, bool KEPT> __device__ __forceinline__ Exponentials::A softmax_row(
    const T* x, T* out, C* kept, long long n, long long step, int lane, int lanes) {
  const Exponentials::A a = KEPT ? sum_kept<V>(x, kept, n, lane, lanes)
                                 : sum_along(x, n, step, lane, lanes);
  const C shift = LOGARITHM ? log(a.sum) : C(0), scale = C(1) / a.sum;
  for (long long i = V * lane; i < n; i += V * lanes) {
    Pack<C, V> r = again<V, KEPT>(x, kept, i, step);
    for (int v = 0; v < V; ++v) {
      const C y = KEPT ? r.at[v] : LOGARITHM ? r.at[v] - a.top : exp(r.at[v] - a.top);
      r.at[v] = LOGARITHM ? y - shift : y * scale;
    }
    put<V>(out, i, step, r);
  }
  return a;
}
"""

SOFTMAX = (
    ROWS
    + EXPONENTIALS
    + r"""
extern "C" __global__ void softmax(
    const T* x, T* out, long long rows, long long n, long long inner, int lanes, int keeps) {
  extern __shared__ __align__(16) C rows_kept[];
  C* kept = rows_kept + threadIdx.x / lanes * n;
  const int lane = threadIdx.x % lanes;
  const bool packs = side_by_side(x, n) && side_by_side(out, n);
  for (long long g = group_index(lanes); g < rows; g += group_count(lanes)) {
    const long long at = g / inner * n * inner + g % inner;
    ROW(softmax_row, x + at, out + at, kept, n, inner, lane, lanes);
  }
}
"""
)

LAYER_NORM = (
    ROWS
    + r"""
struct Moments { C mean, rstd; };
template <int V, bool KEPT> __device__ __forceinline__ Moments normal_row(
    const T* x, const T* gamma, const T* beta, T* out, C* kept, long long n, C eps, int lane,
    int lanes) {
  C sum = C(0), squares = C(0);
#pragma unroll 2
  for (long long i = V * lane; i < n; i += V * lanes) {
    const Pack<C, V> r = fetched<V>(x, i, 1);
    for (int v = 0; v < V; ++v) sum += r.at[v];
    if (KEPT) *(Pack<C, V>*)(kept + i) = r;
  }
  const C mean = combined<Total<C> >(sum, lanes) / C(n);
  for (long long i = V * lane; i < n; i += V * lanes) {
    const Pack<C, V> r = again<V, KEPT>(x, kept, i, 1);
    for (int v = 0; v < V; ++v) squares += (r.at[v] - mean) * (r.at[v] - mean);
  }
  const C rstd = C(1) / sqrt(combined<Total<C> >(squares, lanes) / C(n) + eps);
  for (long long i = V * lane; i < n; i += V * lanes) {
    Pack<C, V> r = again<V, KEPT>(x, kept, i, 1);
    const Pack<C, V> by = fetched<V>(gamma, i, 1), shift = fetched<V>(beta, i, 1);
    for (int v = 0; v < V; ++v) r.at[v] = (r.at[v] - mean) * rstd * by.at[v] + shift.at[v];
    put<V>(out, i, 1, r);
  }
  Moments found = {mean, rstd};
  return found;
}
extern "C" __global__ void layer_norm(
    const T* x, const T* gamma, const T* beta, T* out, T* means, T* rstds,
    long long rows, long long n, double eps, int lanes, int keeps) {
  extern __shared__ __align__(16) C rows_kept[];
  C* kept = rows_kept + threadIdx.x / lanes * n;
  const int lane = threadIdx.x % lanes;
  const bool packs = side_by_side(x, n) && side_by_side(out, n) && side_by_side(gamma, n) &&
                     side_by_side(beta, n);
  for (long long g = group_index(lanes); g < rows; g += group_count(lanes)) {
    const Moments m = ROW(
        normal_row, x + g * n, gamma, beta, out + g * n, kept, n, C(eps), lane, lanes);
    if (lane == 0) {
      means[g] = store<T>(m.mean);
      rstds[g] = store<T>(m.rstd);
    }
  }
}
"""
)


def shared_rows(
    node: KernelNode, rows: int, n: int, inner: int = 1
) -> tuple[tuple[int], tuple[int], int, int, np.int32]:
    """Grid, block, threads of a row of n elements of the first input that are `inner` apart, bytes
    of shared memory of a block, and whether rows are kept there rather than read again."""
    nbytes = max(node.inputs[0].dtype.itemsize, 4) * n
    lanes = 32 if nbytes * (BLOCK // 32) <= SHARED else BLOCK
    if n <= 8 or (inner >= 32 and n <= 1024):
        lanes = 1
    keeps = lanes > 1 and inner == 1 and nbytes <= SHARED
    grid, block = grid_for(rows, lanes)
    return grid, block, lanes, block[0] // lanes * nbytes * keeps, np.int32(keeps)


def softmax(node: KernelNode) -> Launch:
    outer, n, inner = along(node.inputs[0].shape, node.attrs["axis"])
    grid, block, lanes, shared, keeps = shared_rows(node, outer * inner, n, inner)
    sizes = np.int64(outer * inner), np.int64(n), np.int64(inner), np.int32(lanes)
    return Launch(grid, block, (*sizes, keeps), shared)


def layer_norm(node: KernelNode) -> Launch:
    n = prod(node.inputs[1].shape)
    rows = prod(node.outputs[1].shape)  # empty rows have a mean too: NaN
    grid, block, lanes, shared, keeps = shared_rows(node, rows, n)
    sizes = np.int64(rows), np.int64(n), np.float64(node.attrs["eps"]), np.int32(lanes)
    return Launch(grid, block, (*sizes, keeps), shared)


for _name, _logarithm in (("Softmax", 0), ("LogSoftmax", 1)):
    raw_kernel(
        _name, *[f"{c}->{c}" for c in FLOAT], entry="softmax", source=SOFTMAX, launch=softmax,
        defines={"LOGARITHM": _logarithm},
    )  # fmt: skip
raw_kernel(
    "LayerNorm", *[f"{c * 3}->{c * 3}" for c in FLOAT], entry="layer_norm", source=LAYER_NORM,
    launch=layer_norm,
)  # fmt: skip
