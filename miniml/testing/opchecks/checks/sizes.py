"""Kernel objects that follow to other sizes, as in `jit(fn, dynamic=...)`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....backends.kernel import Kernel, KernelEntry
from ....errors import MinimlError
from ...calls import Array, Arrays, Call, node_of, poisoned
from ..session import Issue
from .comparison import unlike
from .launches import copies, kernels_of, launch


def follow(call: Call) -> bool:
    """True for calls with a kernel class that overrides `resize`."""
    return any(map(_follows, kernels_of(call)))


def _follows(entry: KernelEntry) -> bool:
    return getattr(entry.body, "resize", Kernel.resize) is not Kernel.resize


def sizes(call: Call) -> Iterator[Issue]:
    """A kernel that was resized, to fewer elements and back, gives what a new one gives."""
    part = call.on(tuple(map(_half, call.arrays)))
    try:
        entries = [e for e in kernels_of(part) if _follows(e) and e in call.entries()]
    except MinimlError:  # not each input may be shorter
        return
    for entry in entries:
        for first, then in ((part, call), (call, part)):
            yield from _compared(entry, first, then)


def _half(a: Array) -> Array:
    return a[: -(-len(a) // 2)] if a.ndim else a


def _compared(entry: KernelEntry, first: Call, then: Call) -> Iterator[Issue]:
    how = f"{then}: the kernel {entry.describe()}, resized after {first},"
    advice = "let resize(node) renew all that prepare(node) took from the node"
    try:
        outs = _resized(entry, first, then)
    except Exception as error:
        yield Issue("raises", f"{how} raises {type(error).__name__}: {error}", advice)
        return
    for i, (got, new) in enumerate(zip(outs, launch(entry, then, byte=0xA5))):
        if got.tobytes() != new.tobytes():
            index = [int(n) for n in np.argwhere(unlike(got, new))[0]]
            wrong = f"gives other numbers than a new one in output {i}, the first at {index}"
            yield Issue(f"output {i}", f"{how} {wrong}", advice)


def _resized(entry: KernelEntry, first: Call, then: Call) -> Arrays:
    kernel, outs = entry.made(), poisoned(then, 0xA5)
    assert kernel is not None
    before, after = (node_of(c, c.arrays, c.inferred, c.attrs) for c in (first, then))
    kernel.prepare(before)
    try:
        kernel.resize(after)
        scratch = tuple(np.full(w.shape, 7, w.dtype) for w in kernel.workspace())
        with np.errstate(all="ignore"):
            kernel.launch(copies(then), scratch, outs, None)
    finally:
        kernel.release()
    return outs
