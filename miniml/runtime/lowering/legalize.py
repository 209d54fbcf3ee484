"""Casts around kernels: where no kernel takes a node's dtypes, Cast nodes widen its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...abstract import Abstract
from ...backends.selection import Selection, Target
from ...dtype import DType
from ...errors import KernelNotFoundError
from ...graph.ir import Graph, Node, Var
from ...location import point_at
from ...ops.arithmetic import Cast


def legalize(graph: Graph, target: Target) -> Graph:
    """The graph with Cast nodes before and after every node whose kernel is a lossless widening;
    the same graph if there is none."""
    nodes: list[Node] = []
    for node in graph.nodes:
        try:
            selection = select(node, target)
        except KernelNotFoundError:
            if not _arranged(node, target):
                raise
            nodes.append(node)
            continue
        nodes += [node] if selection.cast is None else _widened(node, selection, selection.cast)
    return graph if len(nodes) == len(graph.nodes) else replace(graph, nodes=tuple(nodes))


def _arranged(node: Node, target: Target) -> bool:
    """True where a kernel takes the dtypes as they are, but in other memory formats, which the pass
    `formats` sees to."""
    return bool(target.arranging(node.primitive.name, *node.abstracts))


def select(node: Node, target: Target) -> Selection:
    """The kernel of a node on a target; an error points at the node's line."""
    try:
        return target.select(node.primitive.name, *node.abstracts)
    except Exception as error:
        point_at(error, node.where)
        raise


def _widened(node: Node, selection: Selection, wide: DType) -> list[Node]:
    _, given = selection.entry.signature.expanded(len(node.inputs), len(node.outputs))
    inputs = _like(node.inputs, [wide] * len(node.inputs))
    outputs = _like(node.outputs, given)
    return [
        *_casts(node, node.inputs, inputs),
        replace(node, inputs=inputs, outputs=outputs),
        *_casts(node, outputs, node.outputs),
    ]


def _like(variables: Sequence[Var], dtypes: Sequence[DType]) -> tuple[Var, ...]:
    """Vars of the same shapes and these dtypes: the same Vars where they have them."""
    return tuple(
        v if v.abstract.dtype == d else Var(Abstract(v.abstract.shape, d))
        for v, d in zip(variables, dtypes, strict=True)
    )


def _casts(node: Node, sources: Sequence[Var], targets: Sequence[Var]) -> list[Node]:
    return [
        Node(Cast(target.abstract.dtype), (source,), (target,), (), node.where)
        for source, target in zip(sources, targets, strict=True)
        if source is not target
    ]
