"""Comparisons, logic and selection as scalar expressions."""

from __future__ import annotations

from ...typecodes import ANY, same
from ..text.registering import express

_COMPARISONS = {
    "Equal": "x == y", "NotEqual": "x != y", "Less": "x < y", "LessEqual": "x <= y",
    "Greater": "x > y", "GreaterEqual": "x >= y",
}  # fmt: skip
_LOGIC = {"LogicalAnd": "x && y", "LogicalOr": "x || y", "LogicalXor": "x != y"}
_KINDS = {"IsNan": "is_nan(x)", "IsInf": "is_inf(x)", "IsFinite": "!is_nan(x) && !is_inf(x)"}

for _name, _text in _COMPARISONS.items():
    express(_name, _text, *same(2, ANY, "?"), unit="compare")
for _name, _text in _LOGIC.items():
    express(_name, _text, "??->?", unit="logic", inplace=(0, 1))
express("LogicalNot", "!x", "?->?", unit="logic", inplace=(0,))
for _name, _text in _KINDS.items():
    express(_name, _text, *same(1, ANY, "?"), unit="compare")
express("Select", "cond ? x : y", *[f"?{c}{c}->{c}" for c in ANY], unit="select", inplace=(1, 2))
