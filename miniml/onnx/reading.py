"""What is shared while one model is read: its weights, and what bounds the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..errors import OnnxError
from ..graph.replay import replay
from ..graph.tracer import trace_graph
from ..parameter import Parameter
from ..settings import PYNATIVE_MODE, context
from ..tensor import Tensor
from ..trace import eager_trace, use_trace
from .model import Model
from .needs import Needs
from .tensors import array_of

_FOLDED = 2**26  # bytes: beyond, values are computed by the program though they are known
_MORE, _MOST = 10, 10_000  # nodes that may be run: for each in the file, and besides


class Weight:
    """A float initializer: a Parameter for those who compute with it."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]):
        self.name, self.array = name, array

    @cached_property
    def parameter(self) -> Parameter:
        """The Parameter with the initializer's name."""
        return Parameter(self.array, self.name)


Value = Tensor | np.ndarray[Any, Any] | Weight | None


@dataclass(eq=False)
class Reading:
    """What all scopes of one model share.

    needs: which values must be known. dims: the extents of named dimensions. nodes: how many the
    file has; count: how many were run; bytes: how many were computed meanwhile.
    """

    model: Model
    needs: Needs
    dims: Mapping[str, int]
    nodes: int
    count: int = 0
    bytes: int = 0
    weights: dict[tuple[int, str], tuple[Any, Weight]] = field(default_factory=dict)

    def folded(self, call: Callable[[], Sequence[Any]]) -> Sequence[Any] | None:
        """What a call on known values gives, computed now; None where it draws random numbers, or
        what it computes is large."""
        results: list[Any] = []

        def body() -> Sequence[Any]:
            results[:] = call()
            return results

        graph, trace = trace_graph(body, (), "cpu", "folded")
        if all(type(r) is np.ndarray for r in results):
            return results
        made = [v.abstract for n in graph.nodes for v in n.outputs]
        size = sum(prod(a.shape) * a.dtype.itemsize for a in made)
        if trace.blocks or self.bytes + size > _FOLDED:
            return None
        self.bytes += size
        plain = context(mode=PYNATIVE_MODE, device_target="cpu", providers=("miniml",))
        with plain, use_trace(eager_trace()):
            return [out.asnumpy() for out in replay(graph, ())]

    def weight(self, graph: Any, tensor: Any) -> Weight:
        """The one weight for an initializer of a graph, however often the graph is run."""
        key = id(graph), tensor.name
        if key not in self.weights:
            array = array_of(tensor, self.model.folder)
            self.weights[key] = graph, Weight(tensor.name, array)  # keeps the id its own
        return self.weights[key][1]

    def step(self) -> None:
        """Count one node or graph that is run; OnnxError beyond what a file is worth."""
        self.count += 1
        most = _MORE * self.nodes + _MOST
        if self.count > most:
            raise OnnxError(f"more than {most:,} nodes, with functions and loops written out")
