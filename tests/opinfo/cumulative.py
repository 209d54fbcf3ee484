"""Rows of running sums, products and extrema."""

import numpy as np

from miniml import ops
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart, numbers


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

ROWS = (
    OpInfo(ops.CumSum, running, slices(np.add), refused=REFUSED),
    OpInfo(ops.CumProd, running, slices(np.multiply), refused=REFUSED),
    OpInfo(ops.CumMax, extrema, np.maximum.accumulate, refused=REFUSED, domain="no ties"),
    OpInfo(ops.CumMin, extrema, np.minimum.accumulate, refused=REFUSED, domain="no ties"),
)
