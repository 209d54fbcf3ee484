"""Sums of gradients of slices: those of slices that do not overlap are one concatenation.

Each gradient alone is a whole array of zeros with a part in it, so that adding up those of T rows
takes T passes over all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ...ops.create import Full
from ...ops.elementwise import Add
from ...ops.shape import Concat, SliceGrad
from ..ir import Graph, Node, Var
from .rewrite import Rewriter, prune


def slices(graph: Graph) -> Graph:
    """The graph with every sum of SliceGrads of disjoint parts along one axis as one Concat of what
    they place, with zeros between; other terms of the sum are added to it.

    A sum with 0 is left out, so that -0.0 stays what it is.
    """
    if sum(isinstance(n.primitive, SliceGrad) for n in graph.nodes) < 2:
        return graph
    sums = {found.root: found for found in _sums(graph)}
    if not sums:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in sums:
            _join(rewriter, sums[node])
        else:
            rewriter.keep(node)
    return prune(rewriter.finish())


class Part(NamedTuple):
    """A value that stands from `begin` to `end` along `axis`, and in whole along the others."""

    axis: int
    begin: int
    end: int
    value: Var


class Sum(NamedTuple):
    """A tree of additions that ends in `root`: disjoint parts in order, and the other terms."""

    root: Node
    parts: list[Part]
    rest: list[Var]


def _sums(graph: Graph) -> Iterator[Sum]:
    makers, uses = graph.makers(), graph.uses()
    adds = {n for n in graph.nodes if _adds_alike(n)}
    inner = {n for a in adds for v in a.inputs if uses[v] == 1 and (n := makers.get(v)) in adds}
    for root in (n for n in graph.nodes if n in adds and n not in inner):
        leaves = [*_leaves(root, makers, inner)]
        found = {v: p for v in leaves if uses[v] == 1 and (p := _part(makers.get(v)))}
        parts = _disjoint([*found.values()])
        if len(parts) > 1:
            kept = set(parts)
            yield Sum(root, parts, [v for v in leaves if found.get(v) not in kept])


def _adds_alike(node: Node) -> bool:
    shapes = [v.abstract.shape for v in (*node.inputs, *node.outputs)]
    return isinstance(node.primitive, Add) and shapes[0] == shapes[1] == shapes[2]


def _leaves(root: Node, makers: dict[Var, Node], inner: Collection[Node]) -> Iterator[Var]:
    left = [*reversed(root.inputs)]
    while left:
        var = left.pop()
        node = makers.get(var)
        if node in inner and node is not None:
            left += reversed(node.inputs)
        else:
            yield var


def _part(node: Node | None) -> Part | None:
    """The part that a SliceGrad places, if it is whole along all axes but one."""
    grad = None if node is None else node.primitive
    if not isinstance(grad, SliceGrad) or node is None or any(s != 1 for s in grad.strides):
        return None
    extents = [*zip(grad.begin, grad.end, grad.shape, strict=True)]
    cut = [i for i, (begin, end, extent) in enumerate(extents) if (begin, end) != (0, extent)]
    if len(cut) != 1:
        return None
    begin, end, _ = extents[cut[0]]
    return Part(cut[0], begin, end, node.inputs[0]) if begin < end else None


def _disjoint(parts: Sequence[Part]) -> list[Part]:
    """Parts along the axis of most of them that do not overlap, in order."""
    axes = [part.axis for part in parts]
    axis = max(axes, key=axes.count, default=0)
    kept: list[Part] = []
    for part in sorted((p for p in parts if p.axis == axis), key=lambda p: p[1:3]):
        if not kept or part.begin >= kept[-1].end:
            kept.append(part)
    return kept


def _join(rewriter: Rewriter, found: Sum) -> None:
    """Write a sum as a Concat, to which the other terms are added."""
    root, where = found.root, found.root.where
    of, axis = root.outputs[0].abstract, found.parts[0].axis
    pieces: list[Var] = []
    ends = [0, *(part.end for part in found.parts)]
    begins = [*(part.begin for part in found.parts), of.shape[axis]]
    for i, (end, begin) in enumerate(zip(ends, begins, strict=True)):
        if begin > end:
            shape = (*of.shape[:axis], begin - end, *of.shape[axis + 1 :])
            pieces.append(rewriter.new(Full(shape, 0, of.dtype), (), where))
        if i < len(found.parts):
            pieces.append(rewriter.now(found.parts[i].value))
    total = rewriter.new(Concat(axis), tuple(pieces), where)
    for term in found.rest:
        total = rewriter.new(Add(), (rewriter.now(term), total), where)
    rewriter.replace(root.outputs, (total,))
