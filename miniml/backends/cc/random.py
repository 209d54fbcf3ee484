"""Random draws in C: what dropout keeps, uniform and normal numbers, of the words of `cpu.random`.

Uniform numbers and what is kept have the bits of NumPy's kernels; normal numbers differ from them
by the rounding of the logarithm, the sine and the cosine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ...core.abstract import float64
from ..expressions import C_TYPES
from ..kernel import Array, KernelNode
from ..registry import kernel
from .native import NativeKernel
from .scalars import in_c
from .units import defined, header

PART = 2**13  # blocks of four words that one thread draws at a time: some 30 us
TEXT = r"""
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  const uint64_t key = ((const uint64_t *)at[0])[0];
  const uint64_t first = ((const uint64_t *)at[0])[1] + *(const uint64_t *)at[2];
  KERNEL_OUT *restrict out = (KERNEL_OUT *)at[1];
  const KERNEL_OUT *given = (const KERNEL_OUT *)at[3];
  const long past = (part + 1) * KERNEL_PART, blocks = (KERNEL_N + KERNEL_PER - 1) / KERNEL_PER;
  const long end = past < blocks ? past : blocks;
  for (long b = part * KERNEL_PART; b < end; b += MINIML_DRAWN) {
    uint32_t w[4][MINIML_DRAWN];
    KERNEL_OUT made[KERNEL_PER][MINIML_DRAWN], kept[MINIML_DRAWN][KERNEL_PER];
    miniml_philox(key, first + (uint64_t)b, w);
    for (int l = 0; l < MINIML_DRAWN; ++l) { KERNEL_MAKE }
    for (int l = 0; l < MINIML_DRAWN; ++l)
      for (int i = 0; i < KERNEL_PER; ++i) kept[l][i] = made[i][l];
    const long left = KERNEL_N - KERNEL_PER * b, most = KERNEL_PER * MINIML_DRAWN;
    memcpy(out + KERNEL_PER * b, kept, (size_t)(left < most ? left : most) * sizeof(KERNEL_OUT));
  }
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS); }
"""
# The number in [0, 1) of 53 bits of two words, exactly: processors convert vectors of 32 bits.
PAIR = "((double)w[{1}][l] * 0x1p-32 + (double)(int32_t)(w[{0}][l] >> 11) * 0x1p-53)"


class Draw(NativeKernel, ABC):
    """Draws by a statement that makes those of block `l`, made[0][l] and so on, of its words."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (out,) = node.outputs
        n, per = math.prod(out.shape), self.per(node)
        text, shared = in_c(self.statement(node), {})
        names = {
            "OUT": C_TYPES[out.dtype].replace("bool", "_Bool"),
            "N": f"{n}L",
            "PER": f"{per}",
            "PART": f"{PART}L",
            "PARTS": f"{-(-n // (per * PART))}L",
            "MAKE": text,
        }
        # Apart from the text: layers share a kernel.
        self.own = (np.array(node.attrs["skip"], np.uint64), self.given(node.attrs, out.dtype))
        self.source = defined(names, TEXT, (*header("philox"), *shared))

    def per(self, node: KernelNode) -> int:
        """Elements that a block of four words gives."""
        return 2 if node.outputs[0].dtype == float64 else 4

    @abstractmethod
    def statement(self, node: KernelNode) -> str:
        """The elements of one block."""

    @abstractmethod
    def given(self, attrs: Any, dtype: np.dtype[Any]) -> Array:
        """The numbers `given` that the statement reads."""


class Bernoulli(Draw):
    """1 where the upper 24 bits of a word are below p 2^24, else 0."""

    def per(self, node: KernelNode) -> int:
        return 4

    def statement(self, node: KernelNode) -> str:
        threshold = f"{math.ceil(float(node.attrs['p']) * 2.0**24)}u"
        return f"for (int i = 0; i < 4; ++i) made[i][l] = (w[i][l] >> 8) < {threshold};"

    def given(self, attrs: Any, dtype: np.dtype[Any]) -> Array:
        return np.zeros(1, dtype)


class Uniform(Draw):
    """low + (high - low) u, kept below high."""

    def statement(self, node: KernelNode) -> str:
        if self.per(node) == 2:
            units = [PAIR.format(0, 1), PAIR.format(2, 3)]
        else:
            units = [f"(float)(int32_t)(w[{i}][l] >> 8) * 0x1p-24f" for i in range(4)]
        draws = (f"given[0] + given[1] * ({unit})" for unit in units)
        return " ".join(f"made[{i}][l] = fmin({draw}, given[2]);" for i, draw in enumerate(draws))

    def given(self, attrs: Any, dtype: np.dtype[Any]) -> Array:
        low, high = attrs["low"], attrs["high"]
        below = np.nextafter(np.asarray(high, dtype), np.asarray(low, dtype))
        return np.array([low, float(high) - float(low), below], dtype)


class Normal(Draw):
    """mean + std z, z by the transform of Box and Muller."""

    def statement(self, node: KernelNode) -> str:
        wide = self.per(node) == 2
        lines = []
        for k in range(self.per(node) // 2):
            if wide:
                a, b = f"{PAIR.format(0, 1)} + 0x1p-53", PAIR.format(2, 3)
            else:
                a = f"(float)w[{2 * k}][l] * 0x1p-32f + 0x1p-33f"
                b = f"(float)w[{2 * k + 1}][l] * 0x1p-32f"
            c = "double" if wide else "float"
            lines.append(
                f"const {c} radius{k} = sqrt(-2 * log({a})), turn{k} = ({c})(2 * M_PI) * ({b});"
                f" made[{2 * k}][l] = cos(turn{k}) * radius{k} * given[1] + given[0];"
                f" made[{2 * k + 1}][l] = sin(turn{k}) * radius{k} * given[1] + given[0];"
            )
        return " ".join(lines)

    def given(self, attrs: Any, dtype: np.dtype[Any]) -> Array:
        return np.array([attrs["mean"], attrs["std"]], dtype)


kernel("Bernoulli", "cpu", "L->?", "L->f", "L->d", provider="cc", total=True)(Bernoulli)
for _draw in (Uniform, Normal):
    kernel(_draw.__name__, "cpu", "L->f", "L->d", provider="cc", total=True)(_draw)
