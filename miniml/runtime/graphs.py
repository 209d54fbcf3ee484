"""Calling a graph: its arguments are checked against its inputs, and it is compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..abstract import typed
from ..dtype import canonical
from ..errors import ArityError, DTypeError, ShapeError
from ..graph.ir import Graph, run_by
from ..graph.replay import replay
from ..tensor import Tensor
from .jit import Jit


class CallableGraph:
    """What `graph(...)` calls: a Jit of the graph's replay, for arguments of its inputs' types."""

    def __init__(self, graph: Graph):
        self.graph, self.__name__ = graph, graph.name
        self._types = [(v.abstract.shape, v.abstract.dtype) for v in graph.inputs]
        self._names = graph.input_names or tuple(f"x{i}" for i in range(len(graph.inputs)))
        self._compiled = Jit(self._replay)
        self._compiled.__name__ = graph.name  # warnings and programs are called this

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) != len(self._names):
            args = self._in_order(args, named)
        for i, (value, (shape, dtype)) in enumerate(zip(args, self._types, strict=True)):
            fits = isinstance(value, (Tensor, np.ndarray)) and value.shape == shape
            if not fits or canonical(value.dtype) != dtype:
                raise self._misfit(i, value)
        return self._compiled(*args)

    def _replay(self, *args: Any) -> Any:
        outputs = replay(self.graph, args)
        return outputs[0] if len(outputs) == 1 else outputs

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        given = {**dict(zip(self._names, args, strict=False)), **named}
        twice = [n for n in self._names[: len(args)] if n in named]
        if twice or len(args) > len(self._names) or given.keys() != set(self._names):
            raise ArityError(
                f"graph {self.__name__} got {len(args)} inputs by position"
                f"{', and by name ' + ', '.join(named) if named else ''}; it takes {self._takes()}"
            )
        return tuple(given[n] for n in self._names)

    def _misfit(self, i: int, value: Any) -> Exception:
        """What to raise for an argument of another type than that of its input."""
        expected = self.graph.inputs[i].abstract
        what = f"graph {self.__name__} takes {self._names[i]}: {expected}; got "
        if not isinstance(value, (Tensor, np.ndarray)):
            instead = "; give a Tensor or an array"
            return DTypeError(f"{what}{value!r} of type {type(value).__name__}{instead}")
        kind = ShapeError if value.shape != expected.shape else DTypeError
        return kind(
            f"{what}{typed(value)}; a graph is for fixed types: trace or load it again, or cast"
        )

    def _takes(self) -> str:
        inputs = zip(self._names, self.graph.inputs, strict=True)
        return ", ".join(f"{name}: {v.abstract}" for name, v in inputs) or "none"


run_by(CallableGraph)
