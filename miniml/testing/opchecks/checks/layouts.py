"""Do kernels follow strides: inputs in other layouts, against contiguous ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ....backends.kernel import KernelEntry
from ...calls import Arrays, Call
from ...layouts import CONTIGUOUS, laid_out, named, usual
from ..session import Problem
from .accuracy import apart
from .launches import launch, launched

_STRIDES = "let the kernel follow strides, or begin with np.ascontiguousarray"


def layouts(call: Call) -> Iterator[Problem]:
    """Inputs with any strides give what contiguous ones give."""
    for entry in call.entries() if launched(call) else ():
        for tried, words in _tried(call):
            yield from _laid(call, entry, tried, words)


def _laid(call: Call, entry: KernelEntry, tried: tuple[str, ...], words: str) -> Iterator[Problem]:
    arrays = laid_out(call.arrays, tried)
    dense = tuple(np.array(a, order="C") for a in arrays)
    shown = replace(call, layouts=(tried,))

    def run(xs: Arrays) -> Arrays:
        return launch(entry, call, xs)

    try:
        expected = run(dense)
        got = run(arrays)
    except np.linalg.LinAlgError:
        return  # rows that are broadcast make a matrix singular
    except Exception as error:
        yield Problem(
            "raises",
            f"{call}: the kernel {entry.describe()} raises {type(error).__name__}: {error} "
            f"on {words}, which it computes when they are contiguous",
            _STRIDES,
            call=shown,
        )
        return
    wrong = apart(call, got, expected, run, dense)
    if wrong is not None:
        yield Problem(
            "strides",
            f"{call}: output {wrong[0]} of the kernel {entry.describe()} on {words} {wrong[1]} "
            "(as for contiguous inputs)",
            _STRIDES,
            call=shown,
        )


def _tried(call: Call) -> Iterator[tuple[tuple[str, ...], str]]:
    """Layouts of the inputs, and what to call such inputs: the call's own, or usual ones, for all
    inputs together, then for one input alone."""
    count = len(call.arrays)
    alone = [
        tuple("sliced" if i == k else CONTIGUOUS for i in range(count))
        for k in range(count if count > 1 else 0)
    ]
    for tried in call.layouts or (*usual(count), *alone):
        yield tried, named(tried[:count], "input")
