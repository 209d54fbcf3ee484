"""Casts around kernels: where no kernel takes a node's dtypes, its inputs are widened visibly."""

from __future__ import annotations

from ..abstract import Abstract
from ..backends import registry
from ..graph.ir import Graph, Node, Var
from ..location import point_at
from ..ops.arithmetic import Cast


def legalize(graph: Graph, device: str, providers: tuple[str, ...]) -> Graph:
    """The graph with Cast nodes before and after every node whose kernel is a lossless widening;
    the same graph if there is none."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.extend(_legal(node, device, providers))
    if len(nodes) == len(graph.nodes):
        return graph
    return Graph(
        graph.inputs, tuple(nodes), graph.outputs, graph.constants, graph.state, graph.name
    )


def _legal(node: Node, device: str, providers: tuple[str, ...]) -> list[Node]:
    dtypes = tuple(v.abstract.dtype for v in node.inputs)
    promised = tuple(v.abstract.dtype for v in node.outputs)
    formats = tuple(v.abstract.format for v in node.inputs)
    try:
        chosen = registry.select(node.primitive.name, device, dtypes, providers, promised, formats)
    except Exception as error:
        point_at(error, node.where, f"{node.primitive.name} was called")
        raise
    if chosen.cast is None:
        return [node]
    before, after = [], []
    inputs = []
    for var in node.inputs:
        wide = Var(Abstract(var.abstract.shape, chosen.cast))
        before.append(Node(Cast(chosen.cast), (var,), (wide,), (), node.where))
        inputs.append(wide)
    outputs = []
    given = chosen.entry.signature.expand_outputs(len(node.outputs))
    for var, dtype in zip(node.outputs, given, strict=True):
        out = var if var.abstract.dtype == dtype else Var(Abstract(var.abstract.shape, dtype))
        if out is not var:
            after.append(Node(Cast(var.abstract.dtype), (out,), (var,), (), node.where))
        outputs.append(out)
    middle = Node(node.primitive, tuple(inputs), tuple(outputs), node.consts, node.where)
    return [*before, middle, *after]
