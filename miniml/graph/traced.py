"""Traced tensors: stand-ins for tensors while a function is traced."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..abstract import Abstract, typed
from ..backends.device import Array
from ..dtype import DType
from ..errors import TracedValueError, TraceEndedError
from ..tensor import Tensor
from ..trace import use_trace
from .ir import Var

_INSTEAD = {
    "bool": "use ops.select or ops.where for a choice by element, ops.cond for a branch, "
    "ops.while_loop for a loop",
    "Parameter": "make parameters, and layers, which draw theirs, in __init__ and not in "
    "construct, where they would be new ones at each call",
    "set_data": "use ops.assign(parameter, value)",
    "index": "pass a Python int, or a Tensor to ops.gather",
}


class TracedTensor(Tensor):
    """A tensor inside a trace: typed, and without data of its own.

    `value` is its counterpart one trace further out, where that is known: the real tensor
    when a gradient is recorded eagerly.
    """

    __slots__ = ("var", "trace", "device", "value")
    _kind = None  # type: ignore[assignment]  # call plans are for real tensors

    def __init__(self, var: Var, trace: Any, device: str, value: Any = None):
        self.var, self.trace, self.value = var, trace, value
        self.device = device  # type: ignore[misc]  # a slot here, a property there

    @property
    def shape(self) -> tuple[int, ...]:
        return self.var.abstract.shape

    @property
    def dtype(self) -> DType:
        return self.var.abstract.dtype

    @property
    def _abstract(self) -> Abstract:
        known = self.var.abstract
        return known if known.value is None else Abstract(known.shape, known.dtype)

    def _host(self, operation: str) -> Array:
        live(self)
        if operation in ("repr", "bool", "int", "float", "item()", "index", "format"):
            if self.value is not None:
                self.trace.numbers_left |= operation in ("int", "float", "item()")
                with use_trace(self.trace.parent):  # the outer trace has its value
                    return self.value._host(operation)  # type: ignore[no-any-return]
        elif self.value is not None:
            instead = "use ops functions on it, or stop_gradient(t) to leave on purpose"
            raise TracedValueError(
                f"{operation} on a tensor under a gradient would lose the gradient; "
                f"{_INSTEAD.get(operation, instead)}"
            )
        what = typed(self)
        raise TracedValueError(
            f"{operation} on a traced tensor {what}: its value is not known while the graph is "
            f"traced; {_instead(operation)}"
        )

    def __repr__(self) -> str:
        if self.value is not None and not self.trace.ended:
            return f"Traced({self.value!r})"
        return f"Traced({typed(self)})"

    def to(self, device: str) -> Tensor:
        raise TracedValueError(f"a traced tensor stays on {self.device}; move the inputs instead")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TracedValueError("a traced tensor cannot be pickled; return it from the function")


def _instead(operation: str) -> str:
    """What to use in place of a value."""
    name = operation.removeprefix("np.")
    if name != operation and name in dir(ops):
        return f"use ops.{name}"
    return _INSTEAD.get(operation, "return it from the traced function, or use ops functions")


def live(tensor: TracedTensor) -> None:
    """TraceEndedError when the trace that made the tensor is over."""
    if tensor.trace.ended:
        raise TraceEndedError(
            f"a traced tensor {typed(tensor)} outlived its trace; return "
            "it from the traced function instead of storing it outside"
        )
