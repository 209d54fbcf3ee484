"""Operators, before any other framework is known."""

import sys

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import Primitive, nn, ops
from miniml.core.abstract import Abstract
from miniml.errors import GraphError, MinimlError
from miniml.interop import operator
from miniml.interop.foreign import Foreign, gradient_types, package, shared_parameter
from miniml.interop.operator import Traced, of_primitive, owned
from miniml.testing import gradcheck

X = np.linspace(-1.0, 1.0, 5)
D = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def values(tensors):
    return [t.asnumpy() for t in tensors]


def traced(fn, *args, name="f"):
    types = [Abstract(a.shape, a.dtype) if isinstance(a, np.ndarray) else a for a in args]
    leaves, spec = optree.tree_flatten((tuple(types), {}), none_is_leaf=True)
    return Traced(name, fn, spec, leaves)


def test_pull_back_of_a_primitive_of_each_order():
    tanh = of_primitive(ops.Tanh(), {}, 1, 1)
    x, d = ml.Tensor(X), ml.Tensor(D)
    (y,) = tanh.run(x)
    np.testing.assert_allclose(y.asnumpy(), np.tanh(X))
    (dx,) = tanh.pulled.run(x, y, d)
    slope = 1.0 - np.tanh(X) ** 2
    np.testing.assert_allclose(dx.asnumpy(), D * slope)
    by_x, by_y, by_d = values(tanh.pulled.pulled.run(x, y, d, dx, d))
    # The bprop of tanh uses its output: d (1 - y^2), so all that depends on x comes through y or x.
    np.testing.assert_allclose(by_x + by_y * slope, -2 * D * D * np.tanh(X) * slope)
    np.testing.assert_allclose(by_d, D * slope)
    assert tanh.pulled.inputs == ("x", "out", "dout")


def test_types_are_known_without_running():
    matmul = of_primitive(ops.MatMul(), {}, 2, 1)
    types = Abstract((2, 3), ml.float32), Abstract((3, 4), ml.float32)
    assert matmul.types(types) == (Abstract((2, 4), ml.float32),)
    assert matmul.pulled.types((*types, *matmul.types(types) * 2)) == types


def test_an_input_that_is_no_float_gets_an_empty_gradient():
    gather = of_primitive(ops.Gather(0), {}, 2, 1)
    x, i, d = ml.Tensor(X), ml.Tensor([1, 1, 3]), ml.Tensor(D[:3])
    (y,) = gather.run(x, i)
    dx, di = gather.pulled.run(x, i, y, d)
    np.testing.assert_array_equal(dx.asnumpy(), [0.0, 3.0, 0.0, 3.0, 0.0])
    assert di.shape == (0,)


def test_promoted_inputs_get_gradients_in_their_own_dtypes():
    add = of_primitive(ops.Mul(), {}, 2, 1)
    x, y = ml.Tensor(X, dtype=ml.float32), ml.Tensor(D)
    (out,) = add.run(x, y)
    dx, dy = add.pulled.run(x, y, out, ml.Tensor(D))
    assert (dx.dtype, dy.dtype) == (ml.float32, ml.float64)
    np.testing.assert_allclose(dx.asnumpy(), D * D, rtol=1e-6)


def test_forward_mode_and_many_examples():
    mul = of_primitive(ops.Mul(), {}, 2, 1)
    x, y = ml.Tensor(X), ml.Tensor(D)
    (tangent,) = mul.pushed.run(x, y, y, x)
    np.testing.assert_allclose(tangent.asnumpy(), D * D + X * X)
    rows = ml.Tensor(np.stack([X, D]))
    (many,) = mul.mapped((True, False)).run(rows, y)
    np.testing.assert_allclose(many.asnumpy(), np.stack([X, D]) * D)
    assert mul.mapped((True, False)) is mul.mapped((True, False))


def test_function_of_trees_and_its_gradient():
    found = traced(lambda a, k: {"s": ops.sin(a) * k, "t": ops.sum(a)}, X, 3.0)
    outs = found.operator.run(ml.Tensor(X))
    tree = found.rebuild(outs)
    np.testing.assert_allclose(tree["s"].asnumpy(), 3.0 * np.sin(X))
    (dx,) = found.operator.pulled.run(ml.Tensor(X), *outs, ml.Tensor(D), ml.Tensor(2.0, "float64"))
    np.testing.assert_allclose(dx.asnumpy(), 3.0 * np.cos(X) * D + 2.0)


def test_own_gradient_of_a_function_is_kept():
    tripled = ml.grad.custom_bprop(lambda x, out, dout: (dout * 3.0,))(lambda x: x * 1.0)
    found = traced(tripled, X)
    (out,) = found.operator.run(ml.Tensor(X))
    (dx,) = found.operator.pulled.run(ml.Tensor(X), out, ml.Tensor(D))
    np.testing.assert_allclose(dx.asnumpy(), 3.0 * D)


def test_network_as_a_function_of_its_state():
    net = nn.Sequential(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    found = traced(net, x)
    assert [p.name for p in found.updated] == ["1.running_mean", "1.running_var", "random_state"]
    before = net.state_dict()
    given = [ml.Tensor(p.asnumpy()) for p in found.state] + [ml.Tensor(x)]
    first, again = values(found.operator.run(*given)), values(found.operator.run(*given))
    for a, b in zip(first, again, strict=True):  # the state is an input: equal draws
        np.testing.assert_array_equal(a, b)
    hidden = (
        x @ before["0.weight"].T if before["0.weight"].shape == (4, 3) else x @ before["0.weight"]
    )
    np.testing.assert_allclose(first[1], 0.1 * (hidden + before["0.bias"]).mean(0), rtol=1e-4)
    for name, value in net.state_dict().items():  # nothing was written
        np.testing.assert_array_equal(value, before[name])


def test_results_are_handed_out_only_where_nobody_else_holds_them():
    kept = ml.Tensor(X)
    (copied,) = owned([kept])
    assert not np.shares_memory(copied, kept._data)
    (own,) = owned(list(of_primitive(ops.Tanh(), {}, 1, 1).run(kept)))
    assert own.flags.writeable
    (view,) = owned(list(of_primitive(ops.Reshape((5, 1)), {}, 1, 1).run(kept)))
    assert not np.shares_memory(view, kept._data)


def test_refusals():
    with pytest.raises(GraphError, match=r"to_x refuses Assign, which updates a parameter; give a"):
        operator.known("to_x", ops.Assign())
    with pytest.raises(
        MinimlError, match=r"to_x got 3; it takes a primitive, an nn.Cell, or a fun"
    ):
        operator.known("to_x", 3)
    with pytest.raises(MinimlError, match=r"f returned a str; it returns trees of tensors"):
        traced(lambda x: "no", X)
    weight = ml.Parameter(X, "w")
    with pytest.raises(GraphError, match=r"reads 'w', which would be a constant there, without a"):
        operator.refuse_parameters("to_x", np.sin, traced(lambda x: x * weight, X))
    with pytest.raises(
        MinimlError, match=r"to_x needs the package nowhere, which is not installed"
    ):
        package("nowhere", "to_x")


@pytest.mark.parametrize("name", ["pytorch", "jax"])
def test_a_missing_package_is_named(name, monkeypatch):
    module = {"pytorch": "torch", "jax": "jax"}[name]
    monkeypatch.setitem(sys.modules, module, None)
    for loaded in ("pytorch", "torch_functions", "jax"):
        monkeypatch.delitem(sys.modules, f"miniml.interop.{loaded}", raising=False)
    namespace = vars(ml.interop)
    asked = {"pytorch": "to_torch", "jax": "to_jax"}[name]
    monkeypatch.delitem(namespace, asked, raising=False)
    with pytest.raises(MinimlError, match=f"needs the package {module}, which is not installed"):
        getattr(ml.interop, asked)


class _Cubes(Foreign):
    """x ** 3, computed by nobody's framework: a double of torch's and JAX's functions."""

    def __init__(self, order=0):
        super().__init__(f"DoubleOfCube{order}", 1 if not order else 2, 1)
        self.order = order

    def run(self, *arrays):
        x = arrays[0]
        return [x**3] if not self.order else [3 * x**2 * arrays[1]]

    def types(self, inputs):
        return gradient_types(inputs, 1)

    def pulled(self):
        return _Cubes(1)


def test_foreign_functions_are_primitives():
    cube = _Cubes().primitive
    assert isinstance(cube, Primitive)
    assert gradcheck(cube, X, order=1).ok
    np.testing.assert_allclose(ml.jit(lambda x: cube(x) * 2.0)(X).asnumpy(), 2 * X**3)
    np.testing.assert_allclose(ml.vmap(cube)(np.stack([X, D])).asnumpy(), np.stack([X, D]) ** 3)


def test_a_shared_parameter_is_the_array():
    array = X.copy()
    shared = shared_parameter(array, "w")
    shared.set_data(D)
    np.testing.assert_array_equal(array, D)
    array[0] = 7.0
    assert shared.tolist()[0] == 7.0
    array.setflags(write=False)
    with pytest.raises(MinimlError, match=r"'w' needs memory that it may write to"):
        shared_parameter(array, "w")


def test_names_of_the_wing():
    names = "Classifier Regressor from_jax from_torch import_torch to_jax to_scipy to_torch"
    assert dir(ml.interop) == names.split()
    taken: dict[str, object] = {}
    exec("from miniml.interop import *", taken)  # whatever is installed
    assert {"to_scipy", "Classifier"} <= set(taken) <= {*dir(ml.interop), "__builtins__"}
    with pytest.raises(AttributeError, match=r"interop'? has no attribute 'to_torhc'"):
        _ = ml.interop.to_torhc
