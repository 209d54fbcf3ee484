"""Hints: the names of PyTorch, JAX and MindSpore, and what to write here instead.

For every error about such a name; then the public names of a package: what `dir` shows, what
`import *` takes, and the error for a name that it lacks.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any, NoReturn

HINTS: dict[str, str] = {}  # names of other libraries, with what to write here: `learn` fills them
ARGUMENTS: dict[str, str] = {}  # their keywords
TUPLES: dict[str, str] = {}  # functions whose axes or extents are a tuple here
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


def learn(
    instead: Mapping[str, str], keywords: Mapping[str, str], tuples: Mapping[str, str]
) -> None:
    """Take tables of hints; the first two are keyed by what to write here, with the names that
    people look for, separated by blanks."""
    HINTS.update((name, hint) for hint, names in instead.items() for name in names.split())
    ARGUMENTS.update((name, hint) for hint, names in keywords.items() for name in names.split())
    TUPLES.update(tuples)


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
    class, what it is called here, also for one which an argument took the place of; for axes or
    extents one by one, that they are a tuple; for a function of another library that got a traced
    tensor, what does."""
    if isinstance(error, TypeError) and "TracedTensor" in str(error):
        note_hint(
            error,
            "functions of ops, as ops.tanh(x): a compiled function is traced, on "
            "tensors whose values are not known yet, so other libraries cannot take them",
        )
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


# --- The public names of a package ----------------------------------------------------------------


def names(
    namespace: Mapping[str, object], *modules: str
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], NoReturn]]:
    """`__all__`, `__dir__` and `__getattr__` of a package: what it imports by name, and these of
    its modules; a name that it lacks is refused with a hint.

    Names of Python's builtins, such as `sum`, are only in `__dir__`, so that `import *` shadows
    nothing.
    """
    imported = {
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    shown = sorted(imported.union(modules))
    package = str(namespace["__name__"])

    def missing(name: str) -> NoReturn:
        raise unknown(package, name, sys.modules[package])

    return [name for name in shown if not hasattr(builtins, name)], lambda: list(shown), missing


class Uncallable(ModuleType):
    """A module that people call by mistake for the class or function in it."""

    _instead: str

    def __call__(self, *args: object, **options: object) -> NoReturn:
        raise TypeError(f"{self.__name__} {self._instead}")


def refuse_calls(module: str, instead: str) -> None:
    """Make calling the module a TypeError that names the class or function to call instead."""
    sys.modules[module].__class__ = Uncallable
    sys.modules[module]._instead = instead  # type: ignore[attr-defined]
