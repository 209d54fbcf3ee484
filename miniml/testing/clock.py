"""How long a check may take: checks inside a check end with it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_end: ContextVar[float] = ContextVar("miniml_testing_end", default=math.inf)


class TimeIsUpError(Exception):
    """Raised inside a check when its time is up; the check says what it has not looked at."""


@contextmanager
def ends_at(end: float) -> Iterator[None]:
    """Inside the block time is up at `end` of time.monotonic(), or earlier if a block around
    says so."""
    token = _end.set(min(end, _end.get()))
    try:
        yield
    finally:
        _end.reset(token)


def time_is_up() -> bool:
    """True when a block around this has ended in time."""
    return time.monotonic() > _end.get()


def go_on() -> None:
    """Raise TimeIsUpError when time is up."""
    if time_is_up():
        raise TimeIsUpError
