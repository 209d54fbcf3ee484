"""Rows of sorting; values differ, for a gradient at a tie is not defined."""

import numpy as np

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart

SHAPES = ((4,), (1,), (2, 3, 5), (0, 3), (3, 0))


def sorts(rng, dtype):
    for shape in SHAPES:
        for axis in range(-1, len(shape) - 1):
            for descending in (False, True):
                attrs = {"axis": axis, "descending": descending}
                yield Sample((apart(rng, shape, dtype),), attrs)


def topks(rng, dtype):
    for shape in SHAPES:
        for axis in range(-1, len(shape) - 1):
            for largest in (False, True):
                attrs = {"k": min(2, shape[axis]), "axis": axis, "largest": largest}
                yield Sample((apart(rng, shape, dtype),), attrs)


def lanes(x, axis, count, descending):
    """Sorted with Python's sorted, lane by lane; a NaN is larger than all."""
    x = np.moveaxis(x, axis, -1)
    indices = np.zeros((*x.shape[:-1], count), np.int64)
    for place in np.ndindex(*x.shape[:-1]):
        lane = [v.item() for v in x[place]]
        sign = -1 if descending else 1

        def rank(i, lane=lane, sign=sign):
            nan = lane[i] != lane[i]
            return sign * nan, 0 if nan else sign * lane[i]

        indices[place] = sorted(range(len(lane)), key=rank)[:count]
    values = np.take_along_axis(x, indices, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


ROWS = (
    OpInfo(ops.Sort, sorts, domain="distinct values",
           reference=lambda x, axis, descending: lanes(x, axis, x.shape[axis], descending),
           refused=(
               Refusal((np.ones(3),), "axis 1 of a tensor of rank 1", {"axis": 1}, ShapeError),
               Refusal((np.float32(1),), "a tensor of shape .. has none", {}, ShapeError),
           )),
    OpInfo(ops.TopK, topks, domain="distinct values",
           reference=lambda x, k, axis, largest: lanes(x, axis, k, largest),
           refused=(
               Refusal((np.ones((2, 3)),), "k=4 elements along axis 1.*k is 0 to 3", {"k": 4},
                       ShapeError),
           )),
)  # fmt: skip
