"""Do NaN and infinity reach the outputs, where they should?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import float64, is_float
from ...calls import Call
from ..session import Issue
from .accuracy import at_an_end
from .kernels import Expected
from .launches import launch, launched

_SPECIAL = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}
_ADVICE = {
    "NaN": "let the NaN through",
    "infinity": "let the infinity through",
    "number": "write a formula that has the limit there, as 1 / (1 + exp(-x)) has for a sigmoid",
}


def special(call: Call) -> Iterator[Issue]:
    """What is not a number stays one, and infinities are not replaced by numbers."""
    handled = call.info is not None and call.info.nan == "handled"
    if not launched(call) or handled or at_an_end(call):
        return
    for other, what in specials(call):
        for entry in other.entries():
            yield from _lost(other, what, entry)


def specials(call: Call, most: int = 3) -> Iterator[tuple[Call, str]]:
    """The call with one special number in it, at the ends and in the middle of each input (or at
    fewer positions); the call itself if it has one already."""
    floats = [i for i, a in enumerate(call.arrays) if is_float(a.dtype) and a.size]
    strange = [i for i in floats if not np.isfinite(call.arrays[i].astype(float64)).all()]
    if strange:
        i = strange[0]
        numbers = call.arrays[i].astype(float64)
        yield call, f"{'NaN' if np.isnan(numbers).any() else 'inf'} in input {i}"
        return
    for i in floats:
        array = call.arrays[i]
        for index in sorted({0, array.size // 2, array.size - 1})[:most]:
            for name, value in _SPECIAL.items():
                changed = array.copy()
                changed.reshape(-1)[index] = value
                arrays = (*call.arrays[:i], changed, *call.arrays[i + 1 :])
                yield call.on(arrays), f"{name} in input {i}"


def _lost(call: Call, what: str, entry: KernelEntry) -> Iterator[Issue]:
    """The first output in which a NaN or an infinity is missing, or at an infinity a number that
    the reference of an elementwise formula gives; if there is nothing to compare with, whether no
    output has a NaN."""
    outs = {k: o.astype(float64) for k, o in enumerate(launch(entry, call)) if is_float(o.dtype)}
    name, expected = f"the kernel {entry.describe()}", Expected(call)
    limits = expected.given and "NaN" not in what  # what sums make of NaN has no one answer
    for k, got in outs.items() if expected.known else ():
        right = expected.exact()[k].astype(float64)
        if got.shape != right.shape:
            continue
        for kind, lost in (
            ("NaN", np.isnan(right) & ~np.isnan(got)),
            ("infinity", np.isinf(right) & (got != right) & ~np.isnan(got)),
            ("number", limits & np.isnan(got) & ~np.isnan(right)),
        ):
            if lost.any() and (kind != "number" or expected.by_itself(k)):
                index = tuple(int(n) for n in np.argwhere(lost)[0])
                yield Issue(
                    f"{kind} lost",
                    f"{call} with {what}: output {k} of {name} is {got[index]!s} at {list(index)}, "
                    f"where {expected.source} is {right[index]!s}",
                    f"{_ADVICE[kind]}, or say nan='handled' in an OpInfo",
                    "warning" if kind == "number" else "fault",
                    call,
                )
                return
    vanished = any(o.size for o in outs.values()) and not any(
        np.isnan(o).any() for o in outs.values()
    )
    if vanished and not expected.given and "NaN" in what:
        yield Issue(
            "NaN vanishes",
            f"{call} with {what}: no output of {name} has a NaN",
            "let the NaN through (np.maximum and np.where on a finite test do; comparisons are "
            "false for NaN), or say nan='handled' in an OpInfo if it may vanish",
            "warning",
            call,
        )
