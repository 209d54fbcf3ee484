"""Registration of NumPy kernels, which compute float16 and bfloat16 in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from ...core.dtype import bfloat16, float16, float32
from ..kernel import Array, Body
from ..registry import kernel
from ..signature import LOW, WIDE


def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel `fn` for float16 and bfloat16: inputs widened to float32, outputs rounded once."""

    @wraps(fn)
    def widened(*inputs: Array, out: Array | tuple[Array, ...], **attrs: Any) -> None:
        wide = [a.astype(float32) if a.dtype in (float16, bfloat16) else a for a in inputs]
        outs = out if isinstance(out, tuple) else (out,)
        scratch = tuple(
            np.empty(o.shape, float32) if o.dtype in (float16, bfloat16) else o for o in outs
        )
        fn(*wide, **attrs, out=scratch if isinstance(out, tuple) else scratch[0])
        for target, computed in zip(outs, scratch, strict=True):
            if target is not computed:
                target[...] = computed

    return widened


def register(
    name: str, body: Body, *signatures: str, inplace: tuple[int, ...] = (), total: bool = False
) -> None:
    """Register a NumPy function, or a Kernel class, as the CPU kernel of primitive `name`."""
    kernel(name, "cpu", *signatures, inplace=inplace, total=total)(body)


def register_ufuncs(
    ufuncs: Mapping[str, np.ufunc], *signatures: str, inplace: tuple[int, ...] = ()
) -> None:
    """Register ufuncs that never raise, by primitive name, for the same signatures."""
    for name, ufunc in ufuncs.items():
        register(name, ufunc, *signatures, inplace=inplace, total=True)


def register_floats(name: str, fn: Callable[..., Any], *signatures: str) -> None:
    """Register `fn` for float32 and float64, and through float32 for float16 and bfloat16.

    signatures: with {} for the float's type code; "{}->{}" where none is given.
    """
    for body, codes in ((fn, WIDE), (in_float32(fn), LOW)):
        register(
            name, body, *[s.replace("{}", c) for s in signatures or ("{}->{}",) for c in codes]
        )
