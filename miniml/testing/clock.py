"""How long a check may take: checks inside a check end with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def _never() -> bool:
    return False


_over: ContextVar[Callable[[], bool]] = ContextVar("miniml_testing_over", default=_never)


class TimeIsUpError(Exception):
    """Raised inside a check when its time is up; the check says what it has not looked at."""


@contextmanager
def lasting_until(over: Callable[[], bool]) -> Iterator[None]:
    """Inside the block time is up when `over()` says so, or a block around."""
    outer = _over.get()
    token = _over.set(lambda: over() or outer())
    try:
        yield
    finally:
        _over.reset(token)


@contextmanager
def lasting(seconds: float | None) -> Iterator[None]:
    """Inside the block time is up after that many seconds; None: whenever it is up around."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    with lasting_until(lambda: time.monotonic() > end):
        yield


def time_is_up() -> bool:
    """True when the time of this check, or of one around it, is over."""
    return _over.get()()


def go_on() -> None:
    """Raise TimeIsUpError when time is up."""
    if time_is_up():
        raise TimeIsUpError
