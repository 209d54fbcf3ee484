"""Marks: when each step of a program was done, for a profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...backends.cc.player import note_times
from ...backends.device import Array, Device
from ..steps import Step

# The clock that C's player reads; without an argument where that is the same, which takes less.
now: Callable[[], int] = (
    time.monotonic_ns
    if time.get_clock_info("monotonic").implementation == "clock_gettime(CLOCK_MONOTONIC)"
    else partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
)


class Marks:
    """times[0] is when the first step began, times[i + 1] when what steps[i] made was done, in
    nanoseconds; None for a step stands for what belongs to none.

    On a device each step is waited for.
    """

    def __init__(self, device: Device):
        self.steps: list[Step | None] = []
        self.times: Array = np.zeros(1, np.int64)
        self.clock = clock_of(device)
        self._runs: list[tuple[Any, int]] = []

    def add(self, step: Step | None) -> int:
        """The index of one more mark."""
        self.steps.append(step)
        return len(self.steps)

    def add_run(self, run: Any, made_by: Sequence[Step]) -> None:
        """The marks of a native run, one for each of its calls."""
        self._runs.append((run, len(self.steps) + 1))
        self.steps += made_by

    def finish(self) -> None:
        """No more marks: make room for all, and tell the native runs where."""
        self.times.resize(len(self.steps) + 1, refcheck=False)
        for run, first in self._runs:
            note_times(run, self.times[first:])


def clock_of(device: Device) -> Callable[[], int]:
    """The time at which all that was launched on the device is done."""
    if device.stream is None:
        return now

    def waited() -> int:
        device.stream.synchronize()
        return now()

    return waited
