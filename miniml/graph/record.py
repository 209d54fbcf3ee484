"""Gradient recording: a function runs in the enclosing trace while its calls are recorded.

Custom gradients: a function with its own gradient runs in the enclosing trace and is recorded as
one node. Recording: the trace of one gradient. Recomputation: a record keeps the inputs of a
function alone, and runs it a second time. Replay: a graph's nodes are bound one after another in
the current trace.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from ..core.errors import GraphError
from ..core.infer import arguments, as_tensors, interleave, ready, written
from ..core.parameter import Parameter
from ..core.primitive import Primitive
from ..core.scope import Layer, Location, Place, layers, located, user_location, user_place
from ..core.settings import context, current
from ..core.tensor import Tensor
from ..core.trace import Trace, current_trace, partition, use_trace
from ..ops.control import Assign
from .ir import Graph, Node, Var, is_result, versions
from .tracing import Called, ForwardingTrace, Function, TracedTensor, as_tensor, live, map_tree

_var, _new = attrgetter("var"), object.__new__
Pull = Callable[[Function, Sequence[Any], Any], tuple[Any, ...]]


# --- Custom gradients -----------------------------------------------------------------------------


def record_call(trace: Any, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
    """Call fn(*args) in the enclosing trace; record a node for `bprop` if an argument is traced."""
    given = partition(map_tree(_read(trace), tuple(args)), is_result, none_is_leaf=True)
    own = as_constant(trace, fn), as_constant(trace, bprop)
    with use_trace(trace.parent):
        values = map_tree(trace.known, given.filled(given.taken()))
        known = map_tree(trace.known, trace.parent.call_with_bprop(name, *own, values))
        numbers = np.ndarray, np.generic, float
        out = map_tree(lambda leaf: Tensor(leaf) if isinstance(leaf, numbers) else leaf, known)
    if not any(map(trace.owns, given.leaves)):
        return out
    result = partition(out, is_result, none_is_leaf=True)
    called = Called(name, own[1], given.emptied(), result.emptied())
    inputs, values = trace.split([as_tensor(leaf) for leaf in given.taken()])
    outs = tuple(map(trace.value, result.taken()))
    return result.filled(list(trace.keep(called, values, inputs, outs)))


def _read(trace: Any) -> Callable[[Any], Any]:
    """A function that gives the trace's stand-in for a recorded Parameter, else its argument."""

    def read(leaf: Any) -> Any:
        stands = trace.stand_in(leaf) if isinstance(leaf, Parameter) else None
        return stands if trace.owns(stands) else leaf

    return read


def as_constant(trace: Any, fn: Function) -> Function:
    """The function, for which tensors that the trace has recorded are values without a gradient.

    The trace records calls that hold this function, so a strong reference would make a cycle.
    """
    held = weakref.ref(trace)

    def constant(*args: Any) -> Any:
        record = held()
        if record is None:  # and all that it traced
            return fn(*args)
        with use_trace(record.constant_in(current_trace())):
            return fn(*args)

    constant.__wrapped__ = fn  # type: ignore[attr-defined]
    return constant


class ConstantTrace(ForwardingTrace):
    """The trace `parent`, in which a tensor that `record` traced counts as its value there."""

    def __init__(self, record: Any, parent: Trace):
        super().__init__(parent)
        self.record = record

    def known(self, value: Any) -> Any:
        return self.record.known(value)

    def _within(self, fn: Function) -> Function:
        return as_constant(self.record, fn)

    def guard(self, owner: Any, state: object) -> None:
        self.record.guard(owner, state)


# --- Recording ------------------------------------------------------------------------------------


class RecordTrace(ForwardingTrace):
    """The trace of one gradient: calls that depend on its inputs are recorded, others pass through.

    Every call is also bound in the `parent` trace, so a traced tensor here carries its value
    there: a real one when the parent is eager, a traced one when gradients nest or compile. A
    parameter is recorded as its value in the parent at the read, so later writes change nothing.
    """

    differentiates = True
    call_with_bprop = record_call

    def __init__(self, parent: Trace):
        self.parent = parent
        self.ended = False
        self.numbers_left = False  # as Python floats or ints, which carry no gradient
        self.calls: list[Call] = []
        self.versions: dict[int, TracedTensor] = {}  # by the id of the value in the parent

    def input(self, value: Tensor) -> TracedTensor:
        """A tensor to differentiate with respect to, standing for `value` of the parent."""
        return self._traced(value if type(value) is Tensor else self.value(value))

    def weight(self, parameter: Parameter) -> TracedTensor:
        """The stand-in for a parameter wherever this trace meets its present value."""
        value = self.parent.stand_in(parameter)
        self.versions[id(value)] = traced = self._traced(value)
        return traced

    def _traced(self, value: Tensor) -> TracedTensor:
        if isinstance(value, TracedTensor):
            return TracedTensor(Var(value._abstract), self, value.device, value)
        kind, var, traced = value._kind, _new(Var), _new(TracedTensor)  # without their frames
        var.abstract = kind.abstract
        traced.var, traced.trace, traced.value = var, self, value
        traced.device = kind.device  # type: ignore[misc]  # a slot there, a property of others
        return traced

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        inputs, values = self.split(args)
        if not any(inputs):
            del values  # a reading among them would be copied if the call writes to its parameter
            return self.parent.bind(primitive, args)
        pure = primitive.effect != "state"
        if not primitive.differentiable:
            target = None if pure else written(primitive, args)
            return self.parent.bind(primitive, _writing(target, values))
        if pure and (tensors := ready(primitive, values)) is not None:
            return self.keep(primitive, tensors, inputs, self.parent.bind(primitive, tensors))
        return self._converted(primitive, args)

    def _converted(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        """A call whose arguments become tensors first, or that writes to a parameter."""
        if np.ndarray in map(type, args) and not (primitive._const or primitive.effect == "state"):
            args = as_tensors(primitive, args)
            if ready(primitive, self.split(args)[1]) is not None:
                return self.bind(primitive, args)
        given = [self.stand_in(a) if isinstance(a, Parameter) else a for a in args]
        tensors, consts = arguments(primitive, given, self.bind)
        inputs, values = self.split(tensors)
        target = written(primitive, args)
        outer = interleave(primitive, _writing(target, values), consts)
        outs = self.parent.bind(primitive, outer)
        if target is not None:  # the value that later reads get
            outs = (self.parent.stand_in(target), *outs[1:])
        recorded = interleave(primitive, inputs, dict.fromkeys(consts))
        results = self.keep(primitive, interleave(primitive, values, consts), recorded, outs)
        if target is not None:
            self.versions[id(outs[0])] = results[0]
        return results

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """For each value its Var, None if it is not recorded; and its counterpart in the parent."""
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
        """Record a call; returns the traced tensors of its outputs."""
        if len(outs) == 1:  # the common case, unrolled
            results: tuple[TracedTensor, ...] = (self._traced(outs[0]),)
            outputs: tuple[Var, ...] = (results[0].var,)
        else:
            results = tuple(map(self._traced, outs))
            outputs = tuple(map(_var, results))
        self.calls.append(Call(primitive, given, inputs, outs, outputs, user_place(2)))
        return results

    def compose(self, fn: Function, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """A composition: the parent may run all its calls at once, and they are recorded then."""
        own: list[Var | None] = []  # of each tensor, in order
        outer = self._outer(args, own)
        outer_named = dict(zip(named, self._outer(named.values(), own))) if named else named
        if not any(own):
            return self.parent.compose(fn, outer, outer_named)
        made = self.parent.calls_of(fn, outer, outer_named, tuple(map(bool, own)))
        return fn(*args, **named) if made is None else self._keep_all(*made, own)

    def _outer(self, args: Iterable[Any], own: list[Var | None]) -> list[Any]:
        """Arguments of a composition with values of the parent, whose Vars are noted."""
        outer = []
        for value in args:
            if type(value) is TracedTensor and value.trace is self and not self.ended:
                own.append(value.var)
                value = value.value
            elif isinstance(value, (Tensor, np.ndarray)):
                (var,), (value,) = self.split((value,))
                own.append(var)
            elif isinstance(value, (list, tuple)):  # of any class, such as that of cotangents
                inner = self._outer(value, own)
                value = inner if isinstance(value, list) else tuple(inner)
            outer.append(value)
        return outer

    def _keep_all(
        self, made: Any, given: Sequence[Any], results: Sequence[Any], own: list[Var | None]
    ) -> Any:
        """Record a composition's calls; returns its result. own: Vars of the arguments given."""
        where = user_location(made.name, passed=2) if made.made else None
        own += [None] * (len(made.fixed) + len(results))
        values = [*given, *made.fixed, *results]
        for primitive, taking, first, end, abstracts in made.made:
            inputs = [own[i] for i in taking]
            if any(inputs):
                given, outs = [values[i] for i in taking], tuple(values[first:end])
                own[first:end] = outputs = tuple(map(Var, abstracts))
                self.calls.append(Call(primitive, given, inputs, outs, outputs, where))
        return made.result([self._made(values[i], own[i]) for i in made.outs])

    def _made(self, value: Any, var: Var | None) -> Any:
        return value if var is None else TracedTensor(var, self, value._kind.device, value)

    def value(self, value: Any) -> Any:
        """Counterpart of a value in the parent trace; for a parameter, its present value."""
        if isinstance(value, TracedTensor):
            if value.trace is self and not self.ended:
                return value.value
            live(value)
            return value
        return self.parent.stand_in(value) if isinstance(value, Parameter) else value

    def call_recomputed(
        self, name: str, fn: Callable[..., Any], pull: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        return record_recomputed(self, name, fn, pull, args)

    def owns(self, value: Any) -> bool:
        """True for a tensor that this trace made, also after it has ended."""
        return isinstance(value, TracedTensor) and value.trace is self

    def constant_in(self, parent: Trace) -> Trace:
        """The trace `parent`, in which tensors recorded here are constants."""
        return ConstantTrace(self, parent)

    def stand_in(self, parameter: Any) -> Any:
        value = self.parent.stand_in(parameter)
        return self.versions.get(id(value), value)

    def end(self) -> None:
        """End the trace: nothing but the recorded values stays alive, without waiting for gc."""
        self.ended = True
        self.versions.clear()  # traced tensors know their trace


def _writing(target: Parameter | None, values: list[Any]) -> list[Any]:
    """Arguments of a call in the parent: the parameter itself if the call writes to it."""
    return values if target is None else [target, *values[1:]]


@dataclass(slots=True, eq=False)
class Call:
    """A recorded call: the arguments of its bprop, and the Vars between which gradients flow.

    given: the values of the inputs, const ones too; inputs: their Vars, None for those that are not
    recorded. outs and outputs: the same for the outputs. place: where it was called.
    """

    primitive: Primitive
    given: Sequence[Any]
    inputs: Sequence[Var | None]
    outs: tuple[Any, ...]
    outputs: tuple[Var, ...]
    place: Place | Location | None

    @property
    def where(self) -> Location | None:
        """Where it was called; made when somebody asks, as most calls are pulled by a plan."""
        at = self.place
        return located(at, self.primitive.name) if isinstance(at, tuple) else at


# --- Recomputation --------------------------------------------------------------------------------


def record_recomputed(trace: Any, name: str, fn: Function, pull: Pull, args: Sequence[Any]) -> Any:
    """Call fn(*args) in the enclosing trace, with a node that keeps the inputs alone.

    pull(again, values, dout) gives the gradients of the values: the arguments, and the recorded
    tensors that fn reads besides; `again(values)` runs fn on them.
    """
    notes = Notes(trace)
    inputs, values = trace.split(args)
    with use_trace(trace.parent):
        out = trace.parent.call_recomputed(name, notes.noting(fn), pull, values)
    notes.complete = True
    if not notes.captured and not any(inputs):
        return out
    values = [*values, *notes.captured.values()]
    result = partition(out, is_result, none_is_leaf=True)
    again = partial(notes.again, fn)

    def bprop(*given: Any) -> tuple[Any, ...]:
        *values, _, dout = given
        return pull(again, values, dout)

    every = partition(tuple(values), lambda _: True, none_is_leaf=True)
    called = Called(name, bprop, every.emptied(), result.emptied())
    outs = tuple([as_tensor(leaf) for leaf in result.taken()])
    return result.filled(list(trace.keep(called, values, [*inputs, *notes.captured], outs)))


class Notes:
    """State that one run of a function read besides its arguments, so that it can be run again.

    complete: the run is over. captured: the tensors of the record, by Var, and their values.
    parameters: by id, each with its state at the first read: a Var of `captured`, or a value.
    draws: its reservations of random streams. autocast: the setting of the context.
    """

    def __init__(self, record: Any):
        self.record = weakref.ref(record)  # the record keeps the call that holds these notes
        self.complete, self.autocast = False, current().autocast
        self.captured: dict[Var, Any] = {}
        self.parameters: dict[int, tuple[Parameter, Any]] = {}
        self.draws: list[tuple[Any, int]] = []

    def noting(self, fn: Function) -> Function:
        """The function, with its reads noted."""

        def run(*args: Any) -> Any:
            if self.record() is None:
                return fn(*args)
            trace = _Noting(current_trace(), self)
            with use_trace(trace):
                return map_tree(trace.known, fn(*args))

        return run

    def again(self, fn: Function, values: Sequence[Any]) -> Any:
        """Run the function on its arguments and, after these, the captured values."""
        count = len(values) - len(self.captured)
        symbols = dict(zip(self.captured, values[count:], strict=True))
        trace = _Again(current_trace(), self, symbols)
        with context(autocast=self.autocast or False), use_trace(trace):
            return map_tree(trace.known, fn(*values[:count]))


class _Known(ForwardingTrace):
    """A trace in which tensors of a record count as the values that `known` gives."""

    def _given(self, value: Any) -> Any:
        return self.stand_in(value) if isinstance(value, Parameter) else self.known(value)

    def call_recomputed(self, name: str, fn: Function, pull: Pull, args: Sequence[Any]) -> Any:
        return super().call_recomputed(name, fn, pull, list(map(self._given, args)))


class _Noting(_Known):
    """The first run: its reads are noted, and have the values of the enclosing trace."""

    def __init__(self, parent: Trace, notes: Notes):
        super().__init__(parent)
        self.notes, self.assigned = notes, set[int]()

    def known(self, value: Any) -> Any:
        record = self.notes.record()
        if record is None or not record.owns(value):
            return value
        if not self.notes.complete:
            self.notes.captured[value.var] = value.value
        return value.value

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        given, target = list(args), written(primitive, args)
        first = 0 if target is None else 1
        given[first:] = map(self._given, given[first:])
        if target is not None:
            self.assigned.add(id(target))
        return self.parent.bind(primitive, given)

    def stand_in(self, parameter: Any) -> Any:
        notes, record = self.notes, self.notes.record()
        unknown = not notes.complete and id(parameter) not in notes.parameters
        if unknown and record is not None and id(parameter) not in self.assigned:
            held = record.stand_in(parameter)
            self.known(held)
            kept = held.var if record.owns(held) else held
            notes.parameters[id(parameter)] = parameter, kept
        return self.parent.stand_in(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        drawn = self.parent.reserve(blocks, generator)
        if not self.notes.complete:
            self.notes.draws.append(drawn)
        return drawn


class _Again(_Known):
    """A later run: it reads the values of the first one, and assigns nothing."""

    def __init__(self, parent: Trace, notes: Notes, symbols: dict[Var, Any]):
        super().__init__(parent)
        self.notes, self.symbols = notes, symbols
        self.versions: dict[int, Any] = {}
        self.draws: Iterator[tuple[Any, int]] = iter(notes.draws)

    def known(self, value: Any) -> Any:
        if not isinstance(value, TracedTensor):
            return value
        if value.var in self.symbols:
            return self.symbols[value.var]
        return value.value if value.trace is self.notes.record() else value

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        if target is None:
            return self.parent.bind(primitive, list(map(self._given, args)))
        if not isinstance(primitive, Assign):
            raise GraphError(
                f"{primitive.name} writes to a Parameter in a function that is recomputed, where "
                "only ops.assign may"
            )
        self.versions[id(target)] = self._given(args[1])
        return (self.versions[id(target)],)

    def stand_in(self, parameter: Any) -> Any:
        if id(parameter) in self.versions:
            return self.versions[id(parameter)]
        _, kept = self.notes.parameters.get(id(parameter), (None, None))
        if kept is None:
            return self.parent.stand_in(parameter)
        return self.symbols[kept] if isinstance(kept, Var) else kept

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        try:
            return next(self.draws)
        except StopIteration:
            raise GraphError(
                "a recomputed function draws more random numbers than in its first run; it must "
                "do the same each time"
            ) from None


# --- Replay ---------------------------------------------------------------------------------------


def replay(
    graph: Graph, args: Sequence[Any], instead: Mapping[Node, Callable[..., Any]] | None = None
) -> tuple[Any, ...]:
    """Outputs of a graph on these inputs: computed op by op if the current trace is the eager one,
    inlined if it records. Parameters are read and written as in the graph. instead: functions of
    the inputs of nodes with one output, which stand in their places."""
    trace = current_trace()
    env: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))
    env.update((v, Tensor(v.abstract.value)) for v in graph.constants)
    env.update((v, trace.stand_in(p)) for p, v in graph.state)
    writes = versions(graph).writes
    for node in graph.nodes:
        inputs = [env[v] for v in node.inputs]
        if node in writes:
            inputs[0] = writes[node]
        values = interleave(node.primitive, inputs, dict(node.consts))
        layer = node.where.layer if node.where else ""
        with layers.use(partial(Layer, layer)) if layer else nullcontext():
            made = None if instead is None else instead.get(node)
            outputs = trace.bind(node.primitive, values) if made is None else (made(*inputs),)
        env.update(zip(node.outputs, outputs, strict=True))
    return tuple(env[v] for v in graph.outputs)
