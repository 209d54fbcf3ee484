"""Fused nodes in words: their members and passes, and why neighbours are apart."""

from __future__ import annotations

from collections.abc import Iterator

from ...backends.expressions.rows import RowProgram
from ...graph.ir import Graph, Node
from ...ops.control import Fused
from .anchors import anchor_of, anchors, tail
from .axes import Apart
from .bodies import body_of
from .members import kind_of
from .nest import Nest


def members(node: Node, program: RowProgram | None) -> str:
    """What a fused node computes, and in how many passes over which rows."""
    names = " ".join(n.primitive.name for n in node.primitive.attributes["body"].nodes)
    if program is None:
        return names
    count = sum(bool(p.elements) for p in program.passes)
    rows = " x ".join(map(str, program.extents[: program.outer])) or "1"
    row = " x ".join(map(str, program.row)) or "1"
    return f"{names}; {count} {'pass' if count == 1 else 'passes'} over {rows} rows of {row}"


def neighbours(graph: Graph, home: str) -> Iterator[str]:
    """For each fused node and each that computes one of its inputs, why they are two."""
    maker = graph.makers()
    for node in graph.nodes:
        for other in dict.fromkeys(maker[v] for v in node.inputs if v in maker):
            if not isinstance(node.primitive, Fused):
                continue
            fused = isinstance(other.primitive, Fused)
            if fused or (home == "cpu" and anchor_of([other]) is not None):
                yield f"{name(other)} | {name(node)}: {apart(other, node)}"
            elif home == "cuda" and kind_of(other) == "":
                yield f"{other.primitive.name} | {name(node)}: {_alone(other)}"


def _alone(node: Node) -> str:
    """Why nothing is fused with a node that has a kernel by hand."""
    if node.primitive.name == "MatMul":
        return "products on CUDA have no epilogue"
    return "one has a kernel of its own"


def name(node: Node) -> str:
    """A node as `explain` lists it: a fused one by its members."""
    fused = isinstance(node.primitive, Fused)
    return str(node.primitive.attributes["body"].name) if fused else repr(node.primitive)


def apart(first: Node, second: Node) -> str:
    """Why an anchor or a fused node, and a fused one that reads it, are not one."""
    fused = isinstance(first.primitive, Fused)
    before = first.primitive.attributes["body"].nodes if fused else (first,)
    body = second.primitive.attributes["body"]
    nodes = tuple(dict.fromkeys((*before, *body.nodes)))
    anchor = anchor_of(nodes)
    if anchor_of([n for n in nodes if n is not anchor]) is not None:
        return "each has a product or a convolution"
    if anchor is not None and not anchors(anchor):
        return "it is a product of vectors, or a large one that the BLAS computes"
    try:
        if anchor is None:
            Nest(nodes)
        else:
            tail(body_of(nodes, body.outputs), anchor)
    except Apart as reason:
        return str(reason)
    return "other nodes stand between them, one updates parameters, or they would be too large"
