"""How cells are constructed: their signature, and the refusal of arguments that none would take."""

from __future__ import annotations

import inspect
import reprlib
from typing import Any

import numpy as np

from ..abstract import typed
from ..errors import ArityError
from ..tensor import Tensor


class Constructor:
    """The parameters of a class's own `__init__`, for `help` and `inspect.signature`."""

    def __get__(self, cell: object, kind: Any) -> inspect.Signature:
        if cell is not None:  # a cell is called with what construct takes
            raise AttributeError("__signature__")
        if kind.__init__ is object.__init__:
            return inspect.Signature()
        taken = inspect.signature(kind.__init__)
        return taken.replace(parameters=list(taken.parameters.values())[1:])


def refuse_arguments(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """ArityError for arguments of a class without an `__init__` of its own, which would be lost."""
    if kind.__init__ is not object.__init__ or not (args or kwargs):
        return
    name = kind.__name__
    got = ", ".join([*map(shown, args), *(f"{k}={shown(v)}" for k, v in kwargs.items())])
    raise ArityError(
        f"{name} takes no arguments; got {got}; inputs go to the cell that it makes, as in "
        f"{name}()(x), and a class of your own takes what its __init__ names"
    )


def shown(value: Any) -> str:
    """A short description of an argument."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{type(value).__name__} {typed(value)}"
    return reprlib.repr(value)
