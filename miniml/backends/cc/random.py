"""Random draws in C: the elements that dropout keeps, bit for bit as in `cpu.random`."""

from __future__ import annotations

import math

import numpy as np

from ..expressions.table import C_TYPES
from ..kernel import KernelNode
from ..registry import kernel
from .player import NativeKernel
from .text import header
from .units import Source

PART = 2**13  # blocks of four words that one thread draws at a time: some 30 us
TEXT = r"""
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  const uint64_t key = ((const uint64_t *)at[0])[0];
  const uint64_t first = ((const uint64_t *)at[0])[1] + *(const uint64_t *)at[2];
  KERNEL_OUT *restrict out = (KERNEL_OUT *)at[1];
  const long past = (part + 1) * KERNEL_PART;
  const long end = past < (KERNEL_N + 3) / 4 ? past : (KERNEL_N + 3) / 4;
  for (long b = part * KERNEL_PART; b < end; b += MINIML_DRAWN) {
    uint32_t w[4][MINIML_DRAWN];
    KERNEL_OUT kept[MINIML_DRAWN][4];
    miniml_philox(key, first + (uint64_t)b, w);
    for (int l = 0; l < MINIML_DRAWN; ++l)
      for (int i = 0; i < 4; ++i) kept[l][i] = (w[i][l] >> 8) < KERNEL_THRESHOLD;
    const long left = KERNEL_N - 4 * b, count = left < 4 * MINIML_DRAWN ? left : 4 * MINIML_DRAWN;
    memcpy(out + 4 * b, kept, (size_t)count * sizeof(KERNEL_OUT));
  }
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS); }
"""


class Bernoulli(NativeKernel):
    """1 where the upper 24 bits of a word are below p 2^24, else 0."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        n = math.prod(node.outputs[0].shape)
        names = {
            "OUT": C_TYPES[node.outputs[0].dtype].replace("bool", "_Bool"),
            "N": f"{n}L",
            "PART": f"{PART}L",
            "PARTS": f"{-(-n // (4 * PART))}L",
            "THRESHOLD": f"{math.ceil(float(node.attrs['p']) * 2.0**24)}u",
        }
        defines = "".join(f"#define KERNEL_{name} {value}\n" for name, value in names.items())
        undefines = "".join(f"#undef KERNEL_{name}\n" for name in names)
        self.own = (np.array(node.attrs["skip"], np.uint64),)  # layers of dropout share a kernel
        self.source = Source(defines + TEXT + undefines, header("philox"))


kernel("Bernoulli", "cpu", "L->?", "L->f", "L->d", provider="cc", total=True)(Bernoulli)
