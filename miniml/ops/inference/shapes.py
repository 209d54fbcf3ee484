"""What rules ask of shapes, axes and dtypes; each refuses in a sentence that begins with a name."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from ...abstract import Shape
from ...attributes import freeze
from ...dtype import FLOATS, DType, bool_, canonical, scalar_dtype
from ...errors import NONE, DTypeError, ShapeError

Axes = int | tuple[int, ...] | None
_INTS = {int}


def broadcast(name: str, *shapes: Shape) -> Shape:
    """The shape that all of `shapes` broadcast to, by NumPy's rule; ShapeError naming them."""
    if len(set(shapes)) == 1:
        return tuple(shapes[0])
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        got = " and ".join(map(str, shapes))
        raise ShapeError(
            f"{name} cannot broadcast shapes {got}; axes are matched from the last, and two "
            "extents must be equal or one of them 1"
        ) from None


def normal_axes(name: str, axis: Axes, ndim: int, of: str = "a tensor") -> tuple[int, ...]:
    """The axes as sorted numbers >= 0, all for None; ShapeError for one that is not there."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(sorted(normal_axis(name, a, ndim, of) for a in given))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name} got axis {axis}, which names one axis twice; name each once")
    return axes


def normal_axis(name: str, axis: int, ndim: int, of: str = "a tensor") -> int:
    """One axis as a number >= 0; ShapeError when a tensor of rank ndim has no such axis."""
    if type(axis) is not int:
        raise ShapeError(
            f"{name} got axis {reprlib.repr(axis)}; an axis is an int, from {-ndim} to {ndim - 1}"
        )
    if not -ndim <= axis < ndim:
        has = f"its axes are {-ndim} to {ndim - 1}" if ndim else "a tensor of shape () has none"
        raise ShapeError(f"{name} got axis {axis} of {of} of rank {ndim}; {has}")
    return axis % ndim


def reduced_shape(name: str, shape: Shape, axis: Axes, keepdims: bool) -> Shape:
    """The shape that is left when `axis` is reduced."""
    axes = normal_axes(name, axis, len(shape))
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def needs_float(name: str, dtype: DType) -> DType:
    """The dtype itself if it is a float; DTypeError otherwise."""
    if dtype not in FLOATS:
        raise DTypeError(f"{name} needs a float tensor; got {dtype.name}; cast it first")
    return dtype


def matrices(name: str, a: Shape) -> Shape:
    """The shape itself if it is one of a stack of matrices; ShapeError otherwise."""
    if len(a) < 2:
        raise ShapeError(f"{name} got shape {a}; it takes matrices, of shape (..., m, n)")
    return a


def square(name: str, a: Shape) -> Shape:
    """The shape itself if it is one of a stack of square matrices; ShapeError otherwise."""
    if len(a) < 2 or a[-1] != a[-2]:
        raise ShapeError(f"{name} got shape {a}; it takes square matrices, of shape (..., n, n)")
    return a


def right_side(name: str, a: Shape, b: Shape) -> Shape:
    """The shape of b, the right side for a stack of square matrices; ShapeError if it is none."""
    if b[:-1] != square(name, a)[:-1] or len(b) < 2:
        raise ShapeError(
            f"{name} got a of shape {a} and b of shape {b}; b has one row for each row of a, shape "
            f"{(*a[:-1], 'k')}".replace("'", "")
        )
    return b


def shape_of(x: Any) -> Shape:
    """The shape of a tensor (traced ones too), an array, a number or nested sequences of them."""
    shape = getattr(x, "shape", None)
    return _numbers(x).shape if shape is None else tuple(shape)


def needs_number(name: str, dtype: DType) -> DType:
    """The dtype itself unless it is bool; DTypeError then."""
    if dtype == bool_:
        raise DTypeError(
            f"{name} has no meaning for bool; use the logical operators, or cast to int64 first"
        )
    return dtype


def dtype_of(x: Any) -> DType:
    """The dtype x has as a tensor: that of an array, or the default one of a Python number."""
    if hasattr(x, "dtype"):
        return canonical(np.dtype(x.dtype))
    array = _numbers(x)
    return scalar_dtype(array.flat[0].item()) if array.size else scalar_dtype(0.0)


def _numbers(x: Any) -> np.ndarray[Any, Any]:
    """A number or nested sequences of numbers as an array; DTypeError or ShapeError for others."""
    if x is None:
        raise DTypeError(f"ops got None where it takes a tensor; {NONE}")
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"ops needs rows of equal length; {error}") from None
    if array.dtype.kind not in "biufcV":
        raise DTypeError(
            f"ops got {reprlib.repr(x)} of type {type(x).__name__} for a tensor; give a Tensor, an "
            "array or a number"
        )
    return array


def strong(*xs: Any) -> list[Any]:
    """Python scalars as arrays of the dtype that they take beside the others, as a call of one
    primitive would have it; for functions that call several with one or another of `xs`."""
    weak = [type(x) in (bool, int, float) for x in xs]
    beside = tuple(dtype_of(x) for x, w in zip(xs, weak, strict=True) if not w)
    if not beside:
        return list(xs)
    return [
        np.asarray(x, scalar_dtype(x, beside)) if w else x for x, w in zip(xs, weak, strict=True)
    ]


def as_shape(shape: Any, name: str) -> Shape:
    """A shape given as an int, a tuple or a list, as a tuple of ints; ShapeError otherwise."""
    if type(shape) is tuple and _INTS.issuperset(map(type, shape)):
        return shape
    frozen = freeze(shape, name, "shape")
    extents = frozen if isinstance(frozen, tuple) else (frozen,)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in extents):
        raise ShapeError(f"{name} got shape {shape!r}; a shape is a tuple of ints")
    return extents
