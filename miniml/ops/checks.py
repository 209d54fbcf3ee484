"""Checks of shapes, axes and dtypes, whose errors begin with the caller's name.

First the shape and dtype that a value has as a tensor; then checks, which return the checked value;
last the device on which a composition of operations makes its tensors: that of the tensors it is
called with.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from sys import float_info
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ..core.abstract import FLOATS, DType, Shape, bool_, canonical, is_complex, scalar_dtype
from ..core.abstract import broadcast as broadcast
from ..core.errors import NONE, AttributeRefusedError, DTypeError, ShapeError
from ..core.options import brief
from ..core.primitive import freeze
from ..core.settings import context, current
from ..core.trace import current_trace

if TYPE_CHECKING:
    from ..core.tensor import Tensor as Tensor
else:
    Tensor = Any  # operations name it in annotations alone: it is made of them

Axes = int | tuple[int, ...] | None
Number = bool | int | float | complex
_INTS = {int}


def shape_of(x: Any) -> Shape:
    """The shape of a tensor (traced ones too), an array, a number or nested sequences of them."""
    shape = None if isinstance(x, type) else getattr(x, "shape", None)
    return as_array(x).shape if shape is None else tuple(shape)


def dtype_of(x: Any) -> DType:
    """The dtype x has as a tensor: that of an array, or the default one of a Python number."""
    if hasattr(x, "dtype") and not isinstance(x, type):
        return canonical(np.dtype(x.dtype))
    array = as_array(x)
    return scalar_dtype(array.flat[0].item()) if array.size else scalar_dtype(0.0)


def as_array(x: Any) -> np.ndarray[Any, Any]:
    """A number or nested sequences of numbers as an array; DTypeError or ShapeError for others."""
    if x is None:
        raise DTypeError(f"ops got None where it takes a tensor; {NONE}")
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"ops needs rows of equal length; {error}") from None
    if array.dtype.kind not in "biufcV":
        raise DTypeError(
            f"ops got {brief(x)} of type {type(x).__name__} for a tensor; give a Tensor, an "
            "array or a number"
        )
    return array


def strong(*xs: Any) -> list[Any]:
    """xs, with Python scalars as arrays of the dtype that one primitive would promote them to; for
    functions that call several primitives on some of them."""
    weak = [type(x) in (bool, int, float, complex) for x in xs]
    beside = tuple(dtype_of(x) for x, w in zip(xs, weak, strict=True) if not w)
    if not beside:
        return list(xs)
    return [
        np.asarray(fitting("ops", x, d := scalar_dtype(x, beside)), d) if w else x
        for x, w in zip(xs, weak, strict=True)
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


def extents(name: str, shape: Shape) -> Shape:
    """The shape itself; ShapeError for an extent below 0."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"{name} got shape {shape}; an extent is 0 or more")
    return shape


def broadcasts_to(small: Shape, large: Shape) -> bool:
    """True when an array of shape `small` broadcasts to exactly `large`."""
    tail = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(s in (1, t) for s, t in zip(small, tail, strict=True))


def check_beside(name: str, what: str, value: Any, of: str, whole: Any) -> None:
    """ShapeError unless the value broadcasts to the shape of the whole, which is that of `of`."""
    if not broadcasts_to(shape_of(value), shape_of(whole)):
        raise ShapeError(
            f"{name} got a {what} of shape {shape_of(value)} for {of} of shape {shape_of(whole)}, "
            "to which it does not broadcast"
        )


def normal_axes(name: str, axis: Axes, ndim: int, of: str = "a tensor") -> tuple[int, ...]:
    """The axes as sorted numbers >= 0, all for None; ShapeError for one that does not exist."""
    return tuple(range(ndim)) if axis is None else tuple(sorted(ordered_axes(name, axis, ndim, of)))


def ordered_axes(name: str, axis: Any, ndim: int, of: str = "a tensor") -> tuple[int, ...]:
    """The axes, an int or a tuple, as numbers >= 0 in the order in which they are given."""
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([normal_axis(name, a, ndim, of) for a in given])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name} got axis {axis}, which names one axis twice; name each once")
    return axes


def normal_axis(name: str, axis: int, ndim: int, of: str = "a tensor") -> int:
    """An axis as a number >= 0; ShapeError when a tensor of rank ndim has no such axis."""
    if type(axis) is not int:
        raise ShapeError(
            f"{name} got axis {brief(axis)}; an axis is an int, from {-ndim} to {ndim - 1}"
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


def matrices(name: str, a: Shape) -> Shape:
    """The shape itself if it is that of a stack of matrices; ShapeError otherwise."""
    if len(a) < 2:
        raise ShapeError(f"{name} got shape {a}; it takes matrices, of shape (..., m, n)")
    return a


def square(name: str, a: Shape) -> Shape:
    """The shape itself if it is that of a stack of square matrices; ShapeError otherwise."""
    if len(a) < 2 or a[-1] != a[-2]:
        raise ShapeError(f"{name} got shape {a}; it takes square matrices, of shape (..., n, n)")
    return a


def right_side(name: str, a: Shape, b: Shape) -> Shape:
    """The shape of b, the right-hand side for a stack of square matrices; ShapeError otherwise."""
    if b[:-1] != square(name, a)[:-1] or len(b) < 2:
        raise ShapeError(
            f"{name} got a of shape {a} and b of shape {b}; b has one row for each row of a, shape "
            f"{(*a[:-1], 'k')}".replace("'", "")
        )
    return b


def needs_float(name: str, dtype: DType) -> DType:
    """The dtype itself if it is a float; DTypeError otherwise."""
    if dtype not in FLOATS:
        raise DTypeError(f"{name} needs a float tensor; got {dtype.name}; cast it first")
    return dtype


def needs_complex(name: str, dtype: DType) -> DType:
    """The dtype itself if it is complex; DTypeError otherwise."""
    if not is_complex(dtype):
        raise DTypeError(
            f"{name} needs a complex tensor; got {dtype.name}; cast it to complex64 or complex128"
        )
    return dtype


def needs_number(name: str, dtype: DType) -> DType:
    """The dtype itself; DTypeError if it is bool."""
    if dtype == bool_:
        raise DTypeError(
            f"{name} has no meaning for bool; use the logical operators, or cast to int64 first"
        )
    return dtype


def needs_integer(name: str, dtype: DType) -> DType:
    """The dtype itself if it is an integer; DTypeError otherwise."""
    if dtype.kind not in "iu":
        would_do = "use the logical operators" if dtype == bool_ else "compare first, as in x != 0"
        raise DTypeError(
            f"{name} needs integer tensors; got {dtype.name}; {would_do}, or cast to int64"
        )
    return dtype


def fitting(name: str, value: Number, dtype: DType) -> Number:
    """`value` as a number of `dtype`'s kind; DTypeError if the dtype cannot hold it."""
    if is_complex(dtype) and isinstance(value, (int, float, complex)):
        return complex(value)
    if not isinstance(value, (int, float)):
        raise AttributeRefusedError(f"{name} got {value!r} to fill with; expected a number")
    if dtype in FLOATS and (isinstance(value, float) or finite(value)):
        return float(value)
    if finite(value) and value == int(value):
        if dtype == bool_ and value in (0, 1):
            return bool(value)
        if dtype != bool_ and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return int(value)
    raise DTypeError(
        f"{name} got the number {value}, which {dtype.name} cannot hold; choose another dtype, or "
        "round the number first"
    )


def is_one_integer(value: Any) -> bool:
    """True for an integer tensor or array of shape (), whose value need not be known."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind in ("i", "u") and not isinstance(value, np.generic) and np.shape(value) == ()


def finite(*values: object) -> bool:
    """True where all values are finite numbers, which float64 holds."""
    return all(isinstance(value, (int, float)) and abs(value) <= float_info.max for value in values)


def function(owner: str, name: str, value: object) -> None:
    """AttributeRefusedError for what cannot be called."""
    if not callable(value):
        raise AttributeRefusedError(
            f"{owner} got {name}={brief(value)} of type {type(value).__name__}; give a function"
        )


# --- Compositions ---------------------------------------------------------------------------------


P = ParamSpec("P")
R = TypeVar("R")


def composition(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a composition, which is a pure function of tensors that is made of primitives.

    Eager calls with kinds of arguments seen before run as one plan. Arrays and constants follow the
    first tensor among the arguments, like those of a primitive: else the first primitive that gets
    an array alone would put it on the context's device.
    """

    @wraps(function)
    def follow(*args: P.args, **named: P.kwargs) -> R:
        with on_device_of((args, *named.values())):
            return function(*args, **named)

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        return current_trace().compose(follow, args, named)  # type: ignore[no-any-return]

    return call


def on_device_of(x: Any) -> AbstractContextManager[object]:
    """A context in which new tensors are made on the device of x, or of the first tensor in x."""
    device = _device_of((x,))
    if device is None or device == current().device_target:
        return nullcontext()
    return context(device_target=device)


def _device_of(xs: Any) -> str | None:
    for x in xs:
        if isinstance(x, (np.ndarray, np.generic)):  # they follow, whatever their `device` says
            continue
        found = _device_of(x) if isinstance(x, (list, tuple)) else getattr(x, "device", None)
        if isinstance(found, str):
            return found
    return None
