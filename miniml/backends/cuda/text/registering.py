"""How the library's CUDA kernels are registered: type codes, and CUDA C with a launch rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....dtype import bfloat16
from ...kernel import KernelNode, Launch, RawSource
from ...registry import kernel

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


def raw(
    name: str,
    *signatures: str,
    entry: str,
    source: str,
    launch: Callable[[KernelNode], Launch],
    strided: bool = False,
    defines: Mapping[str, object] | None = None,
) -> None:
    """File CUDA C text as the CUDA kernel of `name`."""
    macros = tuple((key, str(value)) for key, value in (defines or {}).items())
    kernel(name, "cuda", *signatures, strided=strided)(RawSource(source, entry, launch, macros))
