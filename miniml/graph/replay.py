"""Replaying: a graph's nodes bound one after another in the current trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.shape import Reshape
from ..tensor import Tensor
from ..trace import current_trace
from .ir import Graph, Var, interleave


def replay(graph: Graph, args: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a graph on these inputs: op by op where the current trace is the eager one,
    inlined where it records. Parameters are read and written as the graph says, also where it
    uses an old value of one that it has overwritten by then."""
    env: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))
    env.update((v, Tensor(v.abstract.value)) for v in graph.constants)
    env.update((v, p) for p, v in graph.state)
    parameter = {v: p for p, v in graph.state}  # of each version
    old = _read_when_overwritten(graph)
    trace = current_trace()
    for node in graph.nodes:
        inputs = [env[v] for v in node.inputs]
        target = parameter.get(node.inputs[0]) if node.inputs else None
        if target is not None and node.primitive.effect == "state":
            if node.inputs[0] in old:  # a Parameter is its newest value: keep this one
                (env[node.inputs[0]],) = trace.bind(Reshape(target.shape), [inputs[0]])
            inputs[0] = parameter[node.outputs[0]] = target
        values = interleave(node.primitive, inputs, dict(node.consts))
        env.update(zip(node.outputs, trace.bind(node.primitive, values), strict=True))
    return tuple(env[v] for v in graph.outputs)


def _read_when_overwritten(graph: Graph) -> set[Var]:
    """The first versions of parameters that are used after a state node has written the next."""
    first = {v for _, v in graph.state}
    written: set[Var] = set()
    found: set[Var] = set()
    for node in graph.nodes:
        found.update(v for v in node.inputs if v in written)
        if node.primitive.effect == "state" and node.inputs and node.inputs[0] in first:
            written.add(node.inputs[0])
    return found | written.intersection(graph.outputs)
