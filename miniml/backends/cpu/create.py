"""NumPy kernels of the tensors made from nothing."""

from __future__ import annotations

from typing import Any

from ..kernel import Array
from .filing import ANY, file


def full(*, shape: tuple[int, ...], value: Any, dtype: Any, out: Array) -> None:
    out.fill(value)


file("Full", full, *[f"->{c}" for c in ANY])
