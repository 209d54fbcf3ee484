"""Random programs and networks, fused, against the same ones node by node."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.runtime.jit import Jit
from tests.frame.compilers import optimized
from tests.frame.native import needs_compiler

from .networks import trained
from .programs import (
    axes_inputs,
    exact,
    exact_inputs,
    function,
    inputs_for,
    keep_to_their_arrays,
    load_all,
    of_axes,
    with_gradient,
)

pytestmark = needs_compiler

# Of float64, where what differs is the order of sums and the last bits of exp and its like.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}


def of_float64(seed):
    return [ml.Tensor(a) for a in inputs_for(seed, np.float64)]


def over_axes(seed):
    return [ml.Tensor(a) for _, a in axes_inputs(seed)]


def close(got, expected, seed):
    np.testing.assert_allclose(got, expected, err_msg=f"seed {seed}", **TOLERANCE)


def equal(got, expected, seed):
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, f"seed {seed}")


def check(seeds, made, inputs=of_float64, same=close):
    """Compile one function per seed in both ways, all C at once, and compare."""
    cases = []
    for seed in seeds:
        xs, fn = inputs(seed), made(seed)
        with ml.context(providers=("miniml",)):
            expected = ml.jit(fn)(*xs)
        with ml.context(providers=("cc",), verify_passes=True):
            jit = Jit(fn)
            cases.append((seed, jit, xs, expected, jit.compiled(*xs).program))
    programs = [program for *_, program in cases]
    load_all(programs)
    for program in programs:
        assert keep_to_their_arrays(program)
    for seed, jit, xs, expected, _ in cases:
        with ml.context(providers=("cc",), verify_passes=True):
            got = jit(*xs)
        for one, two in zip(optree.tree_leaves(expected), optree.tree_leaves(got), strict=True):
            same(two.asnumpy(), one.asnumpy(), seed)
    fused = [isinstance(n.primitive, ops.Fused) for p in programs for n in p.graph.nodes]
    assert sum(fused) >= len(seeds)  # the test is one of fused programs


def test_values():
    check(range(18), function)


def test_gradients():
    check(range(18, 27), lambda seed: with_gradient(function(seed, 7)))


def test_products_and_reductions_over_any_axes():
    check(range(60, 80), lambda seed: with_gradient(of_axes(seed)), over_axes)


def test_a_result_reduced_twice_that_others_read_in_another_order():
    """The maximum of a softmax, stored in the order of loops, would be computed in another row."""

    def votes(a):
        turned = ops.transpose(a, (2, 1, 0, 3))
        routed = ops.softmax(ops.sum(turned * 0.5, -1), 2)
        return ops.sum(ops.expand_dims(routed, -1) * turned, 1)

    rng = np.random.default_rng(0)
    check(
        [0], lambda _: with_gradient(votes), lambda _: [ml.Tensor(rng.normal(size=(10, 6, 4, 3)))]
    )


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


def test_every_dtype_to_the_bit():
    check(range(18), exact, exact_inputs, equal)


def check_training(seed):
    """In float64 as NumPy; in float32 no farther from that than six times what NumPy's is."""
    with ml.context(providers=("miniml",)):
        right, plain = trained(seed, np.float64), trained(seed, np.float32)
    with ml.context(providers=("cc",), verify_passes=True):
        wide, narrow = trained(seed, np.float64), trained(seed, np.float32)
    for exact_, by_numpy, one, two in zip(right, plain, wide, narrow, strict=True):
        close(one, exact_, seed)
        allowed = np.abs(by_numpy - exact_).max() + 16 * 2.0**-24 * np.abs(exact_).max()
        assert np.abs(two - exact_).max() <= 6 * allowed + 1e-8, seed


@pytest.mark.parametrize("seed", [2, 4, 5])  # sequences with a scan, images, images of one channel
def test_training(seed):
    check_training(seed)


LONG = (257, 1031)  # several parts for threads


@pytest.mark.parametrize("seed", [1, 6])
def test_the_number_of_threads_changes_no_bit(seed):
    rng = np.random.default_rng(seed)
    shapes = (LONG, LONG, LONG[-1:], (LONG[0], 1), ())
    xs = [ml.Tensor(rng.normal(size=s).astype(np.float32)) for s in shapes]
    results = []
    for threads in (1, 2):
        with ml.context(providers=("cc",), threads=threads):
            results.append(optree.tree_leaves(ml.jit(with_gradient(function(seed, 7)))(*xs)))
    for one, two in zip(*results, strict=True):
        assert one.asnumpy().tobytes() == two.asnumpy().tobytes()


@pytest.mark.deep
@pytest.mark.parametrize("start", range(100, 700, 100))
def test_many(start):
    with optimized("-O3" if start % 400 == 100 else "-O1"):
        check(range(start, start + 60), function)
        check(range(start + 60, start + 100), lambda seed: with_gradient(function(seed)))
        check(range(start, start + 60), exact, exact_inputs, equal)
        check(range(start, start + 60), lambda seed: with_gradient(of_axes(seed)), over_axes)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 160))
def test_much_training(seed):
    with optimized("-O1" if seed % 4 else "-O3"):
        check_training(seed)
