"""Gradients of reductions and normalisations for numbers of any size, against float64."""

import numpy as np
import pytest

from miniml import ops
from miniml.grad import vjp

ROWS, N = 4, 48
LABELS = np.array([3, 0, 47, 11])


def layer_norm(x):
    return ops.layer_norm(x, np.ones(N, x.dtype), np.zeros(N, x.dtype))


def batch_norm(x):
    ones, zeros = np.ones(ROWS, x.dtype), np.zeros(ROWS, x.dtype)
    return ops.batch_norm(ops.transpose(x, (1, 0)), ones, zeros, training=True)[0]


FUNCTIONS = {
    "sum": lambda x: ops.sum(x, 1),
    "mean": lambda x: ops.mean(x, 1),
    "max": lambda x: ops.max(x, 1),
    "prod": lambda x: ops.prod(x, 1),
    "cumsum": lambda x: ops.cumsum(x, 1),
    "var": lambda x: ops.var(x, 1),
    "std": lambda x: ops.std(x, 1),
    "logsumexp": lambda x: ops.logsumexp(x, 1),
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "cross_entropy": lambda x: ops.cross_entropy(x, LABELS, "none"),
}
SIZES = {
    np.float16: (1e-6, 1e-4, 1e-2, 1.0, 10.0, 1e3, 3e4),
    np.float32: (1e-30, 1e-20, 1e-10, 1e-4, 1.0, 1e4, 1e10, 1e20, 1e30),
}
SHIFTS = (0.0, 10.0, 1000.0)  # the mean, in units of the spread
UNITS = 64  # of rounding, relative to the row's largest gradient: sums of 48 terms


def squares_leave(dtype, size, shift):
    return dtype == np.float32 and not 1e-17 < size < 1e17


def norms_lose(dtype, size, shift):
    return shift == 1000 or squares_leave(dtype, size, shift)


# Where a gradient may be wrong though it can be represented, and why it stays so.
LISTED = {
    "std": ("the squares leave float32, which holds the variance on the way", squares_leave),
    "layer_norm": (
        "the mean is kept in the dtype of the numbers, which is coarse where it is a thousand "
        "times their spread; squares leave float32",
        norms_lose,
    ),
    "batch_norm": (
        "as layer_norm; and the variance, an output of the same dtype, is infinite in float16 "
        "where the spread is above 256",
        lambda dtype, size, shift: (
            norms_lose(dtype, size, shift) or (dtype == np.float16 and size >= 1e3)
        ),
    ),
}


def worst(function, x, cotangents):
    """The largest error in units of rounding, NaN counting as infinite; 0 where float64 says that
    the gradient cannot be represented."""
    info = np.finfo(x.dtype)
    out, exact_pull = vjp(function, x.astype(np.float64))
    _, pull = vjp(function, x)
    drawn = np.random.default_rng(1).normal(size=out.shape)
    found = [0.0]
    for scale in cotangents:
        dout = (drawn * scale).astype(x.dtype)
        true = exact_pull(dout.astype(np.float64))[0].asnumpy()
        if np.abs(true).max() <= info.max:
            size = np.abs(true).max(1, keepdims=True) + 8 * info.smallest_subnormal / info.eps
            error = np.abs(pull(dout)[0].asnumpy() - true) / size / info.eps
            found.append(np.nan_to_num(error, nan=np.inf).max())
    return max(found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_rows_of_any_size(name):
    rng, reason = np.random.default_rng(0), LISTED.get(name)
    off = {True: 0, False: 0}
    for dtype, sizes in SIZES.items():
        for size, shift in ((a, b) for a in sizes for b in SHIFTS):
            x = size * (rng.normal(size=(ROWS, N)) / 3 + shift)
            if np.abs(x).max() > np.finfo(dtype).max:
                continue
            listed = reason is not None and reason[1](dtype, size, shift)
            units = worst(FUNCTIONS[name], x.astype(dtype), (1.0, 1024.0, 2.0**-10))
            off[listed] += units > UNITS
            assert listed or units <= UNITS, (dtype.__name__, size, shift, units)
    assert (off[True] > 0) == (name in LISTED), "the list says otherwise"
