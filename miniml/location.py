"""Where the user's own code stands: the first frame outside miniml, with a caret under the call."""

from __future__ import annotations

import linecache
import os
import sys
from itertools import islice
from types import CodeType, FrameType

from .scope import Block, Scoped

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_OWN = (_PACKAGE, "<frozen")
_LIBRARIES = ("importlib._bootstrap", "optree", "contextlib", "functools")


class Location:
    """One call in the user's source: cheap to take, rendered only when somebody asks."""

    __slots__ = ("code", "lasti", "line")

    def __init__(self, code: CodeType, lasti: int, line: int):
        self.code, self.lasti, self.line = code, lasti, line

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line}"

    def __reduce__(self) -> str | tuple[object, ...]:
        return _unpickled, (str(self),)

    def render(self) -> str:
        """The line as Python's own tracebacks show it, with carets under the call."""
        text = linecache.getline(self.code.co_filename, self.line).rstrip("\n")
        head = f'  File "{self.code.co_filename}", line {self.line}, in {self.code.co_name}'
        if not text.strip():
            return head
        indent = len(text) - len(text.lstrip())
        shown = f"{head}\n    {text.strip()}"
        first, last, start, stop = next(
            islice(self.code.co_positions(), self.lasti // 2, None), (None, None, None, None)
        )
        if first != self.line or start is None or stop is None:
            return shown
        stop = stop if last == first else len(text)
        return f"{shown}\n    {' ' * (start - indent)}{'^' * max(1, stop - start)}"


def _unpickled(text: str) -> None:
    """A location is not carried to another process: its code object cannot be."""
    return


def is_own(frame: FrameType) -> bool:
    """True for frames of miniml itself and of the libraries that call back into it."""
    return (
        frame.f_code.co_filename.startswith(_OWN)
        or frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES
    )


class Pin:
    """Where calls count as made: a gradient's at its forward call."""

    __slots__ = ("where", "outer")
    where: Location | None

    def __init__(self) -> None:
        around = _pinned.get()
        self.where = self.outer = None if around is None else around.where

    def move(self, where: Location | None) -> None:
        """From now on at `where`; as around the block where that is None."""
        self.where = where or self.outer


_pinned: Scoped[Pin] = Scoped("miniml_location")
_block = _pinned.variable.get  # quick where nothing is pinned


def pinned() -> Block[Pin]:
    """Inside the block, every call counts as made where its Pin says."""
    return _pinned.use(Pin)


def user_location() -> Location | None:
    """The innermost frame that is not miniml's own, or the pinned place; None if there is none."""
    pin = _pinned.get() if _block() is not None else None
    if pin is not None and pin.where is not None:
        return pin.where
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_OWN) or is_own(frame)):
        frame = frame.f_back
    if frame is None:
        return None
    return Location(frame.f_code, frame.f_lasti, frame.f_lineno)


def point_at(error: BaseException, where: Location | None, doing: str = "") -> None:
    """Add to `error` a note with the user's own line.

    One note is enough: the first that says what was done there (`doing`) stays, and takes the
    place of one that only shows a line.
    """
    bare = getattr(error, "_miniml_note", None)
    if where is None or bare == "" or (bare and not doing):
        return
    if bare:
        error.__notes__.remove(bare)
    note = f"{doing or 'refused'} at\n{where.render()}"
    error._miniml_note = "" if doing else note  # type: ignore[attr-defined]
    error.add_note(note)
