"""Functions of numbers, element by element: arithmetic, powers, exponentials, comparisons, casts."""

from __future__ import annotations

from ..abstract import Shape
from ..dtype import DType, as_dtype
from ..primitive import Primitive
from .bases import Binary, Comparison, FloatUnary, Unary

__all__ = ["Add", "Cast", "Cos", "Exp", "Greater", "Mul", "Neg", "Sin", "Sub", "add", "cast", "cos", "exp", "greater", "mul", "neg", "sin", "sub"]  # fmt: skip


class Cast(Primitive):
    """x in another dtype. Floats to integers truncate towards zero; anything non-zero is True."""

    dtype: DType

    def infer_shape(self, x: Shape) -> Shape:
        return x

    def infer_dtype(self, x: DType) -> DType:
        return self.dtype


def cast(x: object, dtype: object) -> object:
    """x in another dtype, given as a dtype, a name or a Python type."""
    return Cast(as_dtype(dtype))(x)


class Add(Binary):
    """x + y."""


class Sub(Binary):
    """x - y."""


class Mul(Binary):
    """x * y."""


class Neg(Unary):
    """-x."""


class Sin(FloatUnary):
    """sin x, x in radians."""


class Cos(FloatUnary):
    """cos x, x in radians."""


class Exp(FloatUnary):
    """e to the x."""


class Greater(Comparison):
    """x > y."""


add = Add()
sub = Sub()
mul = Mul()
neg = Neg()
sin = Sin()
cos = Cos()
exp = Exp()
greater = Greater()
