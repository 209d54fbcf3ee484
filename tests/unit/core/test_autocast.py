"""Autocast: what computes in which dtype, as visible Cast nodes, and with what gradient."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.core.primitive import primitives
from miniml.errors import DeclarationError, DTypeError
from miniml.grad import grad, value_and_grad, vjp

LOW = pytest.mark.parametrize("low", [ml.float16, ml.bfloat16], ids=str)
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)


def rounded(x, low):
    return x.astype(low).astype(np.float32)


def unit(low):
    """The largest relative error of rounding."""
    return 2.0**-11 if low == ml.float16 else 2.0**-8


def test_classes_say_what_they_compute_in():
    own = [p for p in primitives.values() if p.__module__.startswith("miniml.ops.")]
    low = {p.name for p in own if p.autocast == "low"}
    assert low == {
        "Conv2D", "Conv2DInputGrad", "Conv2DWeightGrad", "Einsum", "MatMul",
        "ScaledDotProductAttention",
    }  # fmt: skip
    wide = {p.name for p in own if p.autocast == "wide"}
    assert wide >= {"CrossEntropy", "Exp", "LayerNorm", "Mean", "Softmax", "Solve", "Sum"}
    assert not wide & {"Add", "Max", "Mul", "ReLU", "Tanh"}


@LOW
@pytest.mark.parametrize("says", ["low", "wide", None])
def test_a_primitive_of_ones_own_says_what_it_computes_in(low, says):
    members = {"autocast": says, "infer_shape": lambda self, x: x, "__module__": __name__}
    own = type(f"Casting{says}", (ml.Primitive,), members)
    graph = {None: ml.float32, "low": low, "wide": ml.float32}[says]
    with ml.context(autocast=low):
        traced = ml.trace(own(), X if says != "wide" else X.astype(low))
    assert traced.nodes[-1].outputs[0].abstract.dtype == graph
    assert len(traced.nodes) == (1 if says is None else 2)


def test_another_word_for_it_is_refused():
    with pytest.raises(DeclarationError, match=r"CastingHalf has autocast = 'half'; \"low\""):
        type("CastingHalf", (ml.Primitive,), {"autocast": "half", "infer_shape": lambda s, x: x})


@LOW
def test_products_compute_in_16_bits_and_the_casts_are_nodes(low):
    with ml.context(autocast=low):
        graph = ml.trace(lambda x, w: ops.softmax(ops.matmul(x, w)), X, W)
        eager = ops.matmul(X, W)
        compiled = ml.jit(ops.matmul)(X, W)
    names = [(n.primitive.name, n.outputs[0].abstract.dtype) for n in graph.nodes]
    assert names == [
        ("Cast", low), ("Cast", low), ("MatMul", low), ("Cast", ml.float32), ("Softmax", ml.float32)
    ]  # fmt: skip
    expected = (rounded(X, low) @ rounded(W, low)).astype(low)
    for found in (eager, compiled):
        assert found.dtype == low
        difference = found.asnumpy().astype(np.float32) - expected.astype(np.float32)
        assert np.abs(difference).max() <= 2 * unit(low) * np.abs(expected.astype(np.float32)).max()


@LOW
def test_linear_algebra_takes_what_a_product_gave_in_float32(low):
    """It refuses 16 bits otherwise."""
    a = 2 * np.eye(3, dtype=np.float32)
    fns = ops.inv, ops.det, ops.cholesky, ops.pinv, lambda x: ops.eigh(x)[0]
    for fn in fns:
        with ml.context(autocast=low):
            got = fn(ops.matmul(a, a))
        assert got.dtype == ml.float32
        np.testing.assert_allclose(got.asnumpy(), fn(a @ a).asnumpy(), 1e-6)


@LOW
def test_what_is_in_neither_list_follows_its_inputs(low):
    half = ml.Tensor(X, dtype=low)
    with ml.context(autocast=low):
        assert ops.add(half, half).dtype == low
        assert ops.add(half, X).dtype == ml.float32 == ops.add(X, X).dtype
        assert ops.relu(half).dtype == low
        assert ops.exp(half).dtype == ops.sum(half).dtype == ml.float32
        assert ops.matmul(X.astype(np.float64), W).dtype == ml.float64
        assert ops.matmul(np.ones((2, 2), int), np.ones((2, 2), int)).dtype == ml.int64
        with ml.context(autocast=False):
            assert ops.matmul(X, W).dtype == ml.float32
            assert ops.exp(half).dtype == low
    assert ops.matmul(X, W).dtype == ml.float32


@LOW
@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_gradients_arrive_in_float32_at_float32_parameters(low, mode):
    net = nn.Sequential(nn.Dense(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Dense(5, 2))
    loss, labels = nn.CrossEntropyLoss(), np.array([0, 1, 1, 0])

    def f(x):
        return loss(net(x), labels)

    exact, expected = value_and_grad(f, None, weights=net)(X)
    with ml.context(autocast=low, mode=mode):
        value, found = value_and_grad(f, None, weights=net)(X)
    assert value.dtype == ml.float32
    assert all(p.dtype == ml.float32 for p in net.get_parameters())
    scale = max(np.abs(e.asnumpy()).max() for e in expected)
    for g, e in zip(found, expected, strict=True):
        assert g.dtype == ml.float32
        # Some products of inputs rounded to 11 or 8 bits.
        assert np.abs(g.asnumpy() - e.asnumpy()).max() < 20 * unit(low) * scale
    assert abs(float(value) - float(exact)) < 0.02


def test_a_gradient_keeps_the_dtypes_of_its_call():
    """A bprop that multiplies matrices gives a gradient in the dtype of its call, wherever it is
    pulled."""
    with ml.context(autocast=ml.float16):
        _, pull = vjp(lambda x: ops.einsum("ij,jk->ik", x, W), X)
        (inside,) = pull(ops.ones((4, 5), ml.float16))
        second = grad(lambda x: ops.sum(grad(lambda y: ops.sum(ops.matmul(y, W) ** 3))(x)))(X)
    (outside,) = pull(ops.ones((4, 5), ml.float16))
    assert inside.dtype == outside.dtype == second.dtype == ml.float32
    assert np.array_equal(inside.asnumpy(), outside.asnumpy())


def test_branches_and_loops_cast_too():
    def step(carry, _):
        return ops.cast(ops.matmul(carry, W @ W.T), ml.float32), carry

    def f(x):
        last, _ = ops.scan(
            lambda c, _: (ops.cast(ops.matmul(c, W @ W.T), ml.float32), c), x, length=2
        )
        return ops.sum(ops.cond(ops.sum(x) > 0, lambda: ops.matmul(last, W), lambda: last @ W))

    x = np.abs(X)
    with ml.context(autocast=ml.bfloat16):
        found = grad(f)(x).asnumpy()
        assert np.array_equal(ml.jit(grad(f))(x).asnumpy(), found)
    assert not np.array_equal(found, grad(f)(x).asnumpy())


@LOW
def test_branches_and_loops_keep_their_types_whatever_multiplies_in_them(low):
    weight = (W @ W.T / 50).astype(np.float32)

    def recurrent(x):
        _, last = ops.scan(
            lambda h, row: (ops.tanh((h + row) @ weight), h), x[:1] * 0.0, x[:, None]
        )
        last = ops.while_loop(lambda h: ops.sum(h * h) > 1.0, lambda h: h @ weight, last, 3)
        return ops.cond(ops.sum(last) > 1e6, lambda: last @ weight, lambda: last)

    def by_hand(x):
        product = weight.astype(low).astype("d")
        h = np.zeros((1, x.shape[1]))
        for row in x:
            h = np.tanh((h + row).astype(low).astype("d") @ product)
        for _ in range(3):
            h = h.astype(low).astype("d") @ product if np.sum(h * h) > 1.0 else h
        return h

    assert recurrent(X).dtype == ml.float32
    with ml.context(autocast=low):
        eager, compiled = recurrent(ml.Tensor(X)), ml.jit(recurrent)(X)
        gradient = grad(lambda x: ops.sum(recurrent(x)))
        gradients = gradient(X), ml.jit(gradient)(X)
    close = 8 * unit(low)  # rounding of seven products
    for found in (eager, compiled):
        assert found.dtype == ml.float32
        np.testing.assert_allclose(found.asnumpy(), by_hand(X), rtol=close, atol=close)
    assert {g.dtype for g in gradients} == {ml.float32}
    np.testing.assert_allclose(*[g.asnumpy() for g in gradients], rtol=close, atol=close)


def test_a_compiled_function_depends_on_it():
    product = ml.jit(ops.matmul)
    product(X, W)
    with ml.context(autocast=ml.float16):
        assert product(X, W).dtype == ml.float16
    assert product(X, W).dtype == ml.float32
    assert len(product.recompilations) == 2


@pytest.mark.parametrize("dtype", [ml.int32, "int32", 7, True, ml.float64])
def test_other_dtypes_are_refused_by_name(dtype):
    shown = getattr(dtype, "name", dtype)
    with pytest.raises(DTypeError, match=f"autocast={shown}.*float16 or ml.bfloat16"):
        ml.set_context(autocast=dtype)
