"""Random draws in C: which elements dropout keeps, bit for bit as in `cpu.philox`."""

from __future__ import annotations

import math

from ..expressions.types import C_TYPES
from ..kernel import KernelNode
from ..registry import kernel
from .kernel import NativeKernel
from .source import Source

PART = 2**13  # blocks of four words that one thread draws at a time: some 30 us
# LANES blocks go side by side, so that each round is a few vectors of them.
TEXT = r"""
enum { KERNEL_LANES = 16 };
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  const uint64_t key = ((const uint64_t *)at[0])[0];
  const uint64_t first = ((const uint64_t *)at[0])[1] + KERNEL_SKIP;
  KERNEL_OUT *restrict out = (KERNEL_OUT *)at[1];
  const long past = (part + 1) * KERNEL_PART;
  const long end = past < (KERNEL_N + 3) / 4 ? past : (KERNEL_N + 3) / 4;
  for (long b = part * KERNEL_PART; b < end; b += KERNEL_LANES) {
    uint32_t w[4][KERNEL_LANES];
    KERNEL_OUT kept[KERNEL_LANES][4];
    for (int l = 0; l < KERNEL_LANES; ++l) {
      const uint64_t counter = first + (uint64_t)(b + l);
      uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
      uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 10
      for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p = 0xD2511F53ull * c0, q = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0, c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)q, c3 = (uint32_t)p;
      }
      w[0][l] = c0, w[1][l] = c1, w[2][l] = c2, w[3][l] = c3;
    }
    for (int l = 0; l < KERNEL_LANES; ++l)
      for (int i = 0; i < 4; ++i) kept[l][i] = (w[i][l] >> 8) < KERNEL_THRESHOLD;
    const long left = KERNEL_N - 4 * b, count = left < 4 * KERNEL_LANES ? left : 4 * KERNEL_LANES;
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
            "SKIP": f"{node.attrs['skip']}ull",
            "OUT": C_TYPES[node.outputs[0].dtype].replace("bool", "_Bool"),
            "N": f"{n}L",
            "PART": f"{PART}L",
            "PARTS": f"{-(-n // (4 * PART))}L",
            "THRESHOLD": f"{math.ceil(float(node.attrs['p']) * 2.0**24)}u",
        }
        defines = "".join(f"#define KERNEL_{name} {value}\n" for name, value in names.items())
        undefines = "".join(f"#undef KERNEL_{name}\n" for name in names)
        self.source = Source(defines + TEXT + undefines)


kernel("Bernoulli", "cpu", "L->?", "L->f", "L->d", provider="cc", total=True)(Bernoulli)
