"""Recording: a function runs on the values of the trace around it while its graph is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..arguments import arguments
from ..location import user_location
from ..primitive import Primitive
from ..tensor import Parameter, Tensor
from ..trace import Trace, use_trace
from .calls import ConstantTrace, record_call
from .forwarding import ForwardingTrace
from .ir import Node, Var, interleave
from .state import written
from .traced import TracedTensor, live
from .tracer import as_tensor


class RecordTrace(ForwardingTrace):
    """The trace of one gradient: what depends on its inputs is recorded, all else passes by.

    Every call is also bound in the `parent` trace, so a traced tensor here carries its value
    there: a real one when the parent is eager, a traced one when gradients nest or compile. A
    parameter is recorded as the value that it has in the parent when it is read, so what is
    written to it later changes nothing.
    """

    differentiates = True

    def __init__(self, parent: Trace):
        super().__init__(parent)
        self.ended = False
        self.numbers_left = False  # as Python floats or ints, which carry no gradient
        self.nodes: list[Node] = []
        self.values: dict[Var, Any] = {}
        self.versions: dict[int, TracedTensor] = {}  # by the id of the value in the parent

    def input(self, value: Tensor) -> TracedTensor:
        """A tensor to differentiate with respect to, standing for `value` of the parent."""
        return self._traced(self.value(value))

    def weight(self, parameter: Parameter) -> TracedTensor:
        """The tensor that stands for a parameter wherever this trace meets its present value."""
        return self._version(self.parent.stand_in(parameter))

    def _version(self, value: Tensor) -> TracedTensor:
        """A value of a parameter, traced: `stand_in` finds it while the parameter has it."""
        self.versions[id(value)] = traced = self._traced(value)
        return traced

    def _traced(self, value: Tensor) -> TracedTensor:
        var = Var(value._abstract)
        self.values[var] = value
        return TracedTensor(var, self, value.device, value)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        given = [self.stand_in(a) if isinstance(a, Parameter) else a for a in args]
        if not [a for a in given if isinstance(a, TracedTensor) and a.trace is self]:
            return self.parent.bind(primitive, args)
        target = written(primitive, args)
        if not primitive.differentiable:
            return self.parent.bind(primitive, _writing(target, map(self.value, given)))
        tensors, consts = arguments(primitive, given, self.bind)
        outer = _writing(target, map(self.value, tensors))
        outs = self.parent.bind(primitive, interleave(primitive, outer, consts))
        results = list(map(self._traced, outs))
        if target is not None:
            results[0] = self._version(self.parent.stand_in(target))
        inputs, outputs = tuple(map(self._var, tensors)), tuple([r.var for r in results])
        where = user_location()
        self.nodes.append(Node(primitive, inputs, outputs, tuple(consts.items()), where))
        return tuple(results)

    def value(self, value: Any) -> Any:
        """What stands for a value in the parent trace; for a parameter, the value it has now."""
        if isinstance(value, TracedTensor):
            if value.trace is self and not self.ended:
                return value.value
            live(value)
            return value
        return self.parent.stand_in(value) if isinstance(value, Parameter) else value

    def _var(self, tensor: Tensor) -> Var:
        if isinstance(tensor, TracedTensor) and tensor.trace is self:
            return tensor.var
        var = Var(tensor._abstract)
        self.values[var] = self.value(tensor)
        return var

    def call_with_bprop(
        self, name: str, fn: Callable[..., Any], bprop: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        return record_call(self, name, fn, bprop, args)

    def records(self, value: Any) -> bool:
        """True for a tensor that this trace made."""
        return isinstance(value, TracedTensor) and value.trace is self

    def var(self, value: Any) -> Var:
        """The Var of a tensor or an array in the record."""
        return self._var(as_tensor(value))

    def known(self, value: Any) -> Any:
        """The value itself, or what it was recorded for, also after the trace has ended."""
        return value.value if self.records(value) else value

    def constant_in(self, parent: Trace) -> Trace:
        """The trace `parent`, in which nothing is recorded here and what was is constant."""
        return ConstantTrace(self, parent)

    def stand_in(self, parameter: Any) -> Any:
        value = self.parent.stand_in(parameter)
        return self.versions.get(id(value), value)

    def end(self) -> None:
        """No more calls: nothing but the recorded values stays alive, without waiting for gc."""
        self.ended = True
        self.versions.clear()  # traced tensors know their trace

    def record(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Run `fn(*args, **named)` inside this trace."""
        with use_trace(self):
            return fn(*args, **named)


def _writing(target: Parameter | None, values: Iterable[Any]) -> list[Any]:
    """The arguments of a call in the parent: the parameter itself where the call writes to it."""
    given = list(values)
    return given if target is None else [target, *given[1:]]
