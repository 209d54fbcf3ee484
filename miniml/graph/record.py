"""Recording: a function runs on the values of the trace around it while its graph is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..abstract import Abstract
from ..arguments import arguments
from ..location import user_location
from ..primitive import Primitive
from ..tensor import Parameter, Tensor
from ..trace import Trace, use_trace
from .calls import ConstantTrace, record_call
from .ir import Graph, Node, Var, interleave
from .replay import replay
from .traced import TracedTensor, live
from .tracer import as_tensor, trace_body


class RecordTrace:
    """The trace of one gradient: what depends on its inputs is recorded, all else passes by.

    Every call is also bound in the `parent` trace, so a traced tensor here carries its value
    there: a real one when the parent is eager, a traced one when gradients nest or compile.
    """

    differentiates = True

    def __init__(self, parent: Trace):
        self.parent, self.ended = parent, False
        self.numbers_left = False  # as Python floats or ints, which carry no gradient
        self.nodes: list[Node] = []
        self.values: dict[Var, Any] = {}
        self.versions: dict[int, TracedTensor] = {}

    def input(self, value: Tensor) -> TracedTensor:
        """A tensor to differentiate with respect to, standing for `value` of the parent."""
        return self._traced(value)

    def weight(self, parameter: Parameter) -> TracedTensor:
        """The tensor that stands for a parameter wherever this trace meets it."""
        self.versions[id(parameter)] = traced = self._traced(parameter)
        return traced

    def _traced(self, value: Tensor) -> TracedTensor:
        var = Var(Abstract(value.shape, value.dtype))
        self.values[var] = value
        return TracedTensor(var, self, value.device, value)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = args[0] if args and isinstance(args[0], Parameter) else None
        args = [self.versions.get(id(a), a) if isinstance(a, Parameter) else a for a in args]
        if not any(isinstance(a, TracedTensor) and a.trace is self for a in args):
            return self.parent.bind(primitive, args)
        if not primitive.differentiable:
            return self.parent.bind(primitive, [self.value(a) for a in args])
        tensors, consts = arguments(primitive, args, self.bind)
        outer = [self.value(t) for t in tensors]
        if target is not None and primitive.effect == "state":
            outer[0] = target
        outs = self.parent.bind(primitive, interleave(primitive, outer, consts))
        inputs = tuple(self._var(t) for t in tensors)
        results = tuple(self._traced(o) for o in outs)
        variables = tuple(r.var for r in results)
        where = user_location()
        self.nodes.append(Node(primitive, inputs, variables, tuple(consts.items()), where))
        if target is not None and primitive.effect == "state":
            self.versions[id(target)] = results[0]
        return results

    def value(self, value: Any) -> Any:
        """What stands for a value in the parent trace."""
        if isinstance(value, TracedTensor):
            live(value)
            return value.value if value.trace is self else value
        return value

    def _var(self, tensor: Tensor) -> Var:
        if isinstance(tensor, TracedTensor) and tensor.trace is self:
            return tensor.var
        var = Var(Abstract(tensor.shape, tensor.dtype))
        self.values[var] = tensor
        return var

    def run(self, graph: Graph, args: Sequence[Any]) -> tuple[Any, ...]:
        return replay(graph, args)

    def call(self, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        return fn(*args)

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

    def guard(self, owner: Any, state: object) -> None:
        """Pass on to the trace around that the result depends on `owner` being in `state`."""
        if hasattr(self.parent, "guard"):
            self.parent.guard(owner, state)

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Graph, list[Any], int]:
        return trace_body(self, fn, operands)

    def stand_in(self, parameter: Any) -> Any:
        traced = self.versions.get(id(parameter))
        return self.parent.stand_in(parameter) if traced is None else traced

    def reserve(self, blocks: int) -> tuple[Any, int]:
        return self.parent.reserve(blocks)

    def record(self, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Run `fn(*args)` inside this trace."""
        with use_trace(self):
            return fn(*args)
