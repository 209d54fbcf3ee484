"""Tracebacks as users see them: their own frames, without those of miniml in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from .errors import Location, MinimlError, is_own
from .hints import note_argument, note_hint
from .settings import current

F = TypeVar("F", bound=Callable[..., Any])
_SIZE = re.compile(r"\.size\([^()]*\)$")


def hide_frames(error: BaseException) -> None:
    """Take miniml's own frames out of the traceback of an error, and of the errors it came from.

    For an error that miniml does not raise on purpose, the frames below the user's last one stay:
    they alone show what happened. `ml.context(full_tracebacks=True)` keeps every frame. For
    `except` clauses that raise again, so calls that succeed pay nothing. Habits from elsewhere are
    noted.
    """
    note_habits(error)
    seen: set[int] = set()
    shown: BaseException | None = None if current().full_tracebacks else error
    while shown is not None and id(shown) not in seen:
        seen.add(id(shown))
        shown.__traceback__ = _without_own(shown.__traceback__, isinstance(shown, MinimlError))
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


def _without_own(trace: TracebackType | None, all_of_them: bool) -> TracebackType | None:
    """The traceback without miniml's frames; all_of_them False keeps those below the user's last
    frame."""
    kept: TracebackType | None = None
    for step in reversed(_steps(trace)):
        if not is_own(step.tb_frame):
            all_of_them = True
        elif all_of_them:
            continue
        step.tb_next = kept
        kept = step
    return kept


def _steps(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def hides_frames(fn: F) -> F:
    """Decorator: errors that leave the function show only the frames of its users."""

    @wraps(fn)
    def hiding(*args: Any, **named: Any) -> Any:
        try:
            return fn(*args, **named)
        except Exception as error:
            hide_frames(error)
            raise

    return hiding  # type: ignore[return-value]


def note_habits(error: BaseException) -> None:
    """Add to Python's own errors what to write: for a keyword of another library, and for a call
    of `size`."""
    note_argument(error)
    if isinstance(error, TypeError) and str(error) == "'int' object is not callable":
        trace = _steps(error.__traceback__)[-1:]
        if trace and _SIZE.search(Location(trace[0].tb_frame.f_code, trace[0].tb_lasti).text):
            note_hint(error, "t.shape, or t.shape[0]; t.size is the number of elements")
