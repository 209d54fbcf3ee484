"""2-d convolution and its two transposes, each output on its own."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import KernelNode, Launch
from .layout import spread
from .letters import FLOAT, raw
from .rows import GROUPS, grid_for

HEAD = r"""
using namespace miniml;
typedef Compute<T>::type C;
struct Window {
  long long n, c, h, w, o, oh, ow, kh, kw, sh, sw, top, left, dh, dw, groups;
};
"""

CONV = (
    HEAD
    + r"""
extern "C" __global__ void conv2d(const T* x, const T* w, T* out, Window s) {
  const long long step = (long long)gridDim.x * blockDim.x, size = s.n * s.o * s.oh * s.ow;
  const long long inner = s.c / s.groups, outer = s.o / s.groups;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long q = i % s.ow, r = i / s.ow % s.oh, o = i / (s.ow * s.oh) % s.o;
    const long long n = i / (s.ow * s.oh * s.o), first = o / outer * inner;
    C sum = C(0);
    for (long long c = 0; c < inner; ++c) {
      const T* plane = x + (n * s.c + first + c) * s.h * s.w;
      const T* filter = w + (o * inner + c) * s.kh * s.kw;
      for (long long a = 0; a < s.kh; ++a) {
        const long long y = r * s.sh + a * s.dh - s.top;
        if (y < 0 || y >= s.h) continue;
        for (long long b = 0; b < s.kw; ++b) {
          const long long z = q * s.sw + b * s.dw - s.left;
          if (z < 0 || z >= s.w) continue;
          sum += load(plane[y * s.w + z]) * load(filter[a * s.kw + b]);
        }
      }
    }
    out[i] = store<T>(sum);
  }
}
"""
)

INPUT_GRAD = (
    HEAD
    + r"""
extern "C" __global__ void conv2d_input_grad(const T* dout, const T* w, T* out, Window s) {
  const long long step = (long long)gridDim.x * blockDim.x, size = s.n * s.c * s.h * s.w;
  const long long inner = s.c / s.groups, outer = s.o / s.groups;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    const long long z = i % s.w, y = i / s.w % s.h, c = i / (s.w * s.h) % s.c;
    const long long n = i / (s.w * s.h * s.c), group = c / inner;
    C sum = C(0);
    for (long long o = group * outer; o < (group + 1) * outer; ++o) {
      const T* plane = dout + (n * s.o + o) * s.oh * s.ow;
      const T* filter = w + (o * inner + c % inner) * s.kh * s.kw;
      for (long long a = 0; a < s.kh; ++a) {
        const long long r = y + s.top - a * s.dh;
        if (r < 0 || r % s.sh || r / s.sh >= s.oh) continue;
        for (long long b = 0; b < s.kw; ++b) {
          const long long q = z + s.left - b * s.dw;
          if (q < 0 || q % s.sw || q / s.sw >= s.ow) continue;
          sum += load(plane[r / s.sh * s.ow + q / s.sw]) * load(filter[a * s.kw + b]);
        }
      }
    }
    out[i] = store<T>(sum);
  }
}
"""
)

WEIGHT_GRAD = (
    HEAD
    + GROUPS
    + r"""
extern "C" __global__ void conv2d_weight_grad(const T* x, const T* dout, T* out, Window s) {
  const long long inner = s.c / s.groups, outer = s.o / s.groups;
  const long long size = s.o * inner * s.kh * s.kw, terms = s.n * s.oh * s.ow;
  const int lane = threadIdx.x & 31;
  for (long long i = group_index(32); i < size; i += group_count(32)) {
    const long long b = i % s.kw, a = i / s.kw % s.kh, c = i / (s.kw * s.kh) % inner;
    const long long o = i / (s.kw * s.kh * inner), channel = o / outer * inner + c;
    C sum = C(0);
    for (long long t = lane; t < terms; t += 32) {
      const long long q = t % s.ow, r = t / s.ow % s.oh, n = t / (s.ow * s.oh);
      const long long y = r * s.sh + a * s.dh - s.top, z = q * s.sw + b * s.dw - s.left;
      if (y < 0 || y >= s.h || z < 0 || z >= s.w) continue;
      sum += load(dout[((n * s.o + o) * s.oh + r) * s.ow + q]) *
             load(x[((n * s.c + channel) * s.h + y) * s.w + z]);
    }
    sum = combined<Total<C> >(sum, 32);
    if (lane == 0) out[i] = store<T>(sum);
  }
}
"""
)

_FIELDS = "n c h w o oh ow kh kw sh sw top left dh dw groups".split()
WINDOW = np.dtype([(name, np.int64) for name in _FIELDS])
Shape = tuple[int, ...]


def window(node: KernelNode, x: Shape, w: Shape, out: Shape) -> np.ndarray[tuple[int], np.dtype]:
    """The struct Window of a convolution of x with w to out."""
    attrs = node.attrs
    (top, _), (left, _) = attrs["padding"]
    values = (
        *x, w[0], *out[2:], *w[2:], *attrs["stride"], top, left, *attrs["dilation"],
        attrs["groups"],
    )  # fmt: skip
    return np.array([values], WINDOW)


def conv2d(node: KernelNode) -> Launch:
    (x, w), out = (i.shape for i in node.inputs), node.outputs[0].shape
    return Launch(*spread(prod(out)), (window(node, x, w, out),))


def input_grad(node: KernelNode) -> Launch:
    (dout, w), x = (i.shape for i in node.inputs), node.outputs[0].shape
    return Launch(*spread(prod(x)), (window(node, x, w, dout),))


def weight_grad(node: KernelNode) -> Launch:
    (x, dout), w = (i.shape for i in node.inputs), node.outputs[0].shape
    return Launch(*grid_for(prod(w), 32), (window(node, x, w, dout),))


_TWO = [f"{c * 2}->{c}" for c in FLOAT]
raw("Conv2D", *_TWO, entry="conv2d", source=CONV, launch=conv2d)
raw("Conv2DInputGrad", *_TWO, entry="conv2d_input_grad", source=INPUT_GRAD, launch=input_grad)
raw("Conv2DWeightGrad", *_TWO, entry="conv2d_weight_grad", source=WEIGHT_GRAD, launch=weight_grad)
