"""Pooling and its gradients in C, with the batch or the row of windows innermost."""

from __future__ import annotations

from math import prod
from typing import Any

from ..kernel import KernelNode
from ..registry import kernel
from .convolve import PARTS, enumerators
from .kernel import NativeKernel
from .planes import BATCH_INNERMOST
from .source import Source
from .vectors import SCALARS, vectors

SPLIT = 100_000  # pixels that windows read, about 50 us, from which on a kernel is split

# Every body computes the planes `first` to `last`: of all images where the batch is innermost.
PART = """\
static void KERNEL_part(void *data, long part) {{
  char *const *at = data;
  const long first = KERNEL_PLANES * part / KERNEL_PARTS;
  const long last = KERNEL_PLANES * (part + 1) / KERNEL_PARTS;
  for (long plane = first; plane < last; ++plane) {{
{body}  }}
}}
"""
LINES = """\
    for (long r = 0; r < KERNEL_OH; ++r)
      for (long q = 0; q < KERNEL_ACROSS; ++q) {
        const long window = (r * KERNEL_OW + q) * KERNEL_LANES;
"""
# The first of equals wins, and the first NaN whatever follows. Padding never does: a window starts
# from minus infinity at its first pixel.
MAX = f"""\
    const REAL *x = (const REAL *)at[0] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    REAL *out = (REAL *)at[1] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
    int64_t *indices = (int64_t *)at[2] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
{LINES}\
        REAL best[KERNEL_RUN];
        INTEGER won[KERNEL_RUN];
        for (long m = 0; m < KERNEL_RUN; ++m) {{
          const long column = KERNEL_column(q, m);
          best[m] = -__builtin_inff();
          won[m] = KERNEL_first(r) * KERNEL_W + (column < 0 ? -column : 0);
        }}
        for (long i = KERNEL_first(r); i < KERNEL_last(r); ++i)
          for (long j = 0; j < KERNEL_KW; ++j) {{
            const long from = KERNEL_pixel(r, q, i, j), high = KERNEL_high(q, j);
            for (long m = KERNEL_low(q, j); m < high; ++m) {{
              const REAL v = x[from + m * KERNEL_STEP];
              const int better = (v > best[m]) | ((v != v) & (best[m] == best[m]));
              best[m] = better ? v : best[m];
              won[m] = better ? i * KERNEL_W + j : won[m];
            }}
          }}
        for (long m = 0; m < KERNEL_RUN; ++m) {{
          out[window + m] = best[m];
          indices[window + m] =
              won[m] + (r * KERNEL_SH - KERNEL_TOP) * KERNEL_W + KERNEL_column(q, m);
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
{LINES}\
        REAL sum[KERNEL_RUN];
        for (long m = 0; m < KERNEL_RUN; ++m) sum[m] = 0;
        for (long i = KERNEL_first(r); i < KERNEL_last(r); ++i)
          for (long j = 0; j < KERNEL_KW; ++j) {{
            const long from = KERNEL_pixel(r, q, i, j), high = KERNEL_high(q, j);
            for (long m = KERNEL_low(q, j); m < high; ++m) sum[m] += x[from + m * KERNEL_STEP];
          }}
        for (long m = 0; m < KERNEL_RUN; ++m) out[window + m] = sum[m] / KERNEL_count(r, q, m);
      }}
"""
MEAN_GRAD = f"""\
    const REAL *dout = (const REAL *)at[0] + plane * KERNEL_OH * KERNEL_OW * KERNEL_LANES;
    REAL *dx = (REAL *)at[1] + plane * KERNEL_H * KERNEL_W * KERNEL_LANES;
    memset(dx, 0, KERNEL_H * KERNEL_W * KERNEL_LANES * sizeof(REAL));
{LINES}\
        REAL share[KERNEL_RUN];
        for (long m = 0; m < KERNEL_RUN; ++m) share[m] = dout[window + m] / KERNEL_count(r, q, m);
        for (long i = KERNEL_first(r); i < KERNEL_last(r); ++i)
          for (long j = 0; j < KERNEL_KW; ++j) {{
            const long to = KERNEL_pixel(r, q, i, j), high = KERNEL_high(q, j);
            for (long m = KERNEL_low(q, j); m < high; ++m) dx[to + m * KERNEL_STEP] += share[m];
          }}
      }}
"""
# name: body, which input or output is the image and which the windows (inputs first), signature
KERNELS = {
    "MaxPool2D": (MAX, 0, 1, "{0}->{0}l"),
    "MaxPool2DGrad": (MAX_GRAD, 2, 0, "{0}l->{0}"),
    "MaxPool2DGather": (MAX_GATHER, 0, 2, "{0}l->{0}"),
    "AvgPool2D": (MEAN, 0, 1, "{0}->{0}"),
    "AvgPool2DGrad": (MEAN_GRAD, 1, 0, "{0}->{0}"),
}


class Pooling(NativeKernel):
    """A kernel of pooling; all arrays have the batch innermost, or none has."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        body, image, windows, _ = KERNELS[node.name]
        arrays = (*node.inputs, *node.outputs)
        text = enumerators(geometry(node.attrs, arrays[image], arrays[windows]))
        split = prod(arrays[image].shape) > SPLIT
        text += f"#define KERNEL_ALL {'miniml.parallel' if split else 'miniml_serial'}\n"
        v = vectors(arrays[image].dtype)
        self.source = Source(
            text + v.text("pool.c").replace("PART\n", v.written(PART.format(body=body)))
        )


def geometry(attrs: Any, image: Any, windows: Any) -> dict[str, int]:
    """The numbers of a pooling from an image's and its windows' specs."""
    (images, channels, h, w), (oh, ow) = image.shape, windows.shape[2:]
    kh, kw = attrs.get("kernel_size", (1, 1))
    sh, sw = attrs.get("stride", (1, 1))
    (top, _), (left, _) = attrs.get("padding", ((0, 0), (0, 0)))
    batch = image.format == BATCH_INNERMOST
    planes = channels if batch else images * channels
    return {
        "H": h, "W": w, "OH": oh, "OW": ow, "KH": kh, "KW": kw, "SH": sh, "SW": sw, "TOP": top,
        "LEFT": left, "PADDED": int(attrs.get("count_include_pad", True)), "BATCH": int(batch),
        "LANES": images if batch else 1, "RUN": images if batch else ow,
        "ACROSS": ow if batch else 1, "STEP": 1 if batch else sw, "PLANES": planes,
        "PARTS": max(1, min(PARTS, planes)),
    }  # fmt: skip


for _name, (*_, _signature) in KERNELS.items():
    kernel(_name, "cpu", *map(_signature.format, SCALARS), provider="cc", total=True)(Pooling)
