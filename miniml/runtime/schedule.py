"""In which order a graph runs: first what may fail, last the updates of state, which cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..graph.ir import Graph, Node, Var
from ..tensor import Parameter
from .launch import Prepared


@dataclass(frozen=True, slots=True)
class Schedule:
    """main: nodes that run first, in program order. updates: nodes that only serve the new values
    of parameters and whose kernels cannot fail; they run after everything else.
    writes: per parameter, the Var that is its value when the program ends."""

    main: tuple[Node, ...]
    updates: tuple[Node, ...]
    writes: tuple[tuple[Parameter, Var], ...]

    @property
    def order(self) -> tuple[Node, ...]:
        """All nodes in the order they run."""
        return self.main + self.updates


def schedule(graph: Graph, prepared: Mapping[Node, Prepared]) -> Schedule:
    """Split a graph's nodes into those that run first and the updates that come last."""
    late = _late(graph, prepared)
    main = tuple(n for n in graph.nodes if n not in late)
    updates = tuple(n for n in graph.nodes if n in late)
    return Schedule(main, updates, final_versions(graph))


def final_versions(graph: Graph) -> tuple[tuple[Parameter, Var], ...]:
    """The last version of every parameter that the graph writes."""
    version = {var: parameter for parameter, var in graph.state}
    final: dict[int, tuple[Parameter, Var]] = {}
    for node in graph.nodes:
        if node.primitive.effect == "state" and node.inputs and node.inputs[0] in version:
            parameter = version[node.inputs[0]]
            version[node.outputs[0]] = parameter
            final[id(parameter)] = (parameter, node.outputs[0])
    return tuple(final.values())


def _late(graph: Graph, prepared: Mapping[Node, Prepared]) -> set[Node]:
    """Nodes that cannot fail and whose results go nowhere but into new values of parameters."""
    written = {var for _, var in final_versions(graph)}
    early: set[Var] = set(graph.outputs)
    late: set[Node] = set()
    useful: set[Var] = set(written)
    for node in reversed(graph.nodes):
        feeds_state = any(v in useful for v in node.outputs)
        if feeds_state and _cannot_fail(prepared[node]) and not early.intersection(node.outputs):
            late.add(node)
            useful.update(node.inputs)
        else:
            early.update(node.inputs)
    return late


def _cannot_fail(prepared: Prepared) -> bool:
    """Views are resolved ahead of time; what may run in place is a ufunc or one launch. Kernels in
    Python could be interrupted."""
    entry = prepared.entry
    whole = isinstance(prepared.function, np.ufunc) or prepared.instance is not None
    return entry.built_in and (entry.view is not None or (bool(entry.inplace) and whole))
