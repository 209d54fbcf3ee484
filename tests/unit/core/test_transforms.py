"""Gradients of gradients and of whole functions, eager and compiled, and GradOperation."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    GradientArgumentError,
    NonFiniteError,
    ShapeError,
)
from miniml.grad import GradOperation, grad, hessian, hvp, jacobian, jvp, stop_gradient, vjp

X = np.array([1.0, -2.0], np.float32)

MODES = {
    "eager": lambda f: f,
    "graph mode": lambda f: f,
    "jit": ml.jit,
}


@pytest.fixture(params=MODES)
def compiled(request):
    mode = ml.GRAPH_MODE if request.param == "graph mode" else ml.PYNATIVE_MODE
    with ml.context(mode=mode):
        yield MODES[request.param]


class TestNesting:
    def test_perturbations_are_not_confused(self, compiled):
        f = compiled(grad(lambda x: x * grad(lambda y: x + y)(1.0)))
        assert f(ml.Tensor(1.0)).item() == 1.0
        g = compiled(grad(lambda x: grad(lambda y: x * y)(2.0)))
        assert g(ml.Tensor(3.0)).item() == 1.0

    def test_orders_of_tanh(self, compiled):
        f, expected = ops.tanh, [0.9640276, 0.070650816, -0.13621868, 0.25265405]
        for value in expected:
            assert compiled(f)(ml.Tensor(2.0)).item() == pytest.approx(value, rel=1e-5)
            f = grad(f)

    def test_second_derivative_of_sin(self, compiled):
        f = compiled(grad(grad(ops.sin)))
        assert f(ml.Tensor(1.0)).item() == pytest.approx(-0.841471, abs=1e-6)

    def test_mixed_second_derivatives(self, compiled):
        def f(x, y):
            return x * x * y

        x, y = ml.Tensor(4.0), ml.Tensor(5.0)
        found = [
            compiled(grad(grad(f, first), second))(x, y).item()
            for first in (0, 1)
            for second in (0, 1)
        ]
        assert found == [10.0, 8.0, 8.0, 0.0]

    def test_jvp_and_vjp(self, compiled):
        x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2))

        def f(x, y):
            return x * x * x + y

        out, tangent = compiled(lambda x, y: jvp(f, (x, y), (np.ones((2, 2)), y)))(x, y)
        np.testing.assert_allclose(out.asnumpy(), [[2.0, 9.0], [28.0, 65.0]])
        np.testing.assert_allclose(tangent.asnumpy(), [[4.0, 13.0], [28.0, 49.0]])
        dx, dy = compiled(lambda x, y: vjp(f, x, y)[1](np.ones((2, 2))))(x, y)
        np.testing.assert_allclose(dx.asnumpy(), [[3.0, 12.0], [27.0, 48.0]])
        np.testing.assert_allclose(dy.asnumpy(), np.ones((2, 2)))

    def test_jacobian_and_hessian_vector_products(self, compiled):
        x = np.array([1.0, 2.0, 3.0])
        found = compiled(jacobian(lambda x: x[:2] * x[1:]))(x)
        np.testing.assert_allclose(found.asnumpy(), [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]])
        product = compiled(lambda x: hvp(lambda x: (x * x * x).sum(), x, np.ones(3)))(x)
        np.testing.assert_allclose(product.asnumpy(), 6 * x)

    def test_jvp_is_searched_for_nan_where_it_is_asked_for_alone(self, compiled):
        tiny = np.array([1e-3])

        def f(x):
            return ops.sum(ops.broadcast_to(x * 1e308, (4, 1)), 0)

        with ml.debug_nans():
            _, tangent = compiled(lambda x: jvp(f, (x,), (tiny,)))(tiny)
            np.testing.assert_allclose(tangent.asnumpy(), [4e305])
            with pytest.raises(NonFiniteError, match="in the backward of"):
                compiled(lambda x: jvp(ops.sqrt, (x,), (x + 1,)))(np.zeros(1))

    def test_jvp_passes_integer_outputs_by(self, compiled):
        def f(x):
            return {"best": ops.topk(x * x, 1), "none": None}

        out, tangent = compiled(lambda x, v: jvp(f, (x,), (v,)))(X, np.ones(2, np.float32))
        assert [t.tolist() for t in out["best"]] == [[4.0], [1]]
        assert (tangent["best"][0].tolist(), tangent["best"][1]) == ([-4.0], None)

    def test_trees_through_jacobian_hessian_and_hvp(self, compiled):
        x, y = np.array([2.0, 3.0], np.float32), np.float32(5.0)

        def f(p):
            return {"scaled": p[0] * p[1], "sum": p[0].sum()}

        found = compiled(jacobian(f))((x, y))
        assert found["scaled"][0].tolist() == [[5.0, 0.0], [0.0, 5.0]]
        assert found["scaled"][1].tolist() == [2.0, 3.0]
        assert [b.tolist() for b in found["sum"]] == [[1.0, 1.0], 0.0]

        def g(p):
            return (p["a"] * p["a"] * p["b"]).sum()

        p, v = {"a": x, "b": y}, {"a": np.ones(2, np.float32), "b": np.float32(1.0)}
        second = compiled(hessian(g))(p)
        assert second["a"]["a"].tolist() == [[10.0, 0.0], [0.0, 10.0]]
        assert second["b"]["a"].tolist() == second["a"]["b"].tolist() == [4.0, 6.0]
        product = compiled(lambda p, v: hvp(g, p, v))(p, v)
        assert (product["a"].tolist(), product["b"].item()) == ([14.0, 16.0], 10.0)
        with pytest.raises(ShapeError, match="hvp got vs of another structure"):
            hvp(g, p, {"a": x})

    def test_a_pullback_can_be_pulled_again(self):
        _, pull = vjp(lambda x: x * x, X)
        assert [pull(np.ones(2))[0].tolist() for _ in range(2)] == [[2.0, -4.0]] * 2
        with pytest.raises(ShapeError, match="cotangent or tangent has the shape and dtype"):
            pull(np.ones(3))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda: jvp(lambda p: p["a"], ({"a": X},), ((X,),)),
            ShapeError,
            "jvp got a tangent of an",
        ),
        (lambda: jvp(lambda x: x, (X,), ((X, X),)), ShapeError, "rank|tangent has the shape"),
        (lambda: jvp(lambda x: x, (1.0,), (None,)), DTypeError, "got None where it takes a tensor"),
        (lambda: jvp(lambda x: x, (1.0,), ("a",)), DTypeError, "got 'a' of type str"),
        (lambda: vjp(lambda x: x, X)[1](["a", "b"]), DTypeError, "of type list for a tensor"),
        (lambda: hvp(lambda x, y: x * y, (1.0, 2.0), 1.0), ShapeError, "hvp got vs of another"),
        (lambda: hvp(lambda x, y: x * y, (1.0, 2.0), (1.0,)), ShapeError, "hvp got vs of another"),
        (lambda: hvp(lambda: 1.0, (), ()), GradientArgumentError, "hvp got no arguments; give"),
        (lambda: hvp(lambda x: x * x, 1.0, None), DTypeError, "got None where it takes a tensor"),
        (
            lambda: jacobian(net, (0, 1)),
            GradientArgumentError,
            r"jacobian got argnums=\(0, 1\); it",
        ),
        (lambda: hessian(net, (0, 1)), GradientArgumentError, r"hessian got argnums=\(0, 1\)"),
        (lambda: hessian(net, None), GradientArgumentError, "hessian got argnums=None; it"),
        (lambda: grad(net, 1.5), GradientArgumentError, "argnums is 1.5; it is an int"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


def net(x, y, z):
    return ops.matmul(x * z, y)


A = {
    "x": np.array([[0.8, 0.6, 0.2], [1.8, 1.3, 1.1]], np.float32),
    "y": np.array([[0.11, 3.3, 1.1], [1.1, 0.2, 1.4], [1.1, 2.2, 0.3]], np.float32),
}
SENS = np.array([[0.1, 0.6, 0.2], [0.8, 1.3, 1.1]], np.float32)


def near(tensor, expected):
    np.testing.assert_allclose(tensor.asnumpy(), np.asarray(expected, np.float32), rtol=1e-4)


class TestGradOperation:
    """The numbers are those of MindSpore's documentation of GradOperation."""

    def test_the_first_input_by_default(self, compiled):
        y = np.array([[0.01, 0.3, 1.1], [0.1, 0.2, 1.3], [2.1, 1.2, 3.3]], np.float32)
        x = np.array([[0.5, 0.6, 0.4], [1.2, 1.3, 1.1]], np.float32)
        dx = compiled(GradOperation()(lambda x, y: net(x, y, 1.0)))(x, y)
        near(dx, [[1.41, 1.6, 6.6]] * 2)

    def test_all_inputs(self, compiled):
        dx, dy = compiled(GradOperation(get_all=True)(lambda x, y: net(x, y, 1.0)))(A["x"], A["y"])
        near(dx, [[4.51, 2.7, 3.6]] * 2)
        near(dy, [[2.6] * 3, [1.9] * 3, [1.3] * 3])

    def test_sens_is_the_last_argument(self, compiled):
        derive = GradOperation(get_all=True, sens_param=True)(lambda x, y: net(x, y, 1.0))
        dx, dy = compiled(derive)(A["x"], A["y"], SENS)
        near(dx, [[2.211, 0.51, 1.49], [5.588, 2.68, 4.07]])
        near(dy, [[1.52, 2.82, 2.14], [1.1, 2.05, 1.55], [0.9, 1.55, 1.25]])
        near(GradOperation(sens_param=True)(net)(A["x"], A["y"], np.float32(1), SENS), dx.asnumpy())

    def test_sens_has_the_outputs_shape_and_takes_its_dtype(self, compiled):
        derive = compiled(GradOperation(sens_param=True)(lambda x: x * X))
        for sens in (np.array([1, 2]), np.array([1.0, 2.0]), ml.Tensor([1, 2])):
            assert derive(X, sens).tolist() == [1.0, -4.0]
        with pytest.raises(ShapeError, match=r"sens of shape \(1,\) for an output of shape \(2,\)"):
            derive(X, np.ones(1, np.float32))
        with pytest.raises(GradientArgumentError, match="got no arguments; the last one is"):
            GradOperation(sens_param=True)(net)()
        with pytest.raises(ShapeError, match="GradOperation got sens of another structure"):
            GradOperation(sens_param=True)(lambda x: (x, x))(X, X)
        with pytest.raises(DTypeError, match="got 'a' of type str for a tensor"):
            derive(X, "a")

    def test_what_is_no_tensor_in_the_output_has_no_gradient(self):
        derive = GradOperation()(lambda x: {"y": x * x, "none": None, "text": "a", "n": 3})
        assert derive(X).tolist() == [2.0, -4.0]
        derive = GradOperation(sens_param=True)(lambda x: (x * x, None, "a"))
        assert derive(X, (X, None, "a")).tolist() == [2.0, 8.0]

    def test_weights(self, compiled):
        z = ml.Parameter(np.array(1.0, np.float32), name="z")
        derive = GradOperation(get_by_list=True)(lambda x, y: net(x, y, z), [z])
        (dz,) = compiled(derive)(A["x"], A["y"])
        near(dz, 21.536)
        alone = GradOperation(get_by_list=True)(lambda x, y: net(x, y, z), z)
        near(compiled(alone)(A["x"], A["y"])[0], 21.536)

    def test_inputs_and_weights(self, compiled):
        x = np.array([[0.1, 0.6, 1.2], [0.5, 1.3, 0.1]], np.float32)
        y = np.array([[0.12, 2.3, 1.1], [1.3, 0.2, 2.4], [0.1, 2.2, 0.3]], np.float32)
        z = ml.Parameter(np.array(1.0, np.float32), name="z")
        both = GradOperation(get_all=True, get_by_list=True)
        (dx, dy), (dz,) = compiled(both(lambda x, y: net(x, y, z), [z]))(x, y)
        near(dx, [[3.52, 3.9, 2.6]] * 2)
        near(dy, [[0.6] * 3, [1.9] * 3, [1.3] * 3])
        near(dz, 12.902)

    def test_one_element_of_the_output(self, compiled):
        dx = compiled(GradOperation()(lambda x, y: net(x, y, 1.0)[0][0]))(A["x"], A["y"])
        near(dx, [[0.11, 1.1, 1.1], [0.0, 0.0, 0.0]])

    def test_stop_gradient(self, compiled):
        def stopped(x, y):
            out1, out2 = net(x, y, 1.0), net(x, y, 1.0)
            return out1 + stop_gradient(out2)

        def passing(x, y):
            return net(x, y, 1.0) + net(x, y, 1.0)

        near(compiled(GradOperation()(stopped))(A["x"], A["y"]), [[4.51, 2.7, 3.6]] * 2)
        near(compiled(GradOperation()(passing))(A["x"], A["y"]), [[9.02, 5.4, 7.2]] * 2)

    def test_integer_inputs_get_zeros(self):
        n = np.array([1, 2])
        dx, dn = GradOperation(get_all=True)(lambda x, n: (x * n).sum())(X, n)
        assert (dx.tolist(), dn.tolist(), dn.dtype) == ([1.0, 2.0], [0, 0], ml.int64)

    def test_nested(self, compiled):
        second = GradOperation()(GradOperation()(lambda x: x * x * x))
        assert compiled(second)(ml.Tensor(2.0)).item() == 12.0

    def test_the_same_operation_with_other_weights(self):
        a, b = (ml.Parameter(np.float32(v)) for v in (2.0, 3.0))
        by_list = GradOperation(get_by_list=True)

        def f(x):
            return x * a + 5.0 * x * b

        assert by_list(f, [a])(1.0)[0].item() == 1.0
        assert by_list(f, [b])(1.0)[0].item() == 5.0

    def test_flags_are_bools_and_weights_are_needed(self):
        with pytest.raises(AttributeRefusedError, match="got get_all=1; expected True or False"):
            GradOperation(get_all=1)
        with pytest.raises(
            GradientArgumentError, match=r"needs weights; pass net.trainable_params"
        ):
            GradOperation(get_by_list=True)(net)
