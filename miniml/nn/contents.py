"""What the lists, dicts and sets among a cell's attributes hold, by value."""

from __future__ import annotations

from typing import Any

from ..attributes import Same, key

_PLAIN = (bool, int, float, str, bytes, type(None))


def changes_silently(value: Any) -> bool:
    """True for containers whose content may change without an assignment."""
    if isinstance(value, tuple):
        return any(map(changes_silently, value))
    return isinstance(value, (list, dict, set))


def contents(value: Any) -> object:
    """A key that tells contents apart: containers and numbers by value, all else by identity.

    As everywhere, 1, 1.0 and True differ; so does the order of a dict.
    """
    if isinstance(value, dict):
        return type(value), tuple((contents(k), contents(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(contents, value))
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(contents, value))
    return key(value) if isinstance(value, _PLAIN) else Same(value)


def holds(value: Any, kinds: tuple[type, ...]) -> bool:
    """True where a container holds an object of these kinds, however deep."""
    if not isinstance(value, (list, tuple, dict, set, frozenset)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return any(isinstance(v, kinds) or holds(v, kinds) for v in inside)
