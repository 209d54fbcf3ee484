"""The public names of a package: what `dir` shows, what `import *` takes, and the errors for
unknown names."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NoReturn

from .hints import unknown


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
