"""2-d pooling: one thread per window, or one block per plane that windows are added to."""

from __future__ import annotations

from math import prod

import numpy as np

from ...expressions.types import accumulation
from ...kernel import KernelNode, Launch
from ...registry import raw_kernel
from ...signature import ArraySpec
from ...typecodes import FLOAT
from ..text.layout import spread
from ..text.windows import WINDOWS, Shape, window

MAX = r"""
extern "C" __global__ void max_pool2d(const T* x, T* out, long long* indices, Window s) {
  MINIML_FOR(i, s.n * s.c * s.oh * s.ow) {
    const T* plane = x + i / (s.ow * s.oh) * s.h * s.w;
    long long best = -1;
    C top = C(0);
    pixels_of(s, i / s.ow % s.oh, i % s.ow, [&](long long at, long long) {
      const C pixel = load(plane[at]);
      if (best < 0 || pixel > top || (is_nan(pixel) && !is_nan(top))) best = at, top = pixel;
    });
    out[i] = store<T>(top);
    indices[i] = best;
  }
}
"""

# A block owns a plane: it clears the sums, adds to them and rounds them.
MAX_GRAD = r"""
using namespace miniml;
typedef Compute<T>::type C;
extern "C" __global__ void max_pool2d_grad(
    const T* dout, const long long* indices, T* out, C* sums, long long planes, long long pixels,
    long long windows) {
  for (long long p = blockIdx.x; p < planes; p += gridDim.x) {
    C* sum = sums + p * pixels;
    for (long long i = threadIdx.x; i < pixels; i += blockDim.x) sum[i] = C(0);
    __syncthreads();
    for (long long i = threadIdx.x; i < windows; i += blockDim.x)
      atomicAdd(&sum[indices[p * windows + i]], load(dout[p * windows + i]));
    __syncthreads();
    for (long long i = threadIdx.x; i < pixels; i += blockDim.x)
      out[p * pixels + i] = store<T>(sum[i]);
    __syncthreads();
  }
}
"""

GATHER = r"""
extern "C" __global__ void max_pool2d_gather(
    const T* x, const long long* indices, T* out, long long size, long long pixels,
    long long windows) {
  MINIML_FOR(i, size) out[i] = x[i / windows * pixels + indices[i]];
}
"""

MEAN = r"""
__device__ __forceinline__ C pixels_in(const Window& s, long long r, long long q, int padded) {
  if (padded) return C(s.kh * s.kw);
  const long long y = r * s.sh - s.top, z = q * s.sw - s.left;
  const long long y1 = y + s.kh < s.h ? y + s.kh : s.h, z1 = z + s.kw < s.w ? z + s.kw : s.w;
  return C((y1 - (y < 0 ? 0 : y)) * (z1 - (z < 0 ? 0 : z)));
}
"""

AVG = r"""
extern "C" __global__ void avg_pool2d(const T* x, T* out, Window s, int padded) {
  MINIML_FOR(i, s.n * s.c * s.oh * s.ow) {
    const long long q = i % s.ow, r = i / s.ow % s.oh;
    const T* plane = x + i / (s.ow * s.oh) * s.h * s.w;
    C sum = C(0);
    pixels_of(s, r, q, [&](long long at, long long) { sum += load(plane[at]); });
    out[i] = store<T>(sum / pixels_in(s, r, q, padded));
  }
}
"""

AVG_GRAD = r"""
extern "C" __global__ void avg_pool2d_grad(const T* dout, T* out, Window s, int padded) {
  MINIML_FOR(i, s.n * s.c * s.h * s.w) {
    const T* plane = dout + i / (s.w * s.h) * s.oh * s.ow;
    C sum = C(0);
    windows_of(s, i / s.w % s.h, i % s.w, [&](long long r, long long q, long long) {
      sum += load(plane[r * s.ow + q]) / pixels_in(s, r, q, padded);
    });
    out[i] = store<T>(sum);
  }
}
"""


def pooling(node: KernelNode, image: Shape, out: Shape) -> np.ndarray[tuple[int], np.dtype]:
    """The struct Window of a pooling of `image` to `out`, both (N, C, rows, columns)."""
    return window(node.attrs, image, (image[1], 1, *node.attrs["kernel_size"]), out)


def max_pool(node: KernelNode) -> Launch:
    out = node.outputs[0].shape
    return Launch(*spread(prod(out)), (pooling(node, node.inputs[0].shape, out),))


def avg_pool(node: KernelNode) -> Launch:
    launch = max_pool(node)
    return launch._replace(args=(*launch.args, padded(node)))


def avg_grad(node: KernelNode) -> Launch:
    out = node.outputs[0].shape
    args = pooling(node, out, node.inputs[0].shape), padded(node)
    return Launch(*spread(prod(out)), args)


def padded(node: KernelNode) -> np.int32:
    """Whether means count the padding."""
    return np.int32(node.attrs["count_include_pad"])


def max_grad(node: KernelNode) -> Launch:
    dout, out = node.inputs[0].shape, node.outputs[0].shape
    planes, pixels, windows = out[0] * out[1], prod(out[2:]), prod(dout[2:])
    sums = ArraySpec(out, accumulation(node.outputs[0].dtype))
    block = min(256, -(-max(pixels, windows) // 32) * 32)
    args = tuple(map(np.int64, (planes, pixels, windows)))
    return Launch((min(max(planes, 1), 1 << 20),), (block,), args, 0, (sums,))


def gather(node: KernelNode) -> Launch:
    x, out = node.inputs[0].shape, node.outputs[0].shape
    sizes = prod(out), prod(x[2:]), max(prod(out[2:]), 1)
    return Launch(*spread(prod(out)), tuple(map(np.int64, sizes)))


for _name, _signature, _entry, _source, _launch in (
    ("MaxPool2D", "{0}->{0}l", "max_pool2d", WINDOWS + MAX, max_pool),
    ("MaxPool2DGrad", "{0}l->{0}", "max_pool2d_grad", MAX_GRAD, max_grad),
    ("MaxPool2DGather", "{0}l->{0}", "max_pool2d_gather", GATHER, gather),
    ("AvgPool2D", "{0}->{0}", "avg_pool2d", WINDOWS + MEAN + AVG, avg_pool),
    ("AvgPool2DGrad", "{0}->{0}", "avg_pool2d_grad", WINDOWS + MEAN + AVG_GRAD, avg_grad),
):
    _signatures = [_signature.format(c) for c in FLOAT]
    raw_kernel(_name, *_signatures, entry=_entry, source=_source, launch=_launch)
