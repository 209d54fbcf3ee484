"""Gradients of complex numbers: df/dx - i df/dy, in every transform, by NumPy's differences."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import MinimlError
from miniml.grad import (
    GradOperation,
    custom_bprop,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    per_example,
    value_and_grad,
    vjp,
)
from miniml.testing import GradientError, gradcheck
from miniml.testing.calls import calls
from tests.frame.calls import rng_of
from tests.opinfo import COMPLEX_ROWS

RNG = np.random.default_rng(8)
X = RNG.normal(size=4)
Z, W, V = (RNG.normal(size=4) + 1j * RNG.normal(size=4) for _ in range(3))
M = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
FEW = np.array([0, 0, 2])

# Floats of one complex vector.
FLOATS = {
    "abs": lambda z: ops.sum(abs(z)),
    "mul": lambda z: ops.sum(ops.real(z * W * z)),
    "exp": lambda z: ops.sum(ops.imag(ops.exp(z))),
    "div": lambda z: ops.sum(ops.abs(W / z)),
    "matmul": lambda z: ops.sum(ops.imag(ml.Tensor(M) @ z)),
    "conj": lambda z: ops.real(ops.sum(z * ops.conj(z) * W)),
    "angle": lambda z: ops.sum(ops.angle(z) * X),
    "einsum": lambda z: ops.real(ops.einsum("i,ij,j->", z, M, z)),
    "mean": lambda z: ops.abs(ops.mean(z * z)),
    "index": lambda z: ops.sum(ops.imag(z[FEW] * z[1:][::-1])),
    "concat": lambda z: ops.real(ops.sum(ops.concat([z, W * z, 1j * z]) * 3j)),
    "where": lambda z: ops.imag(ops.sum(ops.where(X > 0, z * z, 2j * z))),
    "square": lambda z: ops.imag(ops.sum(ops.square(z) + ops.reciprocal(z) - z / 3)),
    "complex": lambda z: ops.sum(abs(ops.complex(ops.real(z), ops.real(z) * ops.imag(z)))),
    "real beside": lambda z: ops.sum(ops.abs(z * X + X)),
    "fft": lambda z: ops.sum(abs(ops.fft(z, n=6)) * np.arange(6.0)),
    "ifft": lambda z: ops.sum(ops.real(ops.ifft(z, n=3, norm="ortho") ** 2)),
    "rfft": lambda z: ops.sum(abs(ops.rfft(ops.real(z) * ops.imag(z)))),
    "irfft": lambda z: ops.sum(ops.irfft(z) ** 2 * np.arange(6.0)),
    "irfft of 5": lambda z: ops.sum(ops.irfft(z, 5, norm="ortho") ** 2),
    "fft2": lambda z: ops.sum(abs(ops.fft2(ops.reshape(z, (2, 2))))),
    "rfft2": lambda z: ops.sum(abs(ops.rfft2(ops.real(ops.reshape(z * z, (2, 2)))))),
    "irfft2": lambda z: ops.sum(ops.irfft2(ops.reshape(z, (2, 2)), s=(2, 3)) ** 3),
    "scan": lambda z: ops.sum(abs(ops.scan(lambda c, v: (c + v, c * v), z[0], z)[0])),
    "shifts": lambda z: ops.sum(ops.real(ops.fftshift(z) * ops.ifftshift(z) * W)),
}


def by_differences(fn, z, h=1e-6):
    """df/dx - i df/dy of each number."""
    slopes = np.zeros(z.shape, complex)
    for i in np.ndindex(z.shape):
        step = np.zeros(z.shape, complex)
        step[i] = h
        along = [fn(ml.Tensor(z + u * step)).item() - fn(ml.Tensor(z - u * step)).item()
                 for u in (1, 1j)]  # fmt: skip
        slopes[i] = (along[0] - 1j * along[1]) / (2 * h)
    return slopes


@pytest.mark.parametrize("name", FLOATS)
def test_gradients_in_every_transform(name):
    fn = FLOATS[name]
    expected = by_differences(fn, Z)
    got = grad(fn)(Z)
    assert got.dtype == np.complex128
    np.testing.assert_allclose(got.asnumpy(), expected, atol=1e-7)
    np.testing.assert_allclose(ml.jit(grad(fn))(Z).asnumpy(), expected, atol=1e-7)
    np.testing.assert_allclose(per_example(fn)(np.stack([W, Z]))[1].asnumpy(), expected, atol=1e-7)
    narrow = grad(fn)(ml.Tensor(Z, dtype="complex64"))
    assert narrow.dtype == np.complex64
    np.testing.assert_allclose(narrow.asnumpy(), expected, rtol=1e-3, atol=1e-4)
    along = np.sum(expected * V).real  # Re(sum of gradient times tangent)
    for tangent in (jvp(fn, (Z,), (V,))[1], linearize(fn, Z)[1](V)):
        np.testing.assert_allclose(tangent.item(), along, atol=1e-7)


@pytest.mark.parametrize("row", COMPLEX_ROWS, ids=lambda row: row.primitive.name)
def test_primitives(row):
    """By gradcheck, twice differentiated; their tangents, and each example alone."""
    rng = rng_of(row.primitive.name)
    wide = np.dtype("D" if "D" in row.dtypes else "d")
    for call in calls(row, wide, rng):
        if not all(a.size for a in call.arrays):
            continue
        assert gradcheck(call.primitive, *call.arrays).ok
        stacked = [np.stack([a, 2 * a]) for a in call.arrays]
        mapped = ml.vmap(call.primitive)(*stacked).asnumpy()
        (out,) = call.run()
        np.testing.assert_allclose(mapped, [out, 2 * out], atol=1e-12)
        _, tangent = jvp(call.primitive, call.arrays, tuple(3 * a for a in call.arrays))
        np.testing.assert_allclose(tangent.asnumpy(), 3 * out, atol=1e-12)


def test_vjp_is_the_transpose_not_the_adjoint():
    _, pull = vjp(lambda z: ml.Tensor(M) @ z, Z)
    np.testing.assert_allclose(pull(W)[0].asnumpy(), M.T @ W)
    _, pull = vjp(lambda z: z * z, Z)
    np.testing.assert_allclose(pull(W)[0].asnumpy(), 2 * Z * W)


def test_holomorphic_functions():
    def cubes(z):
        return ops.sum(z * z * z)

    np.testing.assert_allclose(grad(cubes, holomorphic=True)(Z).asnumpy(), 3 * Z * Z)
    value, slope = ml.jit(value_and_grad(cubes, holomorphic=True))(Z)
    np.testing.assert_allclose(value.item(), (Z**3).sum())
    np.testing.assert_allclose(slope.asnumpy(), 3 * Z * Z)
    for derive in (jacobian, jacfwd, jacrev):
        found = derive(lambda z: z * z, holomorphic=True)(Z)
        np.testing.assert_allclose(found.asnumpy(), np.diag(2 * Z))


def test_jacobians_by_the_way_that_says_all():
    for derive in (jacobian, jacfwd):
        np.testing.assert_allclose(derive(lambda x: x * x * 1j)(X).asnumpy(), np.diag(2j * X))
    for derive in (jacobian, jacrev):
        np.testing.assert_allclose(derive(abs)(Z).asnumpy(), np.diag(Z.conj() / abs(Z)))


def test_second_derivatives():
    def fn(x):
        return ops.sum(abs(ops.rfft(x)) ** 2 * x[:3])

    h = 1e-5
    columns = [(grad(fn)(X + h * e) - grad(fn)(X - h * e)).asnumpy() / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(hessian(fn)(X).asnumpy(), np.stack(columns, 1), atol=1e-6)
    np.testing.assert_allclose(hvp(fn, X, X).asnumpy(), np.stack(columns, 1) @ X, atol=1e-6)


def test_at_zero():
    assert grad(abs)(0j).item() == 0
    assert np.isnan(grad(ops.angle)(0j).item())


def test_trees_and_weights():
    p = ml.Parameter(W, name="p")
    value, (tree, by_weight) = value_and_grad(
        lambda t: ops.sum(abs(t["a"] * p + t["b"])), weights=[p]
    )({"a": Z, "b": 2.0})
    assert value.dtype == np.float64
    assert tree["a"].dtype == by_weight[0].dtype == np.complex128
    assert tree["b"].dtype == np.float32
    expected = by_differences(lambda w: ops.sum(abs(Z * w + 2.0)), W)
    np.testing.assert_allclose(by_weight[0].asnumpy(), expected, atol=1e-7)


REFUSED = [
    (lambda: grad(ops.sum)(Z), "returned complex128.*say holomorphic=True"),
    (lambda: grad(ops.sum, holomorphic=True)(X), r"got float64\[4\]; a holomorphic"),
    (lambda: grad(lambda z: ops.sum(abs(z)), holomorphic=True)(Z), "needs one complex number"),
    (lambda: grad(abs, holomorphic=3), "grad got holomorphic=3"),
    (lambda: jacobian(lambda z: z)(Z), "a complex argument and a complex output, of which"),
    (lambda: jacfwd(abs)(Z), "jacfwd of abs got a complex argument, of which a number has two"),
    (lambda: jacrev(lambda x: x * 1j)(X), "got a complex output"),
    (lambda: GradOperation()(lambda z: z)(Z), "GradOperation of .* needs float outputs"),
    (lambda: vjp(abs, Z)[1](W), r"got complex128\[4\] where float64\[4\]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "match"), REFUSED)
def test_refusals(call, match):
    with pytest.raises(MinimlError, match=match):
        call()


def test_gradcheck_finds_the_conjugate_convention():
    """PyTorch's gradients are the conjugates of these; a rule in that convention is found."""
    conjugated = custom_bprop(lambda z, out, dout: (dout * ops.conj(z) * 2,))(lambda z: z * z)
    with pytest.raises(GradientError, match="argument 0, imaginary part"):
        gradcheck(conjugated, Z)
    assert gradcheck(lambda z: z * z, Z).ok
    assert gradcheck(lambda t: t["a"] * t["b"], {"a": Z, "b": 1 + 2j}, order=2).ok
    assert gradcheck(ops.fft, ml.Tensor(Z, dtype="complex64")).ok
