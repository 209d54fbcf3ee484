"""Features of machines that kernels may require: their names, and what each of them needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from .errors import DeviceError

_PRESENT: dict[str, bool] = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
CPU = {name.lower(): present for name, present in _PRESENT.items()}  # True where present
GPU = ("cublas", "wmma", "wmma_bfloat16")
KNOWN = {"cpu": tuple(CPU), "cuda": GPU}  # by the device under which kernels are registered

# Who lacks one of these lacks what needs it, directly or not.
_NEEDS = {
    "sse2": "sse", "sse3": "sse2", "ssse3": "sse3", "sse41": "ssse3", "sse42": "sse41",
    "avx": "sse42", "f16c": "avx", "fma3": "avx", "fma4": "avx", "xop": "avx", "avx2": "avx",
    "vaes": "avx", "vpclmulqdq": "avx", "avx512f": "avx2 fma3 f16c",
    "x86_v2": "sse42 popcnt", "x86_v3": "x86_v2 avx2 fma3 f16c", "x86_v4": "x86_v3 avx512_skx",
    "vsx2": "vsx", "vsx3": "vsx2", "vsx4": "vsx3", "vxe": "vx", "vxe2": "vxe",
    "neon_fp16": "neon", "neon_vfpv4": "neon", "asimd": "neon", "fphp": "asimd",
    "asimdhp": "asimd", "asimddp": "asimd", "asimdfhm": "asimd", "sve": "asimd",
}  # fmt: skip
_NEEDS |= {f: "avx512f" for f in CPU if f.startswith("avx512") and f != "avx512f"}


def checked(names: str | Iterable[object], device: str = "") -> tuple[str, ...]:
    """The names in lower case, as kernels of that device ("" for any) may require them.

    DeviceError lists the known names for one that is unknown: spelt wrongly, it would count as
    absent everywhere.
    """
    known = KNOWN.get(device, (*CPU, *GPU))
    given = (names,) if isinstance(names, str) else names
    found = tuple(n.lower() if isinstance(n, str) else n for n in given)
    for name in found:
        if name not in known:
            raise DeviceError(
                f"feature {name!r} is unknown{f' on {device}' if device else ''}; known are "
                f"{', '.join(known)}"
            )
    return found  # type: ignore[return-value]


@cache
def masking(names: tuple[str, ...]) -> tuple[str, ...]:
    """These features and all that need one of them: what a machine without them has not either."""
    found = set(names)
    while more := {f for f, needs in _NEEDS.items() if found & {*needs.split()}} - found:
        found |= more
    return tuple(sorted(found))
