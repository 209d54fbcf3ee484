"""2-d convolution and its two transposes: by tiles or, if small, with each output computed on its
own.

Few channels, as in depthwise convolutions and in a network's first layer, make them small.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from ...expressions.types import accumulation
from ...kernel import Kernel, KernelNode
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import FLOAT
from ..text.groups import grid_for
from ..text.layout import spread
from ..text.source import unit
from ..text.windows import WINDOWS, window
from .convolve import FORWARD, INPUT, NAMES, PRODUCT, TILES, WEIGHT, tiled

CONV = r"""
extern "C" __global__ void conv2d(const T* x, const T* w, T* out, Window s) {
  const long long inner = s.c / s.groups, outer = s.o / s.groups;
  MINIML_FOR(i, s.n * s.o * s.oh * s.ow) {
    const long long q = i % s.ow, r = i / s.ow % s.oh, o = i / (s.ow * s.oh) % s.o;
    const long long n = i / (s.ow * s.oh * s.o), first = o / outer * inner;
    C sum = C(0);
    for (long long c = 0; c < inner; ++c) {
      const T* plane = x + (n * s.c + first + c) * s.h * s.w;
      const T* filter = w + (o * inner + c) * s.kh * s.kw;
      pixels_of(s, r, q, [&](long long pixel, long long tap) {
        sum += load(plane[pixel]) * load(filter[tap]);
      });
    }
    out[i] = store<T>(sum);
  }
}
"""

INPUT_GRAD = r"""
extern "C" __global__ void conv2d_input_grad(const T* dout, const T* w, T* out, Window s) {
  const long long inner = s.c / s.groups, outer = s.o / s.groups;
  MINIML_FOR(i, s.n * s.c * s.h * s.w) {
    const long long z = i % s.w, y = i / s.w % s.h, c = i / (s.w * s.h) % s.c;
    const long long n = i / (s.w * s.h * s.c), group = c / inner;
    C sum = C(0);
    for (long long o = group * outer; o < (group + 1) * outer; ++o) {
      const T* plane = dout + (n * s.o + o) * s.oh * s.ow;
      const T* filter = w + (o * inner + c % inner) * s.kh * s.kw;
      windows_of(s, y, z, [&](long long r, long long q, long long tap) {
        sum += load(plane[r * s.ow + q]) * load(filter[tap]);
      });
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


class ConvolutionKernel(Kernel):
    """Base of the three: `kind` of product, the text and entry for single outputs, and which of x,
    w and out, their convolution, the inputs and the output are (or are the gradient of)."""

    kind: ClassVar[int]
    alone: ClassVar[tuple[str, str]]
    roles: ClassVar[tuple[str, str, str]]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        dtype, out = node.inputs[0].dtype, node.outputs[0].shape
        shapes = dict(zip(self.roles, (*(i.shape for i in node.inputs), out), strict=True))
        self.window = window(node.attrs, shapes["x"], shapes["w"], shapes["out"])
        self.tiles = tiled(self.kind, self.window)
        self.sum_dtype = accumulation(dtype)
        alone, entry = self.alone
        text = unit(WINDOWS + alone + TILES, T=dtype, KIND=self.kind, Product=PRODUCT, **NAMES)
        get = node.device.compiler.function
        self.function = get(text, self.tiles.entry if self.tiles else entry)
        self.sum = get(text, "sum_parts") if self.tiles and self.tiles.split > 1 else None
        by_warps = self.kind == WEIGHT and self.tiles is None
        self.shared = grid_for(prod(out), 32) if by_warps else spread(prod(out))

    def workspace(self) -> tuple[ArraySpec, ...]:
        if self.tiles is None:
            return ()
        split = self.tiles.split
        size = split * prod(self.node.outputs[0].shape) if split > 1 else 1
        return (ArraySpec((size,), self.sum_dtype),)

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


for _name, _kind, _alone, _roles in (
    ("Conv2D", FORWARD, (CONV, "conv2d"), ("x", "w", "out")),
    ("Conv2DInputGrad", INPUT, (INPUT_GRAD, "conv2d_input_grad"), ("out", "w", "x")),
    ("Conv2DWeightGrad", WEIGHT, (WEIGHT_GRAD, "conv2d_weight_grad"), ("x", "out", "w")),
):
    _fields = {"kind": _kind, "alone": _alone, "roles": _roles, "__module__": __name__}
    _signatures = [f"{c * 2}->{c}" for c in FLOAT]
    kernel(_name, "cuda", *_signatures)(type(_name, (ConvolutionKernel,), _fields))
