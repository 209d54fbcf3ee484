"""The order in which a graph runs: first the nodes that may fail, last the updates of state, which
cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph.ir import Graph, Node, Var
from ..graph.state import only_for_state, versions
from ..parameter import Parameter
from .launch import BoundKernel


@dataclass(frozen=True, slots=True)
class Schedule:
    """main: nodes that run first, in program order. updates: nodes that only serve the new values
    of parameters and whose kernels cannot fail; they run after everything else. order: all of them.
    writes: per parameter, the Var that is its value when the program ends."""

    main: tuple[Node, ...]
    updates: tuple[Node, ...]
    order: tuple[Node, ...]
    writes: tuple[tuple[Parameter, Var], ...]


def schedule(graph: Graph, prepared: Mapping[Node, BoundKernel], watched: bool = False) -> Schedule:
    """Split a graph's nodes into those that run first and the updates that come last.

    watched: the outputs of every node are looked at, which may raise.
    """
    final = versions(graph).final
    if watched or not final:
        return Schedule(graph.nodes, (), graph.nodes, final)
    late = only_for_state(graph, lambda node: prepared[node].cannot_fail)
    main = tuple([n for n in graph.nodes if n not in late])
    updates = tuple([n for n in graph.nodes if n in late])
    return Schedule(main, updates, main + updates, final)
