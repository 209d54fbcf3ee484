"""Products whose result is transposed and then flattened are stored transposed."""

from __future__ import annotations

from dataclasses import replace

from ...abstract import Shape
from ...backends.selection import Target
from ...graph.ir import Graph, Node
from ...ops.linalg import MatMul
from .legalize import select
from .native import in_c


class TurnedMatMul(MatMul):
    """Transpose(axes) of the product."""

    differentiable = False
    axes: tuple[int, ...] = ()

    def infer_shape(self, x: Shape, y: Shape) -> Shape:
        shape = super().infer_shape(x, y)
        return tuple([shape[a] for a in self.axes])


def turn(graph: Graph, target: Target) -> Graph:
    """The graph with TurnedMatMul where only a Transpose reads a product, and then only Reshapes,
    which would have to copy; the same graph where no C kernels are wanted."""
    if not in_c(target):
        return graph
    maker, readers = graph.makers(), graph.readers()
    turned: dict[Node, Node] = {}
    for node in graph.nodes:
        made = maker.get(node.inputs[0]) if node.primitive.name == "Transpose" else None
        if made is None or readers[node.inputs[0]] != [node] or node.inputs[0] in graph.outputs:
            continue
        only = {n.primitive.name for n in readers[node.outputs[0]]} == {"Reshape"}
        if only and _storable(made, node.attrs["axes"], target):
            turned[made] = node
    gone = set(turned.values())
    nodes = (_turned(n, turned[n]) if n in turned else n for n in graph.nodes if n not in gone)
    return replace(graph, nodes=tuple(nodes)) if turned else graph


def _storable(node: Node, axes: Shape, target: Target) -> bool:
    """True for a product in C whose rows stay whole where its axes change places."""
    if node.primitive.name != "MatMul" or axes[-1] != len(axes) - 1:
        return False
    matrices = all(len(v.abstract.shape) > 1 for v in node.inputs)
    return matrices and select(node, target).entry.provider == "cc"


def _turned(node: Node, transpose: Node) -> Node:
    attributes = {**node.primitive.attributes, "axes": transpose.attrs["axes"]}
    return replace(node, primitive=TurnedMatMul(**attributes), outputs=transpose.outputs)
