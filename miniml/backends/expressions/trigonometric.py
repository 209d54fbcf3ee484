"""Circular and hyperbolic functions and their inverses as scalar expressions."""

from __future__ import annotations

from ..typecodes import FLOAT, same
from .table import express

for _name in "Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh".split():
    express(_name, f"{_name.lower()}(x)", *same(1, FLOAT), unit="elementwise")
express("Atan2", "atan2(x, y)", *same(2, FLOAT), unit="elementwise")
