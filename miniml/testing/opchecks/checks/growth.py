"""Whether a call can be made much longer: its kernel's time and memory grow like its inputs."""

from __future__ import annotations

import time
import tracemalloc

from ....backends.kernel import KernelEntry
from ...calls import Array, Call
from .launches import launch

_PART = 2000
_MEMORY = 64  # times the bytes of inputs and outputs
_SECONDS = 2e-3  # for that part


def grows_slowly(call: Call) -> bool:
    """True if kernels on the first part of the call are fast and allocate no arrays far larger than
    inputs and outputs, such as a table of all pairs."""
    part = call.on(tuple(map(_part, call.arrays)))
    try:
        return all(_is_light(entry, part) for entry in part.entries())
    except Exception:  # refused, or a kernel cannot run it: shorter calls show that
        return False


def _part(a: Array) -> Array:
    return a[tuple(slice(_PART) for _ in a.shape)]


def _is_light(entry: KernelEntry, call: Call) -> bool:
    launch(entry, call)  # the first time may compile or import
    start = time.perf_counter()
    outs = launch(entry, call)
    seconds = time.perf_counter() - start
    return seconds < _SECONDS and _peak(entry, call) < _MEMORY * sum(
        a.nbytes for a in (*call.arrays, *outs)
    )


def _peak(entry: KernelEntry, call: Call) -> int:
    """The peak memory of a launch, in bytes."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        launch(entry, call)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
