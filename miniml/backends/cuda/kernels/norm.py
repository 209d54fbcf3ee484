"""CUDA batch normalisation, by parts of channels: sums, then squared deviations, then elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....core.abstract import ArraySpec
from ....core.signature import FLOAT
from ...expressions import accumulation
from ...kernel import Kernel, KernelNode
from ...registry import kernel, view_kernel
from ..text.source import BLOCK, grid_for, parts, unit

# V elements at a time: packs where a plane has whole ones (side_by_side), else V is 1.
ROWS = r"""
using namespace miniml;
typedef Compute<T>::type C;
#define WIDTH (16 / (int)sizeof(C))
__device__ __forceinline__ bool side_by_side(const void* x, long long n) {
  return n % WIDTH == 0 && (unsigned long long)x % (WIDTH * sizeof(T)) == 0;
}
template <int V> __device__ __forceinline__ Pack<C, V> fetched(
    const T* x, long long i) {
  Pack<C, V> r;
  if constexpr (V == 1) {
    r.at[0] = load(x[i]);
  } else {
    const Pack<T, V> pack = *(const Pack<T, V>*)(x + i);
    for (int v = 0; v < V; ++v) r.at[v] = load(pack.at[v]);
  }
  return r;
}
template <int V> __device__ __forceinline__ void put(
    T* out, long long i, const Pack<C, V>& r) {
  if constexpr (V == 1) {
    out[i] = store<T>(r.at[0]);
  } else {
    Pack<T, V> pack;
    for (int v = 0; v < V; ++v) pack.at[v] = store<T>(r.at[v]);
    *(Pack<T, V>*)(out + i) = pack;
  }
}
"""

# Element i of a channel is pixel i % plane of image i / plane. A group of threads takes a part.
TEXT = r"""
template <int V, typename F> __device__ __forceinline__ void each(
    const Batch& s, long long g, int lanes, F visit) {
  const Part p = part_of(g, s.channels, s.n, s.split, s.length, lanes);
  for (long long i = p.begin + V * (threadIdx.x % lanes); i < p.end; i += V * lanes) {
    const long long image = i / s.plane;
    visit((image * s.channels + p.row) * s.plane + i - image * s.plane);
  }
}
__device__ __forceinline__ C mean_of(const C* sums, const Batch& s, long long g, int lanes) {
  const C* own = sums + g / s.split * s.split;
  C sum = C(0);
  for (long long i = threadIdx.x % lanes; i < s.split; i += lanes) sum += own[i];
  return combined<Total<C> >(sum, lanes) / C(s.n);
}
template <int V> __device__ __forceinline__ C squares(
    const T* x, const Batch& s, long long g, int lanes, C mean, C power) {
  C sum = C(0);
  each<V>(s, g, lanes, [&](long long at) {
    const Pack<C, V> r = fetched<V>(x, at);
    for (int v = 0; v < V; ++v) {
      const C d = r.at[v] - mean;
      sum += power == C(1) ? d : d * d;
    }
  });
  return combined<Total<C> >(sum, lanes);
}
extern "C" __global__ void sum_powers(
    const T* x, const C* sums, C* out, Batch s, int lanes, int second) {
  const bool packs = side_by_side(x, s.plane);
  for (long long g = group_index(lanes); g < s.channels * s.split; g += group_count(lanes)) {
    const C mean = second ? mean_of(sums, s, g, lanes) : C(0), power = second ? C(2) : C(1);
    const C sum = packs ? squares<WIDTH>(x, s, g, lanes, mean, power)
                        : squares<1>(x, s, g, lanes, mean, power);
    if (threadIdx.x % lanes == 0) out[g] = sum;
  }
}
template <int V> __device__ __forceinline__ void normal_part(
    const T* x, T* out, const Batch& s, long long g, int lanes, C mean, C scale, C shift) {
  each<V>(s, g, lanes, [&](long long at) {
    Pack<C, V> r = fetched<V>(x, at);
    for (int v = 0; v < V; ++v) r.at[v] = (r.at[v] - mean) * scale + shift;
    put<V>(out, at, r);
  });
}
extern "C" __global__ void batch_norm(
    const T* x, const T* gamma, const T* beta, T* out, T* means, T* vars, const C* sums,
    const C* square_sums, Batch s, double eps, int lanes) {
  const bool packs = side_by_side(x, s.plane) && side_by_side(out, s.plane);
  for (long long g = group_index(lanes); g < s.channels * s.split; g += group_count(lanes)) {
    const long long channel = g / s.split;
    const C mean = mean_of(sums, s, g, lanes), var = mean_of(square_sums, s, g, lanes);
    const C scale = load(gamma[channel]) / sqrt(var + C(eps)), shift = load(beta[channel]);
    if (packs) normal_part<WIDTH>(x, out, s, g, lanes, mean, scale, shift);
    else normal_part<1>(x, out, s, g, lanes, mean, scale, shift);
    if (threadIdx.x % lanes == 0 && g % s.split == 0) {
      means[channel] = store<T>(mean);
      vars[channel] = store<T>(var);
    }
  }
}
"""
BATCH = np.dtype([(f, np.int64) for f in "channels plane n split length".split()])


class BatchNormKernel(Kernel):
    """Three launches: sums, squared deviations from the mean, the normalised elements."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (images, channels, *image), dtype, _ = node.inputs[0]
        plane, n = max(prod(image), 1), images * prod(image)
        self.lanes = 32 if n <= 1024 else BLOCK
        split = parts(channels, n, self.lanes)
        sums = accumulation(dtype)
        width = 16 // sums.itemsize
        length = -(-n // (split * width)) * width
        self.sums = ArraySpec((max(channels * split, 1),), sums)
        self.sizes = np.array([(channels, plane, n, split, length)], BATCH)
        self.shared = grid_for(channels * split, self.lanes)
        code = unit(ROWS + TEXT, T=dtype, Batch=BATCH)
        self.functions = node.device.compiler.functions(code, "sum_powers", "batch_norm")

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.sums, self.sums

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (x, *_), (sums, squares) = (a.flat for a in inputs), (a.flat for a in workspace)
        lanes, (sum_powers, batch_norm) = np.int32(self.lanes), self.functions
        for second, out in enumerate((sums, squares)):
            args = (x, squares if out is sums else sums, out, self.sizes, lanes, np.int32(second))
            sum_powers(*self.shared, args)
        arrays = [a.flat for a in (*inputs, *outputs, *workspace)]
        rest = self.sizes, np.float64(self.node.attrs["eps"]), lanes
        batch_norm(*self.shared, (*arrays, *rest))


@view_kernel("CheckedLabels", "cuda")
def checked_labels(labels: Any, *, classes: int, of: str, ignored: int | None, what: str) -> Any:
    return labels  # losses mark labels outside as NaN


@view_kernel("CheckedProbabilities", "cuda")
def checked_probabilities(x: Any, *, of: str) -> Any:
    return x  # of which the logarithm is NaN


kernel("BatchNorm", "cuda", *[f"{c * 3}->{c * 3}" for c in FLOAT])(BatchNormKernel)
