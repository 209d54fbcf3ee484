"""Declarations of kernels: NumPy's type codes by kind, signatures of them, features of machines."""

from collections.abc import Iterable

import numpy as np

from .abstract import bfloat16
from .errors import DeviceError

BF16 = bfloat16.char
LOW = "e" + BF16  # stored in 16 bits; computed in float32 where accuracy requires it
WIDE = "fd"
FLOAT = LOW + WIDE
SIGNED = "bhil"
UNSIGNED = "BHIL"
INT = SIGNED + UNSIGNED
NUMBER = INT + FLOAT
ANY = "?" + NUMBER
COMPLEX = "FD"  # on the CPU alone
HELD = ANY + COMPLEX  # what a kernel may take that only moves its elements
WHOLE = [f"{c}->{'L' if c.isupper() else 'l'}" for c in "?" + INT]  # sums have 64 bits


def same(arity: int, codes: str, out: str = "") -> list[str]:
    """Signatures with `arity` equal inputs and an output of the same dtype, or of dtype `out`."""
    return [f"{c * arity}->{out or c}" for c in codes]


def pairs(codes: str) -> list[str]:
    """Signatures with two inputs of any of these dtypes, and an output like the first."""
    return [f"{x}{y}->{x}" for x in codes for y in codes]


def with_sums(codes: str, *patterns: str) -> list[str]:
    """Each pattern with every code for x, and for s the code of sums: "f" for floats of 16 bits."""
    return [p.replace("s", "f" if c in LOW else c).replace("x", c) for p in patterns for c in codes]


# Patterns of attention and its gradients, with masks of bools and of floats.
ATTENTION = "xxx?L->xs", "xxxxL->xs"
ATTENTION_GRAD = "xxx?Lssx->xxx", "xxxxLssx->xxx"
ATTENTION_MASK_GRAD = ("xxxxLssx->x",)


# --- Features of machines -------------------------------------------------------------------------


_PRESENT: dict[str, bool] = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
CPU = {name.lower(): present for name, present in _PRESENT.items()}  # True where present
GPU = ("cublas", "wmma", "wmma_bfloat16")


def features(names: str | Iterable[object], device: str = "") -> tuple[str, ...]:
    """The names in lower case, as kernels of that device ("" for any) may require them.

    DeviceError lists the known names for one that is unknown: spelt wrongly, it would count as
    absent everywhere.
    """
    known = {"cpu": tuple(CPU), "cuda": GPU}.get(device, (*CPU, *GPU))
    given = (names,) if isinstance(names, str) else names
    found = tuple(n.lower() if isinstance(n, str) else n for n in given)
    for name in found:
        if name not in known:
            raise DeviceError(
                f"feature {name!r} is unknown{f' on {device}' if device else ''}; known are "
                f"{', '.join(known)}"
            )
    return found  # type: ignore[return-value]
