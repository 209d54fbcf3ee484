"""Hints: errors about names that there are not, with what `compat` knows to write instead.

First packages that are not installed, and names that an object lacks; then the public names of a
package: what `dir` shows, what `import *` takes, and the names that stand elsewhere; spellings that
were replaced, which go on for a while; the classes that refuse keywords of other libraries; and
tracebacks as users see them, without miniml's own frames.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import numpy as np

from .abstract import typed
from .errors import ArityError, MinimlError, RetiredWarning, warn_user
from .options import brief
from .scope import own_files
from .settings import current

F = TypeVar("F", bound=Callable[..., Any])
_MINIML = __name__.partition(".")[0]
PACKAGES = {
    "miniml.ops": "ops",
    "miniml.nn": "nn",
    "miniml.grad": "miniml.grad",
    "miniml.optim": "optim",
    "miniml.nn.init": "nn.init",
    "miniml.data": "data",
    "miniml.train": "train",
    "miniml": "ml",
}


def optional(says: str, package: str, extra: str, module: str | None = None) -> Any:
    """A module of an optional package, of the same name by default; MinimlError, which says what
    needs it and how to install it, where it is not there."""
    try:
        return import_module(module or package)
    except ImportError:
        raise MinimlError(
            f"{says} {package}, which is not installed; pip install {package}, or pip install "
            f"'miniml[{extra}]'"
        ) from None


def unknown(owner: str, name: str, obj: object) -> AttributeError:
    """The AttributeError for a name that an object lacks, with the replacement, if one is known.

    owner: the full name of a package, or what an object is called.
    """
    hint = "" if name.startswith("_") else elsewhere(__name__, "hint_for")(name, owner)
    who = f"module {owner!r}" if owner in PACKAGES else owner
    would_do = f"; in miniml: {hint}" if hint else ""
    return AttributeError(f"{who} has no attribute {name!r}{would_do}", name=name, obj=obj)


# --- The public names of a package ----------------------------------------------------------------


_ELSEWHERE: dict[str, dict[str, str]] = {}  # by package and name: the module that has it


def stand_in(module: str, package: str, *names: str) -> None:
    """Let a package of miniml, such as "ops", or "" for miniml itself, show names that a module
    has which is imported when one of them is first used, as those of wings are."""
    known = _ELSEWHERE.setdefault(f"{_MINIML}.{package}".rstrip("."), {})
    known.update(dict.fromkeys(names, f"{_MINIML}.{module}"))


def elsewhere(package: str, name: str) -> Any:
    """The value that a package shows by this name and another module has."""
    return getattr(import_module(_ELSEWHERE[package][name]), name)


def names(
    namespace: Mapping[str, object], *modules: str
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """`__all__`, `__dir__` and `__getattr__` of a package: what it imports by name, these of its
    modules, and what stands elsewhere; a name that it lacks is refused with a hint.

    Names of Python's builtins, such as `sum`, are only in `__dir__`, so that `import *` shadows
    nothing.
    """
    imported = {
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    package = str(namespace["__name__"])
    away = _ELSEWHERE.get(package, {})
    shown = sorted(imported.union(modules, away))

    def found(name: str) -> Any:
        if name not in away:
            raise unknown(package, name, sys.modules[package])
        return vars(sys.modules[package]).setdefault(name, elsewhere(package, name))

    return [name for name in shown if not hasattr(builtins, name)], lambda: list(shown), found


class Uncallable(ModuleType):
    """A module that people call by mistake for the class or function in it."""

    _instead: str

    def __call__(self, *args: object, **options: object) -> NoReturn:
        raise TypeError(f"{self.__name__} {self._instead}")


def refuse_calls(module: str, instead: str) -> None:
    """Make calling the module a TypeError that names the class or function to call instead."""
    sys.modules[module].__class__ = Uncallable
    sys.modules[module]._instead = instead  # type: ignore[attr-defined]


# --- Retired spellings ----------------------------------------------------------------------------


RETIRED: list[Retired] = []  # every one that still works: docs/stability.md lists them


@dataclass(frozen=True)
class Retired:
    """A spelling that still works, and gives a RetiredWarning on the caller's line.

    old, new: as a call is written. since: the version that replaced it, as "0.2"; it works there
    and in the next version, and a test demands that it goes in the one after that. For names of
    keywords and places of arguments there are the decorators `renamed` and `by_keyword`; a
    function that was renamed stays as one that calls `warn` and the new one.
    """

    old: str
    new: str
    since: str

    def __post_init__(self) -> None:
        RETIRED.append(self)

    def warn(self) -> None:
        """Say what to write instead."""
        warn_user(
            RetiredWarning(
                f"{self.old} is {self.new} since miniml {self.since}; the old spelling works in "
                "that version and the next one"
            )
        )


def renamed(since: str, **new: str) -> Callable[[F], F]:
    """Decorator of a function whose keywords were renamed: the old ones, as `old="new"`, go on for
    two versions."""

    def decorate(fn: F) -> F:
        name = fn.__name__
        known = {
            old: Retired(f"{name}({old}=)", f"{name}({to}=)", since) for old, to in new.items()
        }

        @wraps(fn)
        def taking(*args: Any, **named: Any) -> Any:
            for old in known.keys() & named.keys():
                if new[old] in named:
                    raise ArityError(
                        f"{name} got {old}= and {new[old]}=, which is its name since miniml "
                        f"{since}; give that alone"
                    )
                known[old].warn()
                named[new[old]] = named.pop(old)
            return fn(*args, **named)

        return taking  # type: ignore[return-value]

    return decorate


def by_keyword(since: str, place: int, *names: str) -> Callable[[F], F]:
    """Decorator of a function whose arguments from `place` on, which had these names, have to be
    given by keyword: where a Python int stands at that place, they go on for two versions."""

    def decorate(fn: F) -> F:
        old = Retired(f"{fn.__name__}(data, 3)", f"{fn.__name__}(data, {names[0]}=3)", since)

        @wraps(fn)
        def taking(*args: Any, **named: Any) -> Any:
            if len(args) > place and type(args[place]) is int and names[0] not in named:
                old.warn()
                named |= zip(names, args[place:], strict=False)
                args = args[:place]
            return fn(*args, **named)

        return taking  # type: ignore[return-value]

    return decorate


# --- Arguments of classes -------------------------------------------------------------------------


class Constructor:
    """The parameters of a class's own `__init__`, for `help` and `inspect.signature`."""

    def __get__(self, cell: object, kind: Any) -> inspect.Signature:
        if cell is not None:  # a cell is called with what construct takes, a primitive with inputs
            raise AttributeError("__signature__")
        if kind.__init__ is object.__init__:
            return inspect.Signature()
        taken = inspect.signature(kind.__init__)
        return taken.replace(parameters=list(taken.parameters.values())[1:])


class Constructed:
    """Base of cells, optimizers and what else is made by keywords that have other names elsewhere.

    ArityError for arguments of a class without an `__init__` of its own, which would be lost, and
    for a keyword that its `__init__` does not take, with what to write in its place.
    """

    __signature__ = Constructor()

    if not TYPE_CHECKING:  # it would tell the checker that every class takes anything

        def __new__(cls, *args: Any, **named: Any) -> Self:
            if cls.__init__ is object.__init__:
                _refuse_all(cls, args, named)
            elif named:
                _refuse_unknown(cls, named)
            return super().__new__(cls)


def _refuse_all(kind: type, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if not (args or named):
        return
    name = kind.__name__
    got = ", ".join([*map(shown, args), *(_refused(k, v, ()) for k, v in named.items())])
    raise ArityError(
        f"{name} takes no arguments; got {got}; inputs go to the cell that it makes, as in "
        f"{name}()(x), and a class of your own takes what its __init__ names"
    )


def _refuse_unknown(kind: type, named: dict[str, Any]) -> None:
    takes = inspect.signature(kind).parameters
    surplus = [name for name in named if name not in takes]
    if not surplus or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return
    refused = ", ".join(_refused(name, named[name], takes) for name in surplus)
    raise ArityError(
        f"{kind.__name__} does not take {refused}; it takes "
        f"{', '.join(map(_written, takes.values())) or 'no arguments'}"
    )


def _refused(name: str, value: Any, takes: Collection[str]) -> str:
    """An argument that is not taken, with what to write in its place."""
    hint = elsewhere(__name__, "argument_hint")(name, takes)
    return f"{name}={shown(value)}" + (f" (in miniml: {hint})" if hint else "")


def _written(parameter: inspect.Parameter) -> str:
    """A parameter as a call shows it, without its type."""
    return str(parameter.replace(annotation=parameter.empty))


def shown(value: Any) -> str:
    """A short description of an argument."""
    if isinstance(value, np.ndarray) or hasattr(value, "asnumpy"):
        return f"{type(value).__name__} {typed(value)}"
    return brief(value)


# --- Tracebacks -----------------------------------------------------------------------------------


def hide_frames(error: BaseException) -> None:
    """Take miniml's own frames out of the traceback of an error, and of the errors it came from.

    For an error that miniml does not raise on purpose, the frames below the user's last one stay:
    they alone show what happened. `ml.context(full_tracebacks=True)` keeps every frame. For
    `except` clauses that raise again, so calls that succeed pay nothing. Habits from elsewhere are
    noted.
    """
    elsewhere(__name__, "note_habits")(error)
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
    for step in reversed(steps_of(trace)):
        if not own_files[step.tb_frame.f_code.co_filename]:
            all_of_them = True
        elif all_of_them:
            continue
        step.tb_next = kept
        kept = step
    return kept


def steps_of(trace: TracebackType | None) -> list[TracebackType]:
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
