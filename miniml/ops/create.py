"""Creation of tensors: full, zeros, ones, arange, linspace, eye."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from ..core.abstract import INTEGERS, DType, Shape, as_dtype, bool_
from ..core.errors import DTypeError, ShapeError
from ..core.primitive import Primitive
from . import rules
from .checks import (
    Number,
    Tensor,
    as_shape,
    composition,
    dtype_of,
    extents,
    finite,
    fitting,
    shape_of,
)
from .elementwise import cast
from .rules import moves
from .shape import broadcast_to

__all__ = [
    "Arange", "Eye", "Full", "Linspace",
    "arange", "eye", "full", "full_like", "linspace", "ones", "ones_like", "zeros",
    "zeros_like",
]  # fmt: skip


class Made(Primitive, abstract=True):
    """Numbers that the attributes say: no gradient passes."""

    flops = moves
    differentiable = False


class Full(Made):
    """A tensor of `shape` and `dtype` with every element equal to `value`."""

    shape: Shape
    value: Number
    dtype: DType

    def infer_shape(self) -> Shape:
        return extents(self.name, self.shape)

    def infer_dtype(self) -> DType:
        fitting(self.name, self.value, self.dtype)
        return self.dtype


class Arange(Made):
    """start, start + step, ... before `stop`: ceil((stop - start) / step) numbers.

    ShapeError for a step of 0 and for numbers that are not finite, DTypeError for bool.
    """

    start: int | float
    stop: int | float
    step: int | float
    dtype: DType

    def infer_shape(self) -> Shape:
        if self.step == 0 or not finite(self.start, self.stop, self.step):
            raise ShapeError(
                f"Arange cannot count from {self.start} to {self.stop} in steps of {self.step}; "
                "the numbers must be finite and the step not 0"
            )
        return (self.count(),)

    def count(self) -> int:
        """The number of elements."""
        if all(isinstance(n, int) for n in (self.start, self.stop, self.step)):
            return max(0, -((self.start - self.stop) // self.step))  # type: ignore[return-value]
        return max(0, ceil((self.stop - self.start) / self.step))

    def infer_dtype(self) -> DType:
        if self.dtype == bool_:
            raise DTypeError("Arange cannot count in bool; use an integer or a float dtype")
        if self.dtype in INTEGERS:
            for n in (self.start, self.step, self.start + max(0, self.count() - 1) * self.step):
                fitting(self.name, abs(n) if n is self.step else n, self.dtype)
        return self.dtype


class Linspace(Made):
    """`num` numbers at equal distances from `start` to `stop`, both included.

    ShapeError for ends that are not finite, DTypeError for bool.
    """

    start: int | float
    stop: int | float
    num: int
    dtype: DType

    def infer_shape(self) -> Shape:
        if not finite(self.start, self.stop):
            raise ShapeError(
                f"Linspace cannot divide the way from {self.start} to {self.stop}; both must "
                "be finite numbers"
            )
        return extents(self.name, as_shape(self.num, self.name))

    def infer_dtype(self) -> DType:
        if self.dtype == bool_:
            raise DTypeError("Linspace has no steps in bool; use an integer or a float dtype")
        if self.dtype in INTEGERS and self.num:
            self._needs_whole_numbers()
        return self.dtype

    def _needs_whole_numbers(self) -> None:
        """DTypeError unless every number is one of the integer dtype."""
        fitting(self.name, self.start, self.dtype)
        if self.num == 1:
            return
        fitting(self.name, self.stop, self.dtype)
        if (self.stop - self.start) % (self.num - 1):
            raise DTypeError(
                f"Linspace got {self.num} numbers from {self.start} to {self.stop}, which are not "
                f"all whole, for {self.dtype.name}; use a float dtype, then round and cast"
            )


class Eye(Made):
    """The matrix of `n` rows and `m` columns with ones on its diagonal and zeros elsewhere."""

    n: int
    m: int
    dtype: DType

    def infer_shape(self) -> Shape:
        return extents(self.name, (self.n, self.m))

    infer_dtype = rules.attribute("dtype")


@composition
def full(shape: int | Shape, value: Any, dtype: object = None) -> Tensor:
    """A tensor filled with `value`, by default of the value's own dtype.

    A float where an integer dtype is asked for must be whole and in its range, else DTypeError. A
    tensor for `value` is cast and broadcast to `shape`.
    """
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        filled = value if dtype is None else cast(value, dtype)
        return broadcast_to(filled, as_shape(shape, "Full"))
    kind = dtype_of(value) if dtype is None else as_dtype(dtype)
    number = value.item() if isinstance(value, np.generic) else value
    return Full(as_shape(shape, "Full"), fitting("Full", number, kind), kind)()


def zeros(shape: int | Shape, dtype: object = float) -> Tensor:
    """A tensor of zeros, float32 by default."""
    return full(shape, 0, dtype)


def ones(shape: int | Shape, dtype: object = float) -> Tensor:
    """A tensor of ones, float32 by default."""
    return full(shape, 1, dtype)


@composition
def full_like(x: Any, value: Any, dtype: object = None) -> Tensor:
    """A tensor filled with `value`, of x's shape, on x's device, of x's dtype by default."""
    return full(shape_of(x), value, dtype_of(x) if dtype is None else as_dtype(dtype))


def zeros_like(x: Any, dtype: object = None) -> Tensor:
    """Zeros of x's shape, on x's device, of x's dtype by default."""
    return full_like(x, 0, dtype)


def ones_like(x: Any, dtype: object = None) -> Tensor:
    """Ones of x's shape, on x's device, of x's dtype by default."""
    return full_like(x, 1, dtype)


@composition
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: object = None) -> Tensor:
    """start, start + step, ... up to `stop`, which is left out; arange(n) is 0, 1, ..., n - 1.

    A vector. By default int64 for whole numbers given as ints, else float32, computed in float64.
    """
    first, last = (0, start) if stop is None else (start, stop)
    first, last, step = (_item("arange", n) for n in (first, last, step))
    whole = all(isinstance(n, int) for n in (first, last, step))
    kind = as_dtype((int if whole else float) if dtype is None else dtype)
    return Arange(first, last, step, kind)()


def _item(name: str, value: Any) -> Any:
    """The number in a tensor or an array of one; other values as they are."""
    if not hasattr(value, "item"):
        return value
    if prod(value.shape) != 1:
        raise ShapeError(f"{name} got shape {value.shape} for a number; give one element of it")
    return value.item()


@composition
def linspace(start: float, stop: float, num: int = 50, dtype: object = float) -> Tensor:
    """`num` numbers at equal distances, from `start` to `stop`, both included; float32 by default.

    A vector (num,), computed in float64. DTypeError for an integer dtype unless all of them are
    whole.
    """
    first, last = (_item("linspace", n) for n in (start, stop))
    return Linspace(first, last, num, as_dtype(dtype))()


@composition
def eye(n: int, m: int | None = None, dtype: object = float) -> Tensor:
    """Ones on the diagonal of n rows and m (by default n) columns, zeros elsewhere; float32."""
    return Eye(n, n if m is None else m, as_dtype(dtype))()
