"""Gradients: rules and where they are found, what is checked of them, transforms, nesting."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.bprop import bprop_getters
from miniml.errors import (
    BpropError,
    BpropNotFoundError,
    DuplicateError,
    GradientArgumentError,
    ShapeError,
    TraceEndedError,
)
from miniml.grad import GradOperation, grad, hvp, jacobian, jvp, stop_gradient, value_and_grad, vjp


class GradTwice(Primitive):
    """2 x, with whatever bprop a test gives it."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("GradTwice", "cpu", "f->f", "d->d")
def twice(x, *, out):
    np.multiply(x, 2, out=out)


class GradSplitSign(Primitive):
    """max(x, 0), max(-x, 0) and the number of positive elements."""

    outputs = ("plus", "minus", "count")

    def infer_shape(self, x):
        return x, x, ()

    def infer_dtype(self, x):
        return x, x, ml.int64


@kernel("GradSplitSign", "cpu", "f->ffl", "d->ddl")
def split_sign(x, *, out):
    np.maximum(x, 0, out=out[0])
    np.maximum(-x, 0, out=out[1])
    out[2][...] = (x > 0).sum()


@pytest.fixture
def bprop_of():
    """Give GradTwice a bprop for the length of a test."""

    def file(bprop):
        @bprop_getters.register(GradTwice)
        def get_bprop(self):
            return bprop

    yield file
    bprop_getters.unregister(GradTwice)


X = np.array([1.0, -2.0], np.float32)


def total_twice(x):
    return GradTwice()(x).sum()


class TestRules:
    def test_a_missing_bprop_names_the_primitive_and_the_users_line(self):
        with pytest.raises(BpropNotFoundError, match="GradTwice has no bprop") as caught:
            grad(total_twice)(X)
        (note,) = caught.value.__notes__
        assert "return GradTwice()(x).sum()" in note
        assert "^" * len("GradTwice()(x)") in note

    def test_a_missing_bprop_is_no_matter_where_no_gradient_passes(self):
        assert grad(lambda x: (x * stop_gradient(GradTwice()(x))).sum())(X).tolist() == [2.0, -4.0]

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            ((), "returned 0 gradients for 1 inputs"),
            ((1, 2), "returned 2 gradients for 1 inputs"),
            (None, "returned NoneType; return a tuple"),
            (1.0, "returned float 1.0; return a tuple with one gradient per input, 1 here"),
            ((1.0,), r"returned float 1.0 for input 0; return a tensor float32\[2\]"),
            ((ml.Tensor([1.0]),), r"returned float32\[1\] for input 0, which is float32\[2\]"),
            ((ml.Tensor([[1.0, 2.0]]),), r"returned float32\[1,2\] for input 0"),
            (
                (ml.Tensor(X.astype(float)),),
                r"float64\[2\] for input 0.*cast the gradient to float3",
            ),
        ],
    )
    def test_count_shape_and_dtype_are_always_checked(self, bprop_of, result, text):
        bprop_of(lambda x, out, dout: result)
        with pytest.raises(BpropError, match=f"GradTwice bprop {text}|{text}") as caught:
            grad(total_twice)(X)
        assert str(caught.value).startswith("GradTwice bprop returned")
        assert "return GradTwice()(x).sum()" in "".join(caught.value.__notes__)

    def test_none_is_no_gradient(self, bprop_of):
        bprop_of(lambda x, out, dout: (None,))
        assert grad(total_twice)(X).tolist() == [0.0, 0.0]

    def test_found_by_class_through_the_mro(self, bprop_of):
        bprop_of(lambda x, out, dout: (dout * 2.0,))

        class GradTwiceChild(GradTwice):
            name = "GradTwiceChild"

        kernel("GradTwiceChild", "cpu", "f->f")(twice)
        assert grad(lambda x: GradTwiceChild()(x).sum())(X).tolist() == [2.0, 2.0]

    def test_found_by_name(self):
        @bprop_getters.register("GradTwice")
        def get_bprop(self):
            return lambda x, out, dout: (dout * 3.0,)

        try:
            assert grad(total_twice)(X).tolist() == [3.0, 3.0]
        finally:
            bprop_getters.unregister("GradTwice")

    def test_two_rules_for_one_class_are_refused_with_file_and_line(self, bprop_of):
        bprop_of(None)
        with pytest.raises(DuplicateError, match=r"GradTwice has a bprop already.*py:\d+; unreg"):

            @bprop_getters.register(GradTwice)
            def another(self):
                return None

    def test_the_engine_sums_down_broadcast_inputs(self):
        x, y = np.ones((2, 1, 3)), np.ones((4, 1))
        dx, dy = grad(lambda x, y: (x + y).sum(), (0, 1))(x, y)
        assert (dx.shape, dy.shape) == ((2, 1, 3), (4, 1))
        np.testing.assert_array_equal(dx.asnumpy(), np.full((2, 1, 3), 4.0))
        np.testing.assert_array_equal(dy.asnumpy(), np.full((4, 1), 6.0))

    def test_dout_of_several_outputs(self):
        seen = []

        @bprop_getters.register(GradSplitSign)
        def get_bprop(self):
            def bprop(x, out, dout):
                seen.append(dout)
                plus, minus, _ = dout
                return (ops.select(x > 0.0, plus, -minus),)

            return bprop

        try:
            assert grad(lambda x: GradSplitSign()(x)[0].sum())(X).tolist() == [1.0, 0.0]
        finally:
            bprop_getters.unregister(GradSplitSign)
        plus, minus, count = seen[0]
        assert plus.tolist() == [1.0, 1.0]
        assert minus.tolist() == [0.0, 0.0]
        assert count is None


class TestArguments:
    def test_an_argument_without_floats_is_refused_by_name(self):
        def f(x, n):
            return (x * n).sum()

        with pytest.raises(
            GradientArgumentError, match=r"argument 1 of f is int64\[2\], which has"
        ):
            grad(f, 1)(X, np.array([1, 2]))
        with pytest.raises(GradientArgumentError, match="argument 1 of f holds int 3"):
            grad(f, 1)(X, 3)
        with pytest.raises(GradientArgumentError, match="argnums 2 names no argument: f"):
            grad(f, 2)(X, 3)

    def test_the_value_must_be_one_float(self):
        with pytest.raises(GradientArgumentError, match=r"float32\[2\]; reduce it \(.sum\(\)\)"):
            grad(lambda x: x * x)(X)
        with pytest.raises(GradientArgumentError, match=r"returned bool\[\]"):
            grad(lambda x: ops.sum(x) > 0.0)(X)
        with pytest.raises(GradientArgumentError, match="returned NoneType"):
            grad(lambda x: None)(X)

    def test_trees_come_back_as_they_went_in(self):
        def loss(params):
            return (params["w"] * params["w"]).sum() + params["b"][0].sum()

        g = grad(loss)({"w": X, "b": [np.ones(1, np.float32)]})
        assert g["w"].tolist() == [2.0, -4.0]
        assert g["b"][0].tolist() == [1.0]

    def test_has_aux_and_values(self):
        def f(x):
            return (x * x).sum(), {"double": 2.0 * x}

        (value, aux), g = value_and_grad(f, has_aux=True)(X)
        assert (value.item(), aux["double"].tolist()) == (5.0, [2.0, -4.0])
        assert g.tolist() == [2.0, -4.0]
        assert grad(f, has_aux=True)(X)[0].tolist() == [2.0, -4.0]

    def test_weights(self):
        w = ml.Parameter(np.array([3.0, 4.0], np.float32), name="w")
        value, (dx, (dw,)) = value_and_grad(lambda x: (x * w).sum(), weights=[w])(X)
        assert (value.item(), dx.tolist(), dw.tolist()) == (-5.0, [3.0, 4.0], [1.0, -2.0])
        _, (dw,) = value_and_grad(lambda x: (x * w).sum(), argnums=None, weights=[w])(X)
        assert dw.tolist() == [1.0, -2.0]

    def test_a_function_that_does_not_use_its_argument(self):
        assert grad(lambda x: ml.Tensor(3.0))(X).tolist() == [0.0, 0.0]

    def test_python_control_flow_on_real_values(self):
        def f(x):
            return (x * x if float(x) > 0 else -x) if x != 5.0 else x

        assert [grad(f)(v).item() for v in (3.0, -3.0, 5.0)] == [6.0, -1.0, 1.0]

    def test_a_traced_tensor_is_dead_after_its_trace(self):
        kept = []
        grad(lambda x: kept.append(x) or x * x)(2.0)
        with pytest.raises(
            TraceEndedError, match=r"a traced tensor float32\[\] outlived its trace"
        ):
            kept[0] + 1.0


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
        f, wanted = ops.tanh, [0.9640276, 0.070650816, -0.13621868, 0.25265405]
        for value in wanted:
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

    def test_a_pullback_can_be_pulled_again(self):
        _, pull = vjp(lambda x: x * x, X)
        assert [pull(np.ones(2))[0].tolist() for _ in range(2)] == [[2.0, -4.0]] * 2
        with pytest.raises(ShapeError, match="cotangent or tangent has the shape and dtype"):
            pull(np.ones(3))


def net(x, y, z):
    return ops.matmul(x * z, y)


A = {
    "x": np.array([[0.8, 0.6, 0.2], [1.8, 1.3, 1.1]], np.float32),
    "y": np.array([[0.11, 3.3, 1.1], [1.1, 0.2, 1.4], [1.1, 2.2, 0.3]], np.float32),
}
SENS = np.array([[0.1, 0.6, 0.2], [0.8, 1.3, 1.1]], np.float32)


def near(tensor, wanted):
    np.testing.assert_allclose(tensor.asnumpy(), np.asarray(wanted, np.float32), rtol=1e-4)


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

    def test_weights(self, compiled):
        z = ml.Parameter(np.array(1.0, np.float32), name="z")
        derive = GradOperation(get_by_list=True)(lambda x, y: net(x, y, z), [z])
        (dz,) = compiled(derive)(A["x"], A["y"])
        near(dz, 21.536)

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
        with pytest.raises(GradientArgumentError, match="get_all is a bool; got 1"):
            GradOperation(get_all=1)
        with pytest.raises(
            GradientArgumentError, match=r"needs weights; pass net.trainable_params"
        ):
            GradOperation(get_by_list=True)(net)
