"""Surroundings of a call: values in force for a block, the user's line, and the epoch of changes.

A value is in force for exactly one `with` block of a thread or task. The user's line is the first
frame outside miniml, shown with a caret under the call, or the line that is pinned while code runs
that was written elsewhere. The epoch is replaced when kernels, gradients, passes or cells change:
what was compiled before may be stale then.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from itertools import count, islice
from threading import get_ident
from types import CodeType, FrameType, MethodType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import optree

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


# --- The user's line ------------------------------------------------------------------------------


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OWN = (_PACKAGE, "<frozen", "<miniml ")
_LIBRARIES = (
    os.path.dirname(optree.__file__) + os.sep,
    contextlib.contextmanager.__code__.co_filename,
    functools.wraps.__code__.co_filename,
)


class Location:
    """One call in the user's source, an instruction of a code object: cheap to take, its line is
    found only when somebody asks.

    called: the primitive or cell that was called there, whatever passes put in its place; "" where
    that is not known. layer: while a network is traced, what made the call, such as "layer 0.dense
    (Dense)"; else "". gradient: True for calls that belong to the gradient of that call, whose name
    is `forward`.
    """

    __slots__ = ("called", "code", "forward", "gradient", "lasti", "layer")

    def __init__(
        self,
        code: CodeType,
        lasti: int,
        called: str = "",
        layer: str = "",
        gradient: bool = False,
        forward: str = "",
    ):
        self.code, self.lasti, self.called = code, lasti, called
        self.layer, self.gradient, self.forward = layer, gradient, forward

    @property
    def line(self) -> int:
        """Its number in the file."""
        return self._position()[0] or self.code.co_firstlineno

    def _position(self) -> tuple[int | None, int | None, int | None, int | None]:
        nowhere = None, None, None, None
        return next(islice(self.code.co_positions(), self.lasti // 2, None), nowhere)

    @property
    def file(self) -> str:
        """Its file; a cell of a notebook as the notebook counts it, as in "In[3]"."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        named = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)
        cell = named(self.code.co_filename)
        return str(cell[1]) if cell else self.code.co_filename

    @property
    def text(self) -> str:
        """The call itself, as it is written; "" where that is not known or several lines."""
        first, last, start, stop = self._position()
        if first is None or first != last:
            return ""
        return linecache.getline(self.code.co_filename, first).encode()[start:stop].decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def __reduce__(self) -> str | tuple[object, ...]:
        return _unpickled, (str(self),)

    def render(self) -> str:
        """The line as Python's own tracebacks show it, with carets under the call."""
        first, last, start, stop = self._position()  # once, since it goes through all before it
        line = first or self.code.co_firstlineno
        text = linecache.getline(self.code.co_filename, line).rstrip("\n")
        head = f'  File "{self.file}", line {line}, in {self.code.co_name}'
        if not text.strip():
            return head
        indent = len(text) - len(text.lstrip())
        shown = f"{head}\n    {text.strip()}"
        if not first or start is None or stop is None:
            return shown
        stop = stop if last == first else len(text)
        return f"{shown}\n    {' ' * (start - indent)}{'^' * max(1, stop - start)}"


def _unpickled(text: str) -> None:
    """Locations are dropped by pickling, since code objects cannot be pickled."""
    return


def is_own_file(name: str) -> bool:
    """True for miniml's own code, including compiled programs."""
    return name.startswith(_OWN)


class _Own(dict[str, bool]):
    """By name of a file: True for miniml's own and those of libraries that call back into it."""

    def __missing__(self, file: str) -> bool:
        own = self[file] = is_own_file(file) or file.startswith(_LIBRARIES)
        return own


own_files = _Own()


class Pin:
    """The place to which calls are attributed: a gradient's calls to its forward call."""

    __slots__ = ("where", "outer")
    where: Location | None

    def __init__(self) -> None:
        around = _pinned.get()
        self.where = self.outer = None if around is None else around.where

    def move(self, where: Location | None) -> None:
        """From now on at `where`; as around the block where that is None."""
        self.where = where or self.outer


_pinned: Scoped[Pin] = Scoped("miniml_location")
pin_block = _pinned.variable.get  # fast where nothing is pinned


def pinned() -> Block[Pin]:
    """Inside the block, every call is attributed to the place that its Pin says."""
    return _pinned.use(Pin)


class Layer(NamedTuple):
    """The layer of a traced call: a readable name, and the network in which it has that name."""

    name: str
    network: Any = None


layers: Scoped[Layer] = Scoped("miniml_layer")
layer_block = layers.variable.get


# Of a call its code object and instruction, its layer, and what a Location says of its gradient.
Place = tuple[CodeType | None, int, str, bool, str]
NOWHERE: Place = None, 0, "", False, ""


def user_place(passed: int = 0) -> Place:
    """The place of a call, of which a Location is `located`; `passed` as for `user_location`."""
    if pin_block() is not None and (at := _pin()) is not None:
        return at.code, at.lasti, at.layer, True, at.called or at.forward
    frame: FrameType | None = sys._getframe(1 + passed)
    while frame is not None and own_files[frame.f_code.co_filename]:
        frame = frame.f_back
    if frame is None:
        return NOWHERE
    layer = layers.get() if layer_block() is not None else None
    return frame.f_code, frame.f_lasti, layer.name if layer else "", False, ""


def located(place: Place, called: str) -> Location | None:
    """The place as a Location; None for NOWHERE."""
    code, lasti, layer, gradient, forward = place
    return None if code is None else Location(code, lasti, called, layer, gradient, forward)


def user_location(called: str = "", passed: int = 0) -> Location | None:
    """The innermost frame that is not miniml's own, or the pinned place; None if there is none.

    called: the name of what is called there. passed: how many frames from the caller's outwards
    are known to be miniml's; each that is looked at costs as much as the Location.
    """
    return located(user_place(passed + 1), called)


def _pin() -> Location | None:
    pin = _pinned.get() if pin_block() is not None else None
    return None if pin is None else pin.where


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
        """A number larger than all before: one call into C, so threads get different ones."""
        return next(self._ticks)

    def bump(self, kind: Literal["kernels", "bprops", "passes", "cells"]) -> None:
        """Note a change: what was compiled before may be stale now."""
        self._latest[kind] = self.tick()
        while self.now != (latest := Epoch(**self._latest)):  # racing threads: the last sees all
            self.now = latest


epoch = _Changes()
