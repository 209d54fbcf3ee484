"""What parameters held before a block of code first wrote to them, so that it can be undone."""

from __future__ import annotations

from typing import Any

from .scope import Block, Scoped


class Log:
    """Old values of the parameters that were written to, whoever holds them."""

    def __init__(self) -> None:
        self._old: dict[int, tuple[Any, Any]] = {}

    def note(self, parameter: Any) -> None:
        """Keep the value that the parameter has now, unless an older one is kept."""
        if id(parameter) not in self._old:
            self._old[id(parameter)] = parameter, parameter._data.copy()

    def written(self) -> list[tuple[Any, Any]]:
        """The parameters noted, each with its old value."""
        return list(self._old.values())

    def restore(self) -> None:
        """Give every parameter noted its old value."""
        for parameter, value in self._old.values():
            parameter.set_data(value)


_log: Scoped[Log] = Scoped("miniml_undo_log")
_block = _log.variable.get


def logged() -> Block[Log]:
    """Inside the block every write of a parameter that is not a compiled program's is noted."""
    return _log.use(Log)


def before_write(parameter: Any) -> None:
    """To be called before a parameter's data change: what is old here is old in blocks around."""
    block = _log.block() if _block() is not None else None
    while block is not None:
        block.value.note(parameter)
        block = block.outer
