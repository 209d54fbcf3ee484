"""A primitive to be checked from its file: the README's first one, and one with a fault."""

import numpy as np

from miniml import Primitive, kernel, ops
from miniml.grad import bprop_getters


class TestSnake(Primitive):
    """x + sin(alpha x)^2 / alpha."""

    __test__ = False
    alpha: float = 1.0

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@bprop_getters.register(TestSnake)
def get_bprop_snake(self):
    return lambda x, out, dout: (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)


@kernel("TestSnake", "cpu", "f->f", "d->d")
def snake_cpu(x, *, alpha, out):
    np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


class TestAdder(TestSnake):
    """Writes into its input."""


@kernel("TestAdder", "cpu", "d->d")
def adder_cpu(x, *, alpha, out):
    x += alpha
    out[...] = x


adder = TestAdder(2.0)
