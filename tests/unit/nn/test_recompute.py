"""recompute: the same gradients, bit by bit, from the inputs alone."""

import gc
import weakref

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import DeclarationError, GraphError
from miniml.grad import grad, jvp, stop_gradient, value_and_grad, vjp
from miniml.testing import gradcheck

X = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
JIT = pytest.mark.parametrize("jit", [True, False])


class Block(nn.Cell):
    """What reads and writes state, draws numbers, and has a value that another layer uses twice."""

    def __init__(self):
        self.wide, self.back = nn.Dense(8, 64), nn.Dense(64, 8)
        self.drop, self.norm = nn.Dropout(0.3), nn.BatchNorm2d(8)

    def construct(self, x):
        h = self.drop(ops.tanh(self.wide(x)))
        h = ops.reshape(self.norm(ops.reshape(self.back(h * h), (16, 8, 1, 1))), (16, 8))
        return x + h


def trained(jit, wrap, depth=6):
    """A step of a net of blocks after three calls, its losses and its parameters."""
    ml.manual_seed(0)
    net = nn.Sequential(*[wrap(Block()) for _ in range(depth)])
    ml.manual_seed(1)
    opt = optim.SGD(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, lambda out: ops.mean(out * out), opt)
    with ml.context(jit=jit):
        losses = [float(step(X)) for _ in range(3)]
    return step, losses, {n: p.asnumpy() for n, p in net.parameters_dict().items()}


@JIT
def test_a_step_has_the_same_bits(jit):
    _, losses, parameters = trained(jit, lambda block: block)
    _, again, found = trained(jit, ml.recompute)
    assert again == losses
    assert list(found) == list(parameters)  # and the same names
    assert all(np.array_equal(found[n], parameters[n]) for n in found)


@pytest.mark.parametrize("providers", [("miniml",), ("cc",)], ids=str)
def test_the_arena_of_a_deep_net_is_smaller(providers):
    sizes = []
    for wrap in (lambda block: block, ml.recompute):
        with ml.context(providers=providers):
            step, _, _ = trained(True, wrap, depth=12)
        ((_, compiled),) = step._program._kept
        sizes.append(compiled.program.plan.size)
    assert sizes[1] < 0.6 * sizes[0]


def test_an_eager_gradient_keeps_no_inner_values():
    kept = []

    def block(x):
        inner = ops.exp(x)
        kept.append(weakref.ref(inner.value if hasattr(inner, "value") else inner))
        return ops.sin(inner)

    gc.disable()
    try:
        _, pull = vjp(ml.recompute(block), X)
        assert kept[0]() is None
        (found,) = pull(ops.ones_like(X))
    finally:
        gc.enable()
    (expected,) = vjp(lambda x: ops.sin(ops.exp(x)), X)[1](ops.ones_like(X))
    assert np.array_equal(found.asnumpy(), expected.asnumpy())
    assert len(kept) == 2


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_gradients_of_gradients(mode):
    def f(x, w):
        return ops.sum(ops.tanh(x * w) * w)

    again = ml.recompute(f)
    x, w = X[0].astype(np.float64), X[1].astype(np.float64)

    def second(fn):
        return grad(lambda x, w: ops.sum(grad(fn, (0, 1))(x, w)[0] * x), (0, 1))

    with ml.context(mode=mode):
        for one, other in zip(second(f)(x, w), second(again)(x, w), strict=True):
            assert np.array_equal(one.asnumpy(), other.asnumpy())
        assert np.array_equal(
            jvp(lambda x: again(x, w), (x,), (w,))[1].asnumpy(),
            jvp(lambda x: f(x, w), (x,), (w,))[1].asnumpy(),
        )
    gradcheck(again, x, w, order=2)


def test_second_derivatives_reach_parameters_and_closures():
    weight = ml.Parameter(X[0].astype(np.float64), name="w")

    def second(wrap):
        def f(x):
            scale = ops.exp(x)
            block = wrap(lambda h: ops.tanh(h * weight * scale))
            return ops.sum(block(block(x)))

        inner = grad(f)
        return value_and_grad(lambda x: ops.sum(inner(x) ** 2), 0, weights=[weight])

    x = X[1].astype(np.float64)
    value, (by_x, (by_w,)) = second(lambda fn: fn)(x)
    found, (again_x, (again_w,)) = second(ml.recompute)(x)
    assert float(found) == float(value)
    # Gradients of what is used several times are added in another order.
    assert np.allclose(again_x.asnumpy(), by_x.asnumpy(), rtol=1e-12, atol=1e-16)
    assert np.allclose(again_w.asnumpy(), by_w.asnumpy(), rtol=1e-12, atol=1e-16)


def test_a_parameter_is_what_it_was_when_it_was_read():
    weight = ml.Parameter(np.float32(2.0), name="w")
    _, pull = vjp(ml.recompute(lambda x: x * x * weight), 3.0, weights=[weight])
    weight.set_data(np.float32(100.0))
    (dx,), (dw,) = pull(ml.Tensor(1.0))
    assert (float(dx), float(dw)) == (12.0, 9.0)


def test_assignments_happen_once():
    count = ml.Parameter(np.float32(0.0), name="count", requires_grad=False)

    def counted(x):
        ops.assign(count, count + 1.0)
        return x * x * count

    assert float(grad(ml.recompute(counted))(3.0)) == 6.0
    assert float(count) == 1.0
    assert float(ml.jit(grad(ml.recompute(counted)))(3.0)) == 12.0
    assert float(count) == 2.0


def test_trees_keywords_and_what_is_no_float():
    @ml.recompute
    def pick(pair, rows, *, scale, name="plain"):
        assert name == "kept"
        return {"y": ops.gather(pair[0], rows) * pair[1]["w"] * scale, "rows": rows, "n": 3}

    def f(x, w):
        out = pick((x, {"w": w}), np.array([0, 2, 2]), scale=2.0, name="kept")
        assert out["n"] == 3
        assert out["rows"].dtype == ml.int64
        return ops.sum(out["y"])

    dx, dw = grad(f, (0, 1))(X[:3], X[3])
    expected = np.zeros_like(X[:3])
    np.add.at(expected, [0, 2, 2], 2.0 * X[3])
    assert np.allclose(dx.asnumpy(), expected)
    assert np.allclose(dw.asnumpy(), 2.0 * (X[0] + X[2] + X[2]))


def test_recomputed_calls_nest_and_stand_in_branches_and_loops():
    inner = ml.recompute(ops.sin)

    def f(x, wrap):
        block = wrap(lambda h: ops.cond(ops.sum(h) > 0, lambda: inner(h), lambda: h * h))
        last, _ = ops.scan(lambda c, _: (block(ops.tanh(c)), c), x, length=3)
        return ops.sum(wrap(lambda h: block(inner(h)) * stop_gradient(h))(last))

    for compiled in (lambda fn: fn, ml.jit):
        expected = compiled(grad(lambda x: f(x, lambda fn: fn)))(X)
        found = compiled(grad(lambda x: f(x, ml.recompute)))(X)
        assert np.array_equal(found.asnumpy(), expected.asnumpy())


def test_a_graph_computes_twice_and_a_barrier_keeps_it_so():
    graph = ml.trace(grad(lambda x: ops.sum(ml.recompute(ops.exp)(ops.sin(x)))), X)
    names = [node.primitive.name for node in graph.nodes]
    assert names.count("Exp") == 2
    assert names.index("Barrier") < len(names) - 1 - names[::-1].index("Exp")
    compiled = ml.jit(grad(lambda x: ops.sum(ml.recompute(ops.exp)(ops.sin(x)))))
    program = compiled.compiled(X).program
    assert "Barrier" in [node.primitive.name for node in program.graph.nodes]


@JIT
def test_the_second_run_casts_as_the_first(jit):
    found = []
    for wrap in (lambda fn: fn, ml.recompute):
        block = wrap(lambda x: ops.tanh(x @ X.T) @ X)
        with ml.context(autocast=ml.float16, jit=jit):
            found.append(ml.jit(grad(lambda x, f=block: ops.sum(ops.exp(f(x)))))(X * 0.1).asnumpy())
    assert np.array_equal(*found)


def test_a_cell_with_a_gradient_of_its_own_keeps_it():
    class Own(nn.Cell):
        def construct(self, x):
            return x * x

        def bprop(self, x, out, dout):
            return (dout * 7.0,)

    assert float(grad(ml.recompute(Own()))(3.0)) == 7.0


def test_hooks_of_a_recomputed_cell_run_once():
    seen = []
    cell = ml.recompute(nn.Dense(8, 8))
    cell.register_forward_hook(lambda c, inputs, out: seen.append(out.shape))
    grad(lambda x: ops.sum(cell(x)))(X)
    assert seen == [(16, 8)]


def test_a_primitive_is_recomputed_too():
    assert float(grad(ml.recompute(ops.Square()))(3.0)) == 6.0


def test_without_a_gradient_nothing_is_added():
    assert [n.primitive.name for n in ml.trace(ml.recompute(ops.exp), X).nodes] == ["Exp"]


def test_what_is_refused():
    with pytest.raises(DeclarationError, match="recompute got 3"):
        ml.recompute(3)
    calls = []

    def moody(x):
        calls.append(x)
        return x * (ops.uniform((3,)) if len(calls) > 1 else 1.0)

    with pytest.raises(GraphError, match="draws more random numbers than in its first run"):
        grad(lambda x: ops.sum(ml.recompute(moody)(x)))(X[0, :3])


def test_an_error_of_the_second_run_shows_the_call():
    calls = []

    def fails(x):
        calls.append(x)
        return ops.exp(x) if len(calls) == 1 else ops.reshape(x, (7,))

    with pytest.raises(ml.errors.ShapeError) as caught:
        grad(lambda x: ops.sum(ml.recompute(fails)(x)))(X)
    assert "test_recompute.py" in "\n".join(caught.value.__notes__)
