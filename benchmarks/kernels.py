"""The kernel system: what the first use of a new primitive costs, and sizes that vary."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare
from miniml import Primitive, kernel, nn, ops


def first_use(count: int = 200) -> float:
    """Seconds to define a Primitive, register its kernel and call it, the median."""
    x, found = ml.Tensor(np.ones(4, np.float32)), []
    for i in range(count):
        start = time.perf_counter()
        new = type(f"FirstUse{i}", (Primitive,), {"infer_shape": _same, "infer_dtype": _same})
        kernel(new.__name__, "cpu", "f->f")(_double)
        new()(x)
        found.append(time.perf_counter() - start)
    return sorted(found)[count // 2]


def _same(self: Any, x: Any) -> Any:
    return x


def _double(x: Any, *, out: Any) -> None:
    np.multiply(x, 2, out=out)


def net() -> Callable[..., Any]:
    """A network of three layers, with a softmax."""
    cell = nn.Sequential(nn.Dense(32, 64), nn.ReLU(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
    return lambda x: ops.softmax(cell(x), -1)


def new_size(count: int = 20) -> Iterator[tuple[str, float]]:
    """(kernels, seconds) to compile for a new size, the least of some, in turns: dynamic, which
    shares kernels in C, NumPy's kernels, and those in C for one size alone, with an empty cache."""
    fn = net()
    kinds: dict[str, tuple[Any, tuple[str, ...]]] = {
        "dynamic": (ml.jit(fn, dynamic={"x": (0,)}), ()),
        "static, NumPy's kernels": (ml.jit(fn), ("miniml",)),
        "static, kernels in C": (None, ()),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, MINIML_CACHE=folder):
        for i in range(count):
            x = np.ones((5 + i, 32), np.float32)
            # Each in turn is the first one that meets the size.
            for name, (run, providers) in [*kinds.items()][:: 1 if i % 2 else -1]:
                with ml.context(providers=providers):
                    start = time.perf_counter()
                    (run or ml.jit(fn)).compiled(x)
                    found[name].append(time.perf_counter() - start)
    for name, seconds in found.items():
        yield name, min(seconds[1:])


def known_sizes() -> Ratio:
    """Two sizes in turns: of a dynamic function, and of one that is compiled for each."""
    fn, xs = net(), [ml.Tensor(np.ones((n, 32), np.float32)) for n in (4, 6)]
    dynamic, static = ml.jit(fn, dynamic={"x": (0,)}), ml.jit(fn)
    with ml.context(providers=("miniml",)):
        return compare(lambda: [dynamic(x) for x in xs], lambda: [static(x) for x in xs])


def selected_among_many() -> Ratio:
    """A program whose kernels were selected among many, with masked features, and one without."""
    programs, x = [], np.ones((8, 32), np.float32)
    for settings in ({"providers": ("others", "miniml"), "without": ("avx2",)}, {}):
        kernel("FirstUse0", "cpu", "f->f", provider="others", priority=9)(_double)
        with ml.context(**{"providers": ("miniml",), **settings}):
            programs.append(ml.jit(net()).compiled(x).program)
    return compare(lambda: programs[0](x), lambda: programs[1](x))


def lines() -> Iterator[str]:
    """Every result, as a line."""
    once = first_use() * 1e3
    yield f"first use of a new primitive: {once:.3f} ms; aim 2: {'met' if once <= 2 else 'MISSED'}"
    for name, seconds in new_size():
        yield f"to compile for a new size, {name}: {seconds * 1e3:.2f} ms"
    yield f"two known sizes in turns, dynamic against static: {known_sizes()}"
    found = selected_among_many()
    met = "met" if found.ratio <= 1.02 else "MISSED"
    yield f"a step, kernels selected among many against few: {found}; aim 1.02: {met}"


if __name__ == "__main__":
    print(*lines(), sep="\n")
