"""What names of PyTorch, JAX and MindSpore are called here, for every error about such a name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection
from typing import Any

from .elsewhere import INSTEAD, KEYWORDS, TUPLES

HINTS = {name: hint for hint, names in INSTEAD.items() for name in names.split()}

ARGUMENTS = {name: hint for hint, names in KEYWORDS.items() for name in names.split()}
_UNEXPECTED = re.compile(
    r"([\w.]+)\(\) got (?:an unexpected keyword|multiple values for) argument '(\w+)'"
)
_SURPLUS = re.compile(r"(\w+)\(\) takes .*positional arguments? but \d+ were given")

_PACKAGES = {
    "miniml.ops": "ops",
    "miniml.nn": "nn",
    "miniml.grad": "miniml.grad",
    "miniml.optim": "optim",
    "miniml.nn.init": "nn.init",
    "miniml.data": "data",
    "miniml.train": "train",
    "miniml": "ml",
}


def unknown(owner: str, name: str, obj: object) -> AttributeError:
    """The AttributeError for a name that an object lacks, with the replacement, if one is known.

    owner: the full name of a package, or what an object is called.
    """
    hint = "" if name.startswith("_") else hint_for(name, owner)
    who = f"module {owner!r}" if owner in _PACKAGES else owner
    would_do = f"; in miniml: {hint}" if hint else ""
    return AttributeError(f"{who} has no attribute {name!r}{would_do}", name=name, obj=obj)


def hint_for(name: str, owner: str = "miniml") -> str:
    """The equivalent here of what other libraries call `name`; "" where none is known."""
    return (
        HINTS.get(f"{owner}.{name}")
        or HINTS.get(name)
        or _same_name(name, owner)
        or _in_place(name, owner)
    )


def argument_hint(name: str, takes: Collection[str]) -> str:
    """What to write here for a keyword of another library, of what takes these; "" if unknown."""
    hint = ARGUMENTS.get(name, "")
    parameter, equals, _ = hint.partition("=")
    unknown = equals and parameter.isidentifier() and parameter not in takes
    return "" if unknown else hint


def note_argument(error: BaseException) -> None:
    """Add to Python's error for an unknown keyword of a public function, or of a method of a public
    class, what it is called here, also for one which an argument took the place of; and for axes
    or extents one by one, that they are a tuple."""
    surplus = _SURPLUS.match(str(error)) if isinstance(error, TypeError) else None
    if surplus is not None and surplus[1] in TUPLES:
        note_hint(error, TUPLES[surplus[1]])
    found = _UNEXPECTED.match(str(error)) if isinstance(error, TypeError) else None
    function = _function(found[1]) if found else None
    if found is None or function is None:
        return
    hint = argument_hint(found[2], inspect.signature(function).parameters)
    if hint:
        note_hint(error, hint)


def note_hint(error: BaseException, hint: str) -> None:
    """Add to an error what to write in miniml, once."""
    note = f"in miniml: {hint}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _function(qualified: str) -> Any:
    """A public function, or a method of a public class, by its name."""
    owner, _, method = qualified.rpartition(".")
    for package in _PACKAGES:
        found = getattr(sys.modules.get(package), "__dict__", {}).get(owner or method)
        if callable(found):
            return getattr(found, method, None) if owner else found
    return None


def _in_place(name: str, owner: str) -> str:
    """t.add_(y) is ops.add(t, y)."""
    found = hint_for(name[:-1], owner) if name.endswith("_") else ""
    return f"{found}, which gives a new tensor" if found else ""


def _same_name(name: str, owner: str) -> str:
    """The same public name in another package, or in this one with other capitalization."""
    for package, short in _PACKAGES.items():
        if name in dir(sys.modules.get(package)):
            value = getattr(sys.modules[package], name)
            if owner in _PACKAGES:
                return f"{short}.{name}"
            return "" if inspect.ismodule(value) else f"{short}.{name}{_arguments(value)}"
    for known in dir(sys.modules[owner]) if owner in _PACKAGES else ():
        if _letters(known) == _letters(name):
            return f"{_PACKAGES[owner]}.{known}"
    return ""


def _letters(name: str) -> str:
    """A name without what people write differently: hardtanh, hard_tanh and HardTanh."""
    return name.lower().replace("_", "")


def _arguments(function: Any) -> str:
    """The arguments without default, as a call shows them: those of a tensor `t` first."""
    if isinstance(function, type) or not callable(function):
        return ""
    takes = inspect.signature(function).parameters.values()
    names = [p.name for p in takes if p.default is p.empty]
    return f"({', '.join('t' if n == 'x' else n for n in names)})"
