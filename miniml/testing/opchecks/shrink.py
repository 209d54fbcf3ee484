"""From a call that shows a problem to the smallest one that still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from ...dtype import is_float
from ..budget import Stopwatch, lasting_until
from ..calls import Array, Arrays, Call
from ..layouts import simpler
from .checks.launches import refused_by_value

_SIMPLE = (1.0, 0.0, 2.0)
_FEW = 24


def smallest(call: Call, shows: Callable[[Call], bool], seconds: float) -> Call:
    """A call for which `shows` holds, made smaller as long as that is possible and time is left.

    Extents are cut, axes dropped, numbers replaced by 1, 0 and 2, layouts made contiguous. The
    samples of an OpInfo keep their numbers, because others may leave the domain.
    """
    watch, progress = Stopwatch(), True
    while progress:
        progress = False
        for candidate in chain(map(call.on, _smaller(call)), _plainer(call)):
            if watch.elapsed() > seconds:
                return call
            with lasting_until(lambda: watch.elapsed() > seconds):
                smaller = _valid(candidate) and shows(candidate)
            if smaller:
                call, progress = candidate, True
                break
    return call


def _valid(call: Call) -> bool:
    try:
        return bool(call.inferred) and not refused_by_value(call)
    except Exception:  # refused by the rules: not a smaller example of the same issue
        return False


def _smaller(call: Call) -> Iterator[Arrays]:
    arrays = call.arrays
    extents = sorted({n for a in arrays for n in a.shape}, reverse=True)
    for n in extents:
        for m in sorted({0, 1, 2, n // 2, n - 1}):
            if m < n and (m > 0 or n == 1):
                yield tuple(_cut(a, n, m) for a in arrays)
    for i, a in enumerate(arrays):
        for axis, n in enumerate(a.shape):
            for m in sorted({1, 2, n - 1}):
                if 0 < m < n:
                    yield (*arrays[:i], np.take(a, range(m), axis), *arrays[i + 1 :])
    if any(a.ndim for a in arrays):
        yield tuple(a[0] if a.ndim and a.shape[0] else a for a in arrays)
        yield tuple(a[..., 0] if a.ndim and a.shape[-1] else a for a in arrays)
        for i, a in enumerate(arrays):
            if a.ndim and a.shape[0]:
                yield (*arrays[:i], np.asarray(a[0]), *arrays[i + 1 :])
    if call.info is None:
        yield from _simpler(arrays)


def _plainer(call: Call) -> Iterator[Call]:
    """The call with one simpler layout."""
    if len(call.layouts) != 1:
        return
    (words,) = call.layouts
    for i, layout in enumerate(words):
        for other in simpler(layout):
            yield replace(call, layouts=((*words[:i], other, *words[i + 1 :]),))


def _cut(a: Array, n: int, m: int) -> Array:
    """The first m along every axis of extent n."""
    return np.array(a[tuple(slice(m) if k == n else slice(None) for k in a.shape)])


def _simpler(arrays: Arrays) -> Iterator[Arrays]:
    for i, a in enumerate(arrays):
        if not is_float(a.dtype) or not a.size:
            continue
        whole = np.ones(a.shape, a.dtype)
        if not np.array_equal(a, whole):
            yield (*arrays[:i], whole, *arrays[i + 1 :])
        for index in range(a.size) if a.size <= _FEW else ():
            was = float(a.reshape(-1)[index])
            for value in _SIMPLE[: _SIMPLE.index(was)] if was in _SIMPLE else _SIMPLE:
                changed = a.copy()
                changed.reshape(-1)[index] = value
                yield (*arrays[:i], changed, *arrays[i + 1 :])
