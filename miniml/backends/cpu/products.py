"""Matrix products by NumPy's BLAS, which takes one thread unless the user asks for more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..kernel import Array
from ..openblas import openblas

# Multiplications up to which OpenBLAS takes one thread by itself: 2 ** 18 for two matrices, 10,000
# for two vectors.
MATRICES, VECTORS = 2**18, 2**13
# From here on (0.3 ms on one thread) it may take more, for users who say how many are theirs.
LARGE = 2**24
_threads: Callable[[], int] = int


def ask_threads(setting: Callable[[], int]) -> None:
    """Let `setting()` say how many threads the user wants a product to take; 0: nothing said."""
    global _threads
    _threads = setting


def matmul(x: Array, y: Array, out: Array, dtype: Any = None) -> None:
    """np.matmul(x, y, out, dtype=dtype), on one thread."""
    product = np.matmul if dtype is None else partial(np.matmul, dtype=dtype)
    limited(out.size * x.shape[-1], product, x, y, out)


def dot(x: Array, y: Array, out: Array | None = None) -> Any:
    """np.dot(x, y, out), on one thread."""
    return limited(max(x.size, y.size), np.dot, x, y, out)


def limited(work: int, product: Callable[..., Any], *args: Any) -> Any:
    """product(*args), which takes about `work` multiplications, with the BLAS on few threads for so
    long.

    OpenBLAS's threads spin while they wait for each other, so that a product takes a hundred times
    as long where another process has their core. Their number is one for the whole process:
    products in other threads of Python meanwhile are limited, too.
    """
    blas = openblas() if work > VECTORS else None
    before = 1 if blas is None else blas.threads()
    limit = 1 if work < LARGE else _threads() or 1
    if blas is None or before <= limit:
        return product(*args)
    blas.set_threads(limit)
    try:
        return product(*args)
    finally:
        blas.set_threads(before)
