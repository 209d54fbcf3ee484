"""NumPy kernels of the tensors made from nothing but numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Array
from .filing import ANY, FLOAT, INT, file


def full(*, shape: tuple[int, ...], value: Any, dtype: Any, out: Array) -> None:
    out.fill(value)


def count(*, start: int, stop: int, step: int, dtype: Any, out: Array) -> None:
    np.copyto(out, np.arange(len(out)) * int(step) + int(start), casting="unsafe")


def arange(*, start: float, stop: float, step: float, dtype: Any, out: Array) -> None:
    np.copyto(out, np.arange(len(out)) * float(step) + float(start), casting="unsafe")


def eye(*, n: int, m: int, dtype: Any, out: Array) -> None:
    out.fill(0)
    out.reshape(-1)[: min(n, m) * (m + 1) : m + 1] = 1


def one_hot(indices: Array, *, depth: int, dtype: Any, out: Array) -> None:
    rows = out.reshape(indices.size, depth)
    flat = indices.reshape(-1)
    if depth <= 16:
        np.equal(flat[:, None], np.arange(depth), out=rows)
        return
    out.fill(0)
    inside = np.nonzero((flat >= 0) & (flat < depth))[0]
    rows[inside, flat[inside]] = 1


file("Full", full, *[f"->{c}" for c in ANY])
file("Arange", count, *[f"->{c}" for c in INT])
file("Arange", arange, *[f"->{c}" for c in FLOAT])
file("Eye", eye, *[f"->{c}" for c in ANY])
file("OneHot", one_hot, *[f"{i}->{c}" for i in INT for c in ANY])
