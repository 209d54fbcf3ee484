"""What a profile costs: a training step inside `ml.profile()` against the same step outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context

import miniml as ml
from benchmarks.measure import Ratio, compare
from benchmarks.train_step import build

SIZES, BATCH = (64, 128, 128, 10), 64
AIM = 1.3


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


def main() -> None:
    """Print the ratios."""
    for name, found in run():
        print(f"{name}: {found}")


if __name__ == "__main__":
    main()
