"""Registration of NumPy kernels, which compute float16 and bfloat16 in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernel import Body
from ..registry import in_float32 as in_float32
from ..registry import kernel
from ..signature import LOW, WIDE


def register(
    name: str, body: Body, *signatures: str, inplace: tuple[int, ...] = (), total: bool = False
) -> None:
    """Register a NumPy function, or a Kernel class, as the CPU kernel of primitive `name`."""
    kernel(name, "cpu", *signatures, inplace=inplace, total=total)(body)


def register_floats(name: str, fn: Callable[..., Any], *signatures: str) -> None:
    """Register `fn` for float32 and float64, and through float32 for float16 and bfloat16.

    signatures: with {} for the float's type code; "{}->{}" where none is given.
    """
    for body, codes in ((fn, WIDE), (in_float32(fn), LOW)):
        register(
            name, body, *[s.replace("{}", c) for s in signatures or ("{}->{}",) for c in codes]
        )
