"""Padding, pixels, sampling and bags on a device: values and gradients of the CPU."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import value_and_grad

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 4, 4)).astype(np.float32)
POINTS = RNG.uniform(-1.2, 1.2, (4, 3, 2)).astype(np.float32)
THETA = RNG.normal(size=(2, 2, 3)).astype(np.float32)
BAGS, OFFSETS = np.array([0, 7, 3, 3, 1]), np.array([0, 3, 3])
CASES = {
    "pad": lambda x: ops.pad(x, ((0, 0), (2, 1), (0, 3)), mode="reflect"),
    "pixel_shuffle": lambda x: ops.pixel_shuffle(x[:, :, None], 2),
    "grid_sample": lambda x: ops.grid_sample(
        ops.reshape(x, (4, 2, 2, 2)), POINTS, padding_mode="reflection"
    ),
    "affine_grid": lambda x: ops.grid_sample(
        x[:, None], ops.affine_grid(THETA + x[:, :2, :3], (2, 1, 3, 3)), padding_mode="border"
    ),
    "lp_pool": lambda x: ops.lp_pool1d(x, 3, 2),
    "embedding_bag mean": lambda x: ops.embedding_bag(ops.reshape(x, (8, 4)), BAGS, OFFSETS),
    "embedding_bag max": lambda x: ops.embedding_bag(
        ops.reshape(x, (8, 4)), BAGS, OFFSETS, "max", padding_index=3
    ),
    "triplet": lambda x: ops.triplet_margin_loss(x, X[::-1], X[:, ::-1], swap=True),
    "gaussian": lambda x: ops.gaussian_nll_loss(x, X[::-1], X[0] ** 2),
    "focal": lambda x: ops.focal_loss(x, X > 0, gamma=0.5, alpha=0.25),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_cpu(name, jit, on_simulator):
    whole = lambda x: ops.sum(ops.square(CASES[name](x)))  # noqa: E731
    expected = value_and_grad(whole)(ml.Tensor(X))
    with ml.context(device_target=on_simulator):
        fn = value_and_grad(whole)
        found = (ml.jit(fn) if jit else fn)(ml.Tensor(X))
    for a, b in zip(found, expected, strict=True):
        assert a.device == on_simulator
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)
