"""Sorting by rank: an element's place is the number of elements that stand before it.

Every thread counts for one element, so equal elements keep their order without any care. The work
is that of n^2 comparisons a row: quick for rows of some thousand elements, not for millions.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import KernelNode, Launch
from .expression import spread
from .letters import ANY, raw
from .rows import along

TEXT = r"""
using namespace miniml;
typedef Compute<T>::type C;
// NaN counts as the largest.
__device__ __forceinline__ bool smaller(C a, C b) { return a < b || (is_nan(b) && !is_nan(a)); }
extern "C" __global__ void rank_sort(
    const T* x, T* values, long long* indices, long long size, long long n, long long inner,
    long long k, int descending) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long row = i / (n * inner), j = i % inner, own = i / inner % n;
    const T* begin = x + row * n * inner + j;
    const C mine = load(x[i]);
    long long rank = 0;
    for (long long m = 0; m < n && rank < k; ++m) {
      const C other = load(begin[m * inner]);
      const bool less = smaller(other, mine), more = smaller(mine, other);
      rank += (descending ? more : less) || (!less && !more && m < own);
    }
    if (rank < k) {
      values[(row * k + rank) * inner + j] = x[i];
      indices[(row * k + rank) * inner + j] = own;
    }
  }
}
"""


def ranked(node: KernelNode, k: int, descending: bool) -> Launch:
    shape = node.inputs[0].shape
    _, n, inner = along(shape, node.attrs["axis"])
    sizes = tuple(map(np.int64, (prod(shape), max(n, 1), inner, k)))
    return Launch(*spread(prod(shape)), (*sizes, np.int32(descending)))


def sort(node: KernelNode) -> Launch:
    shape = node.inputs[0].shape
    return ranked(node, shape[node.attrs["axis"]], node.attrs["descending"])


def topk(node: KernelNode) -> Launch:
    return ranked(node, node.attrs["k"], node.attrs["largest"])


for _name, _launch in (("Sort", sort), ("TopK", topk)):
    raw(_name, *[f"{c}->{c}l" for c in ANY], entry="rank_sort", source=TEXT, launch=_launch)
