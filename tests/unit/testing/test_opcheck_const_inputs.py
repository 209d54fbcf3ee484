"""opcheck draws const inputs: permutations, axes, numbers; what it cannot guess is not judged."""

from contextlib import contextmanager

import numpy as np
import pytest

from miniml import Primitive, kernel, ops
from miniml.backends import registry
from miniml.core.primitive import primitives
from miniml.grad import bprop_getters
from miniml.testing import opcheck


def one_for_each_axis(self, x, c):
    if len(c) != len(x):
        raise ValueError(f"Given takes a number for each axis of {x}; got {c}")
    return x


def turned_shape(self, x, c):
    if sorted(c) != list(range(len(x))):
        raise ValueError(f"Given takes a permutation of the axes of {x}; got {c}")
    return tuple(x[i] for i in c)


def without_axis(self, x, c):
    if isinstance(c, tuple) or not 0 <= c < len(x):
        raise ValueError(f"Given takes an axis of {x}; got {c}")
    return (*x[:c], *x[c + 1 :])


def coefficients(self, x, c):
    if not c or not all(isinstance(n, float) for n in c):
        raise TypeError(f"Given takes floats; got {c}")
    return x


def factor(self, x, c):
    if not isinstance(c, float):
        raise TypeError(f"Given takes a float; got {c}")
    return x


def switch(self, x, c):
    if not isinstance(c, bool):
        raise TypeError(f"Given takes True or False; got {c}")
    return x


def rolled(x, *, c, out):
    np.copyto(out, np.roll(x, c, tuple(range(x.ndim))) if x.ndim else x)


def horner(x, *, c, out):
    out.fill(0)
    for number in c:
        out *= x
        out += x.dtype.type(number)


def turned(x, *, c, out):
    np.copyto(out, x.transpose(c))


def turn_back(self):
    return lambda x, c, out, dout: (ops.transpose(dout, tuple(map(int, np.argsort(c)))), None)


def slope(self):
    def bprop(x, c, out, dout):
        sum_ = ops.zeros_like(x)
        for k, number in enumerate(c[:-1]):
            sum_ = sum_ * x + number * (len(c) - 1 - k)
        return dout * sum_, None

    return bprop


RIGHT = {
    "an int for each axis": (one_for_each_axis, rolled, None),
    "a permutation": (turned_shape, turned, turn_back),
    "an axis": (without_axis, lambda x, *, c, out: np.sum(x, c, out=out), None),
    "floats": (coefficients, horner, slope),
    "a float": (factor, lambda x, *, c, out: np.multiply(x, x.dtype.type(c), out=out), None),
    "a switch": (switch, lambda x, *, c, out: np.copyto(out, -x if c else x), None),
}


@contextmanager
def given(infer_shape, fn, bprop=None):
    """A primitive of x and the const input c."""
    members = {
        "__doc__": "x and c.", "__module__": __name__, "__qualname__": "Given",
        "const_inputs": ("c",), "differentiable": bprop is not None,
        "infer_shape": infer_shape, "infer_dtype": lambda self, x, c: x,
    }  # fmt: skip
    cls = globals()["Given"] = type("Given", (Primitive,), members)
    try:
        kernel("Given", "cpu", "f->f", "d->d")(fn)
        if bprop is not None:
            bprop_getters.register(cls)(bprop)
        yield cls()
    finally:
        del globals()["Given"]
        bprop_getters.unregister(primitives.pop("Given"))
        registry.specs.pop("Given", None)
        registry.table.pop(("Given", "cpu"), None)


CHECKS = ["rules", "memory", "layouts", "kernels", "graph", "gradient"]


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_primitive_passes_by_itself(kind):
    with given(*RIGHT[kind]) as primitive:
        report = opcheck(primitive, checks=CHECKS)
    assert not report.findings, str(report)
    assert report.calls["kernels"] >= 40
    assert RIGHT[kind][2] is None or report.calls["gradient"] >= 10
    assert any("the const input c was drawn as" in note for note in report.notes)


def in_order_of_memory(x, *, c, out):
    np.copyto(out, np.roll(x.ravel("K").reshape(x.shape), c, tuple(range(x.ndim))) if c else x)


def turned_twice(self):
    return lambda x, c, out, dout: (ops.reshape(dout, x.shape), None)


def steeper(self):
    right = slope(self)
    return lambda x, c, out, dout: (1.01 * right(x, c, out, dout)[0], None)


WRONG = {
    "layouts": (one_for_each_axis, in_order_of_memory, None),
    "gradient of a turn": (turned_shape, turned, turned_twice),
    "gradient of a polynomial": (coefficients, horner, steeper),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_fault_beside_a_const_input_is_found(kind):
    with given(*WRONG[kind]) as primitive:
        report = opcheck(primitive, checks=CHECKS, raise_error=False)
    assert {f.check for f in report.faults} == {kind.split()[0]}, str(report)


def test_what_cannot_be_guessed_is_not_judged():
    def names(self, x, c):
        if c != "mean":
            raise ValueError(f"Given takes 'mean'; got {c!r}")
        return x

    with given(names, lambda x, *, c, out: np.copyto(out, x)) as primitive:
        report = opcheck(primitive, raise_error=False)
    assert [f.severity for f in report.findings] == ["cannot judge"]
    assert "the values of c cannot be guessed" in str(report)
