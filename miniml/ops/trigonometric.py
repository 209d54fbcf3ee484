"""Circular and hyperbolic functions and their inverses, element by element."""

from __future__ import annotations

from .inference.bases import FloatBinary, FloatUnary

__all__ = [
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Atan2",
    "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
]  # fmt: skip


class Atan2(FloatBinary):
    """The angle of the point (y, x) in (-pi, pi]: the arctangent of x / y in its quadrant."""


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


sin, cos, tan, asin, acos, atan, atan2 = Sin(), Cos(), Tan(), Asin(), Acos(), Atan(), Atan2()
sinh, cosh, tanh, asinh, acosh, atanh = Sinh(), Cosh(), Tanh(), Asinh(), Acosh(), Atanh()
