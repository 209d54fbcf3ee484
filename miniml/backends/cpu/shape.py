"""NumPy kernels of the shape operations; most are views."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Array
from .filing import LOW, WIDE, file, file_view, in_float32, same


def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, shape)


def sum_to(x: Array, *, shape: tuple[int, ...], out: Array) -> None:
    lead = x.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1
    )
    np.add.reduce(x, axis=axes, out=out.reshape([n for i, n in enumerate(x.shape) if i not in axes]))


file_view("BroadcastTo", broadcast_to)
file("SumTo", sum_to, *same(1, WIDE))
file("SumTo", in_float32(sum_to), *same(1, LOW))
