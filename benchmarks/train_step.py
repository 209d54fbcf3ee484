"""A whole training step of a small MLP against the same NumPy calls written by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare
from miniml import nn, optim

Array = np.ndarray[Any, Any]


class ByHand:
    """Three dense layers with ReLU, cross-entropy and SGD, every buffer allocated beforehand."""

    def __init__(self, weights: list[Array], batch: int, lr: float):
        self.w1, self.b1, self.w2, self.b2, self.w3, self.b3 = weights
        n_hidden, n_out = self.w2.shape[0], self.w3.shape[1]
        self.lr = np.float32(lr)
        self.rows = np.arange(batch)
        self.scale = np.float32(1 / batch)
        self.zero = np.float32(0)

        def f32(*shape: int) -> Array:
            return np.empty(shape, np.float32)

        self.h1, self.h2 = f32(batch, n_hidden), f32(batch, n_hidden)
        self.m1, self.m2 = np.empty((batch, n_hidden), bool), np.empty((batch, n_hidden), bool)
        self.z, self.e, self.hot = f32(batch, n_out), f32(batch, n_out), f32(batch, n_out)
        self.top, self.total = f32(batch, 1), f32(batch, 1)
        self.d1, self.d2 = f32(batch, n_hidden), f32(batch, n_hidden)
        self.g = [np.empty_like(w) for w in weights]
        self.weights = weights
        self.step_buffers = [np.empty_like(w) for w in weights]

    def forward(self, x: Array) -> None:
        """Logits in z."""
        np.matmul(x, self.w1, out=self.h1)
        np.add(self.h1, self.b1, out=self.h1)
        np.maximum(self.h1, self.zero, out=self.h1)
        np.matmul(self.h1, self.w2, out=self.h2)
        np.add(self.h2, self.b2, out=self.h2)
        np.maximum(self.h2, self.zero, out=self.h2)
        np.matmul(self.h2, self.w3, out=self.z)
        np.add(self.z, self.b3, out=self.z)

    def loss_and_gradient(self, labels: Array) -> np.float32:
        """The mean cross-entropy; its gradient with respect to z in e."""
        np.maximum.reduce(self.z, axis=1, keepdims=True, out=self.top)
        np.subtract(self.z, self.top, out=self.z)
        np.exp(self.z, out=self.e)
        np.add.reduce(self.e, axis=1, keepdims=True, out=self.total)
        np.divide(self.e, self.total, out=self.e)
        self.hot.fill(0)
        self.hot[self.rows, labels] = 1
        picked = self.z[self.rows, labels]
        np.log(self.total, out=self.total)
        loss = (self.total[:, 0] - picked).mean()
        np.subtract(self.e, self.hot, out=self.e)
        np.multiply(self.e, self.scale, out=self.e)
        return loss  # type: ignore[no-any-return]

    def backward(self, x: Array) -> None:
        """Gradients of all weights in g."""
        g1, gb1, g2, gb2, g3, gb3 = self.g
        np.matmul(self.h2.T, self.e, out=g3)
        np.add.reduce(self.e, axis=0, out=gb3)
        np.matmul(self.e, self.w3.T, out=self.d2)
        np.greater(self.h2, self.zero, out=self.m2)
        np.multiply(self.d2, self.m2, out=self.d2)
        np.matmul(self.h1.T, self.d2, out=g2)
        np.add.reduce(self.d2, axis=0, out=gb2)
        np.matmul(self.d2, self.w2.T, out=self.d1)
        np.greater(self.h1, self.zero, out=self.m1)
        np.multiply(self.d1, self.m1, out=self.d1)
        np.matmul(x.T, self.d1, out=g1)
        np.add.reduce(self.d1, axis=0, out=gb1)

    def step(self, x: Array, labels: Array) -> np.float32:
        """One step of gradient descent, in place."""
        self.forward(x)
        loss = self.loss_and_gradient(labels)
        self.backward(x)
        for w, g, s in zip(self.weights, self.g, self.step_buffers, strict=True):
            np.multiply(g, self.lr, out=s)
            np.subtract(w, s, out=w)
        return loss


def build(sizes: tuple[int, int, int, int], batch: int) -> tuple[Any, ByHand, Array, Array]:
    """The compiled step and the hand-written one with equal weights, and a batch."""
    ml.manual_seed(0)
    rng = np.random.default_rng(0)
    layers = [nn.Dense(a, b) for a, b in pairwise(sizes)]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    weights = [p.asnumpy() for layer in layers for p in (layer.weight, layer.bias)]
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.01))
    x = rng.standard_normal((batch, sizes[0]), np.float32)
    labels = rng.integers(0, sizes[-1], batch)
    return step, ByHand(weights, batch, 0.01), x, labels


def agree(step: Callable[..., Any], hand: ByHand, x: Array, labels: Array) -> float:
    """The largest difference of the losses over ten steps of both."""
    return max(abs(float(step(x, labels)) - float(hand.step(x, labels))) for _ in range(10))


CASES = (((8, 64, 64, 10), 32, 1.15), ((784, 512, 512, 10), 256, 1.05))


def run() -> list[tuple[str, Ratio, float]]:
    """Every case: its name, the measured ratio and the ratio aimed at."""
    found = []
    for sizes, batch, target in CASES:
        step, hand, x, labels = build(sizes, batch)
        difference = agree(step, hand, x, labels)
        assert difference < 1e-4, f"the two steps compute different losses: {difference}"
        tx, tl = ml.Tensor(x), ml.Tensor(labels)
        ratio = compare(lambda: step(tx, tl), lambda: hand.step(x, labels))  # noqa: B023
        found.append((f"train_step {'-'.join(map(str, sizes))}, batch {batch}", ratio, target))
    return found
