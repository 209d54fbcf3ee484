"""How the library's CUDA kernels are registered: expressions, and texts with a launch rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....dtype import DType
from ...kernel import Expression, KernelNode, Launch, RawSource
from ...registry import kernel

Types = tuple[tuple[str, DType], ...]


def express(
    name: str,
    text: str,
    *signatures: str,
    unit: str,
    inplace: tuple[int, ...] = (),
    types: Types | None = None,
    scalars: Callable[[KernelNode], Mapping[str, Any]] | None = None,
) -> None:
    """Register a scalar expression as the CUDA kernel of `name`; those of one unit and signature
    are compiled together."""
    for signature in signatures:
        body = Expression(text, f"{unit} {signature}", types, scalars)
        kernel(name, "cuda", signature, inplace=inplace, total=True)(body)


def raw(
    name: str,
    *signatures: str,
    entry: str,
    source: str,
    launch: Callable[[KernelNode], Launch],
    strided: bool = False,
    defines: Mapping[str, object] | None = None,
) -> None:
    """Register CUDA C text as the CUDA kernel of `name`."""
    macros = tuple((key, str(value)) for key, value in (defines or {}).items())
    kernel(name, "cuda", *signatures, strided=strided)(RawSource(source, entry, launch, macros))
