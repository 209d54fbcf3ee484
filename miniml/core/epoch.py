"""Changes that make compiled things stale, registrations and changed cells, as one value."""

from __future__ import annotations

from itertools import count
from typing import Literal, NamedTuple


class Epoch(NamedTuple):
    """The ticks at which something of each kind last changed."""

    kernels: int = 0
    bprops: int = 0
    passes: int = 0
    cells: int = 0


now = Epoch()  # replaced after each change: a holder of the current one has missed nothing
_latest = now._asdict()
_ticks = count(1)


def tick() -> int:
    """A number that is larger than all before: one call into C, so threads get different ones."""
    return next(_ticks)


def bump(kind: Literal["kernels", "bprops", "passes", "cells"]) -> None:
    """Note a change: what was compiled before may be stale now."""
    global now
    _latest[kind] = tick()
    while now != (latest := Epoch(**_latest)):  # racing threads: the last sees all
        now = latest
