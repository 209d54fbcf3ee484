"""Recording: a function runs on the values of the trace around it while its graph is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..arguments import arguments, as_they_are
from ..location import Location, user_location
from ..parameter import Parameter
from ..primitive import Primitive
from ..tensor import Tensor
from ..trace import Trace, use_trace
from .calls import ConstantTrace, record_call
from .forwarding import ForwardingTrace
from .ir import Var, interleave
from .recompute import record_recomputed
from .state import written
from .traced import TracedTensor, live

_var = attrgetter("var")


class Call:
    """One recorded call: what its bprop gets, and the Vars that its gradients go to and come from.

    given: the values of the inputs, const ones too; inputs: for each of them its Var, None where
    nothing is recorded. outs and outputs: the same of the outputs.
    """

    __slots__ = ("given", "inputs", "outputs", "outs", "primitive", "where")

    def __init__(
        self,
        primitive: Primitive,
        given: Sequence[Any],
        inputs: Sequence[Var | None],
        outs: tuple[Any, ...],
        outputs: tuple[Var, ...],
        where: Location | None,
    ):
        self.primitive, self.where = primitive, where
        self.given, self.inputs = given, inputs
        self.outs, self.outputs = outs, outputs


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
        self.calls: list[Call] = []
        self.versions: dict[int, TracedTensor] = {}  # by the id of the value in the parent

    def input(self, value: Tensor) -> TracedTensor:
        """A tensor to differentiate with respect to, standing for `value` of the parent."""
        return self._traced(self.value(value))

    def weight(self, parameter: Parameter) -> TracedTensor:
        """The tensor that stands for a parameter wherever this trace meets its present value."""
        value = self.parent.stand_in(parameter)
        self.versions[id(value)] = traced = self._traced(value)
        return traced

    def _traced(self, value: Tensor) -> TracedTensor:
        if isinstance(value, TracedTensor):
            return TracedTensor(Var(value._abstract), self, value.device, value)
        kind = value._kind
        return TracedTensor(Var(kind.abstract), self, kind.device, value)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        inputs, values = self.split(args)
        if not any(inputs):
            return self.parent.bind(primitive, args)
        pure = primitive.effect == "pure"
        if not primitive.differentiable:
            target = None if pure else written(primitive, args)
            return self.parent.bind(primitive, _writing(target, values))
        if pure and as_they_are(primitive, values):
            return self.keep(primitive, values, inputs, self.parent.bind(primitive, values))
        return self._converted(primitive, args)

    def _converted(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        """A call whose arguments become tensors first, or that writes to a parameter."""
        given = [self.stand_in(a) if isinstance(a, Parameter) else a for a in args]
        tensors, consts = arguments(primitive, given, self.bind)
        inputs, values = self.split(tensors)
        target = written(primitive, args)
        outer = interleave(primitive, _writing(target, values), consts)
        outs = self.parent.bind(primitive, outer)
        if target is not None:  # what it reads as from now on
            outs = (self.parent.stand_in(target), *outs[1:])
        recorded = interleave(primitive, inputs, dict.fromkeys(consts))
        results = self.keep(primitive, interleave(primitive, values, consts), recorded, outs)
        if target is not None:
            self.versions[id(outs[0])] = results[0]
        return results

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """For each value its Var, None where it is not recorded; and what it is in the parent."""
        inputs: list[Any] = []
        outer: list[Any] = []
        for value in values:
            known = self.stand_in(value) if isinstance(value, Parameter) else value
            if type(known) is not TracedTensor:
                inputs.append(None)
                outer.append(known)
            elif known.trace is self and not self.ended:
                inputs.append(known.var)
                outer.append(known.value)
            else:
                live(known)
                inputs.append(None)
                outer.append(known)
        return inputs, outer

    def keep(
        self,
        primitive: Primitive,
        given: Sequence[Any],
        inputs: Sequence[Var | None],
        outs: tuple[Any, ...],
    ) -> tuple[TracedTensor, ...]:
        """Record a call: the traced tensors of its outputs."""
        results = tuple(map(self._traced, outs))
        outputs = tuple(map(_var, results))
        where = user_location(primitive.name, passed=2)
        self.calls.append(Call(primitive, given, inputs, outs, outputs, where))
        return results

    def value(self, value: Any) -> Any:
        """What stands for a value in the parent trace; for a parameter, the value it has now."""
        if isinstance(value, TracedTensor):
            if value.trace is self and not self.ended:
                return value.value
            live(value)
            return value
        return self.parent.stand_in(value) if isinstance(value, Parameter) else value

    def call_with_bprop(
        self, name: str, fn: Callable[..., Any], bprop: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        return record_call(self, name, fn, bprop, args)

    def call_recomputed(
        self, name: str, fn: Callable[..., Any], pull: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        return record_recomputed(self, name, fn, pull, args)

    def records(self, value: Any) -> bool:
        """True for a tensor that this trace made."""
        return isinstance(value, TracedTensor) and value.trace is self

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


def _writing(target: Parameter | None, values: list[Any]) -> list[Any]:
    """The arguments of a call in the parent: the parameter itself where the call writes to it."""
    return values if target is None else [target, *values[1:]]
