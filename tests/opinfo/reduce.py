"""Rows of the reductions."""

from __future__ import annotations

import numpy as np

from miniml import ops
from miniml.errors import ShapeError, ValueRefusedError
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

REDUCE_ROWS = (
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


# --- cumulative -----------------------------------------------------------------------------------
# Rows of running sums, products and extrema.


def running(rng, dtype):
    for shape, axis in (((4,), 0), ((0, 3), 0), ((0, 3), 1), ((3, 2), -1), ((2, 3, 5), 1)):
        for reverse in (False, True):
            for exclusive in (False, True):
                attrs = {"axis": axis, "reverse": reverse, "exclusive": exclusive}
                x = numbers(rng, shape, dtype)
                x.flat[1:2] = 0  # behind which no product can be divided by it
                yield Sample((x,), attrs)
    if dtype.kind in "iu":  # of which a sum in the dtype itself would wrap
        largest = np.full(4, np.iinfo(dtype).max, dtype)
        yield Sample((largest,), {"axis": 0, "reverse": False, "exclusive": False})


def logarithms(rng, dtype):
    for shape, axis in (((4,), 0), ((0, 3), 0), ((0, 3), 1), ((3, 2), -1), ((2, 3, 5), 1)):
        for reverse in (False, True):
            yield Sample((numbers(rng, shape, dtype),), {"axis": axis, "reverse": reverse})
    if dtype.kind in "fV":  # far apart, where exponentials would overflow
        far = (20 * apart(rng, (6,), dtype)).astype(dtype)
        yield Sample((far,), {"axis": 0, "reverse": False})


def extrema(rng, dtype):
    for shape, axis in (((4,), 0), ((0, 3), 0), ((3, 2), -1), ((2, 3, 5), 1)):
        x = apart(rng, shape, dtype) if dtype.kind in "fV" else numbers(rng, shape, dtype)
        yield Sample((x,), {"axis": axis})


def slices(ufunc):
    """The reduction of explicit slices, so that an infinity stays out of those it is no part of;
    they begin with an element, not with the identity, which keeps the sign of -0.0."""

    def reference(x, axis, reverse, exclusive):
        x = np.moveaxis(np.asarray(x), axis, 0)
        n = len(x)
        parts = [x[i + exclusive :] if reverse else x[: i + 1 - exclusive] for i in range(n)]
        rows = [ufunc.accumulate(p)[-1] if len(p) else ufunc.reduce(p, axis=0) for p in parts]
        return np.moveaxis(np.stack(rows) if rows else x, 0, axis)

    return reference


REFUSED = (Refusal((np.ones(3),), "axis 1 of a tensor of rank 1", {"axis": 1}),)

CUMULATIVE_ROWS = (
    OpInfo(ops.CumSum, running, slices(np.add), refused=REFUSED),
    OpInfo(ops.CumProd, running, slices(np.multiply), refused=REFUSED),
    OpInfo(
        ops.LogCumSumExp,
        logarithms,
        refused=REFUSED,
        reference=lambda x, axis, reverse: slices(np.logaddexp)(x, axis, reverse, False),
    ),
    OpInfo(ops.CumMax, extrema, np.maximum.accumulate, refused=REFUSED, domain="no ties"),
    OpInfo(ops.CumMin, extrema, np.minimum.accumulate, refused=REFUSED, domain="no ties"),
)


# --- sort -----------------------------------------------------------------------------------------
# Rows of sorting and searching; what is sorted differs, for a gradient at a tie is not defined.


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


SORT_ROWS = (
    OpInfo(ops.SearchSorted, searches, reference=counted, nan="handled", refused=(
        Refusal((np.ones(3), np.ones(2)), "side='up'; expected", {"side": "up"}, ValueRefusedError),
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

ROWS = (*REDUCE_ROWS, *CUMULATIVE_ROWS, *SORT_ROWS)
