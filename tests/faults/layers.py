"""Layers as users write them: valid inputs of some cannot be guessed, and one fails on the way."""

import numpy as np

from miniml import Primitive, kernel, ops
from miniml.errors import ShapeError
from miniml.grad import bprop_getters


class LinearSystem(Primitive):
    """x with a x = b."""

    def infer_shape(self, a, b):
        if len(a) != 2 or a[0] != a[1]:
            raise ShapeError(f"{self.name} wants a square matrix; got {a}")
        if len(b) not in (1, 2) or b[0] != a[0]:
            raise ShapeError(f"{self.name} wants b of {a[0]} rows; got {b}")
        return b

    def infer_dtype(self, a, b):
        return a


@bprop_getters.register(LinearSystem)
def get_bprop_linear_system(self):
    def bprop(a, b, out, dout):
        g = LinearSystem()(ops.transpose(a), dout)
        if len(b.shape) == 1:
            return -ops.expand_dims(g, 1) * ops.expand_dims(out, 0), g
        return -ops.matmul(g, ops.transpose(out)), g

    return bprop


@kernel("LinearSystem", "cpu", "ff->f", "dd->d")
def linear_system_cpu(a, b, *, out):
    out[...] = np.linalg.solve(a, b)


class PNorm(Primitive):
    """The p-norm over one axis."""

    p: float = 3.0
    axis: int = -1

    def infer_shape(self, x):
        axis = self.axis % len(x)
        return x[:axis] + x[axis + 1 :]

    def infer_dtype(self, x):
        return x


@bprop_getters.register(PNorm)
def get_bprop_pnorm(self):
    def bprop(x, out, dout):
        o = ops.expand_dims(out, self.axis)
        d = ops.expand_dims(dout, self.axis)
        return (d * ops.sign(x) * (ops.abs(x) / o) ** (self.p - 1.0),)

    return bprop


@kernel("PNorm", "cpu", "f->f", "d->d")
def pnorm_cpu(x, *, p, axis, out):
    out[...] = (np.abs(x) ** p).sum(axis=axis) ** (1.0 / p)


def unrelated(x):
    return x


def _shares(total, parts):
    return 1 / (total - parts)


class Ratio(Primitive):
    """A constant that its helper cannot compute."""

    differentiable = False

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x

    def infer_value(self, x):
        return _shares(1, 1)


@kernel("Ratio", "cpu", "f->f", "d->d")
def ratio_cpu(x, *, out):
    out[...] = x
