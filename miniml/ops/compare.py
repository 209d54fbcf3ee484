"""Tests that give a bool for every element: comparisons, logic, kinds of floats; and selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import DType, bool_
from ..errors import DTypeError
from ..primitive import Primitive
from . import rules
from .inference.bases import Binary, Comparison, Unary

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
    "LogicalAnd", "LogicalOr", "LogicalXor", "LogicalNot", "IsNan", "IsInf", "IsFinite", "Select",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite",
    "select", "where",
]  # fmt: skip


class Equal(Comparison):
    """x == y; NaN equals nothing."""

    commutative = True


class NotEqual(Comparison):
    """x != y; NaN differs from everything."""

    commutative = True


class Less(Comparison):
    """x < y."""


class LessEqual(Comparison):
    """x <= y."""


class Greater(Comparison):
    """x > y."""


class GreaterEqual(Comparison):
    """x >= y."""


class Logical(Binary, abstract=True):
    """Two bool tensors, broadcast; other dtypes are refused."""

    commutative = True
    promote = False
    differentiable = False
    infer_dtype = rules.bools


class LogicalAnd(Logical):
    """True where both are."""


class LogicalOr(Logical):
    """True where at least one is."""


class LogicalXor(Logical):
    """True where exactly one is."""


class LogicalNot(Unary):
    """True where x is False; other dtypes than bool are refused."""

    differentiable = False
    infer_dtype = rules.bools


class FloatKind(Unary, abstract=True):
    """What kind of float each element is; integers and bools are finite."""

    differentiable = False
    infer_dtype = rules.always(bool_)


class IsNan(FloatKind):
    """True where x is not a number."""


class IsInf(FloatKind):
    """True where x is an infinity of either sign."""


class IsFinite(FloatKind):
    """True where x is neither NaN nor an infinity."""


class Select(Primitive):
    """x where cond is True, y where it is False; the three broadcast.

    cond: bool. x and y are promoted to their common dtype, which is the output's. The gradient of
    what was not selected is 0, even where that is NaN or infinite.
    """

    promote = ("x", "y")
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


# fmt: off
equal, not_equal, less, less_equal = Equal(), NotEqual(), Less(), LessEqual()
greater, greater_equal = Greater(), GreaterEqual()
logical_and, logical_or, logical_xor = LogicalAnd(), LogicalOr(), LogicalXor()
logical_not, isnan, isinf, isfinite = LogicalNot(), IsNan(), IsInf(), IsFinite()
select = where = Select()
# fmt: on
