"""2-d convolution and its two transposes: by tiles, or, where small, each output on its own.

Few channels, as of depthwise convolutions and of a network's first layer, make small ones.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from ....dtype import float32, float64
from ...kernel import Kernel, KernelNode
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import FLOAT
from ..text.groups import GROUPS, grid_for
from ..text.layout import PACKS, spread
from ..text.source import prelude, type_names
from .convolve import FORWARD, INPUT, TILES, WEIGHT, tiled

HEAD = r"""
using namespace miniml;
typedef Compute<T>::type C;
struct Window {
  long long n, c, h, w, o, oh, ow, kh, kw, sh, sw, top, left, dh, dw, groups;
};
"""

CONV = r"""
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

INPUT_GRAD = r"""
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

WEIGHT_GRAD = r"""
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


class Convolution(Kernel):
    """Base of the three: `kind` of product, the text and entry for single outputs."""

    kind: ClassVar[int]
    alone: ClassVar[tuple[str, str]]

    def shapes(self, node: KernelNode) -> tuple[Shape, Shape, Shape]:
        """Those of x, w and what the convolution of the two gives."""
        raise NotImplementedError(f"{type(self).__name__} defines no shapes")

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        dtype, size = node.inputs[0].dtype, prod(node.outputs[0].shape)
        self.window = window(node, *self.shapes(node))
        self.tiles = tiled(self.kind, self.window)
        self.wide = float64 if dtype == float64 else float32
        alone, entry = self.alone
        head = prelude({dtype}) + type_names([dtype], []) + f"#define KIND {self.kind}\n"
        text, get = head + HEAD + PACKS + GROUPS + alone + TILES, node.device.compiler.function
        self.function = get(text, self.tiles.entry if self.tiles else entry)
        self.sum = get(text, "sum_parts") if self.tiles and self.tiles.split > 1 else None
        self.shared = spread(size)
        if self.kind == WEIGHT and self.tiles is None:
            self.shared = grid_for(size, 32)

    def workspace(self) -> tuple[ArraySpec, ...]:
        if self.tiles is None:
            return ()
        split = self.tiles.split
        size = split * prod(self.node.outputs[0].shape) if split > 1 else 1
        return (ArraySpec((size,), self.wide),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (one, two), out, tiles = (a.flat for a in inputs), outputs[0].flat, self.tiles
        if tiles is None:
            self.function(*self.shared, (one, two, out, self.window))
            return
        parts = workspace[0].flat  # filters or dout come second, the images first
        args = (two, one, out, parts, self.window, tiles.product, tiles.tiles)
        self.function(tiles.grid, (256,), args)
        if self.sum is not None:
            self.sum(*self.shared, (parts, out, tiles.product))


class Conv2D(Convolution):
    """x and w to the convolution."""

    kind, alone = FORWARD, (CONV, "conv2d")

    def shapes(self, node: KernelNode) -> tuple[Shape, Shape, Shape]:
        (x, w), out = (i.shape for i in node.inputs), node.outputs[0].shape
        return x, w, out


class Conv2DInputGrad(Convolution):
    """The gradient and w to the gradient in x."""

    kind, alone = INPUT, (INPUT_GRAD, "conv2d_input_grad")

    def shapes(self, node: KernelNode) -> tuple[Shape, Shape, Shape]:
        (dout, w), x = (i.shape for i in node.inputs), node.outputs[0].shape
        return x, w, dout


class Conv2DWeightGrad(Convolution):
    """x and the gradient to the gradient in w."""

    kind, alone = WEIGHT, (WEIGHT_GRAD, "conv2d_weight_grad")

    def shapes(self, node: KernelNode) -> tuple[Shape, Shape, Shape]:
        (x, dout), w = (i.shape for i in node.inputs), node.outputs[0].shape
        return x, w, dout


for _class in (Conv2D, Conv2DInputGrad, Conv2DWeightGrad):
    kernel(_class.__name__, "cuda", *[f"{c * 2}->{c}" for c in FLOAT])(_class)
