"""Softmax, its logarithm, layer and batch normalisation and cross entropy: groups of threads walk
the rows, with a shuffle where a row is shared."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import KernelNode, Launch
from .letters import FLOAT, INT, raw
from .rows import GROUPS, along, grid_for, lanes_for

HEAD = "using namespace miniml;\ntypedef Compute<T>::type C;\n" + GROUPS

SOFTMAX = (
    HEAD
    + r"""
extern "C" __global__ void softmax(
    const T* x, T* out, long long rows, long long n, long long inner, int lanes) {
  const int lane = threadIdx.x % lanes;
  for (long long g = group_index(lanes); g < rows; g += group_count(lanes)) {
    const long long at = g / inner * n * inner + g % inner;
    C top = -INFINITY, sum = C(0);
    for (long long i = lane; i < n; i += lanes) top = nan_max(top, load(x[at + i * inner]));
    top = combined<Largest<C> >(top, lanes);
    for (long long i = lane; i < n; i += lanes) sum += exp(load(x[at + i * inner]) - top);
    sum = combined<Total<C> >(sum, lanes);
    const C shift = LOGARITHM ? log(sum) : C(0), scale = C(1) / sum;
    for (long long i = lane; i < n; i += lanes) {
      const C y = load(x[at + i * inner]) - top;
      out[at + i * inner] = store<T>(LOGARITHM ? y - shift : exp(y) * scale);
    }
  }
}
"""
)

LAYER_NORM = (
    HEAD
    + r"""
extern "C" __global__ void layer_norm(
    const T* x, const T* gamma, const T* beta, T* out, T* means, T* rstds,
    long long rows, long long n, double eps, int lanes) {
  const int lane = threadIdx.x % lanes;
  for (long long g = group_index(lanes); g < rows; g += group_count(lanes)) {
    const T* row = x + g * n;
    C sum = C(0), squares = C(0);
    for (long long i = lane; i < n; i += lanes) sum += load(row[i]);
    const C mean = combined<Total<C> >(sum, lanes) / C(n);
    for (long long i = lane; i < n; i += lanes) {
      const C d = load(row[i]) - mean;
      squares += d * d;
    }
    const C rstd = C(1) / sqrt(combined<Total<C> >(squares, lanes) / C(n) + C(eps));
    for (long long i = lane; i < n; i += lanes)
      out[g * n + i] = store<T>((load(row[i]) - mean) * rstd * load(gamma[i]) + load(beta[i]));
    if (lane == 0) {
      means[g] = store<T>(mean);
      rstds[g] = store<T>(rstd);
    }
  }
}
"""
)

BATCH_NORM = (
    HEAD
    + r"""
extern "C" __global__ void batch_norm(
    const T* x, const T* gamma, const T* beta, T* out, T* means, T* vars,
    long long images, long long channels, long long plane, double eps, int lanes) {
  const int lane = threadIdx.x % lanes;
  const long long n = images * plane;
  for (long long g = group_index(lanes); g < channels; g += group_count(lanes)) {
    C sum = C(0), squares = C(0);
    for (long long i = lane; i < n; i += lanes)
      sum += load(x[(i / plane * channels + g) * plane + i % plane]);
    const C mean = combined<Total<C> >(sum, lanes) / C(n);
    for (long long i = lane; i < n; i += lanes) {
      const C d = load(x[(i / plane * channels + g) * plane + i % plane]) - mean;
      squares += d * d;
    }
    const C var = combined<Total<C> >(squares, lanes) / C(n);
    const C scale = load(gamma[g]) / sqrt(var + C(eps)), shift = load(beta[g]);
    for (long long i = lane; i < n; i += lanes) {
      const long long at = (i / plane * channels + g) * plane + i % plane;
      out[at] = store<T>((load(x[at]) - mean) * scale + shift);
    }
    if (lane == 0) {
      means[g] = store<T>(mean);
      vars[g] = store<T>(var);
    }
  }
}
"""
)

# One block for the mean or the sum: each group of 32 takes rows in turn.
CROSS_ENTROPY = (
    HEAD
    + r"""
extern "C" __global__ void cross_entropy(
    const T* logits, const T_IN1* labels, T* loss, T* probs,
    long long rows, long long n, int reduction) {
  const int lane = threadIdx.x & 31;
  C total = C(0);
  for (long long g = group_index(32); g < rows; g += group_count(32)) {
    const T* row = logits + g * n;
    C top = -INFINITY, sum = C(0);
    for (long long i = lane; i < n; i += 32) top = nan_max(top, load(row[i]));
    top = combined<Largest<C> >(top, 32);
    for (long long i = lane; i < n; i += 32) sum += exp(load(row[i]) - top);
    sum = combined<Total<C> >(sum, 32);
    for (long long i = lane; i < n; i += 32)
      probs[g * n + i] = store<T>(exp(load(row[i]) - top) / sum);
    const unsigned long long label = (unsigned long long)labels[g];
    const C one = label < (unsigned long long)n ? log(sum) - (load(row[label]) - top) : C(NAN);
    if (reduction == 0) {
      if (lane == 0) loss[g] = store<T>(one);
    } else if (lane == 0) {
      total += one;
    }
  }
  if (reduction) {
    total = combined<Total<C> >(total, blockDim.x);
    if (threadIdx.x == 0) loss[0] = store<T>(reduction == 2 ? total / C(rows) : total);
  }
}
"""
)

CROSS_ENTROPY_GRAD = r"""
using namespace miniml;
typedef Compute<T>::type C;
extern "C" __global__ void cross_entropy_grad(
    const T* probs, const T_IN1* labels, const T* dloss, T* out,
    long long rows, long long n, int reduction) {
  const long long step = (long long)gridDim.x * blockDim.x, size = rows * n;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long row = i / n;
    C share = load(dloss[reduction ? 0 : row]);
    if (reduction == 2) share /= C(rows);
    const bool here = (unsigned long long)labels[row] == (unsigned long long)(i - row * n);
    out[i] = store<T>(load(probs[i]) * share - (here ? share : C(0)));
  }
}
"""

REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}


def softmax(node: KernelNode) -> Launch:
    outer, n, inner = along(node.inputs[0].shape, node.attrs["axis"])
    lanes = lanes_for(n, inner)
    sizes = np.int64(outer * inner), np.int64(n), np.int64(inner), np.int32(lanes)
    return Launch(*grid_for(outer * inner, lanes), sizes)


def layer_norm(node: KernelNode) -> Launch:
    n = prod(node.inputs[1].shape)
    rows = prod(node.inputs[0].shape) // max(n, 1)
    lanes = max(32, lanes_for(n, 1))
    sizes = np.int64(rows), np.int64(n), np.float64(node.attrs["eps"]), np.int32(lanes)
    return Launch(*grid_for(rows, lanes), sizes)


def batch_norm(node: KernelNode) -> Launch:
    images, channels, *image = node.inputs[0].shape
    plane = prod(image)
    lanes = max(32, lanes_for(images * plane, 1))
    sizes = np.int64(images), np.int64(channels), np.int64(max(plane, 1) if images else 1)
    rest = np.float64(node.attrs["eps"]), np.int32(lanes)
    if not images * plane:
        sizes = np.int64(0), np.int64(channels), np.int64(1)
    return Launch(*grid_for(channels, lanes), (*sizes, *rest))


def cross_entropy(node: KernelNode) -> Launch:
    rows, n = node.inputs[0].shape
    reduction = REDUCTIONS[node.attrs["reduction"]]
    grid, block = ((1,), (256,)) if reduction else grid_for(rows, 32)
    return Launch(grid, block, (np.int64(rows), np.int64(n), np.int32(reduction)))


def cross_entropy_grad(node: KernelNode) -> Launch:
    rows, n = node.inputs[0].shape
    reduction = np.int32(REDUCTIONS[node.attrs["reduction"]])
    return Launch(*grid_for(rows * n, 1), (np.int64(rows), np.int64(n), reduction))


_FLOATS = [f"{c}->{c}" for c in FLOAT]
_THREE = [f"{c * 3}->{c * 3}" for c in FLOAT]
for _name, _logarithm in (("Softmax", 0), ("LogSoftmax", 1)):
    raw(
        _name, *_FLOATS, entry="softmax", source=SOFTMAX, launch=softmax,
        defines={"LOGARITHM": _logarithm},
    )  # fmt: skip
raw("LayerNorm", *_THREE, entry="layer_norm", source=LAYER_NORM, launch=layer_norm)
raw("BatchNorm", *_THREE, entry="batch_norm", source=BATCH_NORM, launch=batch_norm)
raw(
    "CrossEntropy", *[f"{c}{i}->{c}{c}" for c in FLOAT for i in INT], entry="cross_entropy",
    source=CROSS_ENTROPY, launch=cross_entropy,
)  # fmt: skip
raw(
    "CrossEntropyGrad", *[f"{c}{i}{c}->{c}" for c in FLOAT for i in INT],
    entry="cross_entropy_grad", source=CROSS_ENTROPY_GRAD, launch=cross_entropy_grad,
)  # fmt: skip
