"""The OpenBLAS that NumPy has loaded: its products, and how many threads they take."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import threadpoolctl


class OpenBlas(NamedTuple):
    """Functions of the library: sgemm and dgemm of Fortran, the number of threads, and its
    setter."""

    sgemm: Callable[..., Any]
    dgemm: Callable[..., Any]
    threads: Callable[[], int]
    set_threads: Callable[[int], object]

    def addresses(self) -> tuple[int, ...]:
        """Where the functions are."""
        return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self)  # type: ignore[arg-type]


@cache
def openblas() -> OpenBlas | None:
    """The library, if NumPy's BLAS is one whose threads can be held back."""
    libraries = threadpoolctl.ThreadpoolController().lib_controllers
    paths = [c.filepath for c in libraries if c.internal_api == "openblas"]
    found = map(_functions, sorted(paths, key=lambda path: "numpy" not in path))
    return next(filter(None, found), None)


def _functions(path: str) -> OpenBlas | None:
    """The functions by the names that builds of OpenBLAS give them."""
    library = ctypes.PyDLL(path)  # loaded already; its setter returns at once, so it keeps the GIL
    for before in ("scipy_", ""):
        for after in ("64_", ""):
            names = [f"{before}{letter}gemm_{after}" for letter in "sd"]
            names += [f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                return OpenBlas(*[getattr(library, name) for name in names])
    return None
