"""Rows of the primitives that take or give complex numbers alone.

opcheck draws real numbers; tests/unit/ops/test_complex.py checks these rows.
"""

import numpy as np

from miniml import ops
from miniml.core.abstract import is_complex
from miniml.errors import DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, numbers

ROWS = ()
X, Z = np.ones((2, 3)), np.ones((2, 3), np.complex128)
NORMS = "backward", "ortho", "forward"


def parts(rng, shape, dtype):
    """Numbers in (-2, 2), of a complex dtype in both parts."""
    if not is_complex(dtype):
        return numbers(rng, shape, dtype)
    return (numbers(rng, shape, np.dtype("d")) + 1j * numbers(rng, shape, np.dtype("d"))).astype(
        dtype
    )


def one(rng, dtype):
    for shape in SHAPES:
        yield Sample((parts(rng, shape, dtype),))


def two(rng, dtype):
    for x, y in (((2, 3), (2, 3)), ((), (4,)), ((2, 1), (3,)), ((0, 3), (1, 3))):
        yield Sample((parts(rng, x, dtype), parts(rng, y, dtype)))


def whole(rng, dtype):
    for shape, axes in (((5,), (-1,)), ((1,), (-1,)), ((2, 3, 4), (-1,)), ((2, 3, 4), (-3, -1))):
        for norm in NORMS:
            yield Sample((parts(rng, shape, dtype),), {"axes": axes, "norm": norm})
    yield Sample((parts(rng, (0, 3), dtype),), {"axes": (-1,)})


def half(rng, dtype):
    for shape, axis in (((5,), -1), ((6,), -1), ((1,), -1), ((2,), -1), ((4, 3, 2), -2)):
        for norm in NORMS:
            yield Sample((parts(rng, shape, dtype),), {"axis": axis, "norm": norm})
    yield Sample((parts(rng, (0, 3), dtype),), {})


def back(rng, dtype):
    shapes = ((3,), -1, 5), ((3,), -1, 4), ((1,), -1, 1), ((2,), -1, 2), ((2, 3, 2), -2, 4)
    for shape, axis, n in shapes:
        for norm in NORMS:
            yield Sample((parts(rng, shape, dtype),), {"n": n, "axis": axis, "norm": norm})
    yield Sample((parts(rng, (0, 3), dtype),), {"n": 4})


def dft(x, axes, norm="backward", sign=-1):
    """The transform by its matrix."""
    for axis in axes:
        n = x.shape[axis]
        k = np.arange(n)
        matrix = np.exp(sign * 2j * np.pi * np.outer(k, k) / n)
        x = np.moveaxis(np.moveaxis(x, axis, -1) @ matrix, -1, axis)
        divided = {"backward": sign > 0, "forward": sign < 0}.get(norm, 0.5)
        x = x / n**divided
    return x


def rfft(x, axis=-1, norm="backward"):
    return np.take(dft(x, (axis,), norm), np.arange(x.shape[axis] // 2 + 1), axis)


def irfft(x, n, axis=-1, norm="backward"):
    """The inverse transform of all numbers, the second half being conjugates of the first."""
    rest = np.conj(np.take(x, np.arange(1, (n + 1) // 2)[::-1], axis))
    ends = [np.take(x, [0], axis).real]
    ends += [np.take(x, np.arange(1, (n + 1) // 2), axis)]
    ends += [np.take(x, [n // 2], axis).real] if n % 2 == 0 else []
    return dft(np.concatenate([*ends, rest], axis), (axis,), norm, 1).real


COMPLEX_ROWS = (
    OpInfo(ops.Complex, two, lambda x, y: x + 1j * y, dtypes="fdeE",
           refused=(Refusal((Z, Z), "takes real numbers", {}, DTypeError),)),
    OpInfo(ops.Real, one, np.real, dtypes="FD",
           refused=(Refusal((X,), "needs a complex tensor; got float64", {}, DTypeError),)),
    OpInfo(ops.Imag, one, np.imag, dtypes="FD",
           refused=(Refusal((X,), "needs a complex tensor; got float64", {}, DTypeError),)),
    OpInfo(ops.Conj, one, np.conj, dtypes="FD",
           refused=(Refusal((X,), "needs a complex tensor; got float64", {}, DTypeError),)),
    OpInfo(ops.FFT, whole, dft, dtypes="FD", refused=(
        Refusal((X,), "needs a complex tensor; got float64", {"axes": (-1,)}, DTypeError),
        Refusal((Z,), "counts axes from the end; got 1", {"axes": (1,)}, ShapeError),
        Refusal((Z,), "names one axis twice", {"axes": (-1, -1)}, ShapeError),
        Refusal((Z[:, :0],), "has no points along axis -1", {"axes": (-1,)}, ShapeError),
        Refusal((Z,), "got norm='whole'", {"axes": (-1,), "norm": "whole"}, ValueRefusedError),
    )),
    OpInfo(ops.IFFT, whole, lambda x, axes, norm="backward": dft(x, axes, norm, 1), dtypes="FD",
           refused=(Refusal((Z,), "has no axis|got axis -3", {"axes": (-3,)}, ShapeError),)),
    OpInfo(ops.RFFT, half, rfft, dtypes="fdeE", refused=(
        Refusal((Z,), "takes real numbers", {}, DTypeError),
        Refusal((X,), "counts axes from the end; got 0", {"axis": 0}, ShapeError),
    )),
    OpInfo(ops.IRFFT, back, irfft, dtypes="FD", refused=(
        Refusal((X,), "needs a complex tensor; got float64", {"n": 4}, DTypeError),
        Refusal((Z,), "got n=6 for shape", {"n": 6}, ShapeError),
        Refusal((Z,), "got n=0 for shape", {"n": 0}, ShapeError),
    )),
)  # fmt: skip
