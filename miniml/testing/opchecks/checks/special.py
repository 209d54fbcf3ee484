"""Do NaN and infinity show in the outputs, where they should?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import float64, is_float
from ...calls import Arrays, Call
from ..session import Issue
from .accuracy import at_an_end
from .kernels import Expected
from .launches import launch, launched

_SPECIAL = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}


def special(call: Call) -> Iterator[Issue]:
    """What is not a number stays one, and infinities are not replaced by numbers."""
    handled = call.info is not None and call.info.nan == "handled"
    if not launched(call) or handled or at_an_end(call):
        return
    for other, what in specials(call):
        for entry in other.entries():
            yield from _lost(other, what, entry)


def specials(call: Call, places: int = 3) -> Iterator[tuple[Call, str]]:
    """The call with one special number in it, at the ends and in the middle of each input (or at
    fewer places); the call itself if it has one already."""
    floats = [i for i, a in enumerate(call.arrays) if is_float(a.dtype) and a.size]
    strange = [i for i in floats if not np.isfinite(call.arrays[i].astype(float64)).all()]
    if strange:
        i = strange[0]
        numbers = call.arrays[i].astype(float64)
        yield call, f"{'NaN' if np.isnan(numbers).any() else 'inf'} in input {i}"
        return
    for i in floats:
        array = call.arrays[i]
        for place in sorted({0, array.size // 2, array.size - 1})[:places]:
            for name, value in _SPECIAL.items():
                changed = array.copy()
                changed.reshape(-1)[place] = value
                arrays = (*call.arrays[:i], changed, *call.arrays[i + 1 :])
                yield call.on(arrays), f"{name} in input {i}"


def _lost(call: Call, what: str, entry: KernelEntry) -> Iterator[Issue]:
    outs = launch(entry, call)
    floats = [k for k, o in enumerate(outs) if is_float(o.dtype) and o.size]
    expected = Expected(call)
    if expected.known:
        exact = expected.exact()
        for k in floats:
            problem = _against(call, what, entry, k, outs, exact, expected.source)
            if problem is not None:
                yield problem
                return
    if expected.given or "NaN" not in what or not floats:
        return
    if any(np.isnan(outs[k].astype(float64)).any() for k in floats):
        return
    yield Issue(
        "NaN vanishes",
        f"{call} with {what}: no output of the kernel {entry.describe()} has a NaN",
        "let the NaN through (np.maximum and np.where on a finite test do; comparisons are false "
        "for NaN), or say nan='handled' in an OpInfo if it may vanish",
        "warning",
        call,
    )


def _against(
    call: Call, what: str, entry: KernelEntry, k: int, outs: Arrays, exact: Arrays, source: str
) -> Issue | None:
    came, wanted = outs[k].astype(float64), exact[k].astype(float64)
    if came.shape != wanted.shape:
        return None
    for name, lost in (
        ("NaN", np.isnan(wanted) & ~np.isnan(came)),
        ("infinity", np.isinf(wanted) & (came != wanted) & ~np.isnan(came)),
    ):
        if lost.any():
            index = tuple(int(n) for n in np.argwhere(lost)[0])
            return Issue(
                f"{name} lost",
                f"{call} with {what}: output {k} of the kernel {entry.describe()} is "
                f"{outs[k][index]!s} at {list(index)}, where {source} is {wanted[index]!s}",
                f"let the {name} through, or say nan='handled' in an OpInfo",
                "fault",
                call,
            )
    return None
