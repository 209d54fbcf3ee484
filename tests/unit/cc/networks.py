"""Random networks and how they are trained, for tests that compile them in two ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import miniml as ml
from miniml import nn, ops, optim

Layer = Callable[[Any], Any]
ACTIVATIONS: tuple[Layer, ...] = (
    ops.relu, ops.tanh, ops.sigmoid, ops.gelu, ops.silu, ops.softplus, ops.elu, ops.softmax,
    lambda x: ops.leaky_relu(x, 0.1),
)  # fmt: skip
POOLS: tuple[Layer, ...] = (lambda x: ops.max_pool2d(x, 2), lambda x: ops.avg_pool2d(x, 2))


class Network(nn.Cell):
    """Layers one after the other, drawn for the shape of their input."""

    def __init__(self, rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]):
        super().__init__()
        self.rng, self.dtype, self.shape, self.count = rng, dtype, shape, 0
        self.layers: list[Layer] = []
        for _ in range(int(rng.integers(2, 6))):
            self.add(self.drawn())
        if len(self.shape) > 2:
            self.add(lambda x: ops.reshape(x, (x.shape[0], -1)))
        self.add(self.dense(5))

    def construct(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.shape = ml.trace(layer, np.zeros(self.shape, self.dtype)).outputs[0].abstract.shape

    def weight(self, *shape: int) -> Any:
        """A new parameter, whose numbers keep the size of what it multiplies."""
        scale = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.5
        data = (self.rng.normal(size=shape) * scale).astype(self.dtype)
        setattr(self, f"w{self.count}", ml.Parameter(data, name=f"w{self.count}"))
        self.count += 1
        return getattr(self, f"w{self.count - 1}")

    def drawn(self) -> Layer:
        kinds = [self.activation, self.norm, self.residual, self.gate]
        images, tokens = len(self.shape) == 4, len(self.shape) == 3
        kinds += [self.conv, self.conv, self.pool] if images else [self.dense, self.dense]
        kinds += [self.recurrence] if tokens else []
        return kinds[self.rng.integers(len(kinds))]()

    def activation(self) -> Layer:
        return ACTIVATIONS[self.rng.integers(len(ACTIVATIONS))]

    def dense(self, n: int = 0) -> Layer:
        n = n or int(self.rng.integers(1, 40))
        w, b = self.weight(n, self.shape[-1]), self.weight(n)
        act = self.activation()
        return lambda x: act(ops.matmul(x, ops.transpose(w)) + b)

    def conv(self) -> Layer:
        k, stride, padding = (int(self.rng.integers(*ends)) for ends in ((1, 4), (1, 3), (0, 2)))
        k = min(k, *(n + 2 * padding for n in self.shape[2:]))
        w = self.weight(int(self.rng.integers(1, 9)), self.shape[1], k, k)
        b = self.weight(w.shape[0])
        act = self.activation()
        return lambda x: act(ops.conv2d(x, w, b, stride, padding))

    def pool(self) -> Layer:
        few = min(self.shape[2:]) < 2
        return self.activation() if few else POOLS[self.rng.integers(len(POOLS))]

    def norm(self) -> Layer:
        n = self.shape[1] if len(self.shape) == 4 else self.shape[-1]
        gamma, beta = self.weight(n), self.weight(n)
        if len(self.shape) == 4:
            return lambda x: ops.batch_norm(x, gamma, beta, training=True)[0]
        return lambda x: ops.layer_norm(x, gamma, beta)

    def residual(self) -> Layer:
        act = self.activation()
        return lambda x: x + act(x * 0.5)

    def gate(self) -> Layer:
        """What sums over other axes scale."""
        axes = tuple(i for i in range(1, len(self.shape)) if self.rng.random() < 0.6)
        return lambda x: x / (1.0 + ops.sqrt(ops.mean(ops.square(x), axes, True) + 0.1))

    def recurrence(self) -> Layer:
        n = int(self.rng.integers(1, 12))
        w, u, b = self.weight(self.shape[-1], n), self.weight(n, n), self.weight(n)

        def layer(x: Any) -> Any:
            def step(h: Any, row: Any) -> Any:
                h = ops.tanh(ops.matmul(row, w) + ops.matmul(h, u) + b)
                return h, h

            ys, _ = ops.scan(step, ops.zeros((x.shape[0], n), x.dtype), ops.swapaxes(x, 0, 1))
            return ops.swapaxes(ys, 0, 1)

        return layer


SHAPES = ((6, 9), (33, 5), (4, 7, 6), (2, 5, 17), (5, 3, 8, 9), (16, 1, 7, 7), (3, 4, 6, 6))


def trained(seed: int, dtype: Any, steps: int = 2) -> list[Any]:
    """The losses of a few steps of a random network, then its parameters."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    net = Network(rng, dtype, shape)
    params = net.trainable_params()
    if rng.random() < 0.6:
        optimizer: Any = optim.SGD(params, 0.1, *rng.choice([0.0, 0.9], 2) * (1.0, 0.01))
    else:  # by far less than eps do gradients differ that should be 0
        optimizer = optim.Adam(params, 0.01, eps=1e-2)
    clip = 1.0 if rng.random() < 0.3 else None
    classes = bool(rng.random() < 0.5)
    loss_fn = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    step = ml.train_step(net, loss_fn, optimizer, clip=clip)
    x = rng.normal(size=shape).astype(dtype)
    y = rng.integers(0, 5, shape[0]) if classes else rng.normal(size=(shape[0], 5)).astype(dtype)
    losses = [step(x, y).asnumpy() for _ in range(steps)]
    return [*losses, *(p.asnumpy() for p in params)]
