"""Forwarding: the defaults of a trace that sits on top of another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from ..primitive import Primitive
from ..trace import Trace, current_trace, use_trace
from .ir import Graph
from .tracer import trace_body


class ForwardingTrace:
    """Base of the traces that pass calls on to a `parent`; a subclass overrides what it does
    differently.

    Functions are just called, so that their calls arrive here again; graphs of branches and
    loop bodies are traced with this trace around them.
    """

    differentiates = False
    at_once = True

    def __init__(self, parent: Trace):
        self.parent = parent

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        return self.parent.bind(primitive, args)

    def call(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return fn(*args, **named)

    def call_with_bprop(
        self, name: str, fn: Callable[..., Any], bprop: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        with use_trace(self.parent):
            return self.parent.call_with_bprop(name, self._within(fn), self._within(bprop), args)

    def call_recomputed(
        self, name: str, fn: Callable[..., Any], pull: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        with use_trace(self.parent):
            return self.parent.call_recomputed(name, self._within(fn), pull, args)

    def _within(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run in this trace on top of whichever is current then."""

        def within(*args: Any) -> Any:
            trace = copy(self)
            trace.parent = current_trace()
            with use_trace(trace):
                return fn(*args)

        return within

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Graph, list[Any], dict[Any, int]]:
        return trace_body(self, fn, operands)

    def stand_in(self, parameter: Any) -> Any:
        return self.parent.stand_in(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        return self.parent.reserve(blocks, generator)

    def guard(self, owner: Any, state: object) -> None:
        self.parent.guard(owner, state)
