"""Gradients: rules and where they are found, what is checked of them, and of arguments."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.errors import (
    BpropError,
    BpropNotFoundError,
    DuplicateError,
    GradientArgumentError,
    TraceEndedError,
)
from miniml.grad import bprop_getters, grad, jacobian, stop_gradient, value_and_grad
from miniml.ops import Unary


class GradTwice(Unary):
    """2 x, with whatever bprop a test gives it."""


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
            ((ml.Tensor([[1.0, 2.0]]),), r"returned float32\[1, 2\] for input 0"),
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

    def test_a_getter_returns_a_function(self, bprop_of):
        bprop_of((1.0,))
        with pytest.raises(BpropError, match="a getter that returned tuple; it returns the bprop"):
            grad(total_twice)(X)

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
        with pytest.raises(GradientArgumentError, match=r"argument 1 of grad\(f\) holds int 3"):
            grad(grad(f), 1)(X, 3)
        with pytest.raises(GradientArgumentError, match="argnums 2 names no argument: f"):
            grad(f, 2)(X, 3)

    @pytest.mark.parametrize("argnums", [(0, 0), (1, -1)])
    def test_an_argument_is_named_once(self, argnums):
        def f(x, y):
            return (x * y).sum()

        with pytest.raises(GradientArgumentError, match="an argument of f twice; name each once"):
            grad(f, argnums)(X, X)
        with pytest.raises(GradientArgumentError, match="argnums 5 names no argument: f"):
            grad(f, (1, 5))(X, X)

    def test_argnums_are_integers(self):
        def f(x, y):
            return (x * x * y).sum()

        assert grad(f, np.int64(1))(X, X).tolist() == [1.0, 4.0]
        for refused in (1.5, "x", (0.0,), None):
            with pytest.raises(GradientArgumentError, match="argnums"):
                jacobian(f, refused)
        with pytest.raises(GradientArgumentError, match="it is an int, the position"):
            jacobian(f, (0, 1))
        for refused in (1.5, "x", (0.0,)):
            with pytest.raises(GradientArgumentError, match="it is an int, or a tuple"):
                grad(f, refused)

    @pytest.mark.parametrize("mode", [ml.GRAPH_MODE, ml.PYNATIVE_MODE])
    def test_argnums_may_be_a_list(self, mode):
        with ml.context(mode=mode):
            dx, dy = grad(lambda x, y: (x * x * y).sum(), [0, 1])(X, X)
        assert (dx.tolist(), dy.tolist()) == ([2.0, 8.0], [1.0, 4.0])

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
