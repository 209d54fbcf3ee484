"""What looking inside costs: a training step inside `ml.profile()` against the same step outside,
and the summary of a deep network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextvars import copy_context

import miniml as ml
from benchmarks.measure import Ratio, compare
from benchmarks.train_step import build
from miniml import nn

SIZES, BATCH = (64, 128, 128, 10), 64
AIM = 1.3
SUMMARY_AIM = 0.1  # seconds


def run() -> Iterator[tuple[str, Ratio]]:
    """By the kernels of the step."""
    yield "a profiled step, kernels in C", _compared(())
    yield "a profiled step, kernels of NumPy", _compared(("miniml",))


def _compared(providers: tuple[str, ...]) -> Ratio:
    with ml.context(providers=providers):
        step, _, x, labels = build(SIZES, BATCH)
        given = ml.Tensor(x), ml.Tensor(labels)
        inside, block = copy_context(), ml.profile()
        inside.run(block.__enter__)
        return compare(lambda: inside.run(step, *given), lambda: step(*given))


def summary_seconds(layers: int = 100) -> float:
    """The summary of a network of that many layers, which has not been called before."""
    cells = [nn.Dense(64, 64) if i % 2 else nn.ReLU() for i in range(layers)]
    net = nn.Sequential(*cells)
    begin = time.perf_counter()
    net.summary((32, 64))
    return time.perf_counter() - begin


def main() -> None:
    """Print the ratios, and the seconds."""
    for name, found in run():
        print(f"{name}: {found}")
    print(f"summary of 100 layers: {summary_seconds():.4f} s")


if __name__ == "__main__":
    main()
