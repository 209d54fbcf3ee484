"""Dataclasses of tensors: trees where optree knows them, refused where it does not."""

from dataclasses import dataclass

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import GradientArgumentError, GraphError
from miniml.grad import grad, value_and_grad, vjp

X = np.array([1.0, -2.0, 3.0])
HOW = r'declare Plain with @optree.dataclasses.dataclass\(namespace=""\), or make it a NamedTuple'


@optree.dataclasses.dataclass(namespace="")
class Known:
    x: object
    bias: object = None


@dataclass(frozen=True, eq=False)
class Plain:
    x: object


@dataclass(frozen=True)
class Settings:
    power: int


def plain(x):
    return Plain(x)


def loss(tree):
    return ops.sum(tree.x * tree.x)


@pytest.mark.parametrize("compiled", [lambda f: f, ml.jit])
@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_those_that_optree_knows_are_trees(mode, compiled):
    with ml.context(mode=mode):
        found = compiled(grad(loss))(Known(X))
        assert isinstance(found, Known)
        assert found.bias is None
        np.testing.assert_allclose(found.x.asnumpy(), 2 * X)
        out = compiled(lambda x: Known(x, bias=x + 1.0))(ml.Tensor(X))
        np.testing.assert_allclose(out.bias.asnumpy(), X + 1)


def test_others_with_tensors_are_refused_where_the_tensors_would_be_lost():
    with pytest.raises(GradientArgumentError, match=f"argument 0 of loss holds the .*; {HOW}"):
        grad(loss)(Plain(X))
    with pytest.raises(GradientArgumentError, match=f"<lambda> returned the dataclass .*; {HOW}"):
        vjp(lambda x: Plain([x]), X)
    with pytest.raises(GradientArgumentError, match=f"<lambda> returned the dataclass .*; {HOW}"):
        value_and_grad(lambda x: (ops.sum(x), Plain(x)), has_aux=True)(X)
    with pytest.raises(GraphError, match=f"a traced function got the dataclass Plain.*; {HOW}"):
        ml.jit(loss)(Plain(ml.Tensor(X)))
    with pytest.raises(GraphError, match=f"plain returned the dataclass Plain.*; {HOW}"):
        ml.jit(plain)(X)


def test_those_without_tensors_are_static_values():
    f = ml.jit(lambda x, how: x**how.power)
    assert f(X, Settings(2)).tolist() == (X**2).tolist()
    assert f(X, how=Settings(3)).tolist() == (X**3).tolist()
    assert f(X, how=Settings(3)).tolist() == (X**3).tolist()
    assert len(f.recompilations) == 2
    assert grad(lambda x, how: ops.sum(x**how.power))(X, Settings(2)).tolist() == (2 * X).tolist()
    assert grad(lambda x, p: ops.sum(x * p.x))(X, Plain(X)).tolist() == X.tolist()  # op by op
