"""Constructed: classes that refuse the keywords of other libraries, with what to write instead."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .abstract import typed
from .errors import ArityError
from .hints import argument_hint
from .tensor import Tensor


class Constructor:
    """The parameters of a class's own `__init__`, for `help` and `inspect.signature`."""

    def __get__(self, cell: object, kind: Any) -> inspect.Signature:
        if cell is not None:  # a cell, for one, is called with what construct takes
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
    unknown = [name for name in named if name not in takes]
    if not unknown or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return
    refused = ", ".join(_refused(name, named[name], takes) for name in unknown)
    raise ArityError(
        f"{kind.__name__} does not take {refused}; it takes "
        f"{', '.join(map(_written, takes.values())) or 'no arguments'}"
    )


def _refused(name: str, value: Any, takes: Collection[str]) -> str:
    """An argument that is not taken, with what to write in its place."""
    hint = argument_hint(name, takes)
    return f"{name}={shown(value)}" + (f" (in miniml: {hint})" if hint else "")


def _written(parameter: inspect.Parameter) -> str:
    """A parameter as a call shows it, without its type."""
    return str(parameter.replace(annotation=parameter.empty))


def shown(value: Any) -> str:
    """A short description of an argument."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{type(value).__name__} {typed(value)}"
    return reprlib.repr(value)
