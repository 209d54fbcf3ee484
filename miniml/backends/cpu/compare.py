"""NumPy kernels of comparisons, logic and selection."""

from __future__ import annotations

import numpy as np

from ..kernel import Array
from .filing import ANY, file, same

_COMPARISONS = {
    "Equal": np.equal, "NotEqual": np.not_equal, "Less": np.less, "LessEqual": np.less_equal,
    "Greater": np.greater, "GreaterEqual": np.greater_equal,
}  # fmt: skip
_LOGIC = {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or, "LogicalXor": np.logical_xor}

for _name, _ufunc in _COMPARISONS.items():
    file(_name, _ufunc, *same(2, ANY, "?"))
for _name, _ufunc in _LOGIC.items():
    file(_name, _ufunc, "??->?", inplace=(0, 1))
file("LogicalNot", np.logical_not, "?->?", inplace=(0,))
for _name, _ufunc in {"IsNan": np.isnan, "IsInf": np.isinf, "IsFinite": np.isfinite}.items():
    file(_name, _ufunc, *same(1, ANY, "?"))


def select(cond: Array, x: Array, y: Array, *, out: Array) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=cond)


file("Select", select, *[f"?{c}{c}->{c}" for c in ANY])
