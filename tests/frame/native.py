"""Primitives of the tests with a kernel in NumPy and one in C."""

from math import prod

import numpy as np
import pytest

from miniml import Primitive, kernel
from miniml.backends.cc.native import NativeKernel
from miniml.backends.cc.units import Source
from tests.conftest import HAS_CC

needs_compiler = pytest.mark.skipif(not HAS_CC, reason="no C compiler on this machine")


def native(name, inputs, line, inplace=(), body=""):
    """Register the C kernel of a primitive of float32 whose operands all have the shape
    of its output.

    line: the C of `out[i]`, of x[i] and y[i]. body: C that runs first.
    """

    class Native(NativeKernel):
        def prepare(self, node):
            size = prod(node.outputs[0].shape)
            given = "".join(
                f"const T *{letter} = (const T *)at[{i}];"
                for i, letter in enumerate("xyz"[:inputs])
            )
            text = f"typedef float T; {given} T *out = (T *)at[{inputs}]; {body}"
            text += f"for (long i = 0; i < {size}; ++i) out[i] = {line};"
            self.source = Source(f"void KERNEL(char *const *at) {{ {text} }}")
            self.inplace = inplace

    spec = "f" * inputs + "->f"
    return kernel(name, "cpu", spec, provider="cc", total=True)(Native)


class NatTwice(Primitive):
    """2 x."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class NatPlus(Primitive):
    """x + y."""

    def infer_shape(self, x, y):
        return x

    def infer_dtype(self, x, y):
        return x


class NatSlow(NatTwice):
    """2 x, after 50 ms in C."""


@kernel("NatSlow", "cpu", "f->f")
@kernel("NatTwice", "cpu", "f->f")
def twice(x, *, out):
    np.multiply(x, 2, out=out)


@kernel("NatPlus", "cpu", "ff->f")
def plus(x, y, *, out):
    np.add(x, y, out=out)


native("NatTwice", 1, "2 * x[i]", inplace=(0,))
native("NatPlus", 2, "x[i] + y[i]", inplace=(0, 1))
native("NatSlow", 1, "2 * x[i]", body="extern int usleep(unsigned); usleep(50000);")
