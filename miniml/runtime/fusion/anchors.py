"""Anchors: a matrix product or a convolution and the elementwise nodes that follow it, as one
kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ...backends.cc.convolve import convolution, source
from ...backends.cc.epilogue import epilogue
from ...backends.cc.loops import Printed
from ...backends.cc.product import packing, prefers_blas, product_text
from ...backends.cc.vectors import vectors
from ...backends.expressions.rows import RowProgram
from ...backends.product import Product, product_of
from ...backends.signature import ArraySpec
from ...dtype import float32, float64
from ...graph.ir import Graph, Node, Var
from .axes import Apart
from .build import Layout, outputs_program
from .members import literal, typed

_ROW_MAJOR: Layout = MappingProxyType({})
# The last axes of an anchor's output in memory, by its format: they are one row of its epilogue.
ROWS: dict[str, dict[str | None, int]] = {
    "MatMul": {None: 1},
    "Conv2D": {None: 2, "CHWN": 3, "NC16HW": 1},
}


def anchor_of(nodes: Sequence[Node]) -> Node | None:
    """The anchor among these nodes, if there is one."""
    return next((n for n in nodes if _row(n)), None)


def _row(node: Node) -> int:
    """How many axes are one row of the epilogue; 0 for a node that is no anchor."""
    return ROWS.get(node.primitive.name, {}).get(node.outputs[0].abstract.format, 0)


def anchors(node: Node) -> bool:
    """True for a convolution, or a product that is neither of vectors nor for the BLAS: an epilogue
    may take its sums. Constants of one element are no arrays that its loops could read."""
    if not _row(node) or node.outputs[0].abstract.dtype not in (float32, float64):
        return False
    if any(map(literal, node.inputs)):
        return False
    shape = node.outputs[0].abstract.shape
    operands = (*(v.abstract.shape for v in node.inputs), shape)
    if any(0 in s or len(s) < 2 for s in operands):
        return False
    return node.primitive.name != "MatMul" or not (shape[-1] == 1 or prefers_blas(product(node)))


def product(node: Node, layout: Layout = _ROW_MAJOR) -> Product:
    """What an anchor computes that is a product."""
    return product_of(typed(node, layout)).folded


def tail(graph: Graph, anchor: Node, layout: Layout = _ROW_MAJOR) -> tuple[RowProgram, int]:
    """The row program of what follows the anchor in a body, for which the anchor is one more input,
    and the number of that one; Apart where it cannot be done element by element."""
    rest = tuple(n for n in graph.nodes if n is not anchor)
    made = {v for n in rest for v in n.outputs}
    if made.intersection(anchor.inputs):
        raise Apart(f"one computes an operand of {anchor.primitive.name}")
    (sums,) = anchor.outputs
    inputs = (*graph.inputs, sums)
    body = replace(graph, inputs=inputs, nodes=rest)
    program = outputs_program(body, sums, _row(anchor), layout)
    return program, len(inputs) - 1


def bakes(body: Graph, var: Var) -> bool:
    """True for an input of a body that its kernel reads where it lies, in whatever order:
    convolutions read theirs in row-major order."""
    anchor = anchor_of(body.nodes)
    return anchor is None or anchor.primitive.name == "MatMul" or var not in anchor.inputs


def anchored(
    body: Graph, anchor: Node, layout: Layout, masked: tuple[str, ...] = ()
) -> tuple[RowProgram, Printed]:
    """The row program of what follows the anchor, and the kernel of the whole body."""
    program, sums = tail(body, anchor, layout)
    x, y = (body.inputs.index(v) for v in anchor.inputs)
    dtype, node = anchor.outputs[0].abstract.dtype, typed(anchor)
    if anchor.primitive.name == "MatMul":
        made = product(anchor, layout)
        text, shared = epilogue(program, sums, made.m)
        parts = made, dtype, text, (x, y), shared
        once = sum(n.inputs.count(anchor.inputs[1]) for n in body.nodes) == 1
        packed = partial(packing, *parts) if once else None
        return program, Printed(product_text(*parts), (), packed)
    text, shared = epilogue(program, sums, node.inputs[1].shape[0])
    v, workspace = vectors(dtype, masked), len(body.inputs) + len(body.outputs)
    made_of, size = source(convolution(node, v, text, (x, y, workspace)), v, shared)
    return program, Printed(made_of, (ArraySpec((size,), dtype),))
