"""FunctionCell: a cell that is one function of `ops`, with its options as attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, dataclass_transform, get_args

from ..core.errors import ArityError
from ..core.options import choice, flag, integer, number
from ..core.primitive import with_parameters
from .arguments import on_one_device
from .cell import Cell, differing

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
# By the annotation of an option.
CHECKS: dict[Any, Callable[[str, str, Any], Any]] = {float: number, int: integer, bool: flag}


@dataclass_transform()
class FunctionCell(Cell):
    """Base of cells that call one function: a subclass names it, as `of`, and annotates options.

    The constructor takes the options in this order, each a float, an int, a bool or one word of a
    Literal; `function(*inputs)` calls the function with the inputs and the options.
    """

    _options: ClassVar[dict[str, inspect.Parameter]] = {}
    _of: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, of: Callable[..., Any] | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            cls._of = staticmethod(of)
        own = inspect.get_annotations(cls, eval_str=True)
        cls._options = cls._options | {
            name: inspect.Parameter(name, _KIND, default=vars(cls)[name], annotation=kind)
            for name, kind in own.items()
            if not name.startswith("_")
        }
        if cls._options:
            set_up = with_parameters(_set_up, list(cls._options.values()))
            cls.__init__ = set_up  # type: ignore[method-assign]

    def function(self, *inputs: Any) -> Any:
        """The result of the function for these inputs, with this cell's options."""
        given = on_one_device(self, *inputs)
        if not self._options:
            return self._of(*given)
        return self._of(*given, **{name: getattr(self, name) for name in self._options})

    def describe(self) -> str:
        """The constructor call, without defaults."""
        return differing(self, {name: option.default for name, option in self._options.items()})


def _set_up(self: FunctionCell, *args: Any, **named: Any) -> None:
    """Set the options of the cell, checked; ArityError for arguments that are no options."""
    layer, options = type(self).__name__, self._options
    try:
        given = inspect.Signature(list(options.values())).bind(*args, **named)
    except TypeError as error:
        raise ArityError(
            f"{layer} takes {', '.join(map(str, options.values()))}: {error}; inputs go to the "
            f"cell that it makes, as in {layer}()(x)"
        ) from None
    given.apply_defaults()
    for name, value in given.arguments.items():
        kind = options[name].annotation
        words = get_args(kind)
        check = CHECKS.get(kind)
        checked = check(layer, name, value) if check else choice(layer, name, value, words)
        setattr(self, name, checked)
