"""Which parameters learn: freezing by patterns of their paths, and thawing what was frozen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from ..errors import AttributeRefusedError
from ..parameter import Parameter


def freeze(network: Any, patterns: tuple[str, ...]) -> None:
    """Take `requires_grad` from the parameters that match and note it at the cells that hold them;
    AttributeRefusedError for a pattern that none matches."""
    learning = [entry for entry in _matching(network, patterns) if entry[2].requires_grad]
    for cell, name, parameter in learning:  # one that is shared is noted under all its names
        parameter.requires_grad = False
        cell._note_frozen((*cell._frozen, name))


def unfreeze(network: Any, patterns: tuple[str, ...]) -> None:
    """Give `requires_grad` back to those that match and were frozen."""
    for cell, name, parameter in _matching(network, patterns):
        if name in cell._frozen:
            parameter.requires_grad = True
            cell._note_frozen(tuple(n for n in cell._frozen if n != name))


def _matching(network: Any, patterns: tuple[str, ...]) -> list[tuple[Any, str, Parameter]]:
    """The parameters at paths that match any of the patterns, with the cells that hold them."""
    held = {prefix + name: (cell, name, p) for prefix, cell, name, p in _held(network)}
    for pattern in patterns:
        if not _matched(held, pattern):
            raise AttributeRefusedError(
                f"{type(network).__name__} has no parameter or layer {pattern!r}; its parameters "
                f"are {', '.join(held)}; a pattern is a path, as '0.weight', '0' or '*.bias'"
            )
    chosen = {path for pattern in patterns or ("*",) for path in _matched(held, pattern)}
    return [entry for path, entry in held.items() if path in chosen]


def _matched(paths: Iterable[str], pattern: str) -> list[str]:
    return [p for p in paths if fnmatchcase(p, str(pattern)) or fnmatchcase(p, f"{pattern}.*")]


def _held(network: Any) -> Iterator[tuple[str, Any, str, Parameter]]:
    for prefix, cell in network._walk("", set()):
        for name, value in vars(cell).items():
            if isinstance(value, Parameter):
                yield prefix, cell, name, value
