"""CUDA pooling and convolution of images.

Parts: the windows of an image, pixel by pixel, and the reverse; 2-d pooling, one thread per window,
or one block per plane to which windows are added; 2-d convolution and its two transposes, with each
output computed on its own; the same as products of matrices in tiles, unless few channels make them
small, as in depthwise convolutions and in a network's first layer.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....core.abstract import ArraySpec
from ....core.signature import FLOAT
from ...expressions import accumulation
from ...kernel import Kernel, KernelNode, Launch
from ...product import Shape
from ...registry import kernel, raw_kernel
from ..text.source import grid_for, spread, struct, unit

# --- Windows --------------------------------------------------------------------------------------


_FIELDS = "n c h w o oh ow kh kw sh sw top left dh dw groups".split()
WINDOW = np.dtype([(name, np.int64) for name in _FIELDS])

WINDOWS = (
    struct("Window", WINDOW)
    + r"""
using namespace miniml;
typedef Compute<T>::type C;
// visit(pixel, tap) for every pixel of the plane that the window of output (r, q) covers.
template <typename F> __device__ __forceinline__ void pixels_of(
    const Window& s, long long r, long long q, F visit) {
  for (long long a = 0; a < s.kh; ++a) {
    const long long y = r * s.sh + a * s.dh - s.top;
    if (y < 0 || y >= s.h) continue;
    for (long long b = 0; b < s.kw; ++b) {
      const long long z = q * s.sw + b * s.dw - s.left;
      if (z >= 0 && z < s.w) visit(y * s.w + z, a * s.kw + b);
    }
  }
}
// visit(r, q, tap) for every output (r, q) whose window covers pixel (y, z).
template <typename F> __device__ __forceinline__ void windows_of(
    const Window& s, long long y, long long z, F visit) {
  for (long long a = 0; a < s.kh; ++a) {
    const long long r = y + s.top - a * s.dh;
    if (r < 0 || r % s.sh || r / s.sh >= s.oh) continue;
    for (long long b = 0; b < s.kw; ++b) {
      const long long q = z + s.left - b * s.dw;
      if (q >= 0 && q % s.sw == 0 && q / s.sw < s.ow) visit(r / s.sh, q / s.sw, a * s.kw + b);
    }
  }
}
"""
)


def window(attrs: Any, x: Shape, w: Shape, out: Shape) -> np.ndarray[tuple[int], np.dtype]:
    """The struct Window of a convolution of x with w to out; pooling has one filter per channel."""
    (top, _), (left, _) = attrs["padding"]
    dilation, groups = attrs.get("dilation", (1, 1)), attrs.get("groups", x[1])
    sizes = (*x, w[0], *out[2:], *w[2:], *attrs["stride"], top, left, *dilation, groups)
    return np.array([sizes], WINDOW)


# --- Pooling --------------------------------------------------------------------------------------


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
    """1 where means count the padding, else 0."""
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


# --- Convolution ----------------------------------------------------------------------------------


FORWARD, INPUT, WEIGHT = range(3)

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
    """Base of the convolution and its transposes.

    kind: of the product. alone: the text and entry for single outputs. roles: for the inputs and
    the output, which of x, w and out, their convolution, it is (or is the gradient of).
    """

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
        names = [self.tiles.entry if self.tiles else entry]
        names += ["sum_parts"] * bool(self.tiles and self.tiles.split > 1)
        self.functions = node.device.compiler.functions(text, *names)
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
        function, *more = self.functions
        if tiles is None:
            function(*self.shared, (one, two, out, self.window))
            return
        parts = workspace[0].flat  # filters or dout come second, the images first
        args = (two, one, out, parts, self.window, tiles.product, tiles.tiles)
        function(tiles.grid, (256,), args)
        for sum_parts in more:
            sum_parts(*self.shared, (parts, out, tiles.product))


for _name, _kind, _alone, _roles in (
    ("Conv2D", FORWARD, (CONV, "conv2d"), ("x", "w", "out")),
    ("Conv2DInputGrad", INPUT, (INPUT_GRAD, "conv2d_input_grad"), ("out", "w", "x")),
    ("Conv2DWeightGrad", WEIGHT, (WEIGHT_GRAD, "conv2d_weight_grad"), ("x", "out", "w")),
):
    _fields = {"kind": _kind, "alone": _alone, "roles": _roles, "__module__": __name__}
    _signatures = [f"{c * 2}->{c}" for c in FLOAT]
    kernel(_name, "cuda", *_signatures)(type(_name, (ConvolutionKernel,), _fields))


# --- Convolution by tiles -------------------------------------------------------------------------


# The matrices of the products are never stored. Of each group, a is the matrix that is in memory
# (filters, or dout), b the one whose columns are gathered from images while tiles of both are
# loaded to shared memory.

STEP = 16  # the depth of a tile: products summed at a time
MOST = (1 << 31) - 256  # of what 32 bits count: the end of the last tile, too

# Row k of b stands for a tap (or, for the weights, a pixel of dout) of one channel, a column for
# a pixel (a tap). a[i, k] = left[begin + i * a_step + row.a]; an element of b is that pixel of the
# plane at column.base + row.b where the two shifts meet; product [i, j] goes to
# column.out + i * out_step.
TILES = r"""
struct Row { long long a, b; int y, x; };
struct Column { long long base, out; int y, x; };
__device__ __forceinline__ Row row_of(const Window& s, int k) {
  const long long inner = s.c / s.groups;
  const int pixels = (int)(s.oh * s.ow), taps = (int)(s.kh * s.kw);
  Row r;
  if (KIND == WEIGHT) {
    const int image = k / pixels, p = k % pixels;
    r.a = image * s.o * pixels + p, r.b = image * s.c * s.h * s.w;
    r.y = p / (int)s.ow * (int)s.sh, r.x = p % (int)s.ow * (int)s.sw;
    return r;
  }
  const int channel = k / taps, tap = k % taps;
  const int dy = tap / (int)s.kw * (int)s.dh, dx = tap % (int)s.kw * (int)s.dw;
  if (KIND == FORWARD) {
    r.a = k, r.b = channel * s.h * s.w, r.y = dy, r.x = dx;
  } else {
    r.a = channel * inner * taps + tap, r.b = channel * s.oh * s.ow;
    r.y = -dy, r.x = -dx;
  }
  return r;
}
__device__ __forceinline__ Column column_of(const Window& s, int group, int j) {
  const long long outer = s.o / s.groups, inner = s.c / s.groups;
  Column c;
  if (KIND == WEIGHT) {
    const int taps = (int)(s.kh * s.kw), channel = j / taps, tap = j % taps;
    c.base = (group * inner + channel) * s.h * s.w, c.out = group * outer * inner * taps + j;
    c.y = tap / (int)s.kw * (int)s.dh - (int)s.top;
    c.x = tap % (int)s.kw * (int)s.dw - (int)s.left;
    return c;
  }
  const int width = (int)(KIND == FORWARD ? s.ow : s.w);
  const int pixels = (int)(KIND == FORWARD ? s.oh : s.h) * width;
  const int image = j / pixels, p = j % pixels;
  if (KIND == FORWARD) {
    c.base = (image * s.c + group * inner) * s.h * s.w;
    c.out = (image * s.o + group * outer) * pixels + p;
    c.y = p / width * (int)s.sh - (int)s.top, c.x = p % width * (int)s.sw - (int)s.left;
  } else {
    c.base = (image * s.o + group * outer) * s.oh * s.ow;
    c.out = (image * s.c + group * inner) * pixels + p;
    c.y = p / width + (int)s.top, c.x = p % width + (int)s.left;
  }
  return c;
}
__device__ __forceinline__ C gathered(
    const T* images, const Window& s, const Row& r, const Column& c) {
  int y = r.y + c.y, x = r.x + c.x;
  if (y < 0 || x < 0) return C(0);
  if (KIND == INPUT) {
    const int sh = (int)s.sh, sw = (int)s.sw;
    if (y % sh || x % sw || y / sh >= s.oh || x / sw >= s.ow) return C(0);
    return load(images[c.base + r.b + (long long)(y / sh) * s.ow + x / sw]);
  }
  return y < s.h && x < s.w ? load(images[c.base + r.b + (long long)y * s.w + x]) : C(0);
}
// A block of 256 threads computes M x N products, a thread 4 x 4 of them; M * N is 4096.
template <int M, int N> __device__ __forceinline__ void tile(
    const T* left, const T* images, T* out, C* parts, const Window& s, const Product& p,
    long long number) {
  __shared__ Row rows[STEP];
  __shared__ Pack<C, 4> as[STEP][M / 4 + 1], bs[STEP][N / 4];
  const int t = threadIdx.x, tiles_m = (p.m + M - 1) / M, tiles_n = (p.n + N - 1) / N;
  const int m0 = (int)(number % tiles_m) * M, n0 = (int)(number / tiles_m % tiles_n) * N;
  const int group = (int)(number / tiles_m / tiles_n % p.groups);
  const int part = (int)(number / tiles_m / tiles_n / p.groups), begin = part * p.length;
  const int end = p.length < p.k - begin ? begin + p.length : p.k;
  const int column = n0 + t % N, i0 = t / (N / 4) * 4, j0 = t % (N / 4) * 4;
  const Column own = column_of(s, group, column < p.n ? column : 0);
  const T* a = left + group * p.a_group;
  C sums[4][4] = {};
  for (int k0 = begin; k0 < end; k0 += STEP) {
    if (t < STEP) rows[t] = row_of(s, k0 + t < end ? k0 + t : begin);
    __syncthreads();
    const int ka = t % STEP;
    for (int i = t / STEP; i < M; i += 256 / STEP)
      as[ka][i / 4].at[i % 4] =
          m0 + i < p.m && k0 + ka < end ? load(a[(m0 + i) * p.a_step + rows[ka].a]) : C(0);
    for (int k = t / N; k < STEP; k += 256 / N)
      bs[k][t % N / 4].at[t % 4] =
          column < p.n && k0 + k < end ? gathered(images, s, rows[k], own) : C(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEP; ++k) {
      const Pack<C, 4> x = as[k][i0 / 4], y = bs[k][j0 / 4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += x.at[i] * y.at[j];
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (n0 + j0 + j >= p.n) continue;
    const Column to = column_of(s, group, n0 + j0 + j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (m0 + i0 + i >= p.m) continue;
      const long long at = to.out + (m0 + i0 + i) * p.out_step;
      if (p.split > 1) parts[part * p.size + at] = sums[i][j];
      else out[at] = store<T>(sums[i][j]);
    }
  }
}
extern "C" __global__ void __launch_bounds__(256, 2) tiles_64(
    const T* left, const T* images, T* out, C* parts, Window s, Product p, long long tiles) {
  for (long long g = blockIdx.x; g < tiles; g += gridDim.x)
    tile<64, 64>(left, images, out, parts, s, p, g);
}
extern "C" __global__ void __launch_bounds__(256, 2) tiles_32(
    const T* left, const T* images, T* out, C* parts, Window s, Product p, long long tiles) {
  for (long long g = blockIdx.x; g < tiles; g += gridDim.x)
    tile<32, 128>(left, images, out, parts, s, p, g);
}
extern "C" __global__ void sum_parts(const C* parts, T* out, Product p) {
  MINIML_FOR(i, p.size) {
    C sum = C(0);
    for (int part = 0; part < p.split; ++part) sum += parts[part * p.size + i];
    out[i] = store<T>(sum);
  }
}
"""
NAMES = {"STEP": STEP, "FORWARD": FORWARD, "INPUT": INPUT, "WEIGHT": WEIGHT}
_LONG, _SHORT = ("a_step", "out_step", "a_group", "size"), "m n k groups split length".split()
PRODUCT = np.dtype([*((f, np.int64) for f in _LONG), *((f, np.int32) for f in _SHORT)])


class Tiled(NamedTuple):
    """The launch of a convolution by tiles."""

    entry: str
    grid: tuple[int]
    product: Any
    tiles: np.int64
    split: int


def tiled(kind: int, window: Any) -> Tiled | None:
    """The launch of a convolution by tiles; None if it is too small for them, or has too many rows,
    columns or pixels for 32 bits.

    The weights' gradient has few elements and long sums: these are cut into parts.
    """
    s = {name: int(window[name][0]) for name in window.dtype.names}
    outer, inner, taps = s["o"] // s["groups"], s["c"] // s["groups"], s["kh"] * s["kw"]
    pixels, plane = s["oh"] * s["ow"], s["h"] * s["w"]
    m, n, k, a_step, out_step, a_group = {
        FORWARD: (outer, s["n"] * pixels, inner * taps, inner * taps, pixels, outer * inner * taps),
        INPUT: (inner, s["n"] * plane, outer * taps, taps, plane, outer * inner * taps),
        WEIGHT: (outer, inner * taps, s["n"] * pixels, pixels, inner * taps, outer * pixels),
    }[kind]
    far = (s["oh"] - 1) * s["sh"] + s["kh"] * s["dh"], (s["ow"] - 1) * s["sw"] + s["kw"] * s["dw"]
    if m < 8 or n < 16 or k < STEP or max(m, n, k, *far, *s.values()) > MOST:
        return None
    entry, high, wide = ("tiles_64", 64, 64) if m > 32 else ("tiles_32", 32, 128)
    tiles = -(-m // high) * -(-n // wide) * s["groups"]
    split = max(1, min(512 // tiles, k // (8 * STEP))) if kind == WEIGHT else 1
    length = -(-k // (split * STEP)) * STEP
    split = -(-k // length)
    size = s["o"] * inner * taps
    fields = (a_step, out_step, a_group, size, m, n, k, s["groups"], split, length)
    record, count = np.array([fields], PRODUCT), tiles * split
    return Tiled(entry, (min(count, 1 << 20),), record, np.int64(count), split)
