"""NumPy kernels of running sums, products and extrema."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..kernel import Array
from ..typecodes import ANY, WHOLE, same
from .registering import register, register_floats


def running(
    ufunc: np.ufunc, x: Array, *, axis: int, reverse: bool, exclusive: bool, out: Array
) -> None:
    results = out
    if reverse:
        x, results = np.flip(x, axis), np.flip(results, axis)
    if exclusive:
        x, results = np.moveaxis(x, axis, 0), np.moveaxis(results, axis, 0)
        results[:1] = ufunc.identity
        x, results, axis = x[:-1], results[1:], 0
    ufunc.accumulate(x, axis=axis, out=results, dtype=results.dtype)


for _name, _body in (
    ("CumSum", partial(running, np.add)), ("CumProd", partial(running, np.multiply)),
):  # fmt: skip
    register_floats(_name, _body)
    register(_name, _body, *WHOLE)
register("CumMax", np.maximum.accumulate, *same(1, ANY))
register("CumMin", np.minimum.accumulate, *same(1, ANY))
