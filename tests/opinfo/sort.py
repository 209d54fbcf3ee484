"""Rows of sorting and searching; what is sorted differs, for a gradient at a tie is not defined."""

import numpy as np

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart, numbers

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


def searches(rng, dtype):
    for x, values in (((5,), (2, 3)), ((4,), ()), ((0,), (3,)), ((2, 3, 4), (2, 3, 5))):
        for side in ("left", "right"):
            row = np.sort(numbers(rng, x, dtype))
            yield Sample((row, numbers(rng, values, dtype)), {"side": side})


def counted(x, values, side):
    """By counting what is smaller, or not greater; a NaN is larger than all."""
    x, values = x if x.ndim == 1 else x[..., None, :], values[..., None]
    less = (x < values) | (np.isnan(values) & ~np.isnan(x))
    equal = (x == values) | (np.isnan(values) & np.isnan(x))
    return (less | (equal & (side == "right"))).sum(-1)


def repeated(rng, dtype):
    for shape in ((), (0, 3), (7,), (2, 3, 5)):
        yield Sample((numbers(rng, shape, dtype),))


def firsts(x):
    """By Python's sorted, of the elements that no earlier one equals."""
    flat = [v.item() for v in x.reshape(-1)]
    first = {}
    for i, v in enumerate(flat):
        first.setdefault("nan" if v != v else v, i)
    values = sorted(v for v in first if v != "nan") + [v for v in first if v == "nan"]
    inverse = [values.index("nan" if v != v else v) for v in flat]
    return (
        np.array([flat[first[v]] for v in values]), np.array([first[v] for v in values], int),
        np.array(inverse, int).reshape(x.shape), np.bincount(inverse, minlength=len(values)),
    )  # fmt: skip


ROWS = (
    OpInfo(ops.SearchSorted, searches, reference=counted, nan="handled", refused=(
        Refusal((np.ones(3), np.ones(2)), "side='up'; it takes", {"side": "up"}),
        Refusal((np.ones(()), np.ones(2)), "x of shape .. and values", {}, ShapeError),
        Refusal((np.ones((2, 3)), np.ones((3, 2))), "same leading extents", {}, ShapeError),
    )),
    OpInfo(ops.Unique, repeated, reference=firsts, nan="handled"),
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
