"""Powers, roots, exponentials and logarithms as scalar expressions."""

from __future__ import annotations

from ..typecodes import FLOAT, INT, same
from .table import express

_OF_FLOATS = {
    "Sqrt": "sqrt(x)", "Rsqrt": "T(1) / sqrt(x)", "Exp": "exp(x)", "Expm1": "expm1(x)",
    "Exp2": "exp2(x)", "Log": "log(x)", "Log1p": "log1p(x)", "Log2": "log2(x)",
    "Log10": "log10(x)", "LGamma": "lgamma(x)", "Polygamma": "polygamma(x, T(n))",
}  # fmt: skip

for _name, _text in _OF_FLOATS.items():
    express(_name, _text, *same(1, FLOAT), unit="elementwise")
express("Pow", "pow(x, y)", *same(2, FLOAT), unit="elementwise")
express("Pow", "int_pow(x, y)", *same(2, INT), unit="elementwise")
