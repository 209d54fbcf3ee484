"""Tracing, passes and planning of long graphs; the arena; the import: what costs come once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

import miniml as ml
from benchmarks.train_step import CASES, build
from miniml import nn, ops, optim
from miniml.graph.passes import run_passes
from miniml.runtime.program import Program


def chain(nodes: int) -> float:
    """Seconds to trace, simplify, plan and write out a chain of that many operations."""

    def fn(x: Any) -> Any:
        for i in range(nodes // 2):
            x = ops.tanh(x) + float(i)
        return x

    x = np.ones((4, 4), np.float32)
    best = []
    for _ in range(3):
        start = time.perf_counter()
        Program(run_passes(ml.trace(fn, x)))
        best.append(time.perf_counter() - start)
    return min(best)


def linearity() -> tuple[float, float, float]:
    """(seconds for 1,000 nodes, seconds for 10,000 nodes, their ratio)."""
    small, large = chain(1_000), chain(10_000)
    return small, large, large / small


def arenas() -> list[tuple[str, int, int]]:
    """(graph, bytes of the arena, largest sum of bytes alive at once) of the benchmarks' graphs."""
    found = []
    for sizes, batch, _ in CASES:
        step, _, x, labels = build(sizes, batch)
        found.append((f"train_step {'-'.join(map(str, sizes))}", step, x, labels))
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dense(512, 10),
    )  # fmt: skip
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params()))
    x, labels = np.zeros((32, 1, 8, 8), np.float32), np.zeros(32, np.int64)
    found.append(("train_step of the demo's network", step, x, labels))
    plans = [(name, step._program.compiled(x, y).program.plan) for name, step, x, y in found]
    return [(name, plan.size, plan.peak) for name, plan in plans]


def imports(runs: int = 15) -> tuple[float, float, float]:
    """(seconds of `import numpy`, of `import miniml`, their ratio), the fastest of several runs
    each, without the start of Python itself; both are compiled already, as installed packages are.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        codes = ("pass", "import numpy", "import miniml")
        found = [min(_process(code, environment) for _ in range(runs)) for code in codes]
    start, theirs, ours = found
    return theirs - start, ours - start, (ours - start) / (theirs - start)


def _process(code: str, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - start
