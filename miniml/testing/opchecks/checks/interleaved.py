"""Two threads in one Python function, in the worst order: one stops after every step."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_STOPS = 150
# Later versions lose instructions of functions that run in two threads (3.13), or crash (3.12).
_BY_INSTRUCTION = sys.version_info < (3, 12)
_PATIENCE = 0.1  # seconds after which the other thread is taken to wait for a lock
_SKIPPED = (os.path.dirname(np.__file__), str(Path(__file__).parents[2]))


def interleaved(run: Callable[[], T], other: Callable[[], Any]) -> T:
    """What run() gives when `other` runs, whole and in another thread, after each of its steps.

    The steps are the instructions (from Python 3.12 on, the lines) of Python functions that are
    neither NumPy's nor of this package, the first hundred or so: whatever two threads could do to
    each other between two of them happens, each time. Where the other thread has to wait, as for a
    lock, it is let be.
    """
    before = sys.gettrace()
    with ThreadPoolExecutor(1) as thread:
        stops = _Stops(lambda: thread.submit(other))
        sys.settrace(stops.called)
        try:
            return run()
        finally:
            sys.settrace(before)


class _Stops:
    """What the interpreter calls while it runs the first thread."""

    def __init__(self, start: Callable[[], Future[Any]]):
        self._start, self._left = start, _STOPS

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A function is called: stop in it, unless it is a library's."""
        if self._left <= 0 or frame.f_code.co_filename.startswith(_SKIPPED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = _BY_INSTRUCTION, not _BY_INSTRUCTION
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._left > 0:
            self._left -= 1
            started = self._start()
            if not wait([started], _PATIENCE).done:
                self._left = 0
        return self._stepped
