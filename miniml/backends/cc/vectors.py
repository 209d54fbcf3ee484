"""Vector types of C for one scalar type, as wide as the registers of this machine."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...dtype import DType
from ...features import CPU

SCALARS = {"f": "float", "d": "double"}  # type codes that native kernels compute in


def register_bytes(masked: tuple[str, ...] = ()) -> int:
    """Bytes of a vector register, if these features of the CPU are not to be used."""
    wide = (b for f, b in (("avx512f", 64), ("avx", 32)) if CPU.get(f) and f not in masked)
    return next(wide, 16)


class Vectors(NamedTuple):
    """Vectors of `size` bytes of a scalar type of C."""

    scalar: str
    size: int

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return self.size // (4 if self.scalar == "float" else 8)

    @property
    def registers(self) -> int:
        """Vector registers: 32 with AVX-512 and on ARM, 16 with SSE and AVX."""
        return 32 if self.size == 64 or CPU.get("neon") else 16

    def text(self, file: str) -> str:
        """A C file beside this one, written for these vectors."""
        return self.written(_read(file))

    def written(self, text: str) -> str:
        """C for the type REAL, the INTEGER of its size, and registers of BYTES bytes."""
        integer = "int32_t" if self.scalar == "float" else "int64_t"
        words = {"REAL": self.scalar, "INTEGER": integer, "BYTES": str(self.size)}
        return re.sub("|".join(words), lambda found: words[found[0]], text)

    @property
    def prelude(self) -> str:
        """The vector types, and the transposition of a square of registers."""
        return self.text("vectors.c").replace("    SWAPS;\n", "".join(self._swaps()))

    def _swaps(self) -> list[str]:
        """A transposition in log2(width) rounds, which exchange blocks off the diagonal."""
        lines, n = [], self.width
        for half in (n >> k for k in range(1, n.bit_length())):
            low = ", ".join(str(n + i - half if i & half else i) for i in range(n))
            high = ", ".join(str(n + i if i & half else i + half) for i in range(n))
            pairs = [(i, i + half) for i in range(n) if not i & half]
            lines += [f"    SWAP({i}, {j}, ({low}), ({high}))\n" for i, j in pairs]
        return lines


def vectors(dtype: DType, masked: tuple[str, ...] = ()) -> Vectors:
    """The vectors of float32 or float64 on this machine without the masked features."""
    return Vectors(SCALARS[dtype.char], register_bytes(masked))


@cache
def _read(file: str) -> str:
    return Path(__file__).with_name(file).read_text("utf-8")
