"""Times of one library: the cases, training steps, and the bandwidth of a copy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import miniml as ml
from benchmarks.gpu.cases import Case, cases
from benchmarks.gpu.libraries import LIBRARIES, Library
from benchmarks.gpu.training import LAYERS, step_of
from tools.gpu.step import arguments

Call = Callable[[], object]


def timed(library: Library, calls: Sequence[Call], seconds: float, rounds: int) -> dict[str, float]:
    """Microseconds per call: the median of rounds and its quartiles. Calls take turns, so that
    none finds its inputs in the cache; each round launches as many as fill its share."""
    for call in calls:
        call()
    once = max(library.seconds(calls[:1]), 1e-6)
    count = max(len(calls), min(int(seconds / rounds / once), 10_000))
    turns = [calls[i % len(calls)] for i in range(count)]
    found = sorted(library.seconds(turns) / count * 1e6 for _ in range(rounds))
    quarter = len(found) // 4
    return {
        "us": round(statistics.median(found), 3), "low": round(found[quarter], 3),
        "high": round(found[-quarter - 1], 3), "rounds": rounds, "calls": count,
    }  # fmt: skip


def measured(library: Library, case: Case, seconds: float, rounds: int) -> dict[str, Any]:
    """A case: its time, and what that is in GB/s or TFLOP/s."""
    op = library.ops.get(case.op)
    if op is None:
        return {"absent": f"{library.name} has no such operation"}
    sets = [tuple(map(library.array, case.arrays(i))) for i in range(case.sets())]
    calls = [lambda given=given: op(*given) for given in sets]
    found: dict[str, Any] = timed(library, calls, seconds, rounds)
    per_second = 1e6 / found["us"]
    if case.moved:
        found["GB/s"] = round(case.moved * per_second / 1e9, 1)
    if case.flops:
        found["TFLOP/s"] = round(case.flops * per_second / 1e12, 3)
    return found


def copy_bandwidth(library: Library, nbytes: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Copies from array to array: bytes read and written, in GB/s."""
    found: dict[str, Any] = timed(library, library.copies(nbytes), seconds, rounds)
    found["GB/s"] = round(2 * nbytes / found["us"] / 1e3, 1)
    return found


def main() -> None:
    given = arguments(__doc__, ("--library", {"default": "miniml", "choices": LIBRARIES}))
    found, small = given.found, given.device == "cuda-sim"
    if small and given.library != "miniml":
        found["absent"] = "peers are timed on a GPU"
        found.save()
        return
    try:
        library = LIBRARIES[given.library](given.device)
    except ImportError as error:
        found["absent"] = f"{given.library} is not to be had here: {error}"
        found.save()
        return
    seconds, rounds = (0.01, 3) if small else (0.4, 20)
    found.update({"library": given.library, "version": library.version, "cases": {}})
    begin = time.monotonic()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "copy": lambda: copy_bandwidth(library, 4096 if small else 1 << 28, seconds, rounds)
    }
    for case in cases(given.device):
        parts[case.name] = lambda case=case: measured(library, case, seconds, rounds)
    for name, layers, batch in LAYERS[given.device]:
        for kind in library.steps:
            parts[f"{name}{kind}"] = lambda a=layers, b=batch, kind=kind: timed(
                library, [step_of(library, a, b, kind)], seconds, rounds
            )
    for name, measure in parts.items():
        try:
            found["cases"][name] = measure()
        except Exception as error:
            found["cases"][name] = {"raised": f"{type(error).__name__}: {error}"[:400]}
        found["seconds"] = round(time.monotonic() - begin, 1)
        found.save()


if __name__ == "__main__":
    print(f"miniml {ml.__version__}")
    main()
