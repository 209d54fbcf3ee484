"""Functions with gradients by hand, right and wrong, for torch and for JAX alike.

Each is written once, with the namespace `xp` that is `torch` or `jax.numpy`, and planted as a
torch.autograd.Function and as a JAX custom_vjp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """f(xp, *xs); pull(xp, xs, out, d) gives one gradient for each input. shapes, low, high: of
    the point, float64 numbers drawn evenly."""

    name: str
    f: Callable[..., Any]
    pull: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 4),)
    low: float = 0.3
    high: float = 1.7

    def point(self) -> list[np.ndarray]:
        rng = np.random.default_rng(11)
        return [rng.uniform(self.low, self.high, shape) for shape in self.shapes]


def in_torch(row: Row) -> tuple[Any, list[Any]]:
    """The function, and tensors at its point."""
    import torch  # noqa: PLC0415 - optional

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            out = row.f(torch, *xs)
            ctx.save_for_backward(*xs, out)
            return out

        @staticmethod
        def backward(ctx, d):
            *xs, out = ctx.saved_tensors
            return tuple(row.pull(torch, xs, out, d))

    return Planted.apply, [torch.tensor(x, requires_grad=True) for x in row.point()]


def in_jax(row: Row) -> tuple[Any, list[Any]]:
    """The function, and arrays at its point; call it where 64 bits are enabled."""
    import jax  # noqa: PLC0415 - optional

    @jax.custom_vjp
    def planted(*xs):
        return row.f(jax.numpy, *xs)

    def forward(*xs):
        out = planted(*xs)
        return out, (xs, out)

    def backward(kept, d):
        return tuple(row.pull(jax.numpy, *kept, d))

    planted.defvjp(forward, backward)
    return planted, [jax.numpy.asarray(x) for x in row.point()]


def element(xp: Any, x: Any, n: int, factor: float) -> Any:
    """`factor` at element n of the last axis of x, 1 elsewhere."""
    return 1.0 + (xp.arange(x.shape[-1]) == n) * (factor - 1.0)


def sine(xp, x):
    return xp.sin(x)


def product(xp, x, y):
    return x * y


def softmax(xp, x):
    e = xp.exp(x)
    return e / e.sum(-1)[..., None]


def centred(xp, x):
    return x - x.mean(-1)[..., None]


TWO = ((3, 4), (3, 4))
ROW = ((3, 4), (4,))
MATRICES = ((3, 4), (4, 2))
LONG = ((400,),)

WRONG = [
    Row("twice too large", sine, lambda xp, xs, o, d: (2 * d * xp.cos(xs[0]),)),
    Row("of the wrong sign", sine, lambda xp, xs, o, d: (-d * xp.cos(xs[0]),)),
    Row("too large by 1e-4", sine, lambda xp, xs, o, d: (1.0001 * d * xp.cos(xs[0]),)),
    Row("one of 400 off by 1 %", sine,
        lambda xp, xs, o, d: (d * xp.cos(xs[0]) * element(xp, d, 123, 1.01),), LONG),
    Row("last column zero", sine,
        lambda xp, xs, o, d: (d * xp.cos(xs[0]) * element(xp, d, 3, 0.0),)),
    Row("cotangent ignored", sine, lambda xp, xs, o, d: (xp.cos(xs[0]),)),
    Row("cotangent averaged", sine, lambda xp, xs, o, d: (0 * d + d.mean() * xp.cos(xs[0]),)),
    Row("cotangent's size only", sine, lambda xp, xs, o, d: (abs(d) * xp.cos(xs[0]),)),
    Row("not linear in the cotangent", sine,
        lambda xp, xs, o, d: (d * xp.cos(xs[0]) * (1 + 0.05 * d * d),)),
    Row("slope of the output", sine, lambda xp, xs, o, d: (d * xp.cos(o),)),
    Row("inputs swapped", product, lambda xp, xs, o, d: (d * xs[0], d * xs[1]), TWO),
    Row("second input forgotten", product, lambda xp, xs, o, d: (d * xs[1], 0 * d), TWO),
    Row("sum over the broadcast axis halved", product,
        lambda xp, xs, o, d: (d * xs[1], (d * xs[0]).sum(0) * 0.5), ROW),
    Row("mean over the broadcast axis", product,
        lambda xp, xs, o, d: (d * xs[1], (d * xs[0]).mean(0)), ROW),
    Row("matrix not transposed", lambda xp, x, y: x @ y,
        lambda xp, xs, o, d: (d @ xs[1], xs[0].T @ d), ((3, 3), (3, 3))),
    Row("softmax without its sum", softmax, lambda xp, xs, o, d: (d * o * (1 - o),)),
    Row("mean's part forgotten", centred, lambda xp, xs, o, d: (d,)),
    Row("constant 1e-6 added", sine, lambda xp, xs, o, d: (d * (xp.cos(xs[0]) + 1e-6),)),
    Row("a term of order 2 for large cotangents", sine,
        lambda xp, xs, o, d: (d * xp.cos(xs[0]) + 0.01 * d * abs(d),)),
]  # fmt: skip

RIGHT = [
    Row("sin", sine, lambda xp, xs, o, d: (d * xp.cos(xs[0]),)),
    Row("exp", lambda xp, x: xp.exp(x), lambda xp, xs, o, d: (d * o,)),
    Row("exp of 20 to 30", lambda xp, x: xp.exp(x), lambda xp, xs, o, d: (d * o,), low=20, high=30),
    Row("tanh", lambda xp, x: xp.tanh(x), lambda xp, xs, o, d: (d * (1 - o * o),), low=-2),
    Row("product", product, lambda xp, xs, o, d: (d * xs[1], d * xs[0]), TWO),
    Row("product with a row", product,
        lambda xp, xs, o, d: (d * xs[1], (d * xs[0]).sum(0)), ROW),
    Row("product of matrices", lambda xp, x, y: x @ y,
        lambda xp, xs, o, d: (d @ xs[1].T, xs[0].T @ d), MATRICES),
    Row("sum", lambda xp, x: x.sum(0), lambda xp, xs, o, d: (d[None] + 0 * xs[0],)),
    Row("square root near 0", lambda xp, x: xp.sqrt(x), lambda xp, xs, o, d: (d / (2 * o),),
        low=1e-6, high=1e-5),
    Row("logarithm", lambda xp, x: xp.log(x), lambda xp, xs, o, d: (d / xs[0],)),
    Row("reciprocal of small numbers", lambda xp, x: 1 / x, lambda xp, xs, o, d: (-d * o * o,),
        low=1e-4, high=2e-4),
    Row("relu", lambda xp, x: x * (x > 0), lambda xp, xs, o, d: (d * (xs[0] > 0),), low=-1),
    Row("absolute value at 0", lambda xp, x: abs(x), lambda xp, xs, o, d: (d * xp.sign(xs[0]),),
        low=0.0, high=0.0),
    Row("softmax", softmax,
        lambda xp, xs, o, d: (o * (d - (d * o).sum(-1)[..., None]),)),
    Row("centred", centred, lambda xp, xs, o, d: (d - d.mean(-1)[..., None],)),
    Row("1e6 times a square", lambda xp, x: 1e6 * x * x, lambda xp, xs, o, d: (2e6 * d * xs[0],)),
    Row("cube of 1000", lambda xp, x: x**3, lambda xp, xs, o, d: (3 * d * xs[0] ** 2,),
        low=900, high=1100),
    Row("sin of 300 x", lambda xp, x: xp.sin(300 * x),
        lambda xp, xs, o, d: (300 * d * xp.cos(300 * xs[0]),)),
    Row("logistic", lambda xp, x: 1 / (1 + xp.exp(-x)), lambda xp, xs, o, d: (d * o * (1 - o),)),
]  # fmt: skip
