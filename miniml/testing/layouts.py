"""Memory layouts of arrays, by name: strides of every kind.

A layout is words joined by commas, as in "Fortran-ordered, reversed along axis 1". Axes that an
array does not have are ignored, so that a layout fits arrays of any rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from ..core.dtype import is_float
from .calls import Array, Arrays

CONTIGUOUS = "contiguous"
ORDERS = ("Fortran-ordered", "axes swapped")  # swapped: the first one and the last one
STEPS = ("reversed", "sliced", "broadcast")  # a negative stride, one twice as large, one of 0
WORDS = (CONTIGUOUS, *ORDERS, *STEPS, "offset")
USUAL = ("Fortran-ordered", "reversed", "sliced", "offset", "broadcast")
_OFFSET = 3
T = TypeVar("T")


def known(layout: str) -> bool:
    """True for the words of a layout."""
    return all(
        (not along and word in WORDS) or (word in STEPS and along.isdecimal())
        for word, along in map(_split, layout.split(", "))
    )


def _split(part: str) -> tuple[str, str]:
    word, _, along = part.partition(" along axis ")
    return word, along


class Choices:
    """The choices for one numbered call and a seed, equal on every machine."""

    def __init__(self, seed: int, number: int):
        self._rng = np.random.default_rng([seed, number])

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._rng.integers(n))

    def of(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]


def drawn(choose: Choices, ranks: Iterable[int]) -> tuple[str, ...]:
    """A random layout for each array of these ranks, now and then contiguous."""
    return tuple(_drawn(choose, rank) for rank in ranks)


def usual(count: int, shifts: int = len(USUAL)) -> Iterator[tuple[str, ...]]:
    """Usual layouts: each for that many arrays together, then, if there are several arrays,
    mixtures of layouts. shifts: 1 for no mixtures, more for more of them."""
    for shift in range(shifts if count > 1 else 1):
        for first in range(len(USUAL)):
            yield tuple(USUAL[(first + shift * i) % len(USUAL)] for i in range(count))


def _drawn(choose: Choices, rank: int) -> str:
    words = [choose.of(("", "", *ORDERS))] if rank > 1 else []
    for axis in range(rank):
        step = choose.of(("", *STEPS))
        words.append(f"{step} along axis {axis}" if step else "")
    words.append(choose.of(("", "offset")))
    return ", ".join(filter(None, words)) or CONTIGUOUS


def named(layouts: Sequence[str], what: str) -> str:
    """The name of arrays in these layouts: "reversed inputs", or each one by itself."""
    if len(set(layouts)) <= 1:
        return f"{next(iter(layouts), CONTIGUOUS)} {what}s"
    each = [f"{what} {i} {layout}" for i, layout in enumerate(layouts)]
    return f"{what}s laid out as: {'; '.join(each)};"


def simpler(layout: str) -> tuple[str, ...]:
    """Simpler layouts: with no words, then with one word less."""
    words = layout.split(", ")
    if layout == CONTIGUOUS:
        return ()
    fewer = [", ".join(words[:i] + words[i + 1 :]) for i in range(len(words))] * (len(words) > 1)
    return (CONTIGUOUS, *fewer)


def laid_out(arrays: Arrays, layouts: Sequence[str]) -> Arrays:
    """Each array in its layout; those beyond the last layout are contiguous."""
    rest = (CONTIGUOUS,) * (len(arrays) - len(layouts))
    return tuple(lay(a, layout) for a, layout in zip(arrays, (*layouts, *rest)))


def lay(a: Array, layout: str) -> Array:
    """The elements of an array in that layout.

    A contiguous one has memory of its own, the others are views. Where an axis is broadcast (axis 0
    if none is named), the first entry along it replaces all of them; integers, which may be indices
    that must differ, are not broadcast.
    """
    if layout == CONTIGUOUS:
        return np.array(a, order="C")
    order, steps, start = list(range(a.ndim)), [1] * a.ndim, 0
    for word, along in map(_split, layout.split(", ")):
        axes = [int(along)] if along else [0] if word == "broadcast" else list(range(a.ndim))
        axes = [axis for axis in axes if axis < a.ndim]
        if word == "Fortran-ordered":
            order.reverse()
        elif word == "axes swapped" and order:
            order[0], order[-1] = order[-1], order[0]
        elif word == "offset":
            start += _OFFSET
        elif word == "sliced":
            start += 1
        for axis in axes if word in STEPS else ():
            steps[axis] *= {"reversed": -1, "sliced": 2}.get(word, 0 if is_float(a.dtype) else 1)
    return _strided(a, order, steps, start)


def _strided(a: Array, order: Sequence[int], steps: Sequence[int], start: int) -> Array:
    """A view of new memory that holds the array's elements.

    order: the axes, those that vary slowest first. steps: from one element along an axis to the
    next, where 1 is dense, 0 the same element again. start: elements of memory before the first.
    """
    strides, span = [0] * a.ndim, 1
    for axis in reversed(order):
        strides[axis] = span * steps[axis]
        span *= max(abs(steps[axis]) * a.shape[axis], 1)
        start -= min(strides[axis], 0) * max(a.shape[axis] - 1, 0)
    memory = np.zeros((start + span) * a.itemsize, np.uint8)
    distinct = tuple(slice(1) if s == 0 else slice(None) for s in steps)
    steps_in_bytes = [s * a.itemsize for s in strides]
    view: Array = np.ndarray(a.shape, a.dtype, memory, start * a.itemsize, steps_in_bytes)
    view[distinct] = a[distinct]
    if 0 in steps:
        view.flags.writeable = False  # these elements alias each other, so the view is read-only
    return view
