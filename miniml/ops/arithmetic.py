"""Arithmetic, rounding, bounds and casts, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtype import INTEGERS, DType, as_dtype, float32, is_float, promote
from ..errors import DTypeError, ShapeError
from ..primitive import Primitive
from . import rules
from .inference.bases import Binary, FloatBinary, FloatUnary, NumberBinary, NumberUnary, Unary
from .inference.shapes import dtype_of, needs_number, strong

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Cast", "Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Reciprocal", "Maximum", "Minimum",
    "Neg", "Abs", "Sign", "Square", "Floor", "Ceil", "Round", "Trunc", "Clip",
    "cast", "add", "sub", "mul", "div", "floor_div", "mod", "reciprocal", "maximum", "minimum",
    "neg", "abs", "sign", "square", "floor", "ceil", "round", "trunc", "clip",
]  # fmt: skip


class Cast(Primitive):
    """x in another dtype; anything non-zero is True.

    Floats become integers by truncation towards zero, the nearest end of the range outside it and
    0 for NaN, on every device. Integers that do not fit wrap.
    """

    dtype: DType
    infer_shape = rules.same
    infer_dtype = rules.attribute("dtype")


def cast(x: Any, dtype: object) -> Tensor:
    """x in another dtype, given as a dtype, a name or a Python type (float means float32).

    >>> cast([2.7, -2.7, 300.0, float("nan")], "int8").tolist()
    [2, -2, 127, 0]
    """
    return Cast(as_dtype(dtype))(x)


def as_float(x: Any) -> Any:
    """x itself, integers and bools as float32."""
    return as_floats(x)[0]


def as_floats(*xs: Any) -> list[Any]:
    """xs in the one float dtype that they have as inputs of a primitive whose `promote` is "float";
    for functions that call several with one or another of them."""
    given = strong(*xs)
    joined = promote(*map(dtype_of, given))
    kind = joined if is_float(joined) else float32
    return [x if dtype_of(x) == kind else cast(x, kind) for x in given]


class Add(Binary):
    """x + y; `or` for bools."""

    commutative = True


class Sub(NumberBinary):
    """x - y; bools are refused."""


class Mul(Binary):
    """x * y; `and` for bools."""

    commutative = True


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


class Maximum(Binary):
    """The larger of x and y; NaN where either is. At ties each gets half of the gradient."""

    commutative = True


class Minimum(Binary):
    """The smaller of x and y; NaN where either is. At ties each gets half of the gradient."""

    commutative = True


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


class Reciprocal(FloatUnary):
    """1 / x."""


# fmt: off
add, sub, mul, div, floor_div, mod = Add(), Sub(), Mul(), Div(), FloorDiv(), Mod()
reciprocal, maximum, minimum = Reciprocal(), Maximum(), Minimum()
neg, abs, sign, square = Neg(), Abs(), Sign(), Square()
floor, ceil, round, trunc = Floor(), Ceil(), Round(), Trunc()
# fmt: on
