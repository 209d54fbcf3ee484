"""Parameter, the one kind of tensor that can be updated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from . import public
from .backends.devices import get_device
from .errors import DTypeError, GraphError, ShapeError
from .tensor import Array, Tensor, host_array
from .trace import computes_at_once, current_trace, is_tracing
from .undo import write_all


class Parameter(Tensor):
    """A Tensor with a name and a buffer that `assign`, `set_data` and optimizers update in place.

    Shape, dtype and buffer never change. requires_grad: False keeps it out of
    `trainable_params`. The data are copied.
    """

    __slots__ = ("name", "requires_grad", "_buffer")
    UNNAMED: ClassVar[str] = "parameter"
    _instead_of_writing: ClassVar[str] = (
        "it changes as a whole: p.set_data(ops.scatter(p, index, value)), in construct ops.assign"
    )

    def __init__(
        self,
        data: Any,
        name: str = UNNAMED,
        requires_grad: bool = True,
        device: str | None = None,
    ):
        super().__init__(data, device=device)
        self.name, self.requires_grad = name, requires_grad

    def _seal(self) -> None:
        self._buffer = self._data
        self._data = self._buffer.view()
        self._data.setflags(write=False)

    def _host(self, operation: str) -> Array:
        """The data, if known: while a graph is traced they are not, since it reads them anew at
        each run."""
        traced = is_tracing() and operation != "repr"
        return (
            current_trace().stand_in(self)._host(operation) if traced else super()._host(operation)
        )

    def set_data(self, value: Any) -> None:
        """Overwrite the data; shape and dtype must be equal, else ShapeError or DTypeError.

        It is refused while a graph is traced, because it would not happen when the graph runs, and
        inside a step that runs op by op, as in the same step compiled.
        """
        if not computes_at_once():
            raise GraphError(
                f"Parameter {self.name!r} refuses set_data while a graph is traced, since it would "
                "happen once and not at each call; use ops.assign"
            )
        write_all("set_data", [(self, self.fitting(value))])

    def fitting(self, value: Any) -> Array:
        """The value as an array of this shape and dtype; ShapeError or DTypeError if it has
        others."""
        array = value._host("set_data") if isinstance(value, Tensor) else host_array(value, None)
        if array.shape != self.shape:
            raise ShapeError(
                f"Parameter {self.name!r} has shape {self.shape}; got {array.shape}; "
                "a parameter's shape never changes"
            )
        if not isinstance(value, (Tensor, np.ndarray)):
            array = array.astype(self.dtype)
        if array.dtype != self.dtype:
            raise DTypeError(
                f"Parameter {self.name!r} has dtype {self.dtype}; got {array.dtype}; cast it first"
            )
        return array

    def writing(self, array: Any) -> Callable[[], object]:
        """The call that overwrites the data, unchecked; see `undo.publish`."""
        if isinstance(self._buffer, np.ndarray):
            return partial(self._buffer.__setitem__, ..., array)
        return partial(get_device(self.device).copy_into, self._buffer, array)

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.asnumpy(), self.name, self.requires_grad, self.device)
        return _restore_parameter, (type(self), state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return type(self)(self.asnumpy(), self.name, self.requires_grad, self.device)

    def __repr__(self) -> str:
        return self._show("Parameter", f", name={self.name!r}")


def _restore_parameter(cls: type[Parameter], state: tuple[Any, ...]) -> Parameter:
    return cls(*state)


public.refuse_calls(__name__, "is a module; the class in it is ml.Parameter(data)")
