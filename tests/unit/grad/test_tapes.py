"""Eager gradients of long functions, whose tapes are planned in parts, and of numbers on them."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops
from miniml.errors import MinimlError
from miniml.grad import grad, value_and_grad, vjp

X, Y = np.array([0.3, -0.7, 1.1]), np.array([0.5, 0.2, -0.4])


def shear(name):
    """x + 0.01 y, as a primitive of a user's."""

    def bprop(self, x, y, out, dout):
        return dout, dout * 0.01

    def compute(self, x, y, out):
        np.add(x, 0.01 * y, out=out)

    rules = {"infer_shape": lambda self, x, y: x, "infer_dtype": lambda self, x, y: x}
    return type(name, (Primitive,), {**rules, "compute": compute, "bprop": bprop})()


own = shear("ShearOfLoops")


def rotated(x, y, steps, every):
    """x and y, turned step by step: a linear map, whose matrix NumPy multiplies."""
    for i in range(steps):
        x = own(x, y) if every and i % every == 0 else x + 0.01 * y
        y = y - x * 0.02
        if i % 3 == 0:  # values that many later parts read
            x, y = ops.split(ops.concat([x, y]) * 1.001, 2)
    return x, y


def matrix(steps):
    found = np.eye(2)
    for i in range(steps):
        found = np.array([[1, 0.01], [0, 1]]) @ found
        found = np.array([[1, 0], [-0.02, 1]]) @ found
        found = found * 1.001 if i % 3 == 0 else found
    return found


@pytest.mark.parametrize("every", [0, 1, 7, 40])
@pytest.mark.parametrize("steps", [1, 20, 41, 150])
def test_loops_of_any_length_have_the_gradients_of_their_matrices(steps, every):
    def fn(x, y):
        a, b = rotated(x, y, steps, every)
        return ops.sum(a * a) + ops.sum(b * 3.0) + ops.sum(x * y)

    for x, y in ((X, Y), (Y, X), (X, Y)):  # found again, with other numbers
        value, (dx, dy) = value_and_grad(fn, (0, 1))(x, y)
        m = matrix(steps)
        a, b = m @ np.stack([x, y])
        expected = m.T @ np.stack([2 * a, np.full(3, 3.0)]) + np.stack([y, x])
        assert float(value) == pytest.approx((a * a).sum() + (b * 3).sum() + (x * y).sum())
        np.testing.assert_allclose(np.stack([dx.asnumpy(), dy.asnumpy()]), expected, rtol=1e-9)


def test_the_same_calls_of_other_values_have_other_gradients():
    functions = {  # and their gradients in x and y
        lambda x, y: ops.sum(x * y - x): (Y - 1, X),
        lambda x, y: ops.sum(x * y - y): (Y, X - 1),
        lambda x, y: ops.sum(x * x - y): (2 * X, -np.ones(3)),
        lambda x, y: ops.sum(y * x - x): (Y - 1, X),
    }
    for _ in range(4):
        for fn, expected in functions.items():
            found = grad(fn, (0, 1))(X, Y)
            np.testing.assert_allclose([g.asnumpy() for g in found], expected)


def test_a_value_is_read_in_every_part():
    def fn(x, w):
        total = ops.zeros((3,), "float64")
        for _ in range(300):
            total = total + x * w
        return ops.sum(total * total)

    for _ in range(3):
        dx, dw = grad(fn, (0, 1))(X, Y)
        np.testing.assert_allclose(dx.asnumpy(), 2 * 300**2 * X * Y**2)
        np.testing.assert_allclose(dw.asnumpy(), 2 * 300**2 * X**2 * Y)


def test_gradients_of_long_gradients():
    def fn(x):
        for _ in range(70):
            x = x * 1.0 + x * 0.01
        return ops.sum(x * x * x)

    k = 1.01**70  # f = k^3 sum(x^3)
    second = grad(lambda x: ops.sum(grad(fn)(x) * Y))
    for _ in range(3):
        np.testing.assert_allclose(second(X).asnumpy(), 6 * k**3 * X * Y)


NUMBERS = [True, False, 0, 1, -3, 2**40, 0.0, -0.0, 0.5, 1e30, float("nan"), 1 + 2j]
BINARY = ["add", "sub", "mul", "div", "maximum", "pow", "atan2"]


@pytest.mark.filterwarnings("ignore:overflow")  # 1e30 in float16
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", BINARY)
def test_numbers_beside_recorded_tensors_are_what_they_are_beside_others(name, dtype):
    fn, x = getattr(ops, name), ml.Tensor(np.array([0.5, 2.0]), dtype)
    for number in NUMBERS:
        for first in (True, False):

            def call(t, number=number, first=first):
                return fn(t, number) if first else fn(number, t)

            assert outcome(recorded, call, x) == outcome(call, x)


def outcome(fn, *args):
    """The dtype and the bytes of a result, or what is raised."""
    try:
        found = fn(*args)
    except MinimlError as error:
        return type(error), str(error).splitlines()[0]
    return found.dtype, found.asnumpy().tobytes()


def recorded(call, x):
    """The result of a call on a tensor that is differentiated."""

    def called(t):
        out = call(t)
        return ops.sum(ops.real(out) if out.dtype.kind == "c" else out), out

    return vjp(called, x, has_aux=True)[2]
