"""Anchors: a matrix product and the elementwise nodes that follow it, as one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from ...backends.cc.product import prefers_blas
from ...backends.expressions.rows import RowProgram
from ...backends.product import Product, product_of
from ...dtype import float32, float64
from ...graph.ir import Graph, Node
from .axes import Apart
from .build import Layout, outputs_program
from .members import typed

_ROW_MAJOR: Layout = MappingProxyType({})


def anchor_of(nodes: Sequence[Node]) -> Node | None:
    """The product among these nodes, if there is one."""
    return next((n for n in nodes if n.primitive.name == "MatMul"), None)


def anchors(node: Node) -> bool:
    """True for a product whose sums an epilogue may take: not of vectors, nor for the BLAS."""
    if node.primitive.name != "MatMul" or node.outputs[0].abstract.dtype not in (float32, float64):
        return False
    shape = node.outputs[0].abstract.shape
    operands = (*(v.abstract.shape for v in node.inputs), shape)
    if len(shape) < 2 or shape[-1] == 1 or any(0 in s or len(s) < 2 for s in operands):
        return False
    return not prefers_blas(product(node))


def product(node: Node, layout: Layout = _ROW_MAJOR) -> Product:
    """What an anchor computes."""
    return product_of(typed(node, layout)).folded


def tail(graph: Graph, anchor: Node, layout: Layout = _ROW_MAJOR) -> tuple[RowProgram, int]:
    """The row program of what follows the product in a body, for which the product is one more
    input, and the number of that one; Apart where it cannot be done element by element."""
    rest = tuple(n for n in graph.nodes if n is not anchor)
    made = {v for n in rest for v in n.outputs}
    if made.intersection(anchor.inputs):
        raise Apart("one computes an operand of the product")
    (sums,) = anchor.outputs
    inputs = (*graph.inputs, sums)
    return outputs_program(replace(graph, inputs=inputs, nodes=rest), sums, layout), len(inputs) - 1
