"""Writes of parameters: several at once, with the old values kept to be read or restored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .access import Access
from .scope import Block, Scoped
from .uninterrupted import at_once


class UndoLog:
    """An undo log: old values of the parameters that were written to."""

    def __init__(self) -> None:
        self._old: dict[int, tuple[Any, Any]] = {}
        self._renewed: object = None

    def note(self, *parameters: Any) -> None:
        """Keep the values that the parameters have now, unless older ones are kept."""
        for parameter in parameters:
            if id(parameter) not in self._old:
                self._old[id(parameter)] = parameter, parameter._data.copy()

    def renew(self) -> None:
        """Keep the values that the noted parameters have now, in the memory of the older ones."""
        present = _last_write
        if self._renewed is present:  # what is kept are the values
            return
        for parameter, old in self.written():
            if isinstance(old, np.ndarray):
                np.copyto(old, parameter._data)
            else:
                self._old[id(parameter)] = parameter, parameter._data.copy()
        self._renewed = present

    def written(self) -> list[tuple[Any, Any]]:
        """The parameters noted, each with its old value."""
        return list(self._old.values())

    def restore(self, who: str = "undoing") -> None:
        """Give every parameter noted its old value, all at once. who: for errors."""
        write_all(who, self.written())


_log: Scoped[UndoLog] = Scoped("miniml_undo_log")
_block = _log.variable.get


def logged() -> Block[UndoLog]:
    """Inside the block every write of a parameter is logged, except those of compiled programs."""
    return _log.use(UndoLog)


def before_write(parameter: Any) -> None:
    """To be called before a parameter's data change: the old value is logged in all enclosing
    blocks."""
    keep_readings((parameter,))
    block = _log.block() if _block() is not None else None
    while block is not None:
        block.value.note(parameter)
        block = block.outer


_readings: WeakValueDictionary[int, Any] = WeakValueDictionary()


def reading_of(parameter: Any) -> Any:
    """The Reading that shares the parameter's present value, or None."""
    return _readings.get(id(parameter))


def share(parameter: Any, reading: Any) -> None:
    """Let `reading` share the parameter's memory: its `own` is called before that changes.

    It keeps the parameter alive, and is itself kept alive by its users alone.
    """
    _readings[id(parameter)] = reading


_last_write = object()  # another one whenever parameters change


def keep_readings(parameters: Iterable[Any]) -> None:
    """To be called before these parameters change: readings that share their memory get copies."""
    global _last_write
    _last_write = object()
    if _readings:
        for parameter in parameters:
            reading = _readings.get(id(parameter))
            if reading is not None:
                reading.own()
                _readings.pop(id(parameter), None)


def publish(values: Sequence[tuple[Any, Any]]) -> None:
    """Give parameters new data, all at once; inside a section that may write them.

    values: parameters with arrays of their device, or of NumPy, of the same shape and dtype.
    """
    for parameter, _ in values:
        before_write(parameter)
    at_once([parameter.writing(array) for parameter, array in values])


def write_all(who: str, values: Sequence[tuple[Any, Any]]) -> None:
    """`publish` as a section of its own: no other section sees some parameters new and others
    old."""
    Access(who, [parameter for parameter, _ in values]).run(publish, values)
