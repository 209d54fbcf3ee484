"""Comparisons, logic, selection and bits: a row each, as in `ops/elementwise.py`.

In order: comparisons, logical operations of bools, tests of floats and selection; integers bit by
bit. The operators `&`, `|`, `^` and `~` of tensors are functions of bits, which take bools too, as
the logical operators that they are there; `<<` and `>>` are the shifts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.abstract import DType, bool_
from ..core.errors import DTypeError
from ..core.primitive import Primitive
from ..core.signature import ANY, COMPLEX, INT
from . import rules
from .checks import Tensor, dtype_of
from .rules import Binary, Comparison, Unary

# A row is a paragraph.
# fmt: off
__all__ = [
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
    "LogicalAnd", "LogicalOr", "LogicalXor", "LogicalNot", "IsNan", "IsInf", "IsFinite", "Select",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite",
    "select", "where",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "LeftShift", "RightShift",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift",
]

# --- Comparisons and selection --------------------------------------------------------------------

def _pairs(codes: str) -> tuple[str, ...]:
    """The signatures of comparisons of two tensors of each of these dtypes."""
    return tuple(f"{c}{c}->?" for c in codes)

_COMPARED = _pairs(ANY + COMPLEX)

class Equal(Comparison):
    """x == y; NaN equals nothing."""
    commutative = takes_complex = True
    numpy, expression = {_COMPARED: "equal"}, {_COMPARED: "x == y"}

class NotEqual(Comparison):
    """x != y; NaN differs from everything."""
    commutative = takes_complex = True
    numpy, expression = {_COMPARED: "not_equal"}, {_COMPARED: "x != y"}

class Less(Comparison):
    """x < y."""
    numpy, expression = "less", "x < y"

class LessEqual(Comparison):
    """x <= y."""
    numpy, expression, onnx = "less_equal", "x <= y", ("LessOrEqual", 12)

class Greater(Comparison):
    """x > y."""
    numpy, expression = "greater", "x > y"

class GreaterEqual(Comparison):
    """x >= y."""
    numpy, expression, onnx = "greater_equal", "x >= y", ("GreaterOrEqual", 12)

class Logical(Binary, abstract=True):
    """Two bool tensors, broadcast; other dtypes are refused."""
    commutative = True
    promote = False
    differentiable = False
    dtypes = "?"
    infer_dtype = rules.bools

class LogicalAnd(Logical):
    """True where both are."""
    numpy, expression = "logical_and", "x & y"

class LogicalOr(Logical):
    """True where at least one is."""
    numpy, expression = "logical_or", "x | y"

class LogicalXor(Logical):
    """True where exactly one is."""
    numpy, expression = "logical_xor", "x != y"

class LogicalNot(Unary):
    """True where x is False; other dtypes than bool are refused."""
    differentiable = False
    dtypes = "?"
    infer_dtype = rules.bools
    numpy, expression, onnx = "logical_not", "!x", ("Not", 1)

_TESTED = tuple(f"{c}->?" for c in ANY + COMPLEX)

class FloatKind(Unary, abstract=True):
    """A test of the kind of float that each element is; integers and bools are finite, a complex
    number is where both parts are."""
    differentiable, takes_complex = False, True
    dtypes = tuple(f"{c}->?" for c in ANY)
    infer_dtype = rules.always(bool_)

class IsNan(FloatKind):
    """True where x is not a number."""
    numpy, expression, onnx = {_TESTED: "isnan"}, {_TESTED: "x != x"}, ("IsNaN", 9)

class IsInf(FloatKind):
    """True where x is an infinity of either sign."""
    numpy = {_TESTED: "isinf"}
    expression = {
        FloatKind.dtypes: "is_inf(x)", ("F->?", "D->?"): "is_inf(creal(x)) | is_inf(cimag(x))",
    }

class IsFinite(FloatKind):
    """True where x is neither NaN nor an infinity."""
    numpy, expression = {_TESTED: "isfinite"}, {_TESTED: "x - x == x - x"}

class Select(Primitive):
    """x where cond is True, y where it is False; the three broadcast.

    cond: bool. x and y are promoted to their common dtype, which is the output's. The gradient of
    elements that were not selected is 0, even where they are NaN or infinite. DTypeError for a cond
    that is not bool.
    """
    elementwise, linear, takes_complex = True, ("x y",), True
    promote = ("x", "y")
    dtypes = tuple(f"?{c}{c}->{c}" for c in ANY)
    _of_parts = "CMPLX(cond ? creal(x) : creal(y), cond ? cimag(x) : cimag(y))"
    expression, onnx = {dtypes: "cond ? x : y", ("?FF->F", "?DD->D"): _of_parts}, ("Where", 9)

    if TYPE_CHECKING:
        def __call__(self, cond: Any, x: Any, y: Any) -> Tensor: ...
    inputs = ("cond", "x", "y")
    infer_shape = rules.broadcast

    def infer_dtype(self, cond: DType, x: DType, y: DType) -> DType:
        if cond != bool_:
            raise DTypeError(
                f"Select needs a bool condition; got {cond.name}; compare first, as in cond != 0"
            )
        return x

    def bprop(self, cond: Any, x: Any, y: Any, out: Any, dout: Any) -> Any:
        return None, select(cond, dout, 0), select(cond, 0, dout)


equal, not_equal, less, less_equal = Equal(), NotEqual(), Less(), LessEqual()
greater, greater_equal = Greater(), GreaterEqual()
logical_and, logical_or, logical_xor = LogicalAnd(), LogicalOr(), LogicalXor()
logical_not, isnan, isinf, isfinite = LogicalNot(), IsNan(), IsInf(), IsFinite()
select = where = Select()


# --- Bits -----------------------------------------------------------------------------------------

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
# fmt: on


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
