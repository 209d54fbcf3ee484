"""Keyword arguments are trees of inputs, as positional ones are, in every mode."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import GradientArgumentError
from miniml.grad import GradOperation, custom_bprop, grad, hessian, jacobian, value_and_grad, vjp

X = np.array([1.0, -2.0, 3.0])
V = np.array([2.0, 5.0, -1.0])


def scaled(x, *, by, power=2):
    return ops.sum(by["v"] * x**power)


class TestJit:
    def test_tensors_are_inputs_and_all_else_is_part_of_the_key(self):
        f = ml.jit(scaled)
        assert f(X, by={"v": V}).item() == (V * X**2).sum()
        assert f(X, by={"v": ml.Tensor(V + 1)}).item() == ((V + 1) * X**2).sum()
        assert len(f.recompilations) == 1
        assert f(X, power=3, by={"v": V}).item() == (V * X**3).sum()
        assert f(X, by={"v": V}, power=3).item() == (V * X**3).sum()
        assert len(f.recompilations) == 2
        assert "static argument" in f.recompilations[1]

    def test_calls_with_and_without_keywords_take_turns(self):
        f = ml.jit(lambda a, b: a - b)
        for _ in range(3):
            assert f(X, V).tolist() == (X - V).tolist()
            assert f(b=X, a=V).tolist() == (V - X).tolist()
            assert f(V, b=X).tolist() == (V - X).tolist()

    def test_graphs_and_explanations_take_them(self):
        graph = ml.trace(scaled, X, by={"v": V})
        assert len(graph.inputs) == 2
        assert "Mul" in str(ml.explain(scaled, X, by={"v": V}))

    def test_a_keyword_that_nobody_has_is_refused_in_the_names_of_the_user(self):
        with pytest.raises(TypeError, match=r"scaled\(\) got an unexpected keyword argument 'to'"):
            ml.jit(scaled)(X, to=V)


class TestGradients:
    def test_of_the_positional_arguments_alone(self, run):
        found = run(grad(scaled))(X, by={"v": V})
        np.testing.assert_allclose(found.asnumpy(), 2 * V * X)
        value, found = run(value_and_grad(scaled))(X, by={"v": V}, power=3)
        assert value.item() == (V * X**3).sum()
        np.testing.assert_allclose(found.asnumpy(), 3 * V * X**2)

    def test_of_functions_of_an_outer_one(self, run):
        def outer(v, x):
            return ops.sum(grad(scaled)(x, by={"v": v}))

        found = run(grad(outer))(V, x=X)
        np.testing.assert_allclose(found.asnumpy(), 2 * X)

    def test_vjp(self, run):
        def f(x, *, by):
            return by * x * x

        dx = run(lambda x, by: vjp(f, x, by=by)[1](np.ones(3)))(X, by=V)
        np.testing.assert_allclose(dx[0].asnumpy(), 2 * V * X)

    def test_of_higher_order_and_the_other_spelling(self, run):
        np.testing.assert_allclose(run(hessian(scaled))(X, by={"v": V}).asnumpy(), np.diag(2 * V))
        found = run(jacobian(lambda x, by: x * by))(X, by=V)
        np.testing.assert_allclose(found.asnumpy(), np.diag(V))
        found = run(GradOperation(get_all=True)(scaled))(X, by={"v": V})
        np.testing.assert_allclose(found[0].asnumpy(), 2 * V * X)

    def test_an_argument_that_is_to_be_differentiated_by_keyword_is_refused(self):
        text = "argnums 0 names no argument: scaled was called with 0 .* and 2 by keyword"
        with pytest.raises(GradientArgumentError, match=text):
            grad(scaled)(x=X, by={"v": V})

    @pytest.mark.parametrize("transform", [grad, value_and_grad, jacobian, hessian])
    def test_refusals_name_no_function_of_the_library(self, transform):
        with pytest.raises(TypeError) as error:
            transform(scaled)(X, to=V)
        assert str(error.value) == "scaled() got an unexpected keyword argument 'to'"


class Masked(nn.Cell):
    def __init__(self):
        self.scale = ml.Parameter(np.float64(3.0))

    def construct(self, x, y=None, mask=1.0):
        return x * self.scale * mask if y is None else y * mask


class TestCells:
    def test_take_keywords(self, run):
        net = Masked()
        f = run(lambda x, m: net(x, mask=m))
        np.testing.assert_allclose(f(X, V).asnumpy(), 3 * X * V)
        np.testing.assert_allclose(f(V, V).asnumpy(), 3 * V * V)
        np.testing.assert_allclose(run(lambda x: net(x=x, mask=2.0))(X).asnumpy(), 6 * X)

    def test_take_gradients(self, run):
        net = Masked()
        f = run(grad(lambda x, m: ops.sum(net(x, mask=m))))
        np.testing.assert_allclose(f(X, V).asnumpy(), 3 * V)

    def test_a_keyword_that_construct_lacks_is_refused(self):
        with pytest.raises(TypeError, match=r"construct\(\) got an unexpected keyword"):
            Masked()(X, m=V)


@custom_bprop(lambda x, slope, by, out, dout: (dout * 10.0 * slope * by, None, None))
def leaky(x, slope=0.5, by=2.0):
    return x * slope * by


class Leaky(nn.Cell):
    def construct(self, x, slope=0.5, by=2.0):
        return x * slope * by

    def bprop(self, x, slope, by, out, dout):
        return dout * 10.0 * slope * by, None, None


@pytest.mark.parametrize("fn", [leaky, Leaky()], ids=["function", "cell"])
class TestOwnGradients:
    def test_a_bprop_takes_keywords_in_their_positions(self, run, fn):
        f = run(grad(lambda x, by: ops.sum(fn(x, by=by))))
        np.testing.assert_allclose(f(X, V).asnumpy(), 5 * V)
        np.testing.assert_allclose(run(lambda x: fn(by=3.0, x=x))(ml.Tensor(X)).asnumpy(), 1.5 * X)

    def test_a_keyword_that_the_function_lacks_is_refused(self, fn):
        with pytest.raises(TypeError, match=r"eaky\(\) got an unexpected keyword argument 'to'"):
            fn(X, to=1.0)


def test_a_bprop_takes_nothing_by_keyword_alone():
    @custom_bprop(lambda x, out, dout: (dout,))
    def only(x, *, slope):
        return x * slope

    with pytest.raises(GradientArgumentError, match="only got 'slope' by keyword alone, but has"):
        only(X, slope=2.0)


@pytest.mark.parametrize("jit", [True, False])
def test_a_list_where_an_array_is_meant_is_said_to_be_a_tree(jit):
    f = ml.jit(grad(lambda x: ops.sum(x * x))) if jit else grad(lambda x: ops.sum(x * x))
    text = r"argument 0 of <lambda> is a list, a tree of .* give np.array\(\[...\]\)"
    for tree in ([1.0, 2.0], [[1.0], [2.0, 3.0]]):
        with pytest.raises(TypeError, match=text):
            f(tree)
    assert [g.item() for g in grad(lambda x: x[0] * x[1])([2.0, 3.0])] == [3.0, 2.0]
