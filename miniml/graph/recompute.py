"""Recomputed calls: a record keeps what a function was given, and runs it a second time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import optree

from ..errors import GraphError
from ..holes import holes
from ..ops.control import Assign
from ..parameter import Parameter
from ..primitive import Primitive
from ..settings import context, current
from ..trace import Trace, current_trace, use_trace
from .calls import Called
from .forwarding import ForwardingTrace
from .ir import Var
from .state import written
from .traced import TracedTensor
from .tracer import as_tensor
from .trees import is_result

Function = Callable[..., Any]
Pull = Callable[[Function, Sequence[Any], Any], tuple[Any, ...]]


class Notes:
    """What one run of a function read besides its arguments, so that it can be run again.

    complete: the run is over. captured: the tensors of the record, by Var, and their values.
    parameters: by id, each with what it was when it was first read: a Var of `captured`, or a
    value. draws: what it reserved of random streams. autocast: what the context cast to.
    """

    def __init__(self, record: Any):
        self.record = weakref.ref(record)  # which keeps the call that holds these
        self.complete, self.autocast = False, current().autocast
        self.captured: dict[Var, Any] = {}
        self.parameters: dict[int, tuple[Parameter, Any]] = {}
        self.draws: list[tuple[Any, int]] = []

    def taking(self, fn: Function) -> Function:
        """The function, noting what it reads."""

        def noting(*args: Any) -> Any:
            if self.record() is None:
                return fn(*args)
            trace = _Noting(current_trace(), self)
            with use_trace(trace):
                return _map(trace.known, fn(*args))

        return noting

    def again(self, fn: Function, values: Sequence[Any]) -> Any:
        """Run the function on its arguments and, after these, the captured values."""
        count = len(values) - len(self.captured)
        symbols = dict(zip(self.captured, values[count:], strict=True))
        trace = _Again(current_trace(), self, symbols)
        with context(autocast=self.autocast or False), use_trace(trace):
            return _map(trace.known, fn(*values[:count]))


class _Known(ForwardingTrace):
    """A trace in which tensors of a record count as what `known` says."""

    def known(self, value: Any) -> Any:
        raise NotImplementedError

    def _given(self, value: Any) -> Any:
        return self.stand_in(value) if isinstance(value, Parameter) else self.known(value)

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        return super().call_with_bprop(name, fn, bprop, _map(self.known, tuple(args)))

    def call_recomputed(self, name: str, fn: Function, pull: Pull, args: Sequence[Any]) -> Any:
        return super().call_recomputed(name, fn, pull, list(map(self._given, args)))


class _Noting(_Known):
    """The first run: what it reads is noted, and counts as its value in the trace around."""

    def __init__(self, parent: Trace, notes: Notes):
        super().__init__(parent)
        self.notes, self.assigned = notes, set[int]()

    def known(self, value: Any) -> Any:
        record = self.notes.record()
        if record is None or not record.records(value):
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
            kept = held.var if record.records(held) else held
            notes.parameters[id(parameter)] = parameter, kept
        return self.parent.stand_in(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        drawn = self.parent.reserve(blocks, generator)
        if not self.notes.complete:
            self.notes.draws.append(drawn)
        return drawn


class _Again(_Known):
    """A later run: it reads what the first one read, and assigns nothing."""

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


def record_recomputed(trace: Any, name: str, fn: Function, pull: Pull, args: Sequence[Any]) -> Any:
    """fn(*args) of tensors in the enclosing trace, with a node that keeps the inputs alone.

    pull(again, values, dout) gives the gradients of the values: the arguments, and what fn reads
    besides that is recorded; `again(values)` is fn on them.
    """
    notes = Notes(trace)
    inputs, values = trace.split(args)
    with use_trace(trace.parent):
        out = trace.parent.call_recomputed(name, notes.taking(fn), pull, values)
    notes.complete = True
    if not notes.captured and not any(inputs):
        return out
    values = [*values, *notes.captured.values()]
    result = holes(out, is_result, none_is_leaf=True)
    again = partial(notes.again, fn)

    def bprop(*given: Any) -> tuple[Any, ...]:
        *values, _, dout = given
        return pull(again, values, dout)

    every = holes(tuple(values), lambda _: True, none_is_leaf=True)
    called = Called(name, bprop, every.emptied(), result.emptied())
    outs = tuple([as_tensor(leaf) for leaf in result.taken()])
    return result.filled(list(trace.keep(called, values, [*inputs, *notes.captured], outs)))


def _map(fn: Function, tree: Any) -> Any:
    return optree.tree_map(fn, tree, none_is_leaf=True)
