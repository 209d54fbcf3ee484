"""The networks' shapes: initial weights, one batch, and the labels of its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
LR = 0.01


@dataclass(frozen=True)
class Problem:
    """One network on one batch. network: the key of the function that computes its logits.

    y: class indices, one for each row of logits. again: gradients compute again what is inside the
    blocks of the network, instead of keeping it.
    """

    network: str
    weights: Weights
    x: Array
    y: Array
    again: bool = False


class _Draws:
    """Seeded weights: of shape (..., fan_in, fan_out), scaled by 1 / sqrt(fan_in)."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int, fan_in: int = 0) -> Array:
        scale = (fan_in or shape[0]) ** -0.5
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def images(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def labels(self, classes: int, *shape: int) -> Array:
        return self.rng.integers(0, classes, shape)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def mlp(*sizes: int, batch: int) -> Problem:
    """Dense layers with ReLU between them."""
    draw, weights = _Draws(), {}
    for i, (n, m) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{i}"], weights[f"b{i}"] = draw(n, m), zeros(m)
    return Problem("mlp", weights, draw.images(batch, sizes[0]), draw.labels(sizes[-1], batch))


def lenet(batch: int) -> Problem:
    """LeNet-5 on 28 x 28: two convolutions of 5 x 5 with ReLU and max pooling, three dense."""
    draw = _Draws()
    weights = {
        "k0": draw(6, 1, 5, 5, fan_in=25), "c0": zeros(6), "k1": draw(16, 6, 5, 5, fan_in=150),
        "c1": zeros(16), "w0": draw(256, 120), "b0": zeros(120), "w1": draw(120, 84),
        "b1": zeros(84), "w2": draw(84, 10), "b2": zeros(10),
    }  # fmt: skip
    return Problem("lenet", weights, draw.images(batch, 1, 28, 28), draw.labels(10, batch))


def resnet(batch: int, channels: Sequence[int] = (16, 16, 32, 64)) -> Problem:
    """A convolution, and residual blocks that end with so many channels, with batch norm."""
    draw, first = _Draws(), channels[0]
    weights = {"k": draw(first, 3, 3, 3, fan_in=27), "g": ones(first), "h": zeros(first)}
    for i, (n, m) in enumerate(itertools.pairwise(channels)):
        weights[f"k{i}a"] = draw(m, n, 3, 3, fan_in=9 * n)
        weights[f"k{i}b"] = draw(m, m, 3, 3, fan_in=9 * m)
        weights |= {f"g{i}a": ones(m), f"h{i}a": zeros(m), f"g{i}b": ones(m), f"h{i}b": zeros(m)}
        if n != m:
            weights[f"s{i}"] = draw(m, n, 1, 1, fan_in=n)
    weights |= {"w": draw(channels[-1], 10), "b": zeros(10)}
    return Problem("resnet", weights, draw.images(batch, 3, 32, 32), draw.labels(10, batch))


def blocks(weights: Mapping[str, Any]) -> int:
    """The number of residual blocks."""
    return sum(name.startswith("k") and name.endswith("a") for name in weights)


def lstm(
    steps: int, batch: int, hidden: int = 128, symbols: int = 64, embedded: int = 64
) -> Problem:
    """Characters embedded, one LSTM layer over time, a dense layer on each of its outputs."""
    draw = _Draws()
    weights = {
        "e": draw(symbols, embedded, fan_in=1), "wx": draw(embedded, 4 * hidden),
        "wh": draw(hidden, 4 * hidden), "b": zeros(4 * hidden), "w": draw(hidden, symbols),
        "c": zeros(symbols),
    }  # fmt: skip
    x, y = draw.labels(symbols, steps, batch), draw.labels(symbols, steps * batch)
    return Problem("lstm", weights, x, y)


def transformer(batch: int, tokens: int = 64, width: int = 128, layers: int = 2) -> Problem:
    """A causal transformer of 4 heads, GELU, layer norm before each part, on characters."""
    draw, symbols = _Draws(), 64
    weights = {"e": draw(symbols, width, fan_in=1), "p": draw(tokens, width, fan_in=1)}
    for i in range(layers):
        weights |= {
            f"g{i}a": ones(width), f"h{i}a": zeros(width), f"qkv{i}": draw(width, 3 * width),
            f"o{i}": draw(width, width), f"g{i}b": ones(width), f"h{i}b": zeros(width),
            f"u{i}": draw(width, 4 * width), f"bu{i}": zeros(4 * width),
            f"d{i}": draw(4 * width, width), f"bd{i}": zeros(width),
        }  # fmt: skip
    weights["w"] = draw(width, symbols)
    x, y = draw.labels(symbols, batch, tokens), draw.labels(symbols, batch * tokens)
    return Problem("transformer", weights, x, y)


# By name: what a training step is timed on; the same with a batch of one for an inference.
TRAINED: dict[str, Callable[[int], Problem]] = {
    "MLP 8-64-64-10, batch 32": lambda batch: mlp(8, 64, 64, 10, batch=batch or 32),
    "MLP 784-128-128-10, batch 64": lambda batch: mlp(784, 128, 128, 10, batch=batch or 64),
    "MLP 784-512-512-10, batch 256": lambda batch: mlp(784, 512, 512, 10, batch=batch or 256),
    "logistic regression 784-10, batch 64": lambda batch: mlp(784, 10, batch=batch or 64),
    "LeNet-5, batch 64": lambda batch: lenet(batch or 64),
    "ResNet 16-16-32-64, batch 32": lambda batch: resnet(batch or 32),
    "char-LSTM 128, 32 steps, batch 32": lambda batch: lstm(32, batch or 32),
    "char-LSTM 128, 32 steps, batch 32, scanned": lambda batch: replace(
        lstm(32, batch or 32), network="scanned"
    ),
    "transformer 2 x 128, 64 tokens, batch 8": lambda batch: transformer(batch or 8),
}


def again(made: Callable[[int], Problem], batch: int) -> Problem:
    """The problem, solved with less memory and more time."""
    return replace(made(batch), again=True)


# Those on which memory counts.
LARGE: dict[str, Callable[[int], Problem]] = {
    "ResNet-18, 64 images of 32 x 32": lambda batch: resnet(
        batch or 64, (64, 64, 64, 128, 128, 256, 256, 512, 512)
    ),
    "GPT of 6 x 256, 8 texts of 256 tokens": lambda batch: transformer(batch or 8, 256, 256, 6),
}
LARGE |= {f"{name}, recomputed": partial(again, made) for name, made in LARGE.items()}
