"""Functions of trees as functions of a flat vector, for SciPy's optimizers."""

import numpy as np
import pytest
from scipy.optimize import minimize

import miniml as ml
from miniml import nn, ops
from miniml.errors import GradientArgumentError, ShapeError
from miniml.interop import to_scipy


def rosenbrock(p):
    x = p["x"]
    return ops.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2) + p["y"] ** 2


@pytest.mark.parametrize("compiled", [True, False])
def test_value_gradient_and_product(compiled):
    problem = to_scipy(rosenbrock, {"x": np.zeros(3), "y": np.array(2.0)}, compiled)
    assert problem.start.tolist() == [0, 0, 0, 2]
    x, v = np.array([0.5, -0.2, 0.7, 1.0]), np.array([1.0, 2.0, 0.0, -1.0])
    value, slope = problem(x)
    assert isinstance(value, float)
    step = 1e-6
    np.testing.assert_allclose(
        slope @ v, (problem(x + step * v)[0] - problem(x - step * v)[0]) / (2 * step), rtol=1e-6
    )
    product = (problem(x + step * v)[1] - problem(x - step * v)[1]) / (2 * step)
    np.testing.assert_allclose(problem.hessp(x, v), product, rtol=1e-6)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "Newton-CG", "trust-ncg"])
def test_optimizers_find_the_minimum(method):
    problem = to_scipy(rosenbrock, {"x": np.zeros(3), "y": np.array(2.0)})
    second = {"hessp": problem.hessp} if method in ("Newton-CG", "trust-ncg") else {}
    found = minimize(problem, problem.start, jac=True, method=method, **second)
    np.testing.assert_allclose(problem.tree(found.x)["x"].asnumpy(), np.ones(3), atol=1e-4)


def test_parameters_as_unknowns():
    net = nn.Dense(3, 1)
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    y = (x @ np.array([[1.0], [2.0], [3.0]]) + 0.5).astype(np.float32)
    problem = to_scipy(lambda: ops.mean((net(x) - y) ** 2), net)
    found = minimize(problem, problem.start, jac=True, method="L-BFGS-B")
    assert found.fun < 1e-8
    np.testing.assert_allclose(net.bias.asnumpy(), [0.5], atol=1e-3)
    with pytest.raises(GradientArgumentError, match="no hessp where Parameters are the unknowns"):
        problem.hessp(found.x, found.x)


def test_refusals():
    with pytest.raises(GradientArgumentError, match="a template with a leaf of int64; give a tree"):
        to_scipy(ops.sum, np.arange(3))
    problem = to_scipy(ops.sum, np.ones(3))
    with pytest.raises(ShapeError, match=r"a vector of shape \(2,\); it has 3 entries"):
        problem(np.ones(2))
    assert problem(np.ones(3))[0] == 3.0
    assert ml.float64 == problem.tree(np.ones(3)).dtype
