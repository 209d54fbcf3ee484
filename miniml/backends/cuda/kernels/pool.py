"""2-d pooling: one thread for a window, or a block for a plane that windows are added to."""

from __future__ import annotations

from math import prod

import numpy as np

from ....dtype import float32, float64
from ...kernel import KernelNode, Launch
from ...signature import ArraySpec
from ...typecodes import FLOAT
from ..text.layout import spread
from ..text.registering import raw

HEAD = r"""
using namespace miniml;
typedef Compute<T>::type C;
struct Window { long long planes, h, w, oh, ow, kh, kw, sh, sw, top, left, padded; };
"""

MAX = (
    HEAD
    + r"""
extern "C" __global__ void max_pool2d(const T* x, T* out, long long* indices, Window s) {
  const long long step = (long long)gridDim.x * blockDim.x, size = s.planes * s.oh * s.ow;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long q = i % s.ow, r = i / s.ow % s.oh;
    const T* plane = x + i / (s.ow * s.oh) * s.h * s.w;
    long long best = -1;
    C top = C(0);
    for (long long a = 0; a < s.kh; ++a) {
      const long long y = r * s.sh + a - s.top;
      if (y < 0 || y >= s.h) continue;
      for (long long b = 0; b < s.kw; ++b) {
        const long long z = q * s.sw + b - s.left;
        if (z < 0 || z >= s.w) continue;
        const C pixel = load(plane[y * s.w + z]);
        if (best < 0 || pixel > top || (is_nan(pixel) && !is_nan(top))) {
          best = y * s.w + z;
          top = pixel;
        }
      }
    }
    out[i] = store<T>(top);
    indices[i] = best;
  }
}
"""
)

# A block owns a plane: it clears the sums, adds to them and rounds them.
MAX_GRAD = r"""
using namespace miniml;
extern "C" __global__ void max_pool2d_grad(
    const T* dout, const long long* indices, T* out, SUM* sums, long long planes, long long pixels,
    long long windows) {
  for (long long p = blockIdx.x; p < planes; p += gridDim.x) {
    SUM* sum = sums + p * pixels;
    for (long long i = threadIdx.x; i < pixels; i += blockDim.x) sum[i] = SUM(0);
    __syncthreads();
    for (long long i = threadIdx.x; i < windows; i += blockDim.x)
      atomicAdd(&sum[indices[p * windows + i]], SUM(load(dout[p * windows + i])));
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
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step)
    out[i] = x[i / windows * pixels + indices[i]];
}
"""

MEAN = (
    HEAD
    + r"""
__device__ __forceinline__ C pixels_in(const Window& s, long long r, long long q) {
  if (s.padded) return C(s.kh * s.kw);
  const long long y = r * s.sh - s.top, z = q * s.sw - s.left;
  const long long y1 = y + s.kh < s.h ? y + s.kh : s.h, z1 = z + s.kw < s.w ? z + s.kw : s.w;
  return C((y1 - (y < 0 ? 0 : y)) * (z1 - (z < 0 ? 0 : z)));
}
"""
)

AVG = (
    MEAN
    + r"""
extern "C" __global__ void avg_pool2d(const T* x, T* out, Window s) {
  const long long step = (long long)gridDim.x * blockDim.x, size = s.planes * s.oh * s.ow;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long q = i % s.ow, r = i / s.ow % s.oh;
    const T* plane = x + i / (s.ow * s.oh) * s.h * s.w;
    C sum = C(0);
    for (long long a = 0; a < s.kh; ++a) {
      const long long y = r * s.sh + a - s.top;
      if (y < 0 || y >= s.h) continue;
      for (long long b = 0; b < s.kw; ++b) {
        const long long z = q * s.sw + b - s.left;
        if (z >= 0 && z < s.w) sum += load(plane[y * s.w + z]);
      }
    }
    out[i] = store<T>(sum / pixels_in(s, r, q));
  }
}
"""
)

AVG_GRAD = (
    MEAN
    + r"""
extern "C" __global__ void avg_pool2d_grad(const T* dout, T* out, Window s) {
  const long long step = (long long)gridDim.x * blockDim.x, size = s.planes * s.h * s.w;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long z = i % s.w, y = i / s.w % s.h;
    const T* plane = dout + i / (s.w * s.h) * s.oh * s.ow;
    C sum = C(0);
    for (long long a = 0; a < s.kh; ++a) {
      const long long r = y + s.top - a;
      if (r < 0 || r % s.sh || r / s.sh >= s.oh) continue;
      for (long long b = 0; b < s.kw; ++b) {
        const long long q = z + s.left - b;
        if (q < 0 || q % s.sw || q / s.sw >= s.ow) continue;
        sum += load(plane[r / s.sh * s.ow + q / s.sw]) / pixels_in(s, r / s.sh, q / s.sw);
      }
    }
    out[i] = store<T>(sum);
  }
}
"""
)

WINDOW = np.dtype([(n, np.int64) for n in "planes h w oh ow kh kw sh sw top left padded".split()])
Shape = tuple[int, ...]


def window(node: KernelNode, image: Shape, out: Shape) -> np.ndarray[tuple[int], np.dtype]:
    """The struct Window of a pooling of `image` to `out`, both (N, C, rows, columns)."""
    attrs = node.attrs
    (top, _), (left, _) = attrs["padding"]
    values = (
        image[0] * image[1], *image[2:], *out[2:], *attrs["kernel_size"], *attrs["stride"], top,
        left, int(attrs.get("count_include_pad", True)),
    )  # fmt: skip
    return np.array([values], WINDOW)


def forward(node: KernelNode) -> Launch:
    out = node.outputs[0].shape
    return Launch(*spread(prod(out)), (window(node, node.inputs[0].shape, out),))


def avg_grad(node: KernelNode) -> Launch:
    out = node.outputs[0].shape
    return Launch(*spread(prod(out)), (window(node, out, node.inputs[0].shape),))


def max_grad(node: KernelNode) -> Launch:
    dout, out = node.inputs[0].shape, node.outputs[0].shape
    planes, pixels, windows = out[0] * out[1], prod(out[2:]), prod(dout[2:])
    sums = ArraySpec(out, float64 if node.outputs[0].dtype == float64 else float32)
    block = min(256, -(-max(pixels, windows) // 32) * 32)
    args = tuple(map(np.int64, (planes, pixels, windows)))
    return Launch((min(max(planes, 1), 1 << 20),), (block,), args, 0, (sums,))


def gather(node: KernelNode) -> Launch:
    x, out = node.inputs[0].shape, node.outputs[0].shape
    sizes = prod(out), prod(x[2:]), max(prod(out[2:]), 1)
    return Launch(*spread(prod(out)), tuple(map(np.int64, sizes)))


for _c in FLOAT:
    _sum = {"SUM": "double" if _c == "d" else "float"}
    raw(
        "MaxPool2DGrad", f"{_c}l->{_c}", entry="max_pool2d_grad", source=MAX_GRAD,
        launch=max_grad, defines=_sum,
    )  # fmt: skip
raw("MaxPool2D", *[f"{c}->{c}l" for c in FLOAT], entry="max_pool2d", source=MAX, launch=forward)
raw(
    "MaxPool2DGather", *[f"{c}l->{c}" for c in FLOAT], entry="max_pool2d_gather", source=GATHER,
    launch=gather,
)  # fmt: skip
_SAME = [f"{c}->{c}" for c in FLOAT]
raw("AvgPool2D", *_SAME, entry="avg_pool2d", source=AVG, launch=forward)
raw("AvgPool2DGrad", *_SAME, entry="avg_pool2d_grad", source=AVG_GRAD, launch=avg_grad)
