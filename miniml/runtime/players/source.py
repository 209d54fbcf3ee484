"""Calls as source text, in which values that stay have names and others are expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple


class Varying(str):
    """Source text of a value that may differ at each call of the program."""


class SourceCall(NamedTuple):
    """A call in a line, on values that stay and Varying ones. stem: of the function's name in the
    source."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = {}
    stem: str = "f"

    @property
    def thunk(self) -> Callable[[], object] | None:
        """The call, to be made later; None if it differs at each call of the program."""
        if any(map(_varies, (*self.arguments, *self.keywords.values()))):
            return None
        return partial(self.function, *self.arguments, **self.keywords)


class NamedValues:
    """What the names in the source stand for: `values`, given to begin with, and what was named."""

    def __init__(self, values: dict[str, Any]):
        self.values = values
        self._named: dict[int, str] = {id(...): "...", id(None): "None"}

    def call(self, made: SourceCall, through: str = "") -> str:
        """The call as text; through: a function that is called with the function and its
        arguments."""
        given = [self.text(made.function, made.stem)] if through else []
        given += map(self.text, made.arguments)
        given += [f"{key}={self.text(value, 'a')}" for key, value in made.keywords.items()]
        return f"{through or self.text(made.function, made.stem)}({', '.join(given)})"

    def thunks(self, calls: Sequence[SourceCall]) -> str:
        """A tuple of the calls, to be made later; made once where none of them varies."""
        thunks = [c.thunk for c in calls]
        if None not in thunks:
            return self.text(tuple(thunks), "updates")
        made = zip(thunks, calls, strict=True)
        shown = [self.call(c, "partial") if t is None else self.text(t, "u") for t, c in made]
        return f"({', '.join(shown)},)"

    def text(self, value: Any, stem: str = "b") -> str:
        """The value as text: a name for it, unless it varies."""
        if isinstance(value, Varying):
            return value
        if _varies(value):
            return f"({', '.join(map(self.text, value))},)"
        if id(value) not in self._named:
            name = self._named[id(value)] = f"{stem}{len(self.values)}"
            self.values[name] = value  # which keeps it alive, so that no other value gets its id
        return self._named[id(value)]


def _varies(value: Any) -> bool:
    return type(value) is Varying or (type(value) is tuple and Varying in map(type, value))
