"""Which kernels fit a call: memory formats, machine features, and lossless widenings of dtypes."""

from __future__ import annotations

import numpy as np

from ..dtype import DType, bfloat16, float32, float64
from .kernel import KernelEntry


def format_fits(entry: KernelEntry, formats: tuple[str | None, ...]) -> bool:
    """True when every input is in the memory format the kernel asks for, if it asks for one."""
    for i, wanted in enumerate(entry.signature.input_formats):
        came = (formats[i] if i < len(formats) else None) or "NCHW"
        if wanted not in (None, "DefaultFormat", came):
            return False
    return True


def supported(entry: KernelEntry) -> bool:
    """True when this machine has every feature the kernel requires."""
    return all(machine_features().get(f.upper(), False) for f in entry.requires)


def machine_features() -> dict[str, bool]:
    """CPU features by NumPy's names (AVX2, AVX512F, NEON, ...), True where present."""
    return dict(np._core._multiarray_umath.__cpu_features__)  # type: ignore[attr-defined]


_WIDER = "bhilefd"


def widenings(dtypes: tuple[DType, ...]) -> list[DType]:
    """Dtypes that hold every value of every input, the narrowest first."""
    if not dtypes:
        return []
    return [w for w in map(np.dtype, _WIDER) if all(_lossless(d, w) for d in dtypes)]


def _lossless(a: DType, b: DType) -> bool:
    if a == bfloat16:
        return b in (float32, float64)
    if b.kind == "f" and (a.kind == "b" or (a.itemsize == 8 and a.kind in "iu")):
        return False  # NumPy calls int64 -> float64 safe; it loses bits above 2**53
    return bool(np.can_cast(a, b, "safe"))
