"""Access to parameters: one section of code may write them, or many may read them.

Sections and the order of threads; forks, which wait until no other thread is inside a step; groups
of calls that all happen or none, whatever signals arrive meanwhile.
"""

from __future__ import annotations

import os
import threading
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from operator import call
from signal import valid_signals
from time import monotonic, sleep
from types import BuiltinFunctionType, MethodWrapperType
from typing import Any, TypeVar

import numpy as np

from .errors import InUseError

T = TypeVar("T")
_new = object.__new__

_PAUSE = 1e-4  # between two looks at a turn; only a section inside another one looks, so seldom
_FORK_PATIENCE = 10.0  # seconds; no step that ends by itself takes as long as this very often


class Access:
    """The parameters that a section of code writes, and those that it must see in one state.

    `access.run(fn, *args)` waits until no other thread writes any of them, nor reads what this
    section writes, and then calls fn. Sections that only read run at the same time. Turns are first
    come, first served, so no thread waits forever. In a thread that is already inside a section,
    that is, in a signal handler, reading is allowed, since parameters change all at once, at the
    end of a section; InUseError for writing what the enclosing section uses. who: the name in that
    message.
    """

    def __init__(
        self, who: str, writes: Iterable[Any] = (), reads: Iterable[Any] = (), forks: bool = False
    ):
        self.who, self.forks = who, forks
        self._written = written = tuple(writes)
        self.parameters = (*written, *reads)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is a section of the copied parameters, whose ids are others."""
        reads = self.parameters[len(self._written) :]
        return Access, (self.who, self._written, reads, self.forks)

    # Asked only where two sections meet.
    @cached_property
    def writes(self) -> frozenset[int]:
        """The ids of the parameters that it writes."""
        return frozenset(map(id, self._written))

    @cached_property
    def uses(self) -> frozenset[int]:
        """The ids of all its parameters."""
        return frozenset(map(id, self.parameters))

    def run(self, fn: Callable[..., T], *args: Any) -> T:
        """fn(*args), while no conflicting section uses the parameters."""
        over = allocate_lock()
        with over:  # in C, as is `pop`: no signal handler can leave a turn that never ends
            turn = _new(_Turn)  # without a frame of its own: draws and writes are short
            turn.access, turn.over, turn.thread, turn.part_of = self, over, get_ident(), None
            try:
                _turns[turn] = None
                if len(_turns) > 1:
                    turn.wait()
                return fn(*args)
            finally:
                _turns.pop(turn, None)

    def conflicts(self, other: Access) -> bool:
        """True when the two must not run at the same time in two threads."""
        if self.forks or other.forks:
            return bool(self.writes or other.writes)
        return not (self.writes.isdisjoint(other.uses) and other.writes.isdisjoint(self.uses))


class _Turn:
    """One run of a section. over: locked while it lasts. part_of: the turn it ends with."""

    __slots__ = ("access", "over", "thread", "part_of")

    def __init__(self, access: Access, over: Any, thread: int, part_of: _Turn | None = None):
        self.access, self.over, self.thread, self.part_of = access, over, thread, part_of

    @property
    def lasts(self) -> bool:
        """True until the section ends."""
        return (self.part_of or self) in _turns

    def wait(self) -> None:
        """Come back when all turns before this one that conflict are over."""
        around = _turns_of(self.thread, before=self)
        for turn in around:
            self._check_inside(turn)
        try:
            for earlier in list(_turns):
                if earlier is self:
                    break
                if earlier.thread != self.thread and self.access.conflicts(earlier.access):
                    _waits_for[self] = earlier
                    if around:
                        self._look_until_over(earlier)
                    else:
                        with earlier.over:
                            pass
        finally:
            _waits_for.pop(self, None)

    def _look_until_over(self, earlier: _Turn) -> None:
        """Wait for a turn that may itself be waiting for this thread.

        A turn that has not begun need not be waited for: it cannot begin before the section around
        this one is over. If it has begun, this is a deadlock.
        """
        until = monotonic() + _FORK_PATIENCE
        while earlier.lasts:
            if _blocked(earlier.thread, self.thread):
                if earlier in _waits_for or self.access.forks:
                    return
                self._refuse_deadlock(earlier)
            if self.access.forks and monotonic() > until:
                return
            sleep(_PAUSE)

    def _check_inside(self, around: _Turn) -> None:
        shared = self.access.writes & around.access.uses
        if shared:
            name = next(p.name for p in self.access.parameters if id(p) in shared)
            raise InUseError(
                f"{self.access.who} got parameter {name!r} to write while {around.access.who}, "
                "inside which it is called, uses it; in a signal handler set a flag, and act on "
                "it between steps"
            )

    def _refuse_deadlock(self, other: _Turn) -> None:
        raise InUseError(
            f"{self.access.who} waits for {other.access.who} of another thread, which waits for "
            "this one; use the parameters of both in the same order, or in one function"
        )


# In the order of arrival. Each use is one call into C and needs no lock: a handler that runs in
# between finds nothing half done. `list` and `copy`, unlike loops, allocate nothing on the way that
# could start the garbage collector and with it foreign code.
_turns: dict[_Turn, None] = {}
_waits_for: dict[_Turn, _Turn] = {}


def _turns_of(thread: int, before: _Turn | None = None) -> list[_Turn]:
    """The turns of a thread that are not over, outermost first; those that are over are dropped."""
    for turn in list(_turns):
        if not turn.lasts:
            _turns.pop(turn, None)
    return [t for t in list(_turns) if t.thread == thread and t is not before]


def inside_section() -> bool:
    """True in a thread that is inside a section, for which others may be waiting."""
    return bool(_turns) and bool(_turns_of(get_ident()))


def _blocked(thread: int, by: int) -> bool:
    """True when a thread waits for another one, directly or through others."""
    seen: set[int] = set()
    while thread not in seen:
        seen.add(thread)
        waits = _waits_for.copy().items()  # some for what is over, until their threads look again
        found = [other for turn, other in waits if turn.thread == thread and other.lasts]
        if not found:
            return False
        thread = found[-1].thread
        if thread == by:
            return True
    return False


def claim(parameter: Any) -> None:
    """Add a newly met parameter to those that this thread's section writes."""
    mine = _turns_of(get_ident())
    if mine and not any(id(parameter) in t.access.uses for t in mine):
        outer = mine[-1].part_of or mine[-1]
        turn = _Turn(Access(outer.access.who, (parameter,)), outer.over, outer.thread, outer)
        _turns[turn] = None
        turn.wait()


# --- Forks ----------------------------------------------------------------------------------------


_forking: list[_Turn] = []


def _before_fork() -> None:
    """Wait until no other thread is inside a step, so that the child sees whole ones."""
    turn = _Turn(Access("fork", forks=True), allocate_lock(), get_ident())
    turn.over.acquire()
    _forking.append(turn)
    _turns[turn] = None
    for earlier in list(_turns):
        if earlier.thread != turn.thread and turn.access.conflicts(earlier.access):
            turn._look_until_over(earlier)


def _forked() -> None:
    turn = _forking.pop()
    turn.over.release()
    _turns.pop(turn, None)


def _in_child() -> None:
    """Other threads do not exist here: the sections they were in will never end."""
    _forked()
    for turn in list(_turns):
        if turn.thread != get_ident():
            _turns.pop(turn, None)
            _waits_for.pop(turn, None)


at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)  # not on Windows
at_fork(before=_before_fork, after_in_parent=_forked, after_in_child=_in_child)


# --- Calls that no signal interrupts --------------------------------------------------------------


# The plain functions: those of `signal` convert everything to enums, which takes ten times as long.


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
def uninterrupted() -> Iterator[_Gate]:
    """Signals wait until the block is done: their handlers run, in order, after it.

    Handlers in Python run in the main thread only; in others there is nothing to hold back.
    Afterwards the setting of `signal.siginterrupt` for a signal is back at its default. What takes
    long stands in `with gate.lifted()`, inside which signals are heard.
    """
    gate = _Gate()
    if threading.current_thread() is not threading.main_thread():
        yield gate
        return
    gate.close()
    try:
        yield gate
    finally:
        gate.open()


class _Gate:
    """Replaces every Python handler, and keeps the signals that arrive."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, Any], object]] = {}
        self._arrived: deque[tuple[Callable[[int, Any], object], int, Any]] = deque()
        self._closed = False

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """A block inside that of `uninterrupted` in which signals do not wait."""
        if not self._closed:  # in another thread
            yield
            return
        self.open()
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Hold back the handlers of all signals that have one."""
        self._closed = True
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
        """Put every handler back and call those of the signals that arrived, even if one raises."""
        try:
            for number, handler in self._handlers.items():
                if getsignal(number) == self._keep:  # unless somebody has set another one
                    set_handler(number, handler)
            self._closed = False
            self._call_those_that_waited()
        except BaseException:
            self.open()
            raise

    def _call_those_that_waited(self) -> None:
        while self._arrived:
            handler, number, frame = self._arrived.popleft()
            handler(number, frame)
