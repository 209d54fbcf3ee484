"""Time as a budget sees it: on a busy machine, mostly the time that this program was given."""

from __future__ import annotations

import os
import time

_PATIENCE = 4.0  # how many times longer than its own work a program may wait for its turn


class Stopwatch:
    """Seconds since it was made: of the clock where the machine is idle; where others have it, the
    time of this process and of the compilers it starts, but at least a quarter of the clock's.

    So a check sees as much on a busy machine as on an idle one, and what sleeps still ends.
    """

    def __init__(self) -> None:
        self._clock, self._work = time.monotonic(), _work()

    def elapsed(self) -> float:
        """The seconds so far."""
        clock = time.monotonic() - self._clock
        return min(clock, max(_work() - self._work, clock / _PATIENCE))

    def seconds(self) -> float:
        """The clock's seconds so far."""
        return time.monotonic() - self._clock


def _work() -> float:
    """Processor seconds of this process and of those it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
