"""A user's file, as `mypy --strict` and others see it: a primitive, a kernel, a cell, a loop."""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import miniml as ml
from miniml import (
    Parameter,
    Primitive,
    PrimitiveWithInfer,
    Tensor,
    elementwise_kernel,
    kernel,
    nn,
    ops,
    optim,
    prim_attr_register,
)
from miniml.data import minibatches
from miniml.grad import bprop_getters, custom_bprop, grad, value_and_grad
from miniml.ops import rules
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


class TypedRow(Primitive):
    """x + sin(alpha x)^2 / alpha, all in its class."""

    alpha: float = 1.0
    expression = "x + sin(alpha * x) * sin(alpha * x) / alpha"
    dtypes = "fd"

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)

    def compute(self, x: Array, *, alpha: float, out: Array) -> None:
        np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


class TypedText(Primitive):
    """x, with a text."""

    like = "x"
    expression: str = "as a text"


class TypedGain(Primitive):
    """x times a weight, in the shape and dtype of x."""

    inputs = ("x", "w")
    like = "x"


class TypedPeak(Primitive):
    """The largest element along an axis."""

    axis: int = -1
    keepdims: bool = False
    infer_shape = rules.reduce("axis")
    infer_dtype = rules.floats


ml.register_rule(lambda x, y, z: x + y + z, lambda x, y, z: x + (y + z), name="typed sums")
ml.unregister_pass("typed sums")


class TypedEnds(Primitive):
    """The least and the largest element, in the classic style beside it."""

    outputs = ("low", "high")
    differentiable = False

    def infer_shape(self, x: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (), ()

    def infer_dtype(self, x: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
        return x, x


@kernel("TypedEnds", "cpu", "f->ff")
def ends_cpu(x: Array, *, out: tuple[Array, Array]) -> None:
    out[0][...], out[1][...] = x.min(), x.max()


class TypedClassic(PrimitiveWithInfer):
    @prim_attr_register
    def __init__(self, factor: float = 2.0) -> None:
        self.init_prim_io_names(inputs=["x"], outputs=["out"])

    def infer_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...]:
        return x_shape

    def infer_dtype(self, x_dtype: np.dtype[Any]) -> np.dtype[Any]:
        return x_dtype


@custom_bprop(lambda x, out, dout: (2.0 * x * dout,))
def square(x: Tensor) -> Tensor:
    return x * x


class Block(nn.Cell):
    """One layer with a scale of its own."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.dense = nn.Dense(n_in, n_out)
        self.scale = Parameter(np.ones(n_out, np.float32), name="scale")
        self.snake = TypedSnake(alpha=0.5)

    def construct(self, x: Tensor) -> Tensor:
        return self.snake(self.dense(x)) * self.scale


class Stack(nn.Cell):
    """Blocks in a list, and a choice by the mode."""

    def __init__(self, blocks: list[nn.Cell]):
        self.blocks = nn.CellList(blocks)
        self.last: nn.Cell = nn.Dense(8, 1) if blocks else nn.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.last(ops.relu(x) if self.training else x)


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
    assert_type(TypedRow(alpha=0.5)(x), Tensor)
    assert_type(TypedText("another").expression, str)
    assert_type(TypedClassic(factor=3.0), TypedClassic)
    assert_type(ops.topk(x, 1), tuple[Tensor, Tensor])
    low, high = TypedEnds()(x)
    assert_type(low, Tensor)
    assert_type(high, Tensor)
    both, difference = Two()(x, x)
    assert_type(both, Tensor)
    assert_type(difference, Tensor)


def train(steps: int = 3) -> float:
    net = Stack([Block(4, 8), nn.Sequential(nn.ReLU(), nn.Dense(8, 8))])
    weights = net.trainable_params()
    optimizer = optim.Adam(weights, lr=0.01)
    step = ml.train_step(net, nn.MSELoss(), optimizer)
    x, y = Tensor(np.ones((2, 4), np.float32)), Tensor(np.zeros((2, 1), np.float32))
    loss = step(x, y)
    for i in range(steps):
        optimizer.lr = 0.01 / (1 + i)
        for batch in minibatches(np.ones((4, 4), np.float32), np.ones((4, 1), np.float32), size=2):
            loss = step(*batch)
    for parameter in weights:
        parameter.set_data(0.5 * parameter)
    with ml.context(mode=ml.GRAPH_MODE):
        print(net.set_train(False)(x).asnumpy().mean())

    def objective(x: Tensor) -> Tensor:
        return ops.mean(ops.square(net(x) - y))

    value, gradients = value_and_grad(objective, argnums=None, weights=weights)(x)
    optimizer.update(gradients)
    look(x[:, :2], nn.ReLU())
    slope = grad(lambda x: ops.sum(ops.sin(x)))(x)
    return float(loss) + float(square(value)) + float(ops.sum(slope)) + float(energy(x))


if __name__ == "__main__":
    gradcheck(TypedSnake(0.5), np.linspace(-1.0, 1.0, 3))
    print(train())
