"""Groups of calls that all happen or none, whatever signals arrive meanwhile."""

from __future__ import annotations

import threading

# The plain functions: those of `signal` convert everything to enums, which takes ten times as long.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import call
from signal import valid_signals
from types import BuiltinFunctionType, MethodWrapperType
from typing import Any

import numpy as np

consume = deque[object](maxlen=0).extend

_SIGNALS = tuple(sorted(map(int, valid_signals())))
_IN_C = (BuiltinFunctionType, MethodWrapperType, np.ufunc)


def is_native(thunk: object) -> bool:
    """True for a partial of a C function that calls no Python: handlers cannot run in it."""
    return isinstance(thunk, partial) and isinstance(thunk.func, _IN_C)


def at_once(thunks: Sequence[Callable[[], object]]) -> None:
    """Make all these calls; the caller guarantees that they do not fail.

    Signal handlers run between the bytecodes of Python. There are none inside one C call that makes
    all the others; if some of these run Python, handlers are held back instead.
    """
    if all(map(is_native, thunks)):
        consume(map(call, thunks))
    else:
        with uninterrupted():
            consume(map(call, thunks))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals wait until the block is done: their handlers run, in order, after it.

    Handlers in Python run in the main thread only; in others there is nothing to hold back.
    Afterwards the setting of `signal.siginterrupt` for a signal is back at its default.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    gate = _Gate()
    gate.close()
    try:
        yield
    finally:
        gate.open()


class _Gate:
    """Replaces every Python handler, and keeps the signals that arrive."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, Any], object]] = {}
        self._arrived: deque[tuple[Callable[[int, Any], object], int, Any]] = deque()
        self._closed = True

    def close(self) -> None:
        """Hold back the handlers of all signals that have one."""
        try:
            for number in _SIGNALS:
                handler = getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    set_handler(number, self._keep)
        except BaseException:  # raised by a handler that was not yet held back
            self.open()
            raise

    def _keep(self, number: int, frame: Any) -> None:
        if self._closed:
            self._arrived.append((self._handlers[number], number, frame))
        else:
            self._handlers[number](number, frame)

    def open(self) -> None:
        """Put every handler back, and call those of the signals that arrived, even if one of them
        raises."""
        try:
            for number, handler in self._handlers.items():
                if getsignal(number) == self._keep:  # unless somebody has set another one
                    set_handler(number, handler)
            self._closed = False
            while self._arrived:
                handler, number, frame = self._arrived.popleft()
                handler(number, frame)
        except BaseException:
            self.open()
            raise
