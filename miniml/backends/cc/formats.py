"""Conversions of images between row-major order and other memory formats, as transpositions."""

from __future__ import annotations

from math import prod

from ...formats import OTHERS
from ..kernel import KernelNode
from ..registry import kernel
from ..signature import KernelAttr
from .convolve import enumerators, run_by
from .kernel import NativeKernel
from .source import Source
from .vectors import SCALARS, Vectors, register_bytes

SPLIT = 100_000  # elements, about 50 us, from which on a copy is split over threads

# A part is a matrix of LANES rows where images are row-major, and of LANES columns where they are
# not: the channels of an image, the images of a channel, or a block of the channels of an image, of
# which the last may have fewer.
TEXT = """\
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  const REAL *x = (const REAL *)at[0];
  REAL *out = (REAL *)at[1];
  const long group = part / KERNEL_BLOCKS, block = part % KERNEL_BLOCKS;
  const long left = KERNEL_COUNT - block * KERNEL_LANES;
  const long lanes = left < KERNEL_LANES ? left : KERNEL_LANES;
  const long plain = group * KERNEL_GROUP + block * KERNEL_LANES * KERNEL_STEP;
  const long other = part * KERNEL_LANES * KERNEL_PIXELS;
  if (KERNEL_BACK) {
    REAL_squares(x + other, KERNEL_LANES, out + plain, KERNEL_STEP, KERNEL_PIXELS, lanes);
  } else {
    if (lanes < KERNEL_LANES) memset(out + other, 0, KERNEL_LANES * KERNEL_PIXELS * sizeof(REAL));
    REAL_squares(x + plain, KERNEL_STEP, out + other, KERNEL_LANES, lanes, KERNEL_PIXELS);
  }
}
void KERNEL(char *const *at) { KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS); }
"""


class Convert(NativeKernel):
    """From row-major order or back to it."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        x, out = node.inputs[0], node.outputs[0]
        back = out.format is None
        other, (images, channels, *plane) = (x if back else out), x.shape
        lanes, pixels = other.stored[-1], prod(plane)
        batch = other.format == "CHWN"
        groups, count = (channels, images) if batch else (images, channels)
        blocks = -(-count // lanes)
        numbers = {
            "LANES": lanes, "COUNT": count, "BLOCKS": blocks, "PARTS": groups * blocks,
            "PIXELS": pixels, "GROUP": pixels * (1 if batch else channels),
            "STEP": pixels * (channels if batch else 1), "BACK": int(back),
        }  # fmt: skip
        v = Vectors("float" if x.dtype.itemsize == 4 else "double", register_bytes(node.masked))
        text = enumerators(numbers) + run_by(prod(other.stored) > SPLIT) + v.written(TEXT)
        self.source = Source(text, (v.prelude, v.text("planes.c")))


def _between(code: str) -> list[KernelAttr]:
    dtype = {"f": "float32", "d": "float64", "l": "int64"}[code]
    pairs = [p for f in OTHERS for p in ((None, f), (f, None))]
    return [KernelAttr().add_input_attr(dtype, x).add_output_attr(dtype, out) for x, out in pairs]


for _c in (*SCALARS, "l"):
    kernel("Convert", "cpu", *_between(_c), provider="cc", total=True)(Convert)
