"""Dead code elimination: nodes that no output and no effect needs are dropped."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Graph, Node


def prune(graph: Graph) -> Graph:
    """The graph without the nodes, constants and state pairs that no output and no effect needs.

    State nodes stay, and so do all inputs of the graph: they are its signature. A state pair goes
    if its parameter is neither read nor written.
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.primitive.effect == "state" or not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    constants = tuple([v for v in graph.constants if v in needed])
    state = tuple([(p, v) for p, v in graph.state if v in needed])
    if (len(kept), constants, state) == (len(graph.nodes), graph.constants, graph.state):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants, state=state)
