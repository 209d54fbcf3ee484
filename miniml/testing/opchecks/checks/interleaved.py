"""Two threads in one Python function, in the worst order: one is stopped after every step."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from ....backends import declare, device, kernel

T = TypeVar("T")
_STOPS = 150
# By instruction, later versions lose events of functions in two threads (3.13), or crash (3.12).
_BY_INSTRUCTION = sys.version_info < (3, 12)
_PATIENCE = 0.1  # seconds after which the other thread is assumed to wait for a lock
_SKIPPED = (
    os.path.dirname(np.__file__), str(Path(__file__).parents[2]),
    *(str(m.__file__) for m in (declare, device, kernel)),  # which call kernels
)  # fmt: skip


def interleaved(run: Callable[[], T], other: Callable[[], Any]) -> T:
    """The result of run() when `other` runs, from start to end in another thread, after each of its
    steps.

    The steps are the instructions (from Python 3.12 on, the lines) of Python functions, the first
    hundred or so, but for those of NumPy and of what calls a kernel here: so every conflict between
    two threads at such a point happens, each time. If the other thread has to wait, as for a lock,
    it is left alone.
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
    """The callbacks of the interpreter in the first thread."""

    def __init__(self, start: Callable[[], Future[Any]]):
        self._start, self._left = start, _STOPS

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A function is called: stop in it, unless it belongs to a library."""
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
