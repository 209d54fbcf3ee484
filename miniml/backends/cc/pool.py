"""Pooling and its gradients in C, over one image at a time or over the lanes of a pixel."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.abstract import OTHERS, PLAIN, parse, stored
from ..kernel import Formats, KernelNode
from ..registry import Spec, image_attr, image_format, image_formats, kernel
from .convolution import PARTS
from .native import NativeKernel
from .scalars import SCALARS, vectors
from .units import Source, enumerators, run_by

MOST = 4096  # windows of a row that are computed side by side: their maxima are on the stack
SPLIT = 100_000  # pixels that windows read, about 50 us, from which on a kernel is split

# Every body computes the planes `first` to `last`: of all images where the batch is innermost.
PART = """\
static void KERNEL_part(void *data, long part) {{
  char *const *at = data;
  KERNEL_NUMBERS(at)
  const long first = KERNEL_PLANES * part / KERNEL_PARTS;
  const long last = KERNEL_PLANES * (part + 1) / KERNEL_PARTS;
  for (long plane = first; plane < last; ++plane) {{
{body}  }}
}}
"""
WINDOWS = """\
    for (long r = 0; r < KERNEL_OH; ++r)
      for (long q = 0; q < KERNEL_COLUMNS; ++q) {
        const long window = (r * KERNEL_COLUMNS + q) * KERNEL_SIDE;
"""
PIXELS = """\
        for (long i = KERNEL_top(r); i < KERNEL_bottom(r); ++i)
          for (long j = KERNEL_begin(q); j < KERNEL_end(q); ++j) {
            const long place = i * KERNEL_W + j, pixel = place * KERNEL_LANES;
            const long to = KERNEL_to(j);
#pragma GCC unroll 1 /* short loops, unrolled, would be branches */
            for (long n = KERNEL_from(j); n < to; ++n) {
"""
# The first of equals wins, and the first NaN whatever follows. A window starts from minus infinity
# at its first pixel.
MAX = f"""\
    const REAL *x = (const REAL *)at[0] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    REAL *out = (REAL *)at[1] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
    int64_t *indices = (int64_t *)at[2] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
{WINDOWS}\
        REAL best[KERNEL_SIDE];
        INTEGER won[KERNEL_SIDE];
        for (long n = 0; n < KERNEL_SIDE; ++n) {{
          best[n] = -__builtin_inff();
          won[n] = KERNEL_top(r) * KERNEL_W + KERNEL_left(KERNEL_window(q, n));
        }}
{PIXELS}\
              const REAL v = x[pixel + n * KERNEL_STEP];
              const int better = !(v <= best[n]) & (best[n] == best[n]);
              best[n] = better ? v : best[n];
              won[n] = better ? (INTEGER)place + (INTEGER)n * KERNEL_APART : won[n];
            }}
          }}
        for (long n = 0; n < KERNEL_SIDE; ++n) {{
          out[window + n] = best[n];
          indices[window + n] = won[n];
        }}
      }}
"""
# Indices that lie outside of the plane, which MaxPool2D never gives, are ignored.
MAX_GRAD = """\
    const long windows = KERNEL_OH * KERNEL_OW * KERNEL_LANES;
    const REAL *dout = (const REAL *)at[0] + plane * windows;
    const int64_t *indices = (const int64_t *)at[1] + plane * windows;
    REAL *dx = (REAL *)at[2] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    memset(dx, 0, KERNEL_H * KERNEL_W * KERNEL_LANES * sizeof(REAL));
    for (long p = 0; p < windows; p += KERNEL_LANES)
      for (long n = 0; n < KERNEL_LANES; ++n)
        if ((uint64_t)indices[p + n] < KERNEL_H * KERNEL_W)
          dx[indices[p + n] * KERNEL_LANES + n] += dout[p + n];
"""
MAX_GATHER = """\
    const long windows = KERNEL_OH * KERNEL_OW * KERNEL_LANES;
    const REAL *x = (const REAL *)at[0] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    const int64_t *indices = (const int64_t *)at[1] + plane * windows;
    REAL *out = (REAL *)at[2] + plane * windows;
    for (long p = 0; p < windows; p += KERNEL_LANES)
      for (long n = 0; n < KERNEL_LANES; ++n) {
        const int64_t i = indices[p + n], top = KERNEL_H * KERNEL_W - 1;
        out[p + n] = x[(i < 0 ? 0 : i > top ? top : i) * KERNEL_LANES + n];
      }
"""
MEAN = f"""\
    const REAL *x = (const REAL *)at[0] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    REAL *out = (REAL *)at[1] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
{WINDOWS}\
        REAL sum[KERNEL_SIDE];
        for (long n = 0; n < KERNEL_SIDE; ++n) sum[n] = 0;
{PIXELS}\
              sum[n] += x[pixel + n * KERNEL_STEP];
            }}
          }}
        for (long n = 0; n < KERNEL_SIDE; ++n)
          out[window + n] = sum[n] / KERNEL_count(r, KERNEL_window(q, n));
      }}
"""
MEAN_GRAD = f"""\
    const REAL *dout = (const REAL *)at[0] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
    REAL *dx = (REAL *)at[1] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    memset(dx, 0, KERNEL_H * KERNEL_W * KERNEL_LANES * sizeof(REAL));
{WINDOWS}\
        REAL share[KERNEL_SIDE];
        for (long n = 0; n < KERNEL_SIDE; ++n)
          share[n] = dout[window + n] / KERNEL_count(r, KERNEL_window(q, n));
{PIXELS}\
              dx[pixel + n * KERNEL_STEP] += share[n];
            }}
          }}
      }}
"""
# name: body, positions of the image and the windows (inputs first, then outputs), signature
KERNELS = {
    "MaxPool2D": (MAX, 0, 1, "{0}->{0}l"),
    "MaxPool2DGrad": (MAX_GRAD, 2, 0, "{0}l->{0}"),
    "MaxPool2DGather": (MAX_GATHER, 0, 2, "{0}l->{0}"),
    "AvgPool2D": (MEAN, 0, 1, "{0}->{0}"),
    "AvgPool2DGrad": (MEAN_GRAD, 1, 0, "{0}->{0}"),
}


class Pooling(NativeKernel):
    """A kernel of pooling, of images that all have one memory format."""

    def select_format(self, node: KernelNode) -> tuple[Formats, Formats]:
        """The format of its input, unless a pixel of it is too long for the stack."""
        format = image_format(node)
        lanes = 1 if format == PLAIN else stored(node.inputs[0].shape, format)[-1]
        return image_formats(node.name, format if lanes <= MOST else PLAIN)

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        body, image, windows, _ = KERNELS[node.name]
        arrays = (*node.inputs, *node.outputs)
        text = enumerators(geometry(node.attrs, arrays[image], arrays[windows]), "PLANES", "PARTS")
        text += run_by(prod(arrays[image].shape) > SPLIT)
        v = vectors(arrays[image].dtype, node.masked)
        self.source = Source(
            text + v.text("pool.c").replace("PART\n", v.written(PART.format(body=body)))
        )


def geometry(attrs: Any, image: Any, windows: Any) -> dict[str, int]:
    """The numbers of a pooling from an image's and its windows' specs."""
    (h, w), (oh, ow) = image.shape[2:], windows.shape[2:]
    kh, kw = attrs.get("kernel_size", (1, 1))
    sh, sw = attrs.get("stride", (1, 1))
    (top, _), (left, _) = attrs.get("padding", ((0, 0), (0, 0)))
    lanes = 1 if image.format is None else image.stored[-1]
    planes = prod(image.stored) // (h * w * lanes)
    return {
        "H": h, "W": w, "OH": oh, "OW": ow, "KH": kh, "KW": kw, "SH": sh, "SW": sw, "TOP": top,
        "LEFT": left, "PADDED": int(attrs.get("count_include_pad", True)),
        "LANES": lanes, "ROWWISE": int(lanes == 1 and ow <= MOST), "PLANES": planes,
        "PARTS": max(1, min(PARTS, planes)),
    }  # fmt: skip


for _name, (*_, _signature) in KERNELS.items():
    _plain = [parse(_signature.format(c)) for c in SCALARS]
    _every: list[Spec] = [*_plain, *(image_attr(_name, s, f) for s in _plain for f in OTHERS)]
    kernel(_name, "cpu", *_every, provider="cc", total=True)(Pooling)
