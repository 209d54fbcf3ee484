"""One library in a process of its own, which times what it is told to: a JSON line for each line.

`python -m benchmarks.networks.worker LIBRARY THREADS`; a request is {"make": [kind, name]}, which
answers with the seconds of the first call and its result, or {"time": seconds}, which answers with
the seconds of one call.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.networks.problems import LARGE, TRAINED

ROUNDS = 15  # of one request to time; the median counts


class Worker:
    """The step that was made last, and how it is timed."""

    def __init__(self, library: str, threads: int):
        self.library: Any = import_module(f"benchmarks.networks.in_{library}")
        self.library.threads(threads)
        self.step: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        return self.make(*request["make"]) if "make" in request else self.time(request["time"])

    def make(self, kind: str, name: str) -> dict[str, Any]:
        """Build a step or an inference, and call it four times; the first call compiles, where the
        library does, and the last one is timed, too."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        problem = (TRAINED | LARGE)[name](0 if kind == "training" else 1)
        begin = time.perf_counter()
        self.step = getattr(self.library, kind)(problem)
        result = self.step()
        first = time.perf_counter() - begin
        for _ in range(3):
            begin = time.perf_counter()
            self.step()
        last = time.perf_counter() - begin
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if hasattr(result, "detach"):
            result = result.detach()
        found = float(np.mean(np.asarray(result)))
        times = {"first": first, "last": last}
        return {**times, "result": found, "kilobytes": used, "is": self.library.VERSION}

    def time(self, seconds: float) -> dict[str, Any]:
        """The median over rounds of the time of one call."""
        begin = time.perf_counter()
        self.step()
        calls = max(1, int(seconds / ROUNDS / (time.perf_counter() - begin)))
        return {"seconds": statistics.median(self._round(calls) for _ in range(ROUNDS))}

    def _round(self, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            self.step()
        return (time.perf_counter() - begin) / calls


def main(library: str, threads: int) -> None:
    """Answer requests until there are no more."""
    if hasattr(os, "sched_setaffinity"):  # before the library counts processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    worker = Worker(library, threads)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
