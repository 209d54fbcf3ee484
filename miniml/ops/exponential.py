"""Powers, roots, exponentials and logarithms, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arithmetic import square
from .inference.bases import FloatUnary, NumberBinary

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Pow", "Sqrt", "Rsqrt", "Exp", "Expm1", "Exp2", "Log", "Log1p", "Log2",
    "pow", "sqrt", "rsqrt", "exp", "expm1", "exp2", "log", "log1p", "log2",
]  # fmt: skip


class Pow(NumberBinary):
    """x to the power y, in the common dtype: integers give integers.

    A negative x to the power of a y that is not a whole number is NaN. Integers to negative integer
    powers are refused when it runs: cast x to a float first. The gradient with respect to y is 0
    where x <= 0, where the logarithm does not exist.
    """


class Sqrt(FloatUnary):
    """The square root; NaN below 0."""


class Rsqrt(FloatUnary):
    """1 / sqrt(x)."""


class Exp(FloatUnary):
    """e to the x."""


class Expm1(FloatUnary):
    """exp(x) - 1, accurate near 0."""


class Exp2(FloatUnary):
    """2 to the x."""


class Log(FloatUnary):
    """The natural logarithm; -inf at 0, NaN below."""


class Log1p(FloatUnary):
    """log(1 + x), accurate near 0."""


class Log2(FloatUnary):
    """The logarithm to base 2."""


sqrt, rsqrt = Sqrt(), Rsqrt()
exp, expm1, exp2, log, log1p, log2 = Exp(), Expm1(), Exp2(), Log(), Log1p(), Log2()
_pow = Pow()


def pow(x: Any, y: Any) -> Tensor:
    """x to the power y, in the common dtype; the Python exponent 2 makes it `square(x)`.

    (-2.0)^y is a number for whole y only, NaN for others. Integers give integers and refuse
    negative powers. The gradient with respect to y is 0 where x <= 0.
    """
    return square(x) if type(y) is int and y == 2 else _pow(x, y)
