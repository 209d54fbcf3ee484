"""Calls of functions that carry their own gradient: run in the enclosing trace, recorded as one
node."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import optree

from ..errors import GradientArgumentError
from ..holes import Holes, holes
from ..parameter import Parameter
from ..primitive import Primitive
from ..tensor import Tensor
from ..trace import Trace, current_trace, use_trace
from .forwarding import ForwardingTrace
from .tracer import as_tensor
from .trees import is_result

Function = Callable[..., Any]


class Called(Primitive, abstract=True):
    """One recorded call of a function with a bprop of its own.

    Its inputs are the tensors among the leaves of the arguments, its outputs those of the result;
    `args` and `out` put them in their places.
    """

    _single: ClassVar[bool] = False

    def __init__(self, name: str, bprop: Function, args: Holes, out: Holes):
        state = self.__dict__
        state.update(name=name, bprop=bprop, args=args, out=out, attributes={})
        state.update(_key=(Called, id(self)), _hash=id(self))


def by_position(
    name: str, fn: Function, args: Sequence[Any], named: Mapping[str, Any]
) -> Sequence[Any]:
    """The arguments of fn(*args, **named) as its bprop takes them, up to the last one given.

    TypeError as from the call itself; GradientArgumentError for a keyword that has no position.
    """
    if not named:
        return args
    try:
        bound = signature(fn).bind(*args, **named)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    count = max(i for i, given in enumerate(signature(fn).parameters) if given in bound.arguments)
    bound.apply_defaults()
    if bound.kwargs:
        raise GradientArgumentError(
            f"{name} got {next(iter(bound.kwargs))!r} by keyword alone, but has a bprop, which "
            "takes all by position; declare it before the *"
        )
    return bound.args[: max(count + 1, len(args))]


def record_call(trace: Any, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
    """fn(*args) in the enclosing trace, with a node for `bprop` if an argument is recorded."""
    given = holes(_map(_read(trace), tuple(args)), is_result, none_is_leaf=True)
    own = _constant(trace, fn), _constant(trace, bprop)
    with use_trace(trace.parent):
        values = _map(trace.known, given.filled(given.taken()))
        out = _map(_as_result(trace), trace.parent.call_with_bprop(name, *own, values))
    if not any(map(trace.records, given.leaves)):
        return out
    result = holes(out, is_result, none_is_leaf=True)
    called = Called(name, own[1], given.emptied(), result.emptied())
    inputs, values = trace.split([as_tensor(leaf) for leaf in given.taken()])
    outs = tuple(map(trace.value, result.taken()))
    return result.filled(list(trace.keep(called, values, inputs, outs)))


def _map(fn: Function, tree: Any) -> Any:
    return optree.tree_map(fn, tree, none_is_leaf=True)


def _read(trace: Any) -> Callable[[Any], Any]:
    """The argument; for a Parameter the trace's value of it, if the trace records that."""

    def read(leaf: Any) -> Any:
        stands = trace.stand_in(leaf) if isinstance(leaf, Parameter) else None
        return stands if trace.records(stands) else leaf

    return read


def _as_result(trace: Any) -> Callable[[Any], Any]:
    def result(leaf: Any) -> Any:
        value = trace.known(leaf)
        return Tensor(value) if isinstance(value, (np.ndarray, np.generic, float)) else value

    return result


def _constant(trace: Any, fn: Function) -> Function:
    """The function, to which tensors that the trace has recorded are values without a gradient.

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

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        return self.parent.bind(primitive, [self.record.known(a) for a in args])

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        known = _map(self.record.known, tuple(args))
        again = _constant(self.record, fn), _constant(self.record, bprop)
        with use_trace(self.parent):
            return self.parent.call_with_bprop(name, *again, known)

    def call_recomputed(self, name: str, fn: Function, pull: Function, args: Sequence[Any]) -> Any:
        known = [self.record.known(a) for a in args]
        with use_trace(self.parent):
            return self.parent.call_recomputed(name, _constant(self.record, fn), pull, known)

    def guard(self, owner: Any, state: object) -> None:
        self.record.guard(owner, state)
