"""Horizontal batching: equal operations on many small operands become one on their concatenation.

Unrolled recurrences are full of these: many rows multiplied by one matrix, and gradients of a
weight that are summed over the steps. Batching: sums of terms, and products with a common factor.
Stacks: values concatenated along axis 0, without a copy if they are adjacent already.
Lookups: x[i] y is computed as (x y)[i] if a table x has fewer rows than are read.
Slices: the gradient of a slice is a whole array of zeros with a part in it, so that adding up T of
them takes T passes over all rows; the sum is one concatenation of sums of what overlaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from ...core.abstract import Abstract, Shape, float16, float32, float64
from ...core.infer import infer
from ...core.primitive import Primitive
from ...ops.create import Full
from ...ops.elementwise import Add, Neg, Sub
from ...ops.index import Gather, IndexAdd, Scatter
from ...ops.linalg import MatMul
from ...ops.logic import Select
from ...ops.shape import Concat, Reshape, Slice, SliceGrad, SumTo
from ..ir import Graph, Node, Var, in_order
from .rewrite import Place, prune, replaced

CALL = 16 * 1024  # bytes copied in the time of a kernel call, 2 us
_MOST = 3  # intervals for each part, of which there are two less one where each overlaps the next


# --- Batching -------------------------------------------------------------------------------------


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
        """The operands to stack, input by input."""
        return zip(*[n.inputs for n in self.calls], strict=True)


class Sum(NamedTuple):
    """A tree of additions that ends in `root`. rest: the terms that stay as they are."""

    root: Node
    rest: tuple[Var, ...]
    terms: tuple[Terms, ...]


def _sums(stacks: Stacks) -> Iterator[Sum]:
    """The sums with terms that one call can add up."""
    for root, leaves in _additions(stacks.graph, stacks.only_read):
        groups: dict[object, list[Node]] = {}
        rest: list[Var] = []
        for var in leaves:
            term = stacks.only_read(var)
            kind = None if term is None else _kind(term)
            groups.setdefault(kind, []).append(term) if term and kind else rest.append(var)
        rest += [n.outputs[0] for g in groups.values() if len(g) == 1 for n in g]
        # Gradients are in the reverse order of the forward calls.
        terms = [
            Terms(tuple(sorted(g, key=stacks.made_at, reverse=True)))
            for g in groups.values()
            if len(g) > 1
        ]
        if terms:
            yield Sum(root, tuple(rest), tuple(terms))


def _additions(
    graph: Graph, only_read: Callable[[Var], Node | None]
) -> Iterator[tuple[Node, list[Var]]]:
    """The roots of trees of additions of one shape, each with its terms in order. only_read: gives
    the node that makes a Var which is used once."""
    adds = {n for n in graph.nodes if isinstance(n.primitive, Add)}
    adds = {n for n in adds if len({v.abstract.shape for v in (*n.inputs, *n.outputs)}) == 1}
    inner = {a for n in adds for v in n.inputs if (a := only_read(v)) in adds}
    for root in (n for n in graph.nodes if n in adds and n not in inner):
        left, leaves = [*reversed(root.inputs)], []
        while left:
            var = left.pop()
            node = only_read(var)
            if node is not None and node in inner:
                left += reversed(node.inputs)
            else:
                leaves.append(var)
        yield root, leaves


def _kind(node: Node) -> object:
    """Equal for calls whose sum is one call of their inputs stacked along axis 0; else None."""
    shapes = [v.abstract.shape for v in node.inputs]
    dtypes = [v.abstract.dtype for v in node.inputs]
    sums = _SUM_OVER_ROWS.get(type(node.primitive))
    if sums is None or not sums(node.primitive.attributes, *shapes):
        return None
    return node.primitive, *dtypes, *[s[1:] for s in shapes]


# True for a call that sums over the rows of its inputs, by its attributes and their shapes.
_SUM_OVER_ROWS: dict[type[Primitive], Callable[..., bool]] = {
    MatMul: lambda of, x, y: of["transpose_x"] > of["transpose_y"] and len(x) == len(y) == 2,
    SumTo: lambda of, x: len(of["shape"]) < len(x) or (len(x) > 0 and of["shape"][0] == 1),
    IndexAdd: lambda of, x, *i: (of["axes"], of["at"]) == ((0,), 0) and len(i[0]) > 0,
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
    """Replace the root by a sum of one call for each of the chosen terms, and of the rest."""
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
    """The nodes of each group that depend on no node of their own or of a later group, so that all
    groups can be joined without a cycle."""
    number = {n: i for i, group in enumerate(groups) for n in group}
    ahead: dict[Var, int] = {}  # bit i: depends on group i
    kept: list[list[Node]] = [[] for _ in groups]
    for node in stacks.graph.nodes if groups else ():
        bits = 0 if node.effect == "pure" else 1 << len(groups)
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
    """Replace products that share their second factor by slices of one product."""
    site = max(calls, key=stacks.made_at)
    rows = stacks.stacked(site, [n.inputs[0] for n in calls])
    product = stacks.call(site, calls[0].primitive, rows, calls[0].inputs[1])
    ends = accumulate((n.outputs[0].abstract.shape[0] for n in calls), initial=0)
    for node, (start, stop) in zip(calls, pairwise(ends), strict=True):
        stacks.slice(site, product, start, stop, out=node.outputs[0])
        stacks.drop(node)


# --- Stacks ---------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Rows `start` to `stop` of `base` along axis 0."""

    base: Var
    start: int
    stop: int


class Stacks:
    """A graph, the calls that replace some of its nodes, and the stacks among them.

    A node without replacement stays. Calls may read outputs of later ones: `finish` sorts them.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self._maker = graph.makers()
        self._uses = graph.uses()
        self._made = {v: i for i, v in enumerate(graph.definitions())}
        self._instead: dict[Node, list[Node]] = {}
        self._orders: dict[frozenset[Var], dict[Var, int]] = {}
        self._stacked: dict[tuple[Var, ...], Var] = {}

    def only_read(self, var: Var) -> Node | None:
        """The node that makes a Var which is used once."""
        return self._maker.get(var) if self._uses[var] == 1 else None

    def made_at(self, node: Node) -> int:
        """Position at which the last of a node's inputs is defined."""
        return max(self._made[v] for v in node.inputs)

    def note(self, order: Sequence[Var]) -> None:
        """Note that these will be stacked in this order."""
        self._orders.setdefault(frozenset(order), {v: i for i, v in enumerate(order)})

    def in_known_order(self, calls: Sequence[Node]) -> Sequence[Node]:
        """The calls in the order in which their first inputs are stacked elsewhere, if they are."""
        order = self._orders.get(frozenset([n.inputs[0] for n in calls]), {})
        return sorted(calls, key=lambda n: order.get(n.inputs[0], 0))

    def copied(self, parts: Sequence[Var]) -> int:
        """The bytes that a stack of these copies: none if another needs the same stack."""
        known = frozenset(parts) in self._orders or self._side_by_side(parts)
        return 0 if known else sum(v.abstract.nbytes for v in parts)

    def call(self, site: Node, primitive: Primitive, *inputs: Var, out: Var | None = None) -> Var:
        """The output of a new call at the position of the node `site`."""
        (made,) = infer(primitive, tuple([v.abstract for v in inputs]))
        node = Node(primitive, inputs, (out or Var(made),), (), site.where)
        self._instead.setdefault(site, []).append(node)
        self._maker[node.outputs[0]] = node
        return node.outputs[0]

    def drop(self, node: Node) -> None:
        """Remove a node whose outputs other calls make."""
        self._instead.setdefault(node, [])

    def name_last(self, node: Node) -> None:
        """Let the last call that replaces the node define its outputs."""
        calls = self._instead[node]
        calls[-1] = replace(calls[-1], outputs=node.outputs)

    def slice(self, site: Node, x: Var, start: int, stop: int, out: Var | None = None) -> Var:
        """Rows `start` to `stop` of x."""
        shape = x.abstract.shape
        begin, end = (start, *(0,) * (len(shape) - 1)), (stop, *shape[1:])
        return self.call(site, Slice(begin, end, (1,) * len(shape)), x, out=out)

    def stacked(self, site: Node, parts: Sequence[Var]) -> Var:
        """The parts, concatenated along axis 0."""
        name = tuple(parts)
        if name not in self._stacked:
            self._stacked[name] = self._stack(site, name)
        return self._stacked[name]

    def _stack(self, site: Node, parts: tuple[Var, ...]) -> Var:
        whole = self._side_by_side(parts)
        if whole is not None:
            return self._view(site, whole, parts)
        makers = [self._maker.get(v) for v in parts]
        # A scalar index would drop the axis.
        calls = [n for n in makers if n and n.primitive == Gather(0) and n.inputs[1].abstract.shape]
        if len(calls) == len(parts) and len({n.inputs[0] for n in calls}) == 1:
            indices = self.stacked(site, [n.inputs[1] for n in calls])
            return self.call(site, Gather(0), calls[0].inputs[0], indices)
        return self.call(site, Concat(0), *parts)

    def _side_by_side(self, parts: Sequence[Var]) -> Rows | None:
        """The adjacent rows of one Var that the parts are, if they are."""
        found = [self._rows(v) for v in parts]
        rows = [r for r in found if r is not None]
        joined = all(a.base is b.base and a.stop == b.start for a, b in pairwise(rows))
        if not joined or len(rows) < len(found):
            return None
        return Rows(rows[0].base, rows[0].start, rows[-1].stop)

    def _rows(self, var: Var) -> Rows | None:
        maker = self._maker.get(var)
        while maker is not None and type(maker.primitive).view == "reshape":
            maker = self._maker.get(maker.inputs[0])
        if maker is None or not isinstance(maker.primitive, Slice):
            return None
        begin, end = maker.primitive.begin, maker.primitive.end
        whole = (*(0,) * len(begin[1:]),), maker.inputs[0].abstract.shape[1:]
        if (begin[1:], end[1:]) != whole or set(maker.primitive.strides) != {1}:
            return None
        return Rows(maker.inputs[0], begin[0], end[0])

    def _view(self, site: Node, rows: Rows, parts: Sequence[Var]) -> Var:
        base, shape = rows.base, parts[0].abstract.shape
        if rows.stop - rows.start < base.abstract.shape[0]:
            base = self.slice(site, base, rows.start, rows.stop)
        shape = sum(v.abstract.shape[0] for v in parts), *shape[1:]
        return base if base.abstract.shape == shape else self.call(site, Reshape(shape), base)

    def finish(self) -> Graph:
        """The new graph; the old one if nothing has changed."""
        if not self._instead:
            return self.graph
        nodes = chain.from_iterable([self._instead.get(n, [n]) for n in self.graph.nodes])
        return replace(self.graph, nodes=in_order([*nodes]))


# --- Lookups before products ----------------------------------------------------------------------


# Multiply-adds of a product in the time of adding one element at an index.
ADDED = 16

WIDE = (float32, float64)


class Lookup(NamedTuple):
    """Rows of a matrix, one for each of the indices."""

    table: Var
    indices: Var

    @property
    def read(self) -> int:
        """Number of rows that are looked up."""
        return prod(self.indices.abstract.shape)

    @property
    def pays(self) -> bool:
        """True if a product with the table, and adding to its rows, is less work than a product
        with the rows that are looked up."""
        rows, width = self.table.abstract.shape
        exact = self.table.abstract.dtype in WIDE  # other dtypes would be rounded once more
        return exact and (self.read - rows) * width > ADDED * self.read


def lookups(graph: Graph) -> Graph:
    """The graph with x[i] y as (x y)[i], and its gradients alike: updates are added to the rows of
    the table first, then multiplied once.

    Rounding may differ, as the order of additions does. Rows that are not looked up do not
    contribute to the gradients, even if they are not finite.
    """
    if not any(isinstance(n.primitive, Gather | IndexAdd) for n in graph.nodes):
        return graph
    uses = graph.uses()
    sliced = Counter(n.inputs[0] for n in graph.nodes if isinstance(n.primitive, Slice))

    def change(at: Place) -> Var | None:
        primitive = at.node.primitive
        if isinstance(primitive, IndexAdd):
            return _added_product(at, primitive, uses)
        if isinstance(primitive, MatMul):
            return _product(at, primitive)
        if isinstance(primitive, Slice) and sliced[(x := at.node.inputs[0])] == uses[x]:
            return _slice(at, primitive)
        return None

    return replaced(graph, (IndexAdd, MatMul, Slice), change)


def _looked_up(at: Place, x: Var) -> Lookup | None:
    """The lookup that x is, or is a Reshape of."""
    view = at.made_by(x, Reshape)
    gather = at.made_by(x if view is None else view.inputs[0], Gather)
    if gather is None or gather.primitive != Gather(0):
        return None
    table = gather.inputs[0].abstract.shape
    by_rows = len(table) == 2 and x.abstract.shape[-1:] == table[1:]
    return Lookup(*gather.inputs) if by_rows else None


def _added(at: Place, updates: Var, lookup: Lookup) -> Var:
    """For each row of the table, the sum of the updates of that row."""
    shape = lookup.table.abstract.shape[0], updates.abstract.shape[-1]
    rows = at.reshaped(updates, lookup.read, shape[1])
    return at.new(IndexAdd((0,), 0, shape), rows, at.reshaped(lookup.indices, lookup.read))


def _where_read(at: Place, x: Var, lookup: Lookup) -> Var:
    """x with zeros in the rows that no index selects: these may be infinite in the table."""
    height, dtype = x.abstract.shape[0], x.abstract.dtype
    filled = np.zeros(height, "?"), np.array(True), np.zeros((), dtype)
    nowhere, true, zero = map(at.rewriter.constant, filled)
    read = at.new(Scatter(("tensor",)), nowhere, true, at.reshaped(lookup.indices, lookup.read))
    return at.new(Select(), at.reshaped(read, height, 1), x, zero)


def _product(at: Place, product: MatMul) -> Var | None:
    """x[i] y = (x y)[i], and x[i]^T d = x^T (d added to the rows i)"""
    x, y = at.inputs
    lookup = _looked_up(at, x)
    if lookup is None or not lookup.pays or len(y.abstract.shape) != 2:
        return None
    if not product.transpose_x:
        found = at.new(Gather(0), at.new(product, lookup.table, y), lookup.indices)
        return at.reshaped(found, *at.node.outputs[0].abstract.shape)
    if product.transpose_y or len(x.abstract.shape) != 2:
        return None
    return at.new(product, _where_read(at, lookup.table, lookup), _added(at, y, lookup))


def _slice(at: Place, part: Slice) -> Var | None:
    """Look up slices of (x y)[i] alone, each when it is needed, if nothing else of it is read: the
    whole is larger than its operands."""
    gather = at.made_by(at.inputs[0], Gather)
    if gather is None or at.made_by(gather.inputs[0], MatMul) is None:
        return None
    table, indices = gather.inputs
    whole, shape = (v.abstract.shape for v in (*at.inputs, *at.node.outputs))
    by_rows = gather.primitive == Gather(0) and len(indices.abstract.shape) == 1
    if not by_rows or part.dropped or shape[1:] != whole[1:] or set(part.strides[1:]) != {1}:
        return None
    rows = at.new(Slice(part.begin[:1], part.end[:1], part.strides[:1]), indices)
    return at.new(Gather(0), table, rows)


def _added_product(at: Place, add: IndexAdd, uses: Counter[Var]) -> Var | None:
    """(d y) added to the rows i = (d added to the rows i) y"""
    updates, indices, *others = at.inputs
    view = at.made_by(updates, Reshape)
    product = at.made_by(updates if view is None else view.inputs[0], MatMul)
    if product is None or not uses[updates] == uses[product.outputs[0]] == 1:
        return None
    same = product.outputs[0].abstract.shape[-1:] == updates.abstract.shape[-1:]
    if not same or others or (add.axes, add.at, len(add.shape)) != ((0,), 0, 2):
        return None
    d, y = product.inputs
    lookup = Lookup(Var(Abstract(add.shape, updates.abstract.dtype)), indices)
    turned = product.primitive.attributes["transpose_x"]
    if turned or len(y.abstract.shape) != 2 or len(d.abstract.shape) < 2 or not lookup.pays:
        return None
    return _where_read(at, at.new(product.primitive, _added(at, d, lookup), y), lookup)


# --- Slices ---------------------------------------------------------------------------------------


def slices(graph: Graph, overlapping: bool = False) -> Graph:
    """The graph with every sum of SliceGrads of parts along one axis as one Concat of what they
    place, with zeros between and sums where they overlap, if long ones may; other terms are added
    to it. Loops read such long parts in place, which is quicker.

    A sum with 0 is left out, so that -0.0 stays what it is.
    """
    if sum(isinstance(n.primitive, SliceGrad) for n in graph.nodes) < 2:
        return graph
    sums = {s.root: s for s in _sums_of_parts(graph) if overlapping or not s.in_place}
    if not sums:
        return graph
    change = lambda at: _sum(at, sums[at.node]) if at.node in sums else None  # noqa: E731
    return prune(replaced(graph, (Add,), change))


class Part(NamedTuple):
    """A value that stands from `begin` to `end` along `axis` of an array of `shape`, and in whole
    along the others; or, if `negated`, what has the other sign."""

    axis: int
    begin: int
    end: int
    value: Var
    shape: Shape
    negated: bool = False


class SumOfParts(NamedTuple):
    """A tree of additions that ends in `root`: parts along one axis, and the other terms."""

    root: Node
    parts: list[Part]
    rest: list[Var]

    @property
    def in_place(self) -> bool:
        """True if long parts overlap, of a dtype that loops read where they lie."""
        of, parts = self.root.outputs[0].abstract, self.parts
        if of.dtype == float16 or parts[0].shape != of.shape:
            return False
        long = all(2 * (p.end - p.begin) > of.shape[p.axis] for p in parts)
        return long and any(len(covering) > 1 for *_, covering in _intervals(parts))


def _sums_of_parts(graph: Graph) -> Iterator[SumOfParts]:
    makers, uses = graph.makers(), graph.uses()
    for root, leaves in _additions(graph, lambda v: makers.get(v) if uses[v] == 1 else None):
        found = {v: p for v in leaves if uses[v] == 1 and (p := _part(makers.get(v)))}
        found = {v: _without_sign(p, makers.get(p.value), uses) for v, p in found.items()}
        parts = _along_one_axis([*found.values()])
        if len(parts) > 1 and len(_intervals(parts)) <= _MOST * len(parts):
            kept = set(parts)
            yield SumOfParts(root, parts, [v for v in leaves if found.get(v) not in kept])


def _part(node: Node | None) -> Part | None:
    """The part that a SliceGrad places, if it is whole along all axes but one. Of that it may take
    each n-th element: a part along the second of two axes in its place."""
    grad = None if node is None else node.primitive
    if not isinstance(grad, SliceGrad) or node is None:
        return None
    (value,), whole = node.inputs, grad.shape
    runs = [*zip(grad.begin, grad.end, grad.strides, strict=True)]
    cut = [i for i, (run, extent) in enumerate(zip(runs, whole)) if run != (0, extent, 1)]
    if len(cut) != 1:
        return None
    axis, (begin, end, step) = cut[0], runs[cut[0]]
    if step == 1:
        return Part(axis, begin, end, value, whole) if begin < end else None
    count = value.abstract.shape[axis]
    if not 0 <= begin < step or count * step != whole[axis]:
        return None
    return Part(axis + 1, begin, begin + 1, value, (*whole[:axis], count, step, *whole[axis + 1 :]))


def _without_sign(part: Part, maker: Node | None, uses: Mapping[Var, int]) -> Part:
    """The part of what is negated for it alone: of a sum of slices it is subtracted."""
    if maker is None or not isinstance(maker.primitive, Neg) or uses[part.value] > 1:
        return part
    return part._replace(value=maker.inputs[0], negated=True)


def _along_one_axis(parts: Sequence[Part]) -> list[Part]:
    """Parts along the axis of most of them."""
    axes = [(part.axis, part.shape) for part in parts]
    most = max(axes, key=axes.count, default=None)
    return [part for part, axis in zip(parts, axes, strict=True) if axis == most]


def _intervals(parts: Sequence[Part]) -> list[tuple[int, int, Sequence[Part]]]:
    """Intervals between ends of parts, with the parts that cover each in the order of the sum."""
    ends = sorted({end for part in parts for end in part[1:3]})
    return [
        (begin, end, [p for p in parts if p.begin <= begin and end <= p.end])
        for begin, end in pairwise(ends)
    ]


def _sum(at: Place, found: SumOfParts) -> Var:
    """The sum as a Concat, to which the other terms are added."""
    of, axis, whole = at.node.outputs[0].abstract, found.parts[0].axis, found.parts[0].shape
    covered = _intervals(found.parts)
    pieces: list[Var] = []
    for begin, end, parts in ((0, covered[0][0], ()), *covered, (covered[-1][1], whole[axis], ())):
        shape = (*whole[:axis], end - begin, *whole[axis + 1 :])
        terms = [(_cut(at, part, begin, shape), part.negated) for part in parts]
        if begin < end:
            zeros = Full(shape, 0, of.dtype)
            pieces.append(_signed_sum(at, terms) if terms else at.new(zeros))
    total = at.reshaped(at.new(Concat(axis), *pieces), *of.shape)
    for term in found.rest:
        total = at.new(Add(), at.rewriter.now(term), total)
    return total


def _signed_sum(at: Place, terms: Sequence[tuple[Var, bool]]) -> Var:
    """The sum of values, of which those that are negated are subtracted, to the sign of zeros."""
    (total, negated), *rest = terms
    for value, subtracted in rest:
        if negated and not subtracted:
            total = at.new(Sub(), value, total)
        else:
            total = at.new(Neg(), total) if negated else total
            total = at.new(Sub() if subtracted else Add(), total, value)
        negated = False
    return at.new(Neg(), total) if negated else total


def _cut(at: Place, part: Part, begin: int, shape: Shape) -> Var:
    """The values that a part places in the interval of this shape that begins there."""
    axis = part.axis
    whole = (*part.shape[:axis], part.end - part.begin, *part.shape[axis + 1 :])
    value = at.reshaped(at.rewriter.now(part.value), *whole)
    if whole == shape:
        return value
    first = tuple([begin - part.begin if a == axis else 0 for a in range(len(shape))])
    last = tuple([b + n for b, n in zip(first, shape, strict=True)])
    return at.new(Slice(first, last, (1,) * len(shape)), value)
