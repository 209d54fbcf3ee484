"""Fusion: nodes that share their loops become one Fused node, where C kernels run first."""

from __future__ import annotations

from dataclasses import replace

from ...backends.selection import Target
from ...graph.ir import Graph, Node, Var
from ...ops.control import Fused
from ..fusion.anchors import anchor_of
from ..fusion.bodies import body_of, read_by
from .groups import Group, Grouping
from .native import native
from .order import in_order


def fuse(graph: Graph, target: Target) -> Graph:
    """The graph with groups of nodes as Fused nodes; the same graph where no C kernels are
    wanted."""
    if not native(target):
        return graph
    return graph_of_groups(Grouping(graph, target))


def graph_of_groups(g: Grouping) -> Graph:
    """The graph with every group that joins as a Fused node."""
    outputs, kept = _needed(g)
    units: list[tuple[int, Node]] = []
    for group, made in outputs.items():
        # An update follows the product that it is fused with, whose inputs can then be dropped.
        anchor = anchor_of(group.nodes) if group.late else None
        last = g.position[anchor] if anchor else max(g.position[n] for n in group.nodes)
        units.append((last, _fused(group, made) if group.joins else group.nodes[0]))
    units += [(g.position[n], n) for n in kept]
    return replace(g.graph, nodes=tuple(in_order(units)))


def _needed(g: Grouping) -> tuple[dict[Group, dict[Var, None]], dict[Node, None]]:
    """The groups that are needed, each with those of its values that are needed outside, and the
    views and created values that are."""
    outputs: dict[Group, dict[Var, None]] = {}
    kept: dict[Node, None] = {}
    stack = list(g.graph.outputs)
    for node in g.graph.nodes:
        if node.primitive.effect != "pure":
            stack += node.outputs
            stack += node.inputs
            outputs.setdefault(g.group[node], {})
    while stack:
        var = stack.pop()
        if var not in g.maker:
            continue
        node = g.maker[var]
        if node not in g.group:
            if node not in kept:
                kept[node] = None
                stack += node.inputs
            continue
        group = g.group[node]
        if group not in outputs or not group.body:
            outputs.setdefault(group, {})
            group.body = g.body(group.nodes, group.absorbs and group.joins)
            stack += read_by(group.body)
        outputs[group][var] = None
    return outputs, kept


def _fused(group: Group, made: dict[Var, None]) -> Node:
    outputs = tuple(n.outputs[0] for n in group.nodes if n.outputs[0] in made)
    body = body_of(group.body, outputs)
    return Node(Fused(body), body.inputs, outputs, (), group.nodes[-1].where)
