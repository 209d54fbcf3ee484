"""State on which compiled code depends: values in force for a block, and the epoch of changes.

A value is in force for exactly one `with` block of a thread or task. The epoch is replaced when
kernels, gradients, passes or cells change: what was compiled before may be stale then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from itertools import count
from threading import get_ident
from types import MethodType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")


class Scoped(Generic[T]):
    """A context variable whose values are in force for the blocks of `with variable.use(...)`.

    A signal's handler may run, and raise, between any two steps of a `with` statement, and before
    the first step of `__exit__`. So no code is relied on to end a block: a value is in force while
    the `with` statement holds its `__exit__`, which Python lets go of however the block is left.
    """

    def __init__(self, name: str):
        self.variable: ContextVar[Block[T] | None] = ContextVar(name, default=None)

    def get(self) -> T | None:
        """The value of the innermost block, None outside all."""
        block = self.variable.get()
        if block is not None and block.abandoned():
            block = self.block()
        return None if block is None else block.value

    def block(self) -> Block[T] | None:
        """The innermost block that has not been left."""
        block = self.variable.get()
        while block is not None and block.abandoned():
            block = block.outer
        return block

    def use(self, make: Callable[[], T]) -> Block[T]:
        """A block for one `with` statement, in which the value is what `make()` then gives."""
        return Block(self, make)


class _Exit:
    """`__exit__` of a block: a new object for each `with` statement, which alone holds it."""

    def __get__(self, block: Block[Any] | None, kind: type) -> Any:
        if block is None:
            return Block.leave
        leave = MethodType(Block.leave, block)
        if not block.entered:
            block.way_out = weakref.ref(leave)
        return leave


class Block(ContextDecorator, Generic[T]):
    """One block of a Scoped variable. It serves one `with`; as a decorator, one for each call."""

    __slots__ = ("scoped", "make", "value", "outer", "way_out", "entered", "ended", "thread")
    outer: Block[T] | None
    value: T

    def __init__(self, scoped: Scoped[T], make: Callable[[], T]):
        self.scoped, self.make = scoped, make
        self.way_out: weakref.ref[Any] | None = None
        self.entered = self.ended = False

    def __enter__(self) -> T:
        if self.entered:
            raise RuntimeError("this context has been used; make another for another `with`")
        if self.way_out is not None and self.way_out() is None:
            self.way_out = None  # entered by calling __enter__, and to be left by calling __exit__
        self.thread, self.outer = get_ident(), self.scoped.variable.get()
        if self.outer is not None:
            self.outer = self.scoped.block()
        self.value = self.make()
        self.entered = True
        self.scoped.variable.set(self)
        return self.value

    __exit__ = _Exit()

    def leave(self, *_: object) -> None:
        """End the block. A task started in it, which has a copy of its context, keeps the value."""
        self.scoped.variable.set(self.outer)
        self.ended = True

    def abandoned(self) -> bool:
        """True when an exception has left the block past its `__exit__`."""
        held = self.ended or self.way_out is None or self.way_out() is not None
        return not held and self.thread == get_ident()

    def _recreate_cm(self) -> Block[T]:
        return Block(self.scoped, self.make)


# --- The epoch ------------------------------------------------------------------------------------


class Epoch(NamedTuple):
    """The ticks at which something of each kind last changed."""

    kernels: int = 0
    bprops: int = 0
    passes: int = 0
    cells: int = 0


class _Changes:
    """Registrations and changed cells. now: the epoch, replaced after each change: a holder of the
    current one has missed nothing."""

    def __init__(self) -> None:
        self.now = Epoch()
        self._latest = self.now._asdict()
        self._ticks = count(1)

    def tick(self) -> int:
        """A number that is larger than all before: one call into C, so threads get different
        ones."""
        return next(self._ticks)

    def bump(self, kind: Literal["kernels", "bprops", "passes", "cells"]) -> None:
        """Note a change: what was compiled before may be stale now."""
        self._latest[kind] = self.tick()
        while self.now != (latest := Epoch(**self._latest)):  # racing threads: the last sees all
            self.now = latest


epoch = _Changes()
