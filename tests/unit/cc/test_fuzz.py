"""Random programs, fused, against the same programs node by node."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.runtime.jit import Jit

from .programs import function, inputs_for, load_all, with_gradient

# Of float64, where what differs is the order of sums and the last bits of exp and its like.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}


def check(seeds, made):
    """Compile one function per seed in both ways, all C at once, and compare."""
    cases = []
    for seed in seeds:
        xs = [ml.Tensor(a) for a in inputs_for(seed, np.float64)]
        fn = made(seed)
        with ml.context(providers=("miniml",)):
            expected = ml.jit(fn)(*xs)
        with ml.context(providers=("cc",), verify_passes=True):
            jit = Jit(fn)
            cases.append((seed, jit, xs, expected, jit.compiled(*xs).program))
    load_all([program for *_, program in cases])
    fused = 0
    for seed, jit, xs, expected, program in cases:
        with ml.context(providers=("cc",), verify_passes=True):
            got = jit(*xs)
        for one, two in zip(optree.tree_leaves(expected), optree.tree_leaves(got), strict=True):
            np.testing.assert_allclose(
                two.asnumpy(), one.asnumpy(), err_msg=f"seed {seed}", **TOLERANCE
            )
        fused += sum(isinstance(n.primitive, ops.Fused) for n in program.graph.nodes)
    assert fused >= len(seeds)  # the test is one of fused programs


def test_values():
    check(range(18), function)


def test_gradients():
    check(range(18, 27), lambda seed: with_gradient(function(seed, 7)))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1, 1)])
def test_nothing_and_one_element(shape):
    def fn(x):
        y = ops.exp(x * 2.0) + 1.0
        return y, ops.sum(y, 0), ops.mean(y * 1.0), ops.sum(ops.transpose(y)) / 2.0

    both = []
    for provider in ("miniml", "cc"):
        with ml.context(providers=(provider,), verify_passes=True):
            both.append(ml.jit(fn)(np.ones(shape)))
    for one, two in zip(*both, strict=True):
        np.testing.assert_allclose(two.asnumpy(), one.asnumpy(), rtol=1e-14)


@pytest.mark.deep
@pytest.mark.parametrize("start", range(100, 1100, 100))
def test_many(start):
    check(range(start, start + 60), function)
    check(range(start + 60, start + 100), lambda seed: with_gradient(function(seed)))
