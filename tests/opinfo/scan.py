"""Rows of loops whose number of steps is known."""

import numpy as np

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers


def step(carry, x, weight):
    after = ops.tanh(carry * weight + x)
    return after, after * x


def attrs(carry, xs, weight, reverse=False):
    body = ml.trace(step, carry, np.zeros(xs.shape[1:], xs.dtype), weight)
    return {"body": body, "length": len(xs), "carried": 1, "scanned": 1, "reverse": reverse}


def samples(rng, dtype):
    for length, reverse in ((4, False), (3, True), (1, False), (0, False)):
        values = [numbers(rng, s, dtype) for s in ((2, 3), (length, 2, 3), (3,))]
        yield Sample(tuple(values), attrs(*values, reverse))


def scan(carry, xs, weight, reverse, **_):
    ys = np.zeros(xs.shape)
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        carry = np.tanh(carry * weight + xs[t])
        ys[t] = carry * xs[t]
    return carry, ys


CARRY, XS, WEIGHT = np.ones((2, 3)), np.ones((4, 2, 3)), np.ones(3)
PLAIN = attrs(CARRY, XS, WEIGHT)

ROWS = (
    OpInfo(
        ops.Scan,
        samples,
        reference=scan,
        dtypes="d",  # its graph is traced for one dtype
        refused=(
            Refusal((CARRY, XS[:3], WEIGHT), r"shape \(3, 2, 3\) to scan over", PLAIN, ShapeError),
            Refusal((CARRY, XS, np.ones(2)), "body was traced for float64", PLAIN, ShapeError),
            Refusal((CARRY, XS, WEIGHT.astype(int)), "got int64", PLAIN, DTypeError),
            Refusal((CARRY, XS), "given; give a position for each", PLAIN, ShapeError),
            Refusal(
                (CARRY, XS, WEIGHT),
                r"value 0 is float64\[2, 3\] in the loop and float64\[\] in body",
                {**PLAIN, "body": ml.trace(lambda c, x, w: (c.sum(), x), CARRY, XS[0], WEIGHT)},
                ShapeError,
            ),
        ),
    ),
)
