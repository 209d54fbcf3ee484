"""A user's file, as `mypy --strict` and others see it: a primitive, a kernel, a cell, a loop."""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import miniml as ml
from miniml import Parameter, Primitive, Tensor, elementwise_kernel, kernel, nn, ops, optim
from miniml.grad import bprop_getters, grad, value_and_grad
from miniml.testing import gradcheck

Array = np.ndarray[Any, Any]


class TypedSnake(Primitive):
    """x + sin(alpha x)^2 / alpha."""

    alpha: float = 1.0

    def infer_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return x

    def infer_dtype(self, x: np.dtype[Any]) -> np.dtype[Any]:
        return x


@bprop_getters.register(TypedSnake)
def get_bprop_snake(self: TypedSnake) -> Callable[..., tuple[Tensor]]:
    def bprop(x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)

    return bprop


@kernel("TypedSnake", "cpu", "f->f", "d->d")
def snake_cpu(x: Array, *, alpha: float, out: Array) -> None:
    np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


elementwise_kernel("TypedSnake", "x + sin(alpha * x) * sin(alpha * x) / alpha", "f->f", "d->d")


class Block(nn.Cell):
    """One layer with a scale of its own."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.dense = nn.Dense(n_in, n_out)
        self.scale = Parameter(np.ones(n_out, np.float32), name="scale")
        self.snake = TypedSnake(alpha=0.5)

    def construct(self, x: Tensor) -> Tensor:
        return self.snake(self.dense(x)) * self.scale


class Two(nn.Cell):
    """Two inputs, two outputs: what is called gives one value, which unpacks."""

    def construct(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + y, x - y


@ml.jit
def energy(x: Tensor) -> Tensor:
    return ops.sum(x * x)


def look(x: Tensor, net: nn.Cell) -> None:
    assert_type(net(x), Tensor)
    assert_type(ops.sin(x), Tensor)
    assert_type(ops.add(x, y=1.0), Tensor)
    assert_type(ops.where(x > 0.0, x, 0.0), Tensor)
    assert_type(ops.sum(x, axis=0), Tensor)
    assert_type(x + 1, Tensor)
    assert_type(2.0 * x, Tensor)
    assert_type(x[0], Tensor)
    assert_type(x == x, Tensor)
    assert_type(x.T.reshape(-1).mean(), Tensor)
    assert_type(TypedSnake()(x), Tensor)
    assert_type(ops.topk(x, 1), tuple[Tensor, Tensor])
    both, difference = Two()(x, x)
    assert_type(both, Tensor)
    assert_type(difference, Tensor)


def train(steps: int = 3) -> float:
    net = nn.Sequential(Block(4, 8), nn.ReLU(), nn.Dense(8, 1))
    weights = net.trainable_params()
    optimizer = optim.Adam(weights, lr=0.01)
    step = ml.train_step(net, nn.MSELoss(), optimizer)
    x, y = Tensor(np.ones((2, 4), np.float32)), Tensor(np.zeros((2, 1), np.float32))
    loss = step(x, y)
    for _ in range(steps):
        loss = step(x, y)

    def objective(x: Tensor) -> Tensor:
        return ops.mean(ops.square(net(x) - y))

    value, gradients = value_and_grad(objective, argnums=None, weights=weights)(x)
    optimizer.update(gradients)
    look(x[:, :2], nn.ReLU())
    slope = grad(lambda x: ops.sum(ops.sin(x)))(x)
    return float(loss) + float(value) + float(ops.sum(slope)) + float(energy(x))


if __name__ == "__main__":
    gradcheck(TypedSnake(0.5), np.linspace(-1.0, 1.0, 3))
    print(train())
