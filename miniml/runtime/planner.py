"""Memory planning: lifetimes of buffers become offsets in one arena."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ALIGNMENT = 64
_EXACT_LIMIT = 2000


class Lifetime(NamedTuple):
    """A buffer of `nbytes`, written at step `start` and last read at step `end`."""

    nbytes: int
    start: int
    end: int


class Plan(NamedTuple):
    """Where each buffer lies; `size` bytes hold them all, of which `peak` are alive at once."""

    offsets: tuple[int, ...]
    size: int
    peak: int


def plan(lifetimes: Sequence[Lifetime]) -> Plan:
    """Offsets for buffers such that no two that are alive together overlap.

    Two greedy orders: by time with the best-fitting hole, and, where that leaves
    holes and there are few enough buffers, by size, largest first (Pisarchyk and Lee 2020,
    "Efficient memory management for deep neural net inference"). The smaller arena is taken.
    """
    sized = [Lifetime(rounded(b.nbytes), b.start, b.end) for b in lifetimes]
    peak = peak_bytes(sized)
    best = Plan(*_by_time(sized), peak)
    if best.size > peak and len(sized) <= _EXACT_LIMIT:
        other = Plan(*_by_size(sized), peak)
        best = min(best, other, key=lambda p: p.size)
    return best


def rounded(nbytes: int) -> int:
    """The bytes a buffer takes in the arena."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def peak_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """The largest sum of bytes alive at one step: no arena can be smaller."""
    change: dict[int, int] = {}
    for nbytes, start, end in lifetimes:
        change[start] = change.get(start, 0) + nbytes
        change[end + 1] = change.get(end + 1, 0) - nbytes
    alive = peak = 0
    for step in sorted(change):
        alive += change[step]
        peak = max(peak, alive)
    return peak


def _by_time(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    offsets = [0] * len(lifetimes)
    free = _FreeList()
    ending = sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].end)
    freed = 0
    for i in sorted(
        range(len(lifetimes)), key=lambda i: (lifetimes[i].start, -lifetimes[i].nbytes)
    ):
        while lifetimes[ending[freed]].end < lifetimes[i].start:
            done = ending[freed]
            free.give_back(offsets[done], lifetimes[done].nbytes)
            freed += 1
        offsets[i] = free.take(lifetimes[i].nbytes)
    return tuple(offsets), free.top


class _FreeList:
    """The free stretches below `top`: (start, size), in order, no two of them adjacent."""

    def __init__(self) -> None:
        self.top = 0
        self._free: list[tuple[int, int]] = []

    def take(self, nbytes: int) -> int:
        """The start of a stretch of that size: in the smallest one that fits, else at the top."""
        if not nbytes:
            return 0
        fitting = [(size, start) for start, size in self._free if size >= nbytes]
        if fitting:
            size, start = min(fitting)
            self._free.remove((start, size))
            self.give_back(start + nbytes, size - nbytes)
            return start
        below = bool(self._free) and sum(self._free[-1]) == self.top
        start = self._free.pop()[0] if below else self.top  # one below the top grows with it
        self.top = start + nbytes
        return start

    def give_back(self, start: int, nbytes: int) -> None:
        """Free a stretch, joined with those beside it."""
        if not nbytes:
            return
        i = bisect_left(self._free, (start, 0))
        if i < len(self._free) and self._free[i][0] == start + nbytes:
            nbytes += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == start:
            i -= 1
            start, before = self._free.pop(i)
            nbytes += before
        self._free.insert(i, (start, nbytes))


def _by_size(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].start))
    nbytes, start, end = np.array([lifetimes[i] for i in order], np.int64).reshape(-1, 3).T
    at = np.zeros(len(order), np.int64)
    for i in range(len(order)):
        beside = np.flatnonzero((start[:i] <= end[i]) & (start[i] <= end[:i]))
        beside = beside[np.argsort(at[beside])]
        # From the top of all that lie lower to the next one there may be a hole.
        tops = np.maximum.accumulate(np.append(0, at[beside] + nbytes[beside]))
        holes = np.flatnonzero(at[beside] - tops[:-1] >= nbytes[i])
        at[i] = tops[holes[0] if holes.size else -1]
    offsets = dict(zip(order, at.tolist(), strict=True))
    return tuple(offsets[i] for i in range(len(order))), int((at + nbytes).max(initial=0))
