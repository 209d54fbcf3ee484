"""Primitives, functions and networks in JAX, and its functions here."""

import copy
import doctest
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import DTypeError, GraphError, MinimlError
from miniml.grad import grad, hessian
from miniml.testing import gradcheck

jax = pytest.importorskip("jax", reason="no jax")
interop = pytest.importorskip("miniml.interop.jax")
from jax.test_util import check_grads  # noqa: E402

from miniml.interop import from_jax, to_jax  # noqa: E402

jnp = jax.numpy
TANH = to_jax(ops.Tanh())
MATMUL = to_jax(ops.MatMul())


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def test_examples_of_the_docstrings():
    with jax.enable_x64(False):
        assert doctest.testmod(interop).failed == 0


class InteropKinds(ml.Primitive):
    """x times a const input, which counts 100 where it is True."""

    const_inputs = ("by",)

    def infer_shape(self, x, by):
        return x

    def infer_dtype(self, x, by):
        return x

    def compute(self, x, *, by, out):
        np.multiply(x, 100.0 if by is True else by, out=out)


def test_const_inputs_that_python_calls_equal_are_told_apart():
    scale = to_jax(InteropKinds())
    for n in (1, 1.0, True, 0.0, -0.0) * 2:
        expected = np.ones(2) * (100.0 if n is True else n)
        assert np.asarray(scale(np.ones(2), n)).tobytes() == expected.tobytes()


def test_static_arguments_that_python_calls_equal_are_told_apart():
    sign = to_jax(lambda x, z: x * float(np.copysign(1.0, z.imag)))
    for z, expected in ((1 + 0j, 1.0), (complex(1, -0.0), -1.0)) * 2:
        assert float(sign(jnp.float64(1.0), z)) == expected


def test_gradients_of_any_order():
    x = jnp.linspace(-1.0, 1.0, 5)
    np.testing.assert_allclose(TANH(x), jnp.tanh(x))
    check_grads(TANH, (x,), order=3, modes=["rev"])
    check_grads(MATMUL, (jnp.ones((2, 3)), jnp.ones((3, 4))), order=2, modes=["rev"])


def test_jit_and_vmap():
    a, b = jax.random.normal(jax.random.key(0), (3, 2, 4)), jnp.ones((4, 5))

    def ours(a, b):
        return (MATMUL(a, b) ** 2).sum()

    def theirs(a, b):
        return ((a @ b) ** 2).sum()

    for axes in ((0, None),):
        np.testing.assert_allclose(jax.vmap(MATMUL, axes)(a, b), a @ b)
        found = jax.jit(jax.vmap(jax.grad(ours, (0, 1)), axes))(a, b)
        for one, other in zip(found, jax.vmap(jax.grad(theirs, (0, 1)), axes)(a, b), strict=True):
            np.testing.assert_allclose(one, other)
    c = jnp.ones((2, 4, 5))
    twice = jax.vmap(jax.vmap(MATMUL, (None, 0)), (0, None))
    expected = jax.vmap(jax.vmap(jnp.matmul, (None, 0)), (0, None))(a, c)
    np.testing.assert_allclose(twice(a, c), expected)
    assert jax.vmap(TANH)(jnp.ones((1, 3))).shape == (1, 3)
    assert jax.vmap(TANH)(jnp.ones((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int32", "bool"])
def test_dtypes(dtype):
    same = to_jax(ops.Reshape((3, 1)))
    x = jnp.array([0, 1, 1]).astype(dtype)
    assert same(x).dtype == x.dtype
    assert bool((same(x)[:, 0] == x).all())


def test_function_of_trees():
    f = to_jax(lambda a, b: {"u": ops.sin(a) * b["k"], "n": ops.argmax(a)})
    x = jnp.linspace(-1.0, 1.0, 5)
    out = f(x, {"k": 2.0})
    np.testing.assert_allclose(out["u"], 2.0 * jnp.sin(x))
    assert out["n"] == 4
    by_x, by_k = jax.grad(lambda a, k: f(a, {"k": k})["u"].sum(), (0, 1))(x, 2.0)
    np.testing.assert_allclose(by_x, 2.0 * jnp.cos(x))
    np.testing.assert_allclose(by_k, jnp.sin(x).sum(), atol=1e-12)


def test_network():
    net = nn.Sequential(nn.Dense(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dense(8, 2))
    apply, x = to_jax(net), np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    with pytest.raises(GraphError, match=r"updates '1.running_mean', .* net.set_train\(False\)"):
        apply(apply.params, x)
    net.set_train(False)
    np.testing.assert_allclose(apply(apply.params, x), net(x).asnumpy(), rtol=1e-5)
    found = jax.jit(jax.grad(lambda p: apply(p, x).sum()))(apply.params)
    ours = grad(lambda: ops.sum(net(x)), None, weights=net)()
    for parameter, gradient in zip(net.trainable_params(), ours, strict=True):
        np.testing.assert_allclose(found[parameter.name], gradient.asnumpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(MinimlError, match=r"got no value for 0.weight"):
        apply({}, x)


def test_refusals():
    with jax.enable_x64(False):
        with pytest.raises(DTypeError, match=r"gives float64, which JAX does not have now"):
            to_jax(lambda x: ops.cast(x, "float64"))(jnp.ones(2))
        with pytest.raises(DTypeError, match=r"got float64, which JAX would make narrower"):
            from_jax(jnp.sin)(np.ones(2))
    with pytest.raises(MinimlError, match=r"from_jax got 3; it takes a function of JAX's arrays"):
        from_jax(3)
    weight = ml.Parameter(np.ones(2), "w")
    with pytest.raises(GraphError, match=r"reads 'w', which would be a constant there"):
        to_jax(lambda x: x * weight)(jnp.ones(2))


def test_function_of_jax_here():
    f = from_jax(lambda a, b: {"o": jnp.sin(a) * b, "i": jnp.argmax(a)})
    x = np.random.default_rng(0).normal(size=3)
    assert gradcheck(lambda a, b: f(a, b)["o"], x, x + 1.0, order=2).ok
    cubes = hessian(from_jax(lambda t: (t**3).sum()))(np.array([1.0, 2.0]))
    np.testing.assert_allclose(cubes.asnumpy(), [[6, 0], [0, 12]])
    compiled = ml.jit(lambda v: from_jax(jnp.cos)(v) * 2.0)
    np.testing.assert_allclose(compiled(x).asnumpy(), 2.0 * np.cos(x))
    both = grad(lambda v: from_jax(TANH)(v).sum())(np.zeros(2))
    np.testing.assert_allclose(both.asnumpy(), [1.0, 1.0])


def cube(x):
    return x**3


def test_functions_are_copied_and_pickled():
    x = jnp.linspace(0.1, 1.0, 3)
    for f in (to_jax(ops.Tanh()), to_jax(ops.tanh), from_jax(cube)):
        value = np.asarray(f(x))  # with what a call leaves behind
        for again in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
            np.testing.assert_array_equal(np.asarray(again(x)), value)
    tree = to_jax(lambda a: {"out": ops.exp(a), "state": None})(x)
    assert tree["state"] is None


@pytest.mark.parametrize("cast_first", [False, True])
def test_a_result_has_the_dtype_of_the_autocast_of_its_call(cast_first):
    """Whichever was called first; gradients, which JAX asks for anywhere, are those of the call."""
    x = jnp.full((2, 2), 0.1, jnp.float32)

    def twice(a):
        return ops.matmul(a, a)

    product = to_jax(ops.MatMul())  # anew, so that nothing was called before
    for fn in (to_jax(twice), lambda a: product(a, a)):
        for casts in (cast_first, not cast_first):
            with ml.context(autocast=ml.float16 if casts else False):
                out, pull = jax.vjp(fn, x)
                expected = ops.matmul(np.asarray(x), np.asarray(x)).asnumpy()
            assert out.dtype == expected.dtype == (np.float16 if casts else np.float32)
            np.testing.assert_array_equal(out, expected)
            with ml.context(autocast=False if casts else ml.float16):
                (gradient,) = pull(jnp.ones_like(out))
            assert gradient.dtype == np.float32
            np.testing.assert_allclose(gradient, np.full((2, 2), 0.4), rtol=1e-3)


@pytest.mark.parametrize("by", [to_jax, from_jax])
def test_constants_that_cannot_be_hashed_are_refused(by):
    with pytest.raises(GraphError, match=r"got \{1, 2\} of type set, .* nor hashable; pass"):
        by(lambda x, chosen: x)(np.ones(2), {1, 2})
