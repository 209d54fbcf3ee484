"""Cost of looking inside: a training step, and small calls op by op, inside `ml.profile()`
against the same outside, and the summary of a deep network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare
from benchmarks.train_step import build
from miniml import nn, ops
from miniml.grad import grad

SIZES, BATCH = (64, 128, 128, 10), 64
EAGER = 8, 64
AIM = 1.3
SUMMARY_AIM = 0.1  # seconds


def run() -> Iterator[tuple[str, Ratio]]:
    """A step by its kernels, then calls op by op by their size."""
    yield "a profiled step, kernels in C", _compared(_step(()), ())
    yield "a profiled step, kernels of NumPy", _compared(_step(("miniml",)), ("miniml",))
    for size in EAGER:
        x, y = (ml.Tensor(np.full((size, size), v, np.float32)) for v in (0.5, 0.25))
        for name, call in _calls(x, y).items():
            yield f"profiled calls, {name}, {size} x {size}", _compared(call, ("miniml",))


def _calls(x: ml.Tensor, y: ml.Tensor) -> dict[str, Callable[[], object]]:
    """Loops of calls op by op."""

    def added() -> None:
        for _ in range(20):
            x + y

    def mixed() -> None:
        for _ in range(5):
            ops.tanh(x @ y + y) * 0.5

    pulled = grad(lambda x: ops.sum(ops.sin(x) * x))
    return {"x + y": added, "tanh(x @ y + y) * 0.5": mixed, "grad": lambda: pulled(x)}


def _step(providers: tuple[str, ...]) -> Callable[[], object]:
    with ml.context(providers=providers):
        step, _, x, labels = build(SIZES, BATCH)
        return partial(step, ml.Tensor(x), ml.Tensor(labels))


def _compared(call: Callable[[], object], providers: tuple[str, ...]) -> Ratio:
    with ml.context(providers=providers):
        inside, block = copy_context(), ml.profile()
        inside.run(block.__enter__)
        return compare(lambda: inside.run(call), call)


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
