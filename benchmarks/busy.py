"""A training step beside processes that compute, one for each CPU: `python -m benchmarks.busy`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import miniml as ml
from benchmarks.measure import machine
from benchmarks.train_step import build
from miniml.backends.kernel import cpu_threads
from miniml.backends.product import openblas

AIM = 1.3  # times the step with the BLAS and all kernels on one thread, beside the same processes
SIZES, BATCH = (784, 128, 128, 10), 64
WAYS = {
    "compiled": {},
    "compiled, NumPy alone": {"providers": ("miniml",)},
    "op by op": {"jit": False},
}


@contextmanager
def busy() -> Iterator[None]:
    """Another process computes on each CPU."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in _cpus()]
    try:
        time.sleep(0.3)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _cpus() -> range:
    return range(cpu_threads())


def compare(step: Callable[[], object], rounds: int = 40) -> tuple[float, float]:
    """Mean seconds of a step on all threads and on one, in turns.

    Means, since what a process loses when it is not scheduled is lost in few calls.
    """
    taken: dict[int, list[float]] = {0: [], 1: []}
    blas = openblas()
    most = 1 if blas is None else blas.threads()
    for i in range(2 * rounds):
        with ml.context(threads=i % 2):
            if blas is not None:
                blas.set_threads(1 if i % 2 else most)
            step()
            begin = time.perf_counter()
            for _ in range(20):
                step()
            taken[i % 2].append((time.perf_counter() - begin) / 20)
    if blas is not None:
        blas.set_threads(most)
    return statistics.fmean(taken[0]), statistics.fmean(taken[1])


def run() -> Iterator[tuple[str, float, float]]:
    """Every way to run the step: its name, its mean seconds, and those on one thread."""
    for name, settings in WAYS.items():
        with ml.context(**settings):
            step, _, x, labels = build(SIZES, BATCH)
            tx, tl = ml.Tensor(x), ml.Tensor(labels)
            yield name, *compare(lambda: step(tx, tl))  # noqa: B023


def lines() -> Iterator[str]:
    """Findings, a line for every way."""
    for name, ours, one in run():
        met = "met" if ours <= AIM * one else "MISSED"
        yield (
            f"busy machine, train_step {name}: {ours * 1e6:.0f} us, on one thread "
            f"{one * 1e6:.0f}, ratio {ours / one:.2f}; aim {AIM}: {met}"
        )


if __name__ == "__main__":
    print(machine())
    with busy():
        for line in lines():
            print(line)
