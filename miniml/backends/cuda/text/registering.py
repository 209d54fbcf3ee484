"""The type codes that the library's CUDA kernels are registered for."""

from __future__ import annotations

from ....dtype import bfloat16

BF16 = bfloat16.char
LOW = "e" + BF16
WIDE = "fd"
FLOAT = LOW + WIDE
SIGNED = "bhil"
UNSIGNED = "BHIL"
INT = SIGNED + UNSIGNED
NUMBER = INT + FLOAT
ANY = "?" + NUMBER


def same(arity: int, letters: str, out: str = "") -> list[str]:
    """Signatures with `arity` equal inputs and an output of the same dtype, or of dtype `out`."""
    return [f"{c * arity}->{out or c}" for c in letters]
