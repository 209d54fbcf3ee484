"""Loops that look rows up by numbers which they make themselves: no check moves out of them."""

import numpy as np

import miniml as ml
from miniml import ops
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
TABLE = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def written(start):
    def step(token, _):
        token = ops.cast(ops.argmax(ops.tanh(ml.Tensor(TABLE)[token]), -1), ml.int32)
        return token, token

    tokens, _ = ops.scan(step, start, length=5)
    return ops.concat([start[None], tokens])


def test_a_loop_whose_checks_stay_inside_stays_in_the_program():
    start = ml.Tensor(np.array([3, 6], np.int32))
    with ml.context(providers=("cc",)):
        compiled = ml.jit(written)(start)
    np.testing.assert_array_equal(compiled.asnumpy(), written(start).asnumpy())
