"""Rows of the reductions."""

import numpy as np

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart, numbers

# Shapes with what is reduced of them: one axis, several, all, none; leading, inner, trailing.
CASES = (
    ((), None), ((), ()), ((1,), 0), ((4,), None), ((4,), -1), ((3, 5), 0), ((3, 5), 1),
    ((2, 3, 5), (0, 1)), ((2, 3, 5), (-1, 0)), ((2, 3, 5), 1), ((2, 3, 5), ()), ((2, 3, 5), None),
    ((2, 3, 1, 4), (0, 2, 3)),
)  # fmt: skip
EMPTY = (((0, 3), 0), ((0, 3), 1), ((2, 0), None))
NOT_EMPTY = (((0, 3), 1), ((3, 0), 0))


def reducing(draw, cases):
    """Samples for each case, with and without keepdims."""

    def samples(rng, dtype):
        for shape, axis in cases:
            for keepdims in (False, True):
                yield Sample((draw(rng, shape, dtype),), {"axis": axis, "keepdims": keepdims})
        if dtype.kind in "iu":  # of which a sum in the dtype itself would wrap
            largest = np.full((3, 2), np.iinfo(dtype).max, dtype)
            yield Sample((largest,), {"axis": 0, "keepdims": False})

    return samples


def signed(rng, shape, dtype):
    """Numbers of either sign, some of them zeros where dtype is not a float."""
    return numbers(rng, shape, dtype)


def with_a_zero(rng, shape, dtype):
    """The same, one of several a zero, by which no product can be divided."""
    x = signed(rng, shape, dtype)
    x.flat[1:2] = 0
    return x


def ladder(rng, shape, dtype):
    """Distinct numbers: 1/4 apart where dtype has fractions or is signed, any others elsewhere."""
    return apart(rng, shape, dtype) if dtype.kind in "fV" else numbers(rng, shape, dtype)


def coins(rng, shape, dtype):
    """Zeros and ones."""
    return rng.integers(0, 2, size=shape).astype(dtype)


def argmax_samples(rng, dtype):
    for shape, axis in (((), None), ((1,), 0), ((4,), None), ((2, 3, 5), -2), ((2, 3, 5), None)):
        for keepdims in (False, True):
            yield Sample((ladder(rng, shape, dtype),), {"axis": axis, "keepdims": keepdims})


NO_AXIS = Refusal((np.ones((2, 3)),), "axis 2 of a tensor of rank 2", {"axis": 2}, ShapeError)
TWICE = Refusal((np.ones((2, 3)),), "names one axis twice", {"axis": (1, -1)}, ShapeError)
NO_INT = Refusal((np.ones((2, 3)),), "an axis is an int", {"axis": 1.0}, ShapeError)
NOTHING = Refusal((np.ones((2, 0)),), "no elements to choose from", {"axis": 1}, ShapeError)
AXES = (NO_AXIS, TWICE, NO_INT)

ROWS = (
    OpInfo(ops.Sum, reducing(signed, CASES + EMPTY), np.sum, refused=AXES),
    OpInfo(ops.Mean, reducing(signed, CASES + EMPTY), np.mean, refused=AXES),
    OpInfo(ops.Prod, reducing(with_a_zero, CASES + EMPTY), np.prod, refused=AXES),
    OpInfo(ops.Max, reducing(ladder, CASES + NOT_EMPTY), np.max, refused=(*AXES, NOTHING)),
    OpInfo(ops.Min, reducing(ladder, CASES + NOT_EMPTY), np.min, refused=(*AXES, NOTHING)),
    OpInfo(ops.ArgMax, argmax_samples, np.argmax, refused=(NO_AXIS, NOTHING), nan="handled"),
    OpInfo(ops.ArgMin, argmax_samples, np.argmin, refused=(NO_AXIS, NOTHING), nan="handled"),
    OpInfo(ops.Any, reducing(coins, CASES + EMPTY), np.any, refused=AXES, nan="handled"),
    OpInfo(ops.All, reducing(coins, CASES + EMPTY), np.all, refused=AXES, nan="handled"),
    OpInfo(ops.LogSumExp, reducing(signed, CASES + EMPTY), np.logaddexp.reduce, refused=AXES),
)
