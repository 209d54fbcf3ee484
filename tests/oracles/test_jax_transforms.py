"""vmap and forward mode beside JAX's, on random programs."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad, hvp, jacfwd, jacrev, jvp

jax = pytest.importorskip("jax", reason="no jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

# Functions of one matrix (4, 4), and of two; with their names here and there.
ONE = [
    (ops.sin, jnp.sin),
    (ops.tanh, jnp.tanh),
    (lambda x: ops.exp(-x * x), lambda x: jnp.exp(-x * x)),
    (lambda x: ops.softmax(x, axis=-1), lambda x: jax.nn.softmax(x, axis=-1)),
    (lambda x: ops.logsumexp(x, axis=0, keepdims=True) * x,
     lambda x: jax.nn.logsumexp(x, axis=0, keepdims=True) * x),
    (lambda x: ops.cumsum(x, axis=1), lambda x: jnp.cumsum(x, axis=1)),
    (lambda x: ops.sort(x, axis=0), lambda x: jnp.sort(x, axis=0)),
    (lambda x: x.T[::-1], lambda x: x.T[::-1]),
    (lambda x: ops.max(x, axis=1, keepdims=True) - x,
     lambda x: jnp.max(x, axis=1, keepdims=True) - x),
    (lambda x: x[[2, 0, 0, 1]], lambda x: x[jnp.array([2, 0, 0, 1])]),
    (lambda x: ops.pad(x, 1)[1:-1, :4], lambda x: jnp.pad(x, 1)[1:-1, :4]),
    (lambda x: ops.solve(x @ x.T + 4.0 * ops.eye(4, dtype="float64"), x),
     lambda x: jnp.linalg.solve(x @ x.T + 4.0 * jnp.eye(4), x)),
    (lambda x: ops.concat([x[2:], ops.mean(x, axis=0, keepdims=True) * x[:2]], axis=0),
     lambda x: jnp.concatenate([x[2:], jnp.mean(x, axis=0, keepdims=True) * x[:2]], axis=0)),
    (lambda x: ops.where(x > 0, x * x, ops.cos(x)), lambda x: jnp.where(x > 0, x * x, jnp.cos(x))),
    (lambda x: ops.scan(lambda c, r: (c * 0.5 + r, c * r), x[0], x)[0],
     lambda x: jax.lax.scan(lambda c, r: (c * 0.5 + r, c * r), x[0], x)[1]),
    (lambda x: ops.cond(ops.sum(x) > 0, ops.sin, lambda v: v * v, x),
     lambda x: jax.lax.cond(jnp.sum(x) > 0, jnp.sin, lambda v: v * v, x)),
]  # fmt: skip
TWO = [
    (ops.add, jnp.add),
    (ops.mul, jnp.multiply),
    (ops.matmul, jnp.matmul),
    (lambda x, y: ops.einsum("ij,kj->ik", x, y), lambda x, y: jnp.einsum("ij,kj->ik", x, y)),
    (ops.maximum, jnp.maximum),
    (lambda x, y: x / (1.0 + y * y), lambda x, y: x / (1.0 + y * y)),
    (ops.atan2, jnp.arctan2),
]


def program(seed):
    """A random function of two matrices, here and in JAX."""
    rng = np.random.default_rng(seed)
    steps = []
    for count in range(2, int(rng.integers(5, 9))):
        two = bool(rng.integers(2))
        row = int(rng.integers(len(TWO if two else ONE)))
        steps.append((two, row, *map(int, rng.integers(0, count, 2))))

    def run(which, x, y):
        values = [x, y]
        for two, row, i, j in steps:
            fn = (TWO if two else ONE)[row][which]
            values.append(fn(values[i], values[j]) if two else fn(values[i]))
        return values[-1]

    return lambda x, y: run(0, x, y), lambda x, y: run(1, x, y)


def same(got, expected, what):
    got, expected = got.asnumpy(), np.asarray(expected)
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9 * scale, err_msg=what)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(200))
def test_random_programs(seed):
    ours, theirs = program(seed)
    rng = np.random.default_rng(seed + 1000)
    x, y, t, u = rng.normal(size=(4, 3, 4, 4))
    axes = [(0, 0), (1, 0), (0, None), (2, 1), (None, 0)][seed % 5]
    a = x if axes[0] is not None else x[0]
    b = y if axes[1] is not None else y[0]
    if axes[0] == 1:
        a = np.moveaxis(x, 0, 1)
    if axes == (2, 1):
        a, b = np.moveaxis(x, 0, 2), np.moveaxis(y, 0, 1)
    same(ml.vmap(ours, axes)(a, b), jax.vmap(theirs, axes)(a, b), "vmap")
    got = jvp(ours, (x[0], y[0]), (t[0], u[0]))
    expected = jax.jvp(theirs, (x[0], y[0]), (t[0], u[0]))
    same(got[0], expected[0], "value")
    same(got[1], expected[1], "jvp")

    def total(x, y):
        return ops.sum(ops.sin(ours(x, y)))

    def jtotal(x, y):
        return jnp.sum(jnp.sin(theirs(x, y)))

    same(ml.vmap(grad(total), axes)(a, b), jax.vmap(jax.grad(jtotal), axes)(a, b), "vmap of grad")
    mapped = grad(lambda a: ops.sum(ml.vmap(ours, axes)(a, b) ** 2))
    jmapped = jax.grad(lambda a: jnp.sum(jax.vmap(theirs, axes)(a, b) ** 2))
    same(mapped(a), jmapped(a), "grad of vmap")
    if seed % 4 == 0:
        compiled = ml.jit(ml.vmap(grad(total), axes))
        same(compiled(a, b), jax.vmap(jax.grad(jtotal), axes)(a, b), "jit")
        same(jacfwd(ours)(x[0], y[0]), jax.jacfwd(theirs)(x[0], y[0]), "jacfwd")
        same(jacrev(ours)(x[0], y[0]), jax.jacrev(theirs)(x[0], y[0]), "jacrev")
        product = jax.jvp(jax.grad(lambda x: jtotal(x, y[0])), (x[0],), (t[0],))[1]
        same(hvp(lambda x: total(x, y[0]), x[0], t[0]), product, "hvp")
