"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from ... import ops
from ..operators import register_all

register_all((6, None), {"Tanh": ops.tanh})
register_all(
    (7, None),
    {"Sin": ops.sin, "Cos": ops.cos, "Tan": ops.tan,
     "Asin": ops.asin, "Acos": ops.acos, "Atan": ops.atan},
)  # fmt: skip
register_all(
    (9, None),
    {"Sinh": ops.sinh, "Cosh": ops.cosh, "Asinh": ops.asinh, "Acosh": ops.acosh,
     "Atanh": ops.atanh},
)  # fmt: skip
