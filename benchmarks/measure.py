"""Comparison of two functions: in turns, many short rounds, the median of the paired ratios."""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import threadpoolctl

import miniml as ml


class Ratio(NamedTuple):
    """Seconds per call of both sides (medians) and the median of their ratios, round by round."""

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.ours * 1e6:9.1f} us  against {self.theirs * 1e6:9.1f} us  "
            f"ratio {self.ratio:.3f}  (quartiles {self.low:.3f} to {self.high:.3f})"
        )


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    seconds: float = 4.0,
    rounds: int = 200,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Time both in turns for about `seconds`; each round calls each as often as fits its share."""
    for _ in range(3):
        ours()
        theirs()
    once = min(_time(theirs, 1, clock) for _ in range(5))
    calls = max(1, int(seconds / rounds / 2 / max(once, 1e-7)))
    gc.collect()
    gc.disable()
    try:
        pairs = []
        for i in range(rounds):
            first, second = (ours, theirs) if i % 2 else (theirs, ours)
            a, b = _time(first, calls, clock), _time(second, calls, clock)
            pairs.append((a, b) if i % 2 else (b, a))
    finally:
        gc.enable()
    ratios = sorted(a / b for a, b in pairs)
    quarter = len(ratios) // 4
    return Ratio(
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(ratios),
        ratios[quarter],
        ratios[-quarter - 1],
    )


def _time(fn: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        fn()
    return (clock() - start) / calls


def machine() -> str:
    """One line that says where the numbers come from."""
    pools = threadpoolctl.threadpool_info()
    blas = ", ".join(f"{p['internal_api']} {p['version']} x{p['num_threads']}" for p in pools)
    cpu = _cpu_name()
    return (
        f"{cpu}; Python {platform.python_version()}, NumPy {np.__version__}, {blas}; "
        f"miniml {ml.__version__}"
    )


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            names = [
                line.split(":", 1)[1].strip() for line in info if line.startswith("model name")
            ]
        return f"{names[0]} ({len(names)} CPUs)"
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
