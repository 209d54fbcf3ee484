"""Which kernels fit a call: memory formats, features of devices, rank, lossless widenings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..dtype import DType, bool_, holds
from .device import get_device
from .kernel import KernelEntry


def format_fits(entry: KernelEntry, formats: tuple[str | None, ...]) -> bool:
    """True when every input is in the memory format the kernel asks for, if it asks for one."""
    for i, wanted in enumerate(entry.signature.input_formats):
        came = (formats[i] if i < len(formats) else None) or "NCHW"
        if wanted not in (None, "DefaultFormat", came):
            return False
    return True


def supported(entry: KernelEntry, device: str = "cpu") -> bool:
    """True when the device has every feature the kernel requires."""
    return all(map(features_of(device), entry.requires))


def features_of(device: str) -> Callable[[str], bool]:
    """Whether the device has a feature; it is looked for only where a kernel requires one."""
    return lambda feature: get_device(device).has(feature)


Found = tuple[KernelEntry, tuple[str, ...]]


def best(
    entries: Iterable[KernelEntry],
    dtypes: tuple[DType, ...],
    outputs: tuple[DType, ...] | None,
    providers: tuple[str, ...],
    has: Callable[[str], bool],
) -> Found | None:
    """The kernel that ranks first among those that a device with these features can run, and the
    features for lack of which others were passed over."""

    def rank(e: KernelEntry) -> tuple[int, int]:
        place = providers.index(e.provider) if e.provider in providers else len(providers)
        return place, -e.priority

    fit = [e for e in entries if e.signature.accepts(dtypes)]
    passed: dict[str, None] = {}
    for entry in sorted(fit, key=rank):
        if outputs is None or entry.signature.gives(outputs):
            absent = [f for f in entry.requires if not has(f)]
            if not absent:
                return entry, tuple(passed)
            passed.update(dict.fromkeys(absent))
    return None


def reason(dtypes: str, entry: KernelEntry, passed: tuple[str, ...]) -> str:
    """Why a kernel was chosen: dtypes, provider, the features that decided."""
    has = f", has {' '.join(entry.requires)}" if entry.requires else ""
    lacks = f", lacks {' '.join(passed)}" if passed else ""
    return f"{dtypes}, provider {entry.provider!r}{has}{lacks}"


_WIDER_INTEGERS, _WIDER_FLOATS = "bhil", "efd"


def widenings(dtypes: tuple[DType, ...]) -> list[DType]:
    """Dtypes that hold every value of every input, the narrowest first.

    Floats would hold bool, too, but a truth value among them is more likely a mistake.
    """
    if not dtypes:
        return []
    wider = _WIDER_INTEGERS + ("" if bool_ in dtypes else _WIDER_FLOATS)
    return [w for w in map(np.dtype, wider) if all(holds(w, d) for d in dtypes)]
