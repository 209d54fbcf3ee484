"""Functions of numbers, element by element: arithmetic, powers, exponentials, rounding, casts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape
from ..dtype import INTEGERS, DType, as_dtype
from ..errors import DTypeError, ShapeError
from ..primitive import Primitive
from .inference.bases import (
    Binary,
    FloatBinary,
    FloatUnary,
    NumberBinary,
    NumberUnary,
    Unary,
    needs_number,
)

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Cast", "Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Atan2", "Maximum", "Minimum",
    "Neg", "Abs", "Sign", "Square", "Floor", "Ceil", "Round", "Trunc", "Clip",
    "Sqrt", "Rsqrt", "Reciprocal", "Exp", "Expm1", "Exp2", "Log", "Log1p", "Log2",
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh",
    "cast", "add", "sub", "mul", "div", "floor_div", "mod", "pow", "atan2", "maximum", "minimum",
    "neg", "abs", "sign", "square", "floor", "ceil", "round", "trunc", "clip",
    "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "exp2", "log", "log1p", "log2",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
]  # fmt: skip


class Cast(Primitive):
    """x in another dtype; anything non-zero is True.

    Floats become integers by truncation towards zero, the nearest end of the range outside it and
    0 for NaN, on every device. Integers that do not fit wrap.
    """

    dtype: DType

    def infer_shape(self, x: Shape) -> Shape:
        return x

    def infer_dtype(self, x: DType) -> DType:
        return self.dtype


def cast(x: Any, dtype: object) -> Tensor:
    """x in another dtype, given as a dtype, a name or a Python type (float means float32).

    >>> cast([2.7, -2.7, 300.0, float("nan")], "int8").tolist()
    [2, -2, 127, 0]
    """
    return Cast(as_dtype(dtype))(x)


class Add(Binary):
    """x + y; `or` for bools."""


class Sub(NumberBinary):
    """x - y; bools are refused."""


class Mul(Binary):
    """x * y; `and` for bools."""


class Div(FloatBinary):
    """x / y, true division: integers are cast to float32 first."""


class FloorDiv(NumberBinary):
    """floor(x / y), NumPy's and Python's; an integer divided by 0 gives 0 on the CPU.

    Piecewise constant, so no gradient passes.
    """

    differentiable = False


class Mod(NumberBinary):
    """x - floor(x / y) * y, which has the sign of y, as in NumPy and Python.

    An integer modulo 0 is 0 on the CPU, a float modulo 0 is NaN.
    """


class Pow(NumberBinary):
    """x to the power y, in the common dtype: integers give integers.

    A negative x to a y that is no whole number is NaN. Integers to negative integer powers are
    refused when it runs: cast x to a float first. The gradient with respect to y is 0 where
    x <= 0, where the logarithm does not exist.
    """


class Atan2(FloatBinary):
    """The angle of the point (y, x) in (-pi, pi]: the arctangent of x / y in its quadrant."""


class Maximum(Binary):
    """The larger of x and y; NaN where either is. At ties each gets half of the gradient."""


class Minimum(Binary):
    """The smaller of x and y; NaN where either is. At ties each gets half of the gradient."""


class Neg(NumberUnary):
    """-x; bools are refused."""


class Abs(Unary):
    """|x|; its gradient at 0 is 0."""


class Sign(NumberUnary):
    """-1, 0 or 1, as x is negative, zero or positive; NaN stays. No gradient passes."""

    differentiable = False


class Square(NumberUnary):
    """x * x."""


class Floor(Unary):
    """The largest integer <= x, in x's dtype. No gradient passes."""

    differentiable = False


class Ceil(Unary):
    """The smallest integer >= x, in x's dtype. No gradient passes."""

    differentiable = False


class Round(Unary):
    """The nearest integer, in x's dtype; halves go to the even one. No gradient passes."""

    differentiable = False


class Trunc(Unary):
    """x without its fraction, towards zero, in x's dtype. No gradient passes."""

    differentiable = False


class Clip(Unary):
    """min(max(x, min), max): x kept within [min, max]; a bound of None does not bind.

    The gradient passes where min <= x <= max, bounds included. DTypeError for a bound that x's
    dtype cannot hold, ShapeError for a bound that is no number.
    """

    min: Any = None
    max: Any = None

    def infer_dtype(self, x: DType) -> DType:
        needs_number(self.name, x)
        for name in ("min", "max"):
            bound = getattr(self, name)
            if bound is None:
                continue
            if not isinstance(bound, (int, float)):
                raise ShapeError(f"Clip got {name}={bound!r}; give a number, or use ops.maximum")
            _check_bound(x, name, bound)
        return x


def _check_bound(x: DType, name: str, bound: Any) -> None:
    if x not in INTEGERS:
        return
    info = np.iinfo(x)
    if isinstance(bound, float) or not info.min <= bound <= info.max:
        raise DTypeError(
            f"Clip got {name}={bound} for {x.name}, which cannot hold it; cast x to a wider dtype"
        )


def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """x kept within [min, max]; bounds are numbers, tensors that broadcast with x, or None."""
    bounds = (min, max)
    if all(b is None or isinstance(b, (int, float, np.generic)) for b in bounds):
        return Clip(min, max)(x)
    low = x if min is None else maximum(x, min)
    return low if max is None else minimum(low, max)


class Sqrt(FloatUnary):
    """The square root; NaN below 0."""


class Rsqrt(FloatUnary):
    """1 / sqrt(x)."""


class Reciprocal(FloatUnary):
    """1 / x."""


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


class Sin(FloatUnary):
    """sin x, x in radians."""


class Cos(FloatUnary):
    """cos x, x in radians."""


class Tan(FloatUnary):
    """tan x, x in radians."""


class Asin(FloatUnary):
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]."""


class Acos(FloatUnary):
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1]."""


class Atan(FloatUnary):
    """The angle in [-pi/2, pi/2] whose tangent is x."""


class Sinh(FloatUnary):
    """(exp(x) - exp(-x)) / 2."""


class Cosh(FloatUnary):
    """(exp(x) + exp(-x)) / 2."""


class Tanh(FloatUnary):
    """sinh(x) / cosh(x), in [-1, 1]."""


class Asinh(FloatUnary):
    """The inverse of sinh."""


class Acosh(FloatUnary):
    """The inverse of cosh, >= 0; NaN below 1."""


class Atanh(FloatUnary):
    """The inverse of tanh; NaN outside [-1, 1]."""


_pow, square = Pow(), Square()


def pow(x: Any, y: Any) -> Tensor:
    """x to the power y, in the common dtype; the Python exponent 2 makes it `square(x)`.

    (-2.0)^y is a number for whole y only, NaN for others. Integers give integers and refuse
    negative powers. The gradient with respect to y is 0 where x <= 0.
    """
    return square(x) if type(y) is int and y == 2 else _pow(x, y)


# fmt: off
add, sub, mul, div, floor_div, mod = Add(), Sub(), Mul(), Div(), FloorDiv(), Mod()
atan2, maximum, minimum = Atan2(), Maximum(), Minimum()
neg, abs, sign = Neg(), Abs(), Sign()
floor, ceil, round, trunc = Floor(), Ceil(), Round(), Trunc()
sqrt, rsqrt, reciprocal = Sqrt(), Rsqrt(), Reciprocal()
exp, expm1, exp2, log, log1p, log2 = Exp(), Expm1(), Exp2(), Log(), Log1p(), Log2()
sin, cos, tan, asin, acos, atan = Sin(), Cos(), Tan(), Asin(), Acos(), Atan()
sinh, cosh, tanh, asinh, acosh, atanh = Sinh(), Cosh(), Tanh(), Asinh(), Acosh(), Atanh()
# fmt: on
