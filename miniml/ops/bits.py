"""Integers bit by bit: and, or, exclusive or, not, and shifts.

The operators `&`, `|`, `^` and `~` of tensors are these functions, which take bools too, as the
logical operators that they are there; `<<` and `>>` are the shifts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dtype import bool_
from . import rules
from .bases import INT, Binary, Unary
from .checks import dtype_of
from .elementwise import logical_and, logical_not, logical_or, logical_xor

if TYPE_CHECKING:
    from ..core.tensor import Tensor

__all__ = [
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "LeftShift", "RightShift",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift",
]  # fmt: skip


class Bits(Binary, abstract=True):
    """Two tensors of integers, broadcast and promoted; two bools are refused."""

    differentiable = False
    dtypes = INT
    infer_dtype = rules.integers


class BitwiseAnd(Bits):
    """The bits that are 1 in x and in y."""

    commutative = True
    numpy, expression, onnx = "bitwise_and", "x & y", ("BitwiseAnd", 18)


class BitwiseOr(Bits):
    """The bits that are 1 in x, in y or in both."""

    commutative = True
    numpy, expression, onnx = "bitwise_or", "x | y", ("BitwiseOr", 18)


class BitwiseXor(Bits):
    """The bits that are 1 in one of x and y."""

    commutative = True
    numpy, expression, onnx = "bitwise_xor", "x ^ y", ("BitwiseXor", 18)


class BitwiseNot(Unary):
    """The bits of x, 0 and 1 exchanged: -1 - x."""

    differentiable = False
    dtypes = INT
    infer_dtype = rules.integers
    numpy, expression, onnx = "bitwise_not", "T(~x)", ("BitwiseNot", 18)


class LeftShift(Bits):
    """x * 2^y without the bits that leave the dtype; 0 where y is negative or at least its width,
    as in NumPy."""

    numpy, expression = "left_shift", "shifted_left(x, y)"


class RightShift(Bits):
    """floor(x / 2^y); where y is negative or at least the dtype's width, as in NumPy, 0 or, of a
    negative x, -1."""

    numpy, expression = "right_shift", "shifted_right(x, y)"


_and, _or, _xor, _not = BitwiseAnd(), BitwiseOr(), BitwiseXor(), BitwiseNot()
_left, _right = LeftShift(), RightShift()


def bitwise_and(x: Any, y: Any) -> Tensor:
    """x & y, the bits that are 1 in both; of two bools `logical_and`.

    x and y broadcast and are promoted to one dtype. DTypeError for floats.

    >>> bitwise_and(12, [10, 5]).tolist()
    [8, 4]
    """
    return (logical_and if _bools(x, y) else _and)(x, y)


def bitwise_or(x: Any, y: Any) -> Tensor:
    """x | y, the bits that are 1 in at least one; of two bools `logical_or`.

    x and y broadcast and are promoted to one dtype. DTypeError for floats.
    """
    return (logical_or if _bools(x, y) else _or)(x, y)


def bitwise_xor(x: Any, y: Any) -> Tensor:
    """x ^ y, the bits that are 1 in exactly one; of two bools `logical_xor`.

    x and y broadcast and are promoted to one dtype. DTypeError for floats.
    """
    return (logical_xor if _bools(x, y) else _xor)(x, y)


def bitwise_not(x: Any) -> Tensor:
    """~x, the bits 0 and 1 exchanged, which is -1 - x; of bools `logical_not`.

    DTypeError for floats.

    >>> bitwise_not([0, 5, -1]).tolist(), bitwise_not([True, False]).tolist()
    ([-1, -6, 0], [False, True])
    """
    return (logical_not if dtype_of(x) == bool_ else _not)(x)


def left_shift(x: Any, y: Any) -> Tensor:
    """x << y, which is x * 2^y without the bits that leave the dtype.

    x and y, integers, broadcast and are promoted to one dtype. Where y is negative, or at least the
    number of bits of that dtype, the result is 0, as in NumPy. DTypeError for floats and two bools.

    >>> left_shift([1, 3], [4, 64]).tolist()
    [16, 0]
    """
    return _left(x, y)


def right_shift(x: Any, y: Any) -> Tensor:
    """x >> y, which is floor(x / 2^y): the sign of x is kept.

    x and y, integers, broadcast and are promoted to one dtype. Where y is negative, or at least the
    number of bits of that dtype, the result is 0, or -1 for a negative x, as in NumPy. DTypeError
    for floats and two bools.

    >>> right_shift([20, -20], [2, 64]).tolist()
    [5, -1]
    """
    return _right(x, y)


def _bools(x: Any, y: Any) -> bool:
    return dtype_of(x) == bool_ == dtype_of(y)
