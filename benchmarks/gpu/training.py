"""One step of training a small network, in miniml and its peers, from equal weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import miniml as ml
from benchmarks.peers import jax_step, torch_step
from benchmarks.train_step import build

Sizes = tuple[int, int, int, int]
LAYERS: dict[str, tuple[tuple[str, Sizes, int], ...]] = {
    "cuda": (
        ("step, 8-64-64-10, batch 32", (8, 64, 64, 10), 32),
        ("step, 784-512-512-10, batch 256", (784, 512, 512, 10), 256),
        ("step, 4096-4096-4096-1000, batch 1024", (4096, 4096, 4096, 1000), 1024),
    ),
    "cuda-sim": (("step, 8-16-16-10, batch 4", (8, 16, 16, 10), 4),),
}


def step_of(library: Any, sizes: Sizes, batch: int, kind: str) -> Callable[[], object]:
    """A function that takes one step; kind: " with a CUDA graph" or " without"."""
    if library.name == "miniml":
        return ours(library, sizes, batch, "off" if "without" in kind else "on")
    with ml.context(device_target="cpu"):  # only its weights are wanted
        _, hand, x, labels = build(sizes, batch)
    x, labels = library.array(x), library.array(labels)
    if library.name == "torch":
        step = torch_step(hand.weights, "cuda")
        return lambda: step(x, labels)
    step, _ = jax_step(hand.weights)
    return lambda: step(x, labels)


def ours(library: Any, sizes: Sizes, batch: int, graphs: str) -> Callable[[], object]:
    """miniml's compiled step; RuntimeError when a graph is wanted and does not come about."""
    ml.set_context(cuda_graphs=graphs)
    step, _, x, labels = build(sizes, batch)
    x, labels = library.array(x), library.array(labels)
    for _ in range(3):
        step(x, labels)
    how = step._program.compiled(x, labels).program.launched
    if (graphs == "on") != ("as one CUDA graph" in how):
        raise RuntimeError(how)
    return lambda: step(x, labels)
