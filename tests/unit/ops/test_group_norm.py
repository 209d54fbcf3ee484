"""Normalisation made of other operations: NumPy in float64, two derivatives, 16 bits, refusals."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, ShapeError
from miniml.testing import gradcheck

X = np.random.default_rng(0).normal(2, 3, size=(2, 4, 3))
G, B = np.array([0.5, 2, -1, 1.5]), np.array([0.0, 1, -2, 0.25])


def normalised(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def grouped(x, groups, eps):
    return normalised(x.reshape(len(x), groups, -1), 2, eps).reshape(x.shape)


CASES = {
    "group_norm": (lambda x, g, b: ops.group_norm(x, 2, g, b, 0.1),
                   lambda x, g, b: grouped(x, 2, 0.1) * g[:, None] + b[:, None]),
    "instance_norm": (lambda x, g, b: ops.instance_norm(x, g, b, 0.1),
                      lambda x, g, b: normalised(x, 2, 0.1) * g[:, None] + b[:, None]),
    "rms_norm": (lambda x, g, b: ops.rms_norm(x, g[1:] * b[:3], 0.1),
                 lambda x, g, b: x / np.sqrt((x**2).mean(2, keepdims=True) + 0.1) * g[1:] * b[:3]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_formulas(name):
    fn, expected = CASES[name]
    np.testing.assert_allclose(fn(X, G, B).asnumpy(), expected(X, G, B), 1e-12)
    np.testing.assert_allclose(ml.jit(fn)(X, G, B).asnumpy(), expected(X, G, B), 1e-12)
    assert gradcheck(fn, X, G, B, order=2).ok
    half = fn(*(ml.Tensor(v * s, dtype=ml.float16) for v, s in ((X, 300), (G, 1), (B, 1))))
    assert half.dtype == ml.float16  # whose squares leave its range
    low = (X * 300).astype(np.float16).astype(np.float64), G, B
    np.testing.assert_allclose(half.asnumpy(), expected(*low), rtol=3e-3, atol=3e-3)


def test_without_weights_and_without_samples():
    np.testing.assert_allclose(ops.group_norm(X, 4).asnumpy(), grouped(X, 4, 1e-5), 1e-12)
    np.testing.assert_array_equal(ops.instance_norm(X).asnumpy(), ops.group_norm(X, 4).asnumpy())
    assert ops.group_norm(X.astype(np.float32), 1).dtype == ml.float32
    assert ops.group_norm(X[:0], 2).shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.group_norm(X, 3), r"group_norm got x of shape \(2, 4, 3\) for 3 groups"),
        (lambda: ops.group_norm(X, 0), "for 0 groups"),
        (lambda: ops.group_norm(X, 2, G[:3]), r"gamma of \(3,\); gamma has one number for each"),
        (lambda: ops.group_norm(X, 2, None, G[:3]), r"beta of \(3,\)"),
        (lambda: ops.instance_norm(X[0]), r"instance_norm got x of shape \(4, 3\)"),
        (lambda: ops.rms_norm(X, G), r"gamma of \(4,\); gamma has the shape of the last axes"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
    with pytest.raises(DTypeError, match="rms_norm needs a float tensor"):
        ops.rms_norm(np.arange(3), np.ones(3))
