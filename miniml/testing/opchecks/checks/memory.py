"""What kernels do to memory: what they read, fill, share and remember."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import is_float
from ...calls import Array, Arrays, Call, run_entry
from ..session import Problem
from .launches import copies, launch, launched

_RUNS = 4


def memory(call: Call) -> Iterator[Problem]:
    """Inputs stay as they were; outputs are filled wholly, and share no memory undeclared."""
    for entry in call.entries() if launched(call) else ():
        arrays = copies(call)
        before = [a.tobytes() for a in arrays]
        first = launch(entry, call, arrays, 0xA5)
        for i, (array, was) in enumerate(zip(arrays, before)):
            if array.tobytes() != was:
                at = int(
                    np.argmax(
                        np.frombuffer(array.tobytes(), np.uint8) != np.frombuffer(was, np.uint8)
                    )
                )
                yield Problem(
                    f"input {i}",
                    f"{call}: the kernel {entry.describe()} writes into input {i} (element "
                    f"{at // array.itemsize} in C order changed)",
                    "write into out only; work on a copy of the input",
                )
        yield from _filled(call, entry, first)
        yield from _shared(call, entry, arrays, first)
        for i in entry.inplace:
            yield from _inplace(call, entry, i)


def _filled(call: Call, entry: KernelEntry, first: Arrays) -> Iterator[Problem]:
    second = launch(entry, call, None, 0x5A)
    third = launch(entry, call, None, 0xA5)
    for i, (one, two, three) in enumerate(zip(first, second, third)):
        if one.tobytes() != two.tobytes() and one.tobytes() == three.tobytes():
            differs = unlike(one, two)
            index = [int(n) for n in np.argwhere(differs)[0]]
            yield Problem(
                f"output {i}",
                f"{call}: the kernel {entry.describe()} leaves {int(differs.sum())} of "
                f"{differs.size} elements of output {i} to what was in memory, the first at "
                f"{index}",
                "fill every element of out, and read none of it before",
            )


def unlike(one: Array, two: Array) -> Array:
    """Where two arrays differ in bits."""
    width = one.dtype.itemsize
    bits = [
        np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, width) for a in (one, two)
    ]
    return np.asarray((bits[0] != bits[1]).any(axis=1).reshape(one.shape))


def _shared(call: Call, entry: KernelEntry, arrays: Arrays, outs: Arrays) -> Iterator[Problem]:
    if entry.view is None and not call.primitive.dynamic_outputs:
        return  # such a kernel fills buffers that are given to it
    for i, array in enumerate(arrays):
        for k, out in enumerate(outs):
            if i != entry.view and np.shares_memory(out, array):
                yield Problem(
                    f"alias {i}",
                    f"{call}: output {k} of the kernel {entry.describe()} shares memory with "
                    f"input {i}, which is not declared",
                    "return a copy, or register it with @view_kernel",
                )


def _inplace(call: Call, entry: KernelEntry, i: int) -> Iterator[Problem]:
    (wanted,) = launch(entry, call)
    arrays = copies(call)
    if (arrays[i].shape, arrays[i].dtype) != (wanted.shape, wanted.dtype):
        return
    (out,) = run_entry(entry, call, arrays, (arrays[i],))
    if out.tobytes() != wanted.tobytes():
        yield Problem(
            f"inplace {i}",
            f"{call}: the kernel {entry.describe()} declares inplace={i}, but gives other numbers "
            f"when out is input {i}",
            "read every element before it is overwritten, or do not declare inplace",
        )


def repeat(call: Call) -> Iterator[Problem]:
    """The same inputs give the same bits again, without reseeding anything."""
    for entry in call.entries() if launched(call) else ():
        first = tuple(o.copy() for o in launch(entry, call))
        for _ in range(_RUNS):
            again = launch(entry, call)
            for i, (one, two) in enumerate(zip(first, again)):
                if one.tobytes() != two.tobytes():
                    yield Problem(
                        f"output {i}",
                        f"{call}: the kernel {entry.describe()} gives other numbers when it runs "
                        f"again: output {i} {_spread(one, two)}",
                        "draw randomness from an input (a key), keep no state between launches, "
                        "and leave no element unwritten",
                    )
                    return


def _spread(one: Array, two: Array) -> str:
    if one.shape != two.shape:
        return f"has shape {two.shape}, at first {one.shape}"
    differs = unlike(one, two)
    if not is_float(one.dtype):
        index = tuple(int(n) for n in np.argwhere(differs)[0])
        count = int(differs.sum())
        return f"differs in {count} elements, at {list(index)}: {one[index]}, then {two[index]}"
    with np.errstate(all="ignore"):
        off = np.abs(one.astype(np.float64) - two.astype(np.float64))
    off = np.where(differs & ~np.isfinite(off), np.inf, np.nan_to_num(off, nan=0.0))
    index = tuple(int(n) for n in np.unravel_index(int(np.argmax(off)), off.shape))
    return (
        f"differs in {int(differs.sum())} of {off.size} elements, by at most {off.max():.3g}, at "
        f"{list(index)}: {one[index]!s}, then {two[index]!s}"
    )
