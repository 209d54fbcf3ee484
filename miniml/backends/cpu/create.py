"""NumPy kernels that create tensors from numbers alone."""

from __future__ import annotations

from math import isinf
from typing import Any

import numpy as np

from ..kernel import Array
from ..registry import register
from ..signature import ANY, FLOAT, HELD, INT


def full(*, shape: tuple[int, ...], value: Any, dtype: Any, out: Array) -> None:
    out.fill(value)


def count(*, start: int, stop: int, step: int, dtype: Any, out: Array) -> None:
    counted = np.arange(len(out), dtype=np.uint64) * np.uint64(int(step) % 2**64)
    np.copyto(out, counted + np.uint64(int(start) % 2**64), casting="unsafe")


def arange(*, start: float, stop: float, step: float, dtype: Any, out: Array) -> None:
    np.copyto(out, np.arange(len(out)) * float(step) + float(start), casting="unsafe")


def steps(*, start: int, stop: int, num: int, dtype: Any, out: Array) -> None:
    step = (int(stop) - int(start)) // max(num - 1, 1)
    count(start=start, stop=stop, step=step, dtype=dtype, out=out)


def linspace(*, start: float, stop: float, num: int, dtype: Any, out: Array) -> None:
    scale = 2.0 if isinf(float(stop) - float(start)) else 1.0  # by halves, which cannot overflow
    np.copyto(out, np.linspace(start / scale, stop / scale, num) * scale, casting="unsafe")


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


register("Full", full, *[f"->{c}" for c in HELD])
register("Arange", count, *[f"->{c}" for c in INT])
register("Arange", arange, *[f"->{c}" for c in FLOAT])
register("Linspace", steps, *[f"->{c}" for c in INT])
register("Linspace", linspace, *[f"->{c}" for c in FLOAT])
register("Eye", eye, *[f"->{c}" for c in HELD])
register("OneHot", one_hot, *[f"{i}->{c}" for i in INT for c in ANY])
