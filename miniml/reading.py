"""Reading: the value that a parameter had when it was read, whatever is written to it later."""

from __future__ import annotations

from typing import Any

from .abstract import Kind
from .parameter import Parameter
from .tensor import Array, Tensor
from .undo import reading_of, share

_LOOKS = ("repr", "bool", "int", "float", "item()", "index", "format", "asnumpy()", "tolist()")


class Reading(Tensor):
    """The value of a parameter at one moment, as a Tensor.

    It shares the parameter's memory until that is written to, and then gets a copy of its own
    (`undo.before_write`). While it shares memory, a view of it would change with the parameter:
    the eager trace copies such views, as it does for Parameters themselves.
    """

    __slots__ = ("parameter", "shares")

    def __init__(self, parameter: Parameter):
        data = self._data = parameter._data
        self._kind = Kind.of(Reading, data.shape, data.dtype, parameter.device)
        self.parameter = parameter  # kept alive, since readings are looked up by its id
        self.shares = True

    def own(self) -> None:
        """Copy the value into memory of its own, which nothing writes to."""
        if self.shares:
            self._data, self.shares = self._data.copy(), False
            self._seal()

    def _host(self, operation: str) -> Array:
        if operation not in _LOOKS:  # the array may outlive this call
            self.own()
        return super()._host(operation)


def read(parameter: Parameter) -> Tensor:
    """The value of the parameter now: the same Reading for as long as it is used and the
    parameter is not written to."""
    found: Any = reading_of(parameter)
    if found is None:
        found = Reading(parameter)
        share(parameter, found)
    return found  # type: ignore[no-any-return]
