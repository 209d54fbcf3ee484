"""Comparisons, logic and selection as scalar expressions."""

from __future__ import annotations

from ..typecodes import ANY, same
from .table import express

_COMPARISONS = {
    "Equal": "x == y", "NotEqual": "x != y", "Less": "x < y", "LessEqual": "x <= y",
    "Greater": "x > y", "GreaterEqual": "x >= y",
}  # fmt: skip
_LOGIC = {"LogicalAnd": "x & y", "LogicalOr": "x | y", "LogicalXor": "x != y"}
_KINDS = {"IsNan": "is_nan(x)", "IsInf": "is_inf(x)", "IsFinite": "x - x == x - x"}

for _name, _text in _COMPARISONS.items():
    express(_name, _text, *same(2, ANY, "?"), unit="compare")
for _name, _text in _LOGIC.items():
    express(_name, _text, "??->?", unit="logic")
express("LogicalNot", "!x", "?->?", unit="logic")
for _name, _text in _KINDS.items():
    express(_name, _text, *same(1, ANY, "?"), unit="compare")
for _c in ANY:
    express("Select", "cond ? x : y", f"?{_c}{_c}->{_c}", unit="select")
