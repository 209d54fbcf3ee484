"""One step of small networks: eager calls, NumPy's programs and programs in C agree."""

import numpy as np
import optree
import pytest

import miniml as ml
from benchmarks.networks import problems
from benchmarks.networks.in_miniml import NETWORKS
from miniml import nn
from miniml.grad import value_and_grad
from tests.frame.native import needs_compiler

# ulp of the largest number of an array, as docs/native.md states. NumPy's own gradients of these
# networks are up to 12 from those in float64; 64 leaves room for other processors' vectors.
ULP = 64
SMALL = {
    "MLP": lambda: problems.mlp(8, 64, 64, 10, batch=32),
    "LeNet": lambda: problems.lenet(4),
    "LSTM": lambda: problems.lstm(6, 4, hidden=16, symbols=11, embedded=8),
    "transformer": lambda: problems.transformer(2, tokens=8, width=16),
    "ResNet": lambda: problems.resnet(2),
}
CASES = [pytest.param(name, marks=[pytest.mark.deep] * (name == "ResNet")) for name in SMALL]


def step(problem, dtype, compiled, provider):
    """The loss and the gradients of all weights."""

    def as_tensor(a):
        return ml.Tensor(a.astype(dtype) if a.dtype == np.float32 else a)

    def loss(weights, x, y):
        return nn.CrossEntropyLoss()(NETWORKS[problem.network](weights, x), y)

    weights = {name: as_tensor(w) for name, w in problem.weights.items()}
    with ml.context(providers=(provider,), jit=compiled):
        result = ml.jit(value_and_grad(loss))(weights, as_tensor(problem.x), ml.Tensor(problem.y))
    return [t.asnumpy() for t in optree.tree_leaves(result)]


def ulps(ones, others):
    """How far arrays are apart, in ulp of the largest number of each."""
    wide = [[a.astype(np.float64) for a in some] for some in (ones, others)]
    return max(
        np.abs(a - b).max() / (np.abs(b).max() * 2.0**-23) for a, b in zip(*wide, strict=True)
    )


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_a_first_step(name):
    problem = SMALL[name]()
    by_numpy = step(problem, np.float32, True, "miniml")
    in_c = step(problem, np.float32, True, "cc")
    assert ulps(step(problem, np.float32, False, "miniml"), by_numpy) <= ULP
    assert ulps(in_c, by_numpy) <= ULP
    if name not in ("LSTM", "transformer"):  # which make arrays of float32 themselves
        exact = step(problem, np.float64, True, "miniml")
        assert ulps(in_c, exact) <= 2 * ulps(by_numpy, exact) + 8
