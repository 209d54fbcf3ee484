"""The staged trace: every call runs at once, but assignments are published at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from .. import random
from ..access import claim
from ..graph.ir import Graph
from ..graph.state import written
from ..graph.tracer import trace_body
from ..parameter import Parameter
from ..primitive import Primitive
from ..tensor import Tensor
from ..trace import Trace, eager_trace, is_tracing, use_trace
from ..undo import publish

T = TypeVar("T")


class StagedTrace(Trace):
    """The eager trace, but assignments make new versions, as they do in a graph.

    Parameters keep their values until `publish`, so there is nothing to undo when something
    raises, and code that looks meanwhile, such as a signal handler that saves, sees a consistent
    state.
    """

    parent = None  # set_data is refused here, as it is while a graph is traced

    def __init__(self) -> None:
        self._versions: dict[int, tuple[Parameter, Tensor]] = {}

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        given = [self._now(a) if isinstance(a, Parameter) else a for a in args]
        if target is not None and given[0] is target:
            given[0] = Tensor.wrap(target._data, target.device)
        outs = eager_trace().bind(primitive, given)
        if target is not None:
            self._versions[id(target)] = target, outs[0]
        return outs

    def _now(self, parameter: Parameter) -> Tensor:
        """The latest version of a parameter: itself if it has not been assigned."""
        if id(parameter) not in self._versions:
            claim(parameter)
            return parameter
        return self._versions[id(parameter)][1]

    def publish(self) -> None:
        """Write the last versions to their parameters, all at once."""
        publish([(parameter, version._data) for parameter, version in self._versions.values()])

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Graph, list[Any], dict[Any, int]]:
        return trace_body(self, fn, operands)

    def stand_in(self, parameter: Any) -> Any:
        version = self._versions.get(id(parameter))
        return eager_trace().stand_in(parameter) if version is None else version[1]

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        """Draw from a version of the stream's state, as from any other parameter."""
        state = (generator or random.default_generator).state
        before = self._now(state)._data
        after = before + np.array([0, blocks], np.uint64)
        self._versions[id(state)] = state, Tensor.wrap(after, "cpu")
        return Tensor(before), 0


def together(fn: Callable[..., T], *args: Any) -> T:
    """fn(*args), after which all its assignments are published at once, or none if it raises.

    Inside a trace it is just the call: that trace decides when writes happen.
    """
    if is_tracing():
        return fn(*args)
    trace = StagedTrace()
    with use_trace(trace):
        result = fn(*args)
    trace.publish()
    return result
