"""How the NumPy kernels are filed: signatures by letters, and low-precision floats via float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from ...dtype import bfloat16, float16, float32
from ..kernel import Array, KernelNode
from ..registry import kernel

BF16 = bfloat16.char
LOW = "e" + BF16
WIDE = "fd"
FLOAT = LOW + WIDE
INT = "bhilBHIL"
NUMBER = INT + FLOAT
ANY = "?" + NUMBER


def same(arity: int, letters: str, out: str = "") -> list[str]:
    """Signatures with `arity` equal inputs and an output of the same dtype, or of dtype `out`."""
    return [f"{c * arity}->{out or c}" for c in letters]


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


def file(
    name: str,
    fn: Callable[..., Any],
    *signatures: str,
    inplace: tuple[int, ...] = (),
    specialize: Callable[[KernelNode], Callable[..., Any]] | None = None,
) -> None:
    """File a NumPy function as the CPU kernel of primitive `name`."""
    kernel(name, "cpu", *signatures, inplace=inplace, specialize=specialize)(fn)


def file_ufuncs(
    ufuncs: Mapping[str, np.ufunc], *signatures: str, inplace: tuple[int, ...] = ()
) -> None:
    """File ufuncs, by primitive name, that take the same signatures."""
    for name, ufunc in ufuncs.items():
        file(name, ufunc, *signatures, inplace=inplace)


def file_floats(name: str, fn: Callable[..., Any], arity: int = 1) -> None:
    """File `fn` for float32 and float64, and through float32 for float16 and bfloat16."""
    file(name, fn, *same(arity, WIDE))
    file(name, in_float32(fn), *same(arity, LOW))


def file_view(name: str, fn: Callable[..., Array], letters: str = ANY) -> None:
    """File a function that returns a view of its input."""
    kernel(name, "cpu", *same(1, letters), view=0)(fn)
