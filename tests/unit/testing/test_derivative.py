"""Numeric derivatives: the true one lies inside the error, and the error is small."""

import numpy as np
import pytest

from miniml.testing.gradchecks.derivative import FIRST, Line, climb, converged

CASES = {
    "sin(2000 x)": (lambda x: np.sin(2000 * x), lambda x: 2000 * np.cos(2000 * x), 1e-6),
    "exp(20 x)": (lambda x: np.exp(20 * x), lambda x: 20 * np.exp(20 * x), 1e-8),
    "1e18 x^3": (lambda x: 1e18 * x**3, lambda x: 3e18 * x * x, 1e-10),
    "|x|^1.5": (lambda x: abs(x) ** 1.5, lambda x: 1.5 * np.sign(x) * abs(x) ** 0.5, 1e-8),
    "tanh(exp(x))": (
        lambda x: np.tanh(np.exp(x)),
        lambda x: (1 - np.tanh(np.exp(x)) ** 2) * np.exp(x),
        1e-8,
    ),
    "(1e6 + x^2) - 1e6": (lambda x: (1e6 + x * x) - 1e6, lambda x: 2 * x, 1e-3),
    "sin in float32": (lambda x: float(np.sin(np.float32(x))), np.cos, 1e-2),
    "3": (lambda x: 3.0, lambda x: 0.0, 1e-10),
}


def slopes(fn, x, first=FIRST):
    x = np.atleast_1d(np.array(x, float))
    line = Line(lambda t: fn(x + t), fn(x), np.full(x.shape, 2.0**-53))
    return climb(line, first, converged(line.origin))


def derivative(fn, x, scale=1.0):
    """fn'(x), and the half width of the interval that holds it; fn takes a float."""
    found = slopes(lambda x: np.array([fn(float(x[0]))]), x, FIRST * scale).central
    return found.value[0], found.error[0]


@pytest.mark.parametrize("name", CASES)
def test_the_derivative_lies_within_its_error(name):
    fn, slope, sharp = CASES[name]
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.choice([-1.0, 1.0]) * rng.uniform(0.1, 1.2)
        value, error = derivative(fn, x, abs(x) * rng.uniform(0.5, 1.5))
        assert abs(value - slope(x)) <= error
        assert error <= sharp * max(abs(slope(x)), abs(fn(x)))


def test_a_kink_has_two_slopes():
    found = slopes(lambda x: np.maximum(x, 0) + np.sin(x), [0.0, 1.0])
    assert found.kink.tolist() == [True, False]
    assert abs(found.right.value[0] - 2) <= found.right.error[0] < 1e-6
    assert abs(found.left.value[0] - 1) <= found.left.error[0] < 1e-6


def test_a_kink_nearby_is_none_here():
    found = slopes(lambda x: np.abs(x - 1.0), [1 + 1e-4, 1 + 1e-9])
    assert not found.kink.any()
    assert abs(found.central.value[0] - 1) <= found.central.error[0] < 1e-6


def test_one_component_does_not_blur_another():
    scale = np.array([1e30, 1e-30])
    found = slopes(lambda x: scale * np.sin(x), [0.3, 0.4])
    right = scale * np.cos([0.3, 0.4])
    assert (found.central.error <= 1e-9 * right).all()
    assert (np.abs(found.central.value - right) <= found.central.error).all()


def test_the_edge_of_a_domain_has_one_side():
    with np.errstate(invalid="ignore"):
        found = slopes(lambda x: x**1.5, [0.0])
    assert not np.isfinite(found.central.error[0])
    assert not np.isfinite(found.left.error[0])


def test_noise_widens_the_error():
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(200):
        value, error = derivative(lambda x: np.sin(x) + 1e-6 * rng.normal(), 0.5)
        outside += abs(value - np.cos(0.5)) > error
    assert outside <= 2
