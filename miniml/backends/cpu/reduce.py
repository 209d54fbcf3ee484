"""NumPy kernels of the reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Array
from .filing import INT, LOW, WIDE, file, in_float32


def sum(x: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    np.add.reduce(x, axis=axis, keepdims=keepdims, out=out, dtype=out.dtype)


file("Sum", sum, *[f"{c}->{c}" for c in WIDE], *[f"{c}->{'L' if c.isupper() else 'l'}" for c in "?" + INT])
file("Sum", in_float32(sum), *[f"{c}->{c}" for c in LOW])
