"""Replaying: a graph's nodes bound one after another in the current trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..location import Layer, layers
from ..tensor import Tensor
from ..trace import current_trace
from .ir import Graph, Node, Var, interleave
from .state import versions


def replay(graph: Graph, args: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a graph on these inputs: op by op where the current trace is the eager one,
    inlined where it records. Parameters are read and written as the graph says."""
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
        with _in_layer(node):
            outputs = trace.bind(node.primitive, values)
        env.update(zip(node.outputs, outputs, strict=True))
    return tuple(env[v] for v in graph.outputs)


def _in_layer(node: Node) -> AbstractContextManager[object]:
    """Inside the block, calls are those of the layer that the node's call was made in."""
    layer = node.where.layer if node.where else ""
    return layers.use(lambda: Layer(layer)) if layer else nullcontext()
