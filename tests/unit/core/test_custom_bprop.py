"""Functions and cells that carry their own gradient: in every mode, of two orders, and refusals."""

import gc
import weakref

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import BpropError, DeclarationError, GraphError
from miniml.grad import (
    GradOperation,
    custom_bprop,
    grad,
    hook_gradient,
    hvp,
    jvp,
    value_and_grad,
    vjp,
)
from miniml.testing import gradcheck

X = np.array([0.5, -1.5, 2.0])


@custom_bprop(lambda x, out, dout: (dout * 3.0 * x * x * x,))
def odd(x):
    """x^2, whose gradient is said to be 3 x^3: nothing but the bprop gives that."""
    return x * x


class Odd(nn.Cell):
    """The same as a cell, with a parameter inside that no gradient reaches."""

    def __init__(self):
        self.scale = ml.Parameter(np.float64(1.0))

    def construct(self, x):
        return x * x * self.scale

    def bprop(self, x, out, dout):
        return (dout * 3.0 * x * x * x,)


@pytest.mark.parametrize("square", [odd, Odd()], ids=["function", "cell"])
class TestOrders:
    """With f = sum(square(x) * x): f' = 3 x^4 + x^2 and so on, by hand."""

    def test_value_and_first_order(self, run, square):
        value, slope = run(value_and_grad(lambda x: ops.sum(square(x) * x)))(X)
        assert value.item() == pytest.approx((X**3).sum())
        np.testing.assert_allclose(slope.asnumpy(), 3 * X**4 + X**2)

    def test_the_second_order_differentiates_the_bprop(self, run, square):
        # d (3 x^3 * x + square(x)) = 12 x^3 + 3 x^3
        found = run(grad(lambda x: ops.sum(grad(lambda y: ops.sum(square(y) * y))(x))))(X)
        np.testing.assert_allclose(found.asnumpy(), 15 * X**3)
        product = run(lambda x, v: hvp(lambda y: ops.sum(square(y) * y), x, v))(X, np.ones(3))
        np.testing.assert_allclose(product.asnumpy(), 15 * X**3)

    def test_the_third_order(self, run, square):
        third = grad(grad(grad(lambda x: ops.sum(square(x)))))
        assert run(third)(ml.Tensor(np.array(2.0))).item() == pytest.approx(18 * 2.0)

    def test_forward_mode(self, run, square):
        out, tangent = run(lambda x, t: jvp(square, (x,), (t,)))(X, np.ones(3))
        np.testing.assert_allclose(out.asnumpy(), X**2)
        np.testing.assert_allclose(tangent.asnumpy(), 3 * X**3)

    def test_pulled_twice(self, square):
        _, pull = vjp(square, X)
        for seed in (1.0, 2.0):
            np.testing.assert_allclose(pull(np.full(3, seed))[0].asnumpy(), seed * 3 * X**3)

    def test_an_inner_jit_and_an_inner_gradient(self, run, square):
        inner = ml.jit(square)
        mixed = run(grad(lambda x: ops.sum(x * grad(lambda y: ops.sum(inner(x) * inner(y)))(x))))
        # x * x^2 * 3 x^3 = 3 x^6, with d(x^2) = 3 x^3: 3 x^5 + x (3 x^3)(3 x^3) + x x^2 9 x^2
        expected = 3 * X**5 + 9 * X**7 + 9 * X**5
        np.testing.assert_allclose(mixed(X).asnumpy(), expected)


def test_arguments_and_results_are_trees(run):
    def bprop(p, k, name, out, dout):
        assert (name, dout["name"], dout["none"], dout["count"]) == ("x", None, None, None)
        whole = dout["sum"] * k
        return (
            {"a": whole * ops.ones_like(p["a"]), "n": None, "b": (p["b"][0] * whole,)},
            None,
            None,
        )

    @custom_bprop(bprop)
    def tree(p, k, name):
        total = ops.sum(p["a"]) + ops.sum(p["b"][0])
        return {"sum": total, "count": p["n"], "name": name, "none": None}

    def f(a, b):
        out = tree({"a": a, "n": np.array(3), "b": (b,)}, 2.0, "x")
        assert (out["name"], out["none"]) == ("x", None)
        return out["sum"] * 5.0

    da, db = run(grad(f, (0, 1)))(X[:1], X)
    assert da.tolist() == [10.0]
    np.testing.assert_allclose(db.asnumpy(), 10.0 * X)


def test_outputs_that_nothing_uses_have_zeros_and_integers_none(run):
    seen = []

    def bprop(x, out, dout):
        seen.append(dout[2])
        return (dout[0] + dout[1],)

    @custom_bprop(bprop)
    def several(x):
        return x * 1.0, x * 2.0, ops.argmax(x)

    np.testing.assert_allclose(run(grad(lambda x: ops.sum(several(x)[1])))(X).asnumpy(), 1.0)
    assert seen == [None]


def test_closures_count_as_constants(run):
    def f(x, a):
        @custom_bprop(lambda x, out, dout: (dout * a,))
        def scaled(x):
            return ops.cond(ops.sum(a) > 0, lambda: x * a, lambda: x)

        return ops.sum(scaled(x) * a)

    dx, da = run(grad(f, (0, 1)))(X, np.full(3, 5.0))
    np.testing.assert_allclose(dx.asnumpy(), 25.0)
    np.testing.assert_allclose(da.asnumpy(), 5.0 * X)
    second = run(grad(lambda x: ops.sum(grad(lambda y: f(y, x))(x))))(X)
    np.testing.assert_allclose(second.asnumpy(), 2.0 * X)


def test_parameters_inside_get_no_gradient_and_as_arguments_do(run):
    w = ml.Parameter(np.array([2.0, 3.0, 4.0]))
    inside = custom_bprop(lambda x, out, dout: (dout * w,))(lambda x: x * w)
    asked = custom_bprop(lambda x, w, out, dout: (dout * w, dout * x * 10.0))(lambda x, w: x * w)

    def slopes(fn):
        return run(value_and_grad(lambda x: ops.sum(fn(x)), weights=[w]))(X)[1]

    dx, (dw,) = slopes(inside)
    np.testing.assert_allclose(dx.asnumpy(), w.asnumpy())
    assert dw.tolist() == [0.0, 0.0, 0.0]
    dx, (dw,) = slopes(lambda x: asked(x, w))
    np.testing.assert_allclose(dw.asnumpy(), 10.0 * X)
    cell = Odd()
    by_input, by_weight = run(GradOperation(get_all=True, get_by_list=True)(
        lambda x: ops.sum(cell(x)), cell.trainable_params()
    ))(X)  # fmt: skip
    np.testing.assert_allclose(by_input[0].asnumpy(), 3 * X**3)
    assert by_weight[0].item() == 0.0


def test_what_the_function_assigns_and_draws_is_done_once(run):
    count = ml.Parameter(np.float64(0.0))

    @custom_bprop(lambda x, out, dout: (dout,))
    def noisy(x):
        ops.assign(count, count + 1.0)
        return x + ops.uniform((3,), dtype=ml.float64)

    derive = run(value_and_grad(lambda x: ops.sum(noisy(x))))
    ml.manual_seed(3)
    drawn = ops.uniform((3,), dtype=ml.float64).asnumpy().sum()
    ml.manual_seed(3)
    values = [derive(X)[0].item() for _ in range(2)]
    assert values[0] == pytest.approx(X.sum() + drawn)
    assert values[1] != values[0]
    assert count.item() == 2.0


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("mode", [ml.GRAPH_MODE, ml.PYNATIVE_MODE])
def test_a_training_step_uses_it(jit, mode):
    class Sign(nn.Cell):
        """The sign, with the straight-through gradient."""

        def construct(self, x):
            return ops.where(x > 0, 1.0, -1.0)

        def bprop(self, x, out, dout):
            return (dout,)

    net = nn.Sequential(nn.Dense(3, 1, bias=False), Sign())
    before = net[0].weight.asnumpy()
    x = np.eye(3, dtype=np.float32)
    with ml.context(jit=jit, mode=mode):
        ml.train_step(net, nn.MSELoss(), ml.optim.SGD(net.trainable_params(), lr=1.0))(
            x, np.zeros((3, 1))
        )
    signs = np.where(before > 0, 1.0, -1.0)
    np.testing.assert_allclose(net[0].weight.asnumpy(), before - 2 * signs / 3, rtol=1e-5)


def test_eagerly_it_may_be_computed_with_numpy():
    @custom_bprop(lambda x, out, dout: (dout * 2.0 * x,))
    def outside(x):
        return np.square(np.asarray(x))

    np.testing.assert_allclose(grad(lambda x: ops.sum(outside(x)))(X).asnumpy(), 2 * X)
    with pytest.raises(ml.errors.TracedValueError):
        ml.jit(outside)(X)


def test_methods_and_the_reversal_of_a_gradient():
    class Layer:
        factor = 4.0

        @custom_bprop(lambda self, x, out, dout: (None, dout * self.factor))
        def __call__(self, x):
            return x

    assert grad(lambda x: Layer()(x) * x)(3.0).item() == 4.0 * 3.0 + 3.0
    turned = custom_bprop(lambda x, out, dout: (-dout,))(lambda x: x)
    assert grad(lambda x: turned(x) + x)(3.0).item() == 0.0


def test_the_record_of_a_call_is_freed_with_its_last_user():
    gc.collect()
    gc.disable()
    try:
        seen = []

        @custom_bprop(lambda x, out, dout: (dout * x,))
        def watched(x):
            seen.append(weakref.ref(x))
            return x * 2.0

        out, pull = vjp(lambda x: watched(x * 1.0), X)
        pull(np.ones(3))
        del out, pull
        assert seen[0]() is None
    finally:
        gc.enable()


def test_gradcheck_judges_the_bprop():
    right = custom_bprop(lambda x, out, dout: (dout * 2.0 * x,))(lambda x: x * x)
    assert gradcheck(right, X, order=2).ok
    assert not gradcheck(odd, X, raise_error=False).ok

    class Weighted(nn.Cell):
        def __init__(self):
            self.w = ml.Parameter(np.array([2.0, 3.0, 4.0]))

        def construct(self, x):
            return x * self.w

        def bprop(self, x, out, dout):
            return (dout * self.w,)

    assert not gradcheck(Weighted(), X, raise_error=False).ok  # its parameter has a gradient


def branch(x):
    return ops.cond(x[0] > 0, lambda: odd(x), lambda: x)


def test_in_a_branch_of_a_graph_it_is_refused_rather_than_lost():
    np.testing.assert_allclose(grad(lambda x: ops.sum(branch(x)))(X).asnumpy(), 3 * X**3)
    np.testing.assert_allclose(ml.jit(branch)(X).asnumpy(), X**2)
    with pytest.raises(GraphError, match=r"^odd has a bprop of its own, .* outside of the branch"):
        ml.jit(grad(lambda x: ops.sum(branch(x))))(X)
    slope = grad(lambda x: ops.sum(odd(x)))
    inside = ml.jit(lambda x: ops.cond(x[0] > 0, lambda: slope(x), lambda: x))
    np.testing.assert_allclose(inside(X).asnumpy(), 3 * X**3)


@pytest.mark.parametrize(
    ("bprop", "message"),
    [
        (lambda x, out, dout: dout, r"bprop returned a tensor; return a tuple with one .* 1 here"),
        (lambda x, out, dout: (dout, dout), "returned 2 gradients for 1 arguments; return one per"),
        (lambda x, dout: (dout,), r"bprop takes \(x, dout\); it gets \(x0, out, dout\)"),
        (lambda x, out, dout: ((dout, dout),), "bprop returned tuple for input 0; return a tensor"),
        (lambda x, out, dout: (1.0,), "bprop returned float 1.0 for input 0; return a tensor"),
        (lambda x, out, dout: (ops.cast(dout, ml.float32),), r"returned float32\[3\] for input 0"),
        (lambda x, out, dout: (dout[:2],), r"returned float64\[2\] for input 0, which is float64"),
    ],
)
def test_what_a_bprop_returns_is_checked(run, bprop, message):
    wrong = custom_bprop(bprop)(lambda x: x * x)
    with pytest.raises(BpropError, match=f"^<lambda> .*{message}") as caught:
        run(grad(lambda x: ops.sum(wrong(x))))(X)
    assert "ops.sum(wrong(x))" in "".join(caught.value.__notes__)


def test_what_the_bprop_of_a_cell_returns_is_checked(run):
    class Wrong(nn.Cell):
        def construct(self, x):
            return x * x

        def bprop(self, x, out, dout):
            return dout, dout

    with pytest.raises(BpropError, match=r"^Wrong bprop returned 2 gradients for 1 arguments"):
        run(grad(lambda x: ops.sum(Wrong()(x))))(X)


def test_a_gradient_in_another_structure_is_refused():
    wrong = custom_bprop(lambda p, out, dout: ([dout, dout],))(lambda p: p[0] * p[1])
    with pytest.raises(BpropError, match="a gradient of another structure than argument 0 has"):
        grad(lambda p: ops.sum(wrong(p)))((X, X))


@pytest.mark.parametrize("use", [lambda: custom_bprop(None), lambda: custom_bprop(odd)(3.0)])
def test_what_is_no_function_is_refused(use):
    with pytest.raises(DeclarationError, match=r"custom_bprop takes a .*; got"):
        use()


class Scaled(nn.Cell):
    """Its gradient is said to be dout * k."""

    def __init__(self, k):
        self.k = k

    def construct(self, x):
        return x + 0.0

    def bprop(self, x, out, dout):
        return (dout * self.k,)


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_calls_made_in_a_loop_keep_their_own_bprops(mode):
    # Eager gradients are planned when they are seen again; what is made anew may have an old id.
    for k in range(400 if mode == ml.PYNATIVE_MODE else 3):
        scaled = custom_bprop(lambda x, out, dout, k=k: (dout * float(k),))(lambda x: x + 0.0)
        drawn = ml.recompute(lambda x: x * ops.uniform((), 1.0, 2.0))
        with ml.context(mode=mode):
            assert float(grad(scaled)(1.0)) == k
            assert float(grad(Scaled(k + 0.5))(2.0)) == k + 0.5
            value, slope = value_and_grad(drawn)(1.0)
        assert float(value) == float(slope)
        seen = []
        assert float(grad(lambda x, seen=seen: hook_gradient(x * x, seen.append))(3.0)) == 6.0
        assert [float(g) for g in seen] == [1.0]
