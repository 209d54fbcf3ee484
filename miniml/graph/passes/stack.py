"""Stacking: what is done alike to many small operands is done once, to one behind the other.

Unrolled recurrences are full of it: many rows multiplied by one matrix, and gradients of a weight
that are summed over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from ...abstract import Shape
from ...ops.arithmetic import Add
from ...ops.index import IndexAdd
from ...ops.linalg import MatMul
from ...ops.shape import SumTo
from ...primitive import Primitive
from ..ir import Graph, Node, Var
from .prune import prune
from .stacks import Stacks

CALL = 16 * 1024
"""Bytes that are copied in the time that the call of a kernel takes, 2 us."""


def stack(graph: Graph) -> Graph:
    """The graph with products that share their second factor as slices of one product, and with
    sums of sums over rows (products x^T y, SumTo, IndexAdd) as one such sum over all rows.

    Rounding may differ, as the order of additions does.
    """
    stacks = Stacks(graph)
    sums = list(_sums(stacks))
    chosen = _chosen(stacks, sums)
    for calls in _products(stacks):
        _join(stacks, calls)
    for sum_ in sums:
        _add_up(stacks, sum_, chosen)
    return prune(stacks.finish())


class Terms(NamedTuple):
    """Calls whose sum is one call of their stacked inputs."""

    calls: tuple[Node, ...]

    def operands(self) -> Iterator[tuple[Var, ...]]:
        """What is to be stacked, input by input."""
        return zip(*[n.inputs for n in self.calls], strict=True)


class Sum(NamedTuple):
    """A tree of additions, of which `root` is the last. rest: the terms that stay as they are."""

    root: Node
    rest: tuple[Var, ...]
    terms: tuple[Terms, ...]


def _sums(stacks: Stacks) -> Iterator[Sum]:
    """The sums with terms that may be added up by one call."""
    adds = {n for n in stacks.graph.nodes if _adds_alike(n)}
    inner = {a for n in adds for v in n.inputs if (a := stacks.only_read(v)) in adds}
    for root in (n for n in stacks.graph.nodes if n in adds and n not in inner):
        groups: dict[object, list[Node]] = {}
        rest: list[Var] = []
        for var in _leaves(stacks, root, inner):
            term = stacks.only_read(var)
            kind = None if term is None else _kind(term)
            groups.setdefault(kind, []).append(term) if term and kind else rest.append(var)
        rest += [n.outputs[0] for g in groups.values() if len(g) == 1 for n in g]
        # Gradients come in the reverse order of what they belong to.
        terms = [
            Terms(tuple(sorted(g, key=stacks.made_at, reverse=True)))
            for g in groups.values()
            if len(g) > 1
        ]
        if terms:
            yield Sum(root, tuple(rest), tuple(terms))


def _adds_alike(node: Node) -> bool:
    shapes = [v.abstract.shape for v in (*node.inputs, *node.outputs)]
    return isinstance(node.primitive, Add) and shapes[0] == shapes[1] == shapes[2]


def _leaves(stacks: Stacks, root: Node, inner: set[Node]) -> Iterator[Var]:
    left = [*reversed(root.inputs)]
    while left:
        var = left.pop()
        node = stacks.only_read(var)
        if node in inner:
            left += reversed(node.inputs)
        else:
            yield var


def _kind(node: Node) -> object:
    """Equal for calls whose sum is one call of their inputs stacked along axis 0; else None."""
    shapes = [v.abstract.shape for v in node.inputs]
    dtypes = [v.abstract.dtype for v in node.inputs]
    sums = _SUM_OVER_ROWS.get(type(node.primitive))
    if sums is None or not sums(node.primitive.attributes, *shapes):
        return None
    return node.primitive, *dtypes, *[s[1:] for s in shapes]


def _product_sums(attributes: Mapping[str, Any], x: Shape, y: Shape) -> bool:
    turned = attributes["transpose_x"], attributes["transpose_y"]
    return turned == (True, False) and len(x) == len(y) == 2


def _sum_to_sums(attributes: Mapping[str, Any], x: Shape) -> bool:
    shape = attributes["shape"]
    return len(shape) < len(x) or (len(x) > 0 and shape[0] == 1)


def _index_add_sums(attributes: Mapping[str, Any], x: Shape, *indices: Shape) -> bool:
    by_rows = attributes["axes"] == (0,) and attributes["at"] == 0
    return by_rows and len(indices[0]) > 0


_SUM_OVER_ROWS: dict[type[Primitive], Callable[..., bool]] = {
    MatMul: _product_sums,
    SumTo: _sum_to_sums,
    IndexAdd: _index_add_sums,
}


def _chosen(stacks: Stacks, sums: Sequence[Sum]) -> set[Terms]:
    """The terms for which stacking pays; the orders of their stacks are noted.

    SumTo comes last: it costs more to copy its operand than to sum it.
    """
    chosen = set()
    every = [t for s in sums for t in s.terms]
    for terms in sorted(every, key=lambda t: isinstance(t.calls[0].primitive, SumTo)):
        saved = sum(n.outputs[0].abstract.nbytes + CALL for n in terms.calls[1:])
        if sum(map(stacks.copied, terms.operands())) <= saved:
            chosen.add(terms)
            for operand in terms.operands():
                stacks.note(operand)
    return chosen


def _add_up(stacks: Stacks, total: Sum, chosen: set[Terms]) -> None:
    """Put the sum of one call for each of the chosen terms, and of the rest, for the root."""
    root = total.root
    if chosen.isdisjoint(total.terms):
        return
    values = [*total.rest]
    for terms in total.terms:
        if terms in chosen:
            inputs = [stacks.stacked(root, operand) for operand in terms.operands()]
            values.append(stacks.call(root, terms.calls[0].primitive, *inputs))
        else:
            values = [*[n.outputs[0] for n in terms.calls], *values]
    value, *others = values
    for other in others:
        value = stacks.call(root, Add(), value, other)
    stacks.name_last(root)


def _products(stacks: Stacks) -> Iterator[Sequence[Node]]:
    """Products with one second factor, none of which depends on another, where stacking pays."""
    for found in _independent(stacks, _by_factor(stacks.graph)):
        calls = stacks.in_known_order(found)
        saved = (len(calls) - 1) * (calls[0].inputs[1].abstract.nbytes + CALL)
        if stacks.copied([n.inputs[0] for n in calls]) <= saved:
            yield calls


def _by_factor(graph: Graph) -> list[list[Node]]:
    groups: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.primitive, MatMul) and not node.primitive.transpose_x:
            x, y = node.inputs
            if len(x.abstract.shape) == len(y.abstract.shape) == 2:
                groups.setdefault((node.primitive, y), []).append(node)
    return [group for group in groups.values() if len(group) > 1]


def _independent(stacks: Stacks, groups: Sequence[list[Node]]) -> Iterator[list[Node]]:
    """The nodes of each group that depend on no node of their own or of a later group, so that
    all groups may be joined and no ring is made."""
    number = {n: i for i, group in enumerate(groups) for n in group}
    ahead: dict[Var, int] = {}  # bit i: depends on group i
    kept: list[list[Node]] = [[] for _ in groups]
    for node in stacks.graph.nodes if groups else ():
        bits = 0 if node.primitive.effect == "pure" else 1 << len(groups)
        for var in node.inputs:
            bits |= ahead.get(var, 0)
        if node in number:
            if not bits >> number[node]:
                kept[number[node]].append(node)
            bits |= 1 << number[node]
        if bits:
            ahead.update(dict.fromkeys(node.outputs, bits))
    return (nodes for nodes in kept if len(nodes) > 1)


def _join(stacks: Stacks, calls: Sequence[Node]) -> None:
    """Slices of one product instead of these, which share their second factor."""
    place = max(calls, key=stacks.made_at)
    rows = stacks.stacked(place, [n.inputs[0] for n in calls])
    product = stacks.call(place, calls[0].primitive, rows, calls[0].inputs[1])
    ends = accumulate((n.outputs[0].abstract.shape[0] for n in calls), initial=0)
    for node, (start, stop) in zip(calls, pairwise(ends), strict=True):
        stacks.slice(place, product, start, stop, out=node.outputs[0])
        stacks.drop(node)
