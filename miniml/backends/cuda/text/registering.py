"""How the library's CUDA kernels are filed: letters of dtypes, expressions by rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....dtype import DType, bfloat16
from ...kernel import Expression, KernelNode, Launch, RawSource
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

Types = tuple[tuple[str, DType], ...]


def same(arity: int, letters: str, out: str = "") -> list[str]:
    """Signatures with `arity` equal inputs and an output of the same dtype, or of dtype `out`."""
    return [f"{c * arity}->{out or c}" for c in letters]


def express(
    name: str,
    text: str,
    *signatures: str,
    unit: str,
    inplace: tuple[int, ...] = (),
    types: Types | None = None,
    scalars: Callable[[KernelNode], Mapping[str, Any]] | None = None,
) -> None:
    """File a scalar expression as the CUDA kernel of `name`, compiled with those of its unit and
    its signature."""
    for signature in signatures:
        body = Expression(text, f"{unit} {signature}", types, scalars)
        kernel(name, "cuda", signature, inplace=inplace)(body)


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
