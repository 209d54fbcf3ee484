"""Time limits of checks; a check inside another one ends with it at the latest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_PATIENCE = 4.0  # code that sleeps may take that many times its budget
_FRESH = 1e-3  # seconds for which a reading is good enough
_SCHEDULED = "/proc/thread-self/schedstat"  # Linux: nanoseconds run, nanoseconds waited, slices


def _never() -> bool:
    return False


_over: ContextVar[Callable[[], bool]] = ContextVar("miniml_testing_over", default=_never)


class Stopwatch:
    """Seconds since its construction: of the clock on an idle machine; on a busy one, of this
    process and of the compilers it starts, and a quarter of those in which it sleeps.

    So a check sees as much on a busy machine as on an idle one, and code that sleeps still ends.
    Where the system does not say how long others had the processors, that counts as sleep.
    """

    def __init__(self) -> None:
        self._clock, self._work, self._waited = time.monotonic(), _work(), _waited()
        self._read, self._elapsed = 0.0, 0.0

    def elapsed(self) -> float:
        """The seconds so far, as of the last millisecond."""
        clock = time.monotonic() - self._clock
        if clock - self._read > _FRESH:  # the system's counters cost more than the clock
            self._read, self._elapsed = clock, self._since(clock)
        return self._elapsed

    def _since(self, clock: float) -> float:
        work = _work() - self._work
        if work >= clock / _PATIENCE:
            return min(clock, work)
        alone = clock - (_waited() - self._waited)
        return max(work, min(alone, clock / _PATIENCE))

    def seconds(self) -> float:
        """The clock's seconds so far."""
        return time.monotonic() - self._clock


def _work() -> float:
    """Processor seconds of this process and of the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _waited() -> float:
    """Seconds in which this thread could have run and others had the processors; 0 if unknown."""
    try:
        return int(Path(_SCHEDULED).read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


class TimeIsUpError(BaseException):
    """Raised inside a check when its time is up; the check says what it has not examined.

    It is no Exception, so that what catches those of code under test does not take it for one.
    """


@contextmanager
def lasting_until(over: Callable[[], bool]) -> Iterator[None]:
    """Inside the block time is up when `over()` says so, or an enclosing block."""
    outer = _over.get()
    token = _over.set(lambda: over() or outer())
    try:
        yield
    finally:
        _over.reset(token)


@contextmanager
def lasting(seconds: float | None) -> Iterator[None]:
    """Inside the block time is up after that many seconds; None: when that of the enclosing block
    is."""
    watch = Stopwatch()
    with lasting_until(_never if seconds is None else lambda: watch.elapsed() > seconds):
        yield


def time_is_up() -> bool:
    """True when the time of this check, or of an enclosing one, is over."""
    return _over.get()()


def go_on() -> None:
    """Raise TimeIsUpError when time is up."""
    if time_is_up():
        raise TimeIsUpError
