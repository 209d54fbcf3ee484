"""Draws in C are those of NumPy's kernels, bit for bit."""

import numpy as np

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
