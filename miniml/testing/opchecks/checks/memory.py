"""Kernels and memory: what they read, fill and share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....backends.kernel import KernelEntry
from ...calls import Arrays, Call
from ..session import Issue
from .comparison import unlike
from .launches import copies, kernels_of, launch


def memory(call: Call) -> Iterator[Issue]:
    """Inputs stay as they were; outputs are filled completely, and share no undeclared memory."""
    for entry in kernels_of(call):
        arrays = copies(call)
        first = launch(entry, call, arrays, 0xA5)
        for i, (array, was) in enumerate(zip(arrays, copies(call))):
            if array.tobytes() != was.tobytes():
                yield Issue(
                    f"input {i}",
                    f"{call}: the kernel {entry.describe()} writes into input {i} (element "
                    f"{int(np.flatnonzero(unlike(array, was))[0])} in C order changed)",
                    "write into out only; work on a copy of the input",
                )
        yield from _filled(call, entry, first)
        yield from _shared(call, entry, arrays, first)


def _filled(call: Call, entry: KernelEntry, first: Arrays) -> Iterator[Issue]:
    second = launch(entry, call, None, 0x5A)
    third = launch(entry, call, None, 0xA5)
    for i, (one, two, three) in enumerate(zip(first, second, third)):
        if one.tobytes() != two.tobytes() and one.tobytes() == three.tobytes():
            differs = unlike(one, two)
            index = [int(n) for n in np.argwhere(differs)[0]]
            yield Issue(
                f"output {i}",
                f"{call}: the kernel {entry.describe()} leaves {int(differs.sum())} of "
                f"{differs.size} elements of output {i} to what was in memory, the first at "
                f"{index}",
                "fill every element of out, and read none of it before",
            )


def _shared(call: Call, entry: KernelEntry, arrays: Arrays, outs: Arrays) -> Iterator[Issue]:
    if entry.view is None and not call.primitive.dynamic_outputs:
        return  # such a kernel fills buffers that are given to it
    for i, array in enumerate(arrays):
        for k, out in enumerate(outs):
            if i != entry.view and np.shares_memory(out, array):
                yield Issue(
                    f"alias {i}",
                    f"{call}: output {k} of the kernel {entry.describe()} shares memory with "
                    f"input {i}, which is not declared",
                    "return a copy, or register it with @view_kernel",
                )
