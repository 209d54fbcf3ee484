"""Gradients and tangents of complex numbers beside JAX's, whose convention they have."""

import numpy as np
import pytest

from miniml import ops
from miniml.grad import grad, jvp, vjp

jax = pytest.importorskip("jax", reason="no jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

RNG = np.random.default_rng(1)
Z, W = (RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4)) for _ in range(2))
X = RNG.normal(size=(4, 4))
BOTH = {
    "mul": (lambda z: z * W, lambda z: z * W, Z),
    "div": (lambda z: W / z, lambda z: W / z, Z),
    "matmul": (lambda z: z @ W, lambda z: z @ W, Z),
    "exp": (ops.exp, jnp.exp, Z),
    "abs": (ops.abs, jnp.abs, Z),
    "angle": (ops.angle, jnp.angle, Z),
    "real": (ops.real, jnp.real, Z),
    "imag": (ops.imag, jnp.imag, Z),
    "conj": (ops.conj, jnp.conj, Z),
    "complex": (lambda x: ops.complex(x, x * x), lambda x: jax.lax.complex(x, x * x), X),
    "real times": (lambda x: x * W, lambda x: x * W, X),
    "fft": (ops.fft, jnp.fft.fft, Z),
    "fft of real": (ops.fft, jnp.fft.fft, X),
    "ifft": (lambda z: ops.ifft(z, 3, norm="ortho"), lambda z: jnp.fft.ifft(z, 3, norm="ortho"), Z),
    "rfft": (ops.rfft, jnp.fft.rfft, X),
    "rfft of 5": (lambda x: ops.rfft(x, 5), lambda x: jnp.fft.rfft(x, 5), X),
    "irfft": (ops.irfft, jnp.fft.irfft, Z),
    "irfft of 5": (lambda z: ops.irfft(z, 5, 0), lambda z: jnp.fft.irfft(z, 5, 0), Z),
    "fft2": (ops.fft2, jnp.fft.fft2, Z),
    "rfft2": (ops.rfft2, jnp.fft.rfft2, X),
    "irfft2": (ops.irfft2, jnp.fft.irfft2, Z),
}


@pytest.mark.parametrize("name", BOTH)
def test_pull_backs_and_tangents(name):
    here, there, x = BOTH[name]
    out, pull = vjp(here, x)
    expected, its = jax.vjp(there, x)
    np.testing.assert_allclose(out.asnumpy(), expected, atol=1e-12)
    imaginary = 1j * RNG.normal(size=out.shape) if out.dtype.kind == "c" else 0.0
    dout = RNG.normal(size=out.shape) + imaginary
    np.testing.assert_allclose(pull(dout)[0].asnumpy(), its(dout)[0], atol=1e-12)
    along = x[::-1].copy()
    _, tangent = jvp(here, (x,), (along,))
    np.testing.assert_allclose(tangent.asnumpy(), jax.jvp(there, (x,), (along,))[1], atol=1e-12)


def test_gradients_of_floats():
    got = grad(lambda z: ops.sum(abs(ops.fft(z)) ** 2 * X))(Z)
    expected = jax.grad(lambda z: jnp.sum(abs(jnp.fft.fft(z)) ** 2 * X))(Z)
    np.testing.assert_allclose(got.asnumpy(), expected, atol=1e-12)
    got = grad(lambda z: ops.sum(z * z * W), holomorphic=True)(Z)
    expected = jax.grad(lambda z: jnp.sum(z * z * W), holomorphic=True)(Z)
    np.testing.assert_allclose(got.asnumpy(), expected, atol=1e-12)
