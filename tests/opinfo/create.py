"""Rows of tensors made from nothing but numbers, and of one-hot rows."""

import numpy as np

from miniml import float32, int8, int64, ops
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES


def full_samples(rng, dtype):
    for shape in SHAPES:
        for value in (0, 1):
            yield Sample((), {"shape": shape, "value": value, "dtype": dtype})


def arange_samples(rng, dtype):
    for start, stop, step in ((0, 5, 1), (3, 3, 1), (2, 30, 7), (9, 2, -3), (4, 5, 2)):
        yield Sample((), {"start": start, "stop": stop, "step": step, "dtype": dtype})
    if dtype.kind not in "iu":
        yield Sample((), {"start": -0.5, "stop": 1.0, "step": 0.25, "dtype": dtype})


def linspace_samples(rng, dtype):
    for start, stop, num in ((0, 6, 4), (5, 1, 3), (2, 2, 3), (3, 9, 1), (3, 9, 0)):
        yield Sample((), {"start": start, "stop": stop, "num": num, "dtype": dtype})
    if dtype.kind not in "iu":
        yield Sample((), {"start": -0.5, "stop": 1.0, "num": 5, "dtype": dtype})


def eye_samples(rng, dtype):
    for n, m in ((1, 1), (3, 4), (5, 2), (0, 3), (3, 0)):
        yield Sample((), {"n": n, "m": m, "dtype": dtype})


def filled(value, dtype, match="cannot hold", shape=(2,)):
    attrs = {"shape": shape, "value": value, "dtype": dtype}
    return Refusal((), match, attrs, ShapeError if shape != (2,) else DTypeError)


def spaced(match, error, dtype=int64, **attrs):
    return Refusal((), match, {"start": 0, "stop": 6, "num": 4, "dtype": dtype, **attrs}, error)


def counted(match, error, dtype=int64, **attrs):
    return Refusal((), match, {"start": 0, "stop": 5, "step": 1, "dtype": dtype, **attrs}, error)


ROWS = (
    OpInfo(
        ops.Full,
        full_samples,
        lambda shape, value, dtype: np.full(shape, dtype.type(value)),
        refused=(
            filled(float("nan"), int64),
            filled(float("inf"), int8),
            filled(300, int8),
            filled(2.5, int64),
            filled(2, np.dtype(bool)),
            filled(0, int64, "0 or more", (2, -1)),
        ),
    ),
    OpInfo(
        ops.Arange,
        arange_samples,
        lambda start, stop, step, dtype: np.arange(start, stop, step).astype(dtype),
        refused=(
            counted("the step not 0", ShapeError, step=0),
            counted("finite", ShapeError, stop=float("inf"), dtype=float32),
            counted("cannot count in bool", DTypeError, dtype=np.dtype(bool)),
            counted("cannot hold", DTypeError, stop=300, dtype=int8),
            counted("cannot hold", DTypeError, step=0.5),
        ),
    ),
    OpInfo(
        ops.Linspace,
        linspace_samples,
        lambda start, stop, num, dtype: np.linspace(start, stop, num).astype(dtype),
        refused=(
            spaced(r"Linspace got shape \(-1,\)", ShapeError, num=-1),
            spaced("both must be finite", ShapeError, stop=float("inf"), dtype=float32),
            spaced("no steps in bool", DTypeError, dtype=np.dtype(bool)),
            spaced(
                "Linspace got the number 300, which int8 cannot", DTypeError, stop=300, dtype=int8
            ),
            spaced("Linspace got 4 numbers from 0 to 1, which are not all", DTypeError, stop=1),
        ),
    ),
    OpInfo(
        ops.Eye,
        eye_samples,
        lambda n, m, dtype: np.eye(n, m, dtype=dtype),
        refused=(Refusal((), "0 or more", {"n": 2, "m": -1, "dtype": float32}, ShapeError),),
    ),
)
