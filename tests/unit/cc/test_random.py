"""Draws in C are those of NumPy's kernels, bit for bit."""

import platform

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
STATES = ((7, 5), (2**64 - 1, 2**64 - 3), (2**40, 2**32 - 2))


def test_what_is_kept_is_the_same_as_by_numpy():
    """Several parts, a last block that is cut, counters that run over, and all dtypes at once."""
    draws = [
        ops.Bernoulli(shape, np.dtype(dtype), p, skip)
        for shape, dtype, p, skip in (
            ((257, 131), "f", 0.9, 2), ((7,), "?", 0.5, 0), ((), "d", 0.3, 2**40),
            ((64,), "f", 1.0, 0), ((2, 33), "d", 0.0, 1),
        )
    ]  # fmt: skip

    def drawn(state):
        return [draw(state) for draw in draws]

    with ml.context(providers=("cc", "miniml")):
        compiled = ml.jit(drawn)
        text = str(ml.explain(drawn, np.zeros(2, np.uint64)))
    assert text.count("L->f    cc") == 2
    for state in STATES:
        given = np.array(state, np.uint64)
        with ml.context(providers=("cc", "miniml")):
            found = [x.asnumpy() for x in compiled(given)]
        for got, expected in zip(found, drawn(given), strict=True):
            assert np.array_equal(got, expected.asnumpy())


def test_dropout_in_a_compiled_step_drops_what_it_drops_op_by_op():
    layer, x = nn.Dropout(0.4), np.ones((300, 200), np.float32)
    ml.manual_seed(3)
    expected = [layer(x).asnumpy() for _ in range(2)]
    ml.manual_seed(3)
    with ml.context(providers=("cc", "miniml")):
        compiled = ml.jit(layer)
        for wanted in expected:
            np.testing.assert_array_equal(compiled(x).asnumpy(), wanted)


@pytest.mark.parametrize("without", [(), ("avx2",)])  # by which words are multiplied
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(257, 131), (7,), (), (64,)])
def test_uniform_numbers_are_the_same_as_by_numpy(shape, dtype, without):
    """A block that is cut, counters that run over, and bounds next to each other."""
    if without and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no AVX2 to be without on this processor")
    after = float(np.nextafter(dtype(1), dtype(2)))
    draws = [ops.Uniform(shape, np.dtype(dtype), *ends, 3) for ends in ((-1.3, 2.7), (1.0, after))]
    for state in STATES:
        given = np.array(state, np.uint64)
        for draw in draws:
            with ml.context(providers=("cc",), without=without):
                got = ml.jit(draw)(given).asnumpy()
            np.testing.assert_array_equal(got, draw(given).asnumpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_are_numpys_up_to_the_rounding_of_functions(dtype):
    draw = ops.Normal((257, 131), np.dtype(dtype), 0.0, 1.0, 3)
    for state in STATES:
        given = np.array(state, np.uint64)
        with ml.context(providers=("cc",)):
            got = ml.jit(draw)(given).asnumpy()
        units = 8 * np.finfo(dtype).eps  # of the radius, at most 8 or 9, which the sine multiplies
        np.testing.assert_allclose(got, draw(given).asnumpy(), rtol=0, atol=units)


def test_integers_and_permutations_are_the_same_as_op_by_op():
    def drawn():
        return ops.randint((50, 3), -4, 9), ops.permutation(300)

    ml.manual_seed(5)
    expected = [x.asnumpy() for x in drawn()]
    ml.manual_seed(5)
    with ml.context(providers=("cc", "miniml")):
        got = [x.asnumpy() for x in ml.jit(drawn)()]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_draws_have_the_same_bits_on_two_threads():
    found = []
    for threads in (1, 2):
        with ml.context(providers=("cc",), threads=threads):
            draw = ops.Normal((70_001,), np.dtype(np.float32), 0.0, 1.0, 0)
            found.append(ml.jit(draw)(np.array((7, 5), np.uint64)).asnumpy())
    np.testing.assert_array_equal(*found)
