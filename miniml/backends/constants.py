"""Memoized values of constant arrays, shared by all programs that hold the same array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import finalize

import numpy as np

T = TypeVar("T")
_made: dict[tuple[int, Callable[..., Any]], Any] = {}


def once(array: Any, make: Callable[[Any], T]) -> T:
    """`make(array)`, computed once for an array of NumPy or of a device and equal functions.

    The result is kept as long as the array, which must not change afterwards; `make` gets an array
    of NumPy as a read-only view.
    """
    key = id(array), make
    if key not in _made:
        made = make(_read_only(array) if isinstance(array, np.ndarray) else array)
        if _made.setdefault(key, made) is made:
            finalize(array, _made.pop, key, None).atexit = False
    found: T = _made[key]
    return found


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view
