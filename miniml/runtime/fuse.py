"""Fusion passes: nodes that share a loop nest become one Fused node, where C kernels come first.

Selections: cheap branches are both computed, so that they share loops with what is around them.
Fusion: the graph of groups, its nodes sorted topologically; then Grouping: which nodes share a
group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import pairwise
from math import inf, prod

import numpy as np

from ..backends.selection import Target
from ..core.abstract import HALVES, Abstract
from ..core.errors import GraphError, KernelNotFoundError
from ..core.primitive import Primitive
from ..core.scope import Location
from ..core.settings import current
from ..graph.ir import Graph, Node, Var, only_for_state
from ..graph.passes.batch_products import slices as concatenated
from ..graph.passes.loops import loops
from ..graph.passes.rewrite import Rewriter, everywhere, folded, prune, share
from ..ops.control import Cond, Fused
from ..ops.elementwise import Add
from ..ops.logic import Select
from ..ops.shape import Concat, Reshape, SliceGrad, Transpose
from .codegen import DEAR, anchor_of, anchors, tail
from .launch import in_c, native, select
from .nest import (
    FREE,
    Apart,
    Compound,
    Member,
    Nest,
    body_of,
    in_parts,
    kind_of,
    literal,
    loop_shape,
    read_by,
    scalar_of,
    slices,
)


def selections(graph: Graph, target: Target) -> Graph:
    """The graph with both branches computed, and their outputs selected, in place of a Cond whose
    branches have no effect, cannot fail and take less time than a branch; where C for the CPU comes
    first. Loops lose what their steps no longer do under a condition."""
    settings = current()
    if not in_c(target) or settings.check_nan:  # a branch that is not taken may have a NaN
        return graph
    made = everywhere(partial(_selecting, target=target), graph)
    return made if made is graph or "loops" in settings.disabled_passes else loops(made)


def _selecting(graph: Graph, target: Target) -> Graph:
    """`selections` of the nodes of one graph."""
    if not any(isinstance(n.primitive, Cond) for n in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if not (isinstance(node.primitive, Cond) and _selected(rewriter, node, target)):
            rewriter.keep(node)
    return share(rewriter.finish())


# A branch in C takes some 20 ns longer than its operations, and no loop goes over it and over its
# neighbours. Meanwhile about `_MOST` vectors pass through an operation, or one number in `_DEAR` of
# them through an expensive function. From 1.5 times that work on, scans whose steps take either
# branch equally often are no faster; one that is hardly ever taken costs its whole time.
_LANES, _DEAR, _MOST = 16, 20, 200


def _selected(rewriter: Rewriter, node: Node, target: Target) -> bool:
    """Append the nodes of both branches and the selection of their outputs in place of a Cond;
    False where only one is to be computed."""
    cond = node.primitive
    assert isinstance(cond, Cond)
    yes, no = cond.on_true, cond.on_false
    work = sum(_work(n, target) for n in (*yes.nodes, *no.nodes))
    if yes.state or no.state or work + sum(map(_vectors, node.outputs)) > _MOST:
        return False
    pred, *operands = rewriter.inputs(node)
    given = [operands[i] for i in cond.true_takes], [operands[i] for i in cond.false_takes]
    ends = zip(_append(rewriter, yes, given[0]), _append(rewriter, no, given[1]), strict=True)
    for out, (one, other) in zip(node.outputs, ends, strict=True):
        if one is other:
            rewriter.replace((out,), (one,))
        else:
            rewriter.keep(Node(Select(), (pred, one, other), (out,), (), node.where))
    return True


def _work(node: Node, target: Target) -> float:
    """Operations of a node on vectors; endless if it may fail, or is no loop over elements."""
    kind = kind_of(node)
    if node.effect == "pure" and (kind in FREE or _is_view(node, target)):
        return 0
    if node.effect != "pure" or kind != "elements" or not _in_loops(node, kind, target):
        return inf
    dear = scalar_of(node).expression.words & DEAR
    return _DEAR * node.outputs[0].abstract.size if dear else _vectors(node.outputs[0])


def _is_view(node: Node, target: Target) -> bool:
    try:
        entry = select(node, target).entry
    except KernelNotFoundError:  # none before `legalize`
        return False
    return entry.built_in and entry.view is not None


def _vectors(var: Var) -> int:
    return -(-var.abstract.size // _LANES)


def _append(rewriter: Rewriter, branch: Graph, inputs: Sequence[Var]) -> list[Var]:
    """Append the nodes of a branch, which other Conds may have as well; its outputs."""
    now = dict(zip(branch.inputs, inputs, strict=True))
    now |= {v: rewriter.constant(np.asarray(v.abstract.value)) for v in branch.constants}
    for node in branch.nodes:
        now |= {v: Var(v.abstract) for v in node.outputs}
        inputs, outputs = ([now[v] for v in of] for of in (node.inputs, node.outputs))
        rewriter.keep(replace(node, inputs=tuple(inputs), outputs=tuple(outputs)))
    return [now[v] for v in branch.outputs]


# --- Parts in place -------------------------------------------------------------------------------

_AGAIN, _WORK = 6, 24  # operations that are computed for each of several parts anew, or for one
_JOINED = 4  # parts among which loops select
_LONG = 64  # elements of a row, or of the axes inside, from which on that pays


def placed(graph: Graph, target: Target) -> Graph:
    """The graph in which what is put among zeros or joined with others is computed of what lies
    there: loops over the whole output read slices in place, and select among the parts of a Concat.
    If no C kernels for the CPU are wanted, or what is computed beside a part may be NaN, sums of
    parts that overlap are one Concat."""
    if {SliceGrad, Concat}.isdisjoint(type(n.primitive) for n in graph.nodes):
        return graph
    if not in_c(target) or current().check_nan:
        return concatenated(graph, overlapping=True)
    return _Placement(graph).rewritten()


class _Placement:
    """Rewriting of one graph. times: how often a value is put somewhere, if it is only read for
    that, or to compute or cut such values; work: the operations that compute it of others."""

    def __init__(self, graph: Graph):
        self.graph, self.rewriter = graph, Rewriter(graph)
        self.maker, self.readers = graph.makers(), graph.readers()
        self.elements = {n for n in graph.nodes if kind_of(n) == "elements"}
        self.joins = {n for n in graph.nodes if self._selects(n)}
        self.times: dict[Var, int] = {}
        self.work: Counter[Var] = Counter()
        for node in reversed(graph.nodes):
            times = [self._times(r) for v in node.outputs for r in self.readers[v]]
            if all(times) and {*node.outputs}.isdisjoint(graph.outputs):
                self.times |= dict.fromkeys(node.outputs, sum(times))
        for node in graph.nodes:
            if slices(node) or (node in self.elements and node.outputs[0] in self.times):
                own = sum(self.work[v] for v in node.inputs) + (not slices(node))
                self.work[node.outputs[0]] = own

    def rewritten(self) -> Graph:
        """The graph with rewritten nodes."""
        for node in self.graph.nodes:
            if _puts(node):
                added = all(type(r.primitive) is Add for r in self.readers[node.outputs[0]])
                found = self._put(node.inputs[0], (node.primitive,), 1 if added else 2, node.where)
                self.rewriter.replace(node.outputs, [found])
            elif node in self.joins:
                self.rewriter.replace(node.outputs, [self._selected(node)])
            else:
                self.rewriter.keep(node)
        return prune(self.rewriter.finish())

    def _selects(self, node: Node) -> bool:
        """True for a Concat of a few parts, all slices, or some slices or computed for it, of long
        rows; unless they are blocks that are kept in memory, or computed where they are joined."""
        (out, *_), parts, shape = node.outputs, node.inputs, node.outputs[0].abstract.shape
        concat = type(node.primitive) is Concat and 1 < len(parts) <= _JOINED
        if not concat or kind_of(node) == "join" or out.abstract.dtype in HALVES:
            return False
        if any(v.abstract.format is not None or not v.abstract.size for v in (out, *parts)):
            return False
        axis, last = _joined_axis(node), _joined_axis(node) == len(shape) - 1
        if prod(shape[:axis]) == 1 and not any(r in self.elements for r in self.readers[out]):
            return False
        makers = [(v, self.maker[v]) for v in parts if v in self.maker]
        cut = [slices(n) for _, n in makers]
        made = [n in self.elements and self.readers[v] == [node] for v, n in makers]
        long = prod(shape[axis:]) >= _LONG
        return (long and any((*cut, *made))) or (last and sum(cut) == len(parts))

    def _times(self, reader: Node) -> int:
        """The number of places where a reader puts a value; 0 if it does something else."""
        if _puts(reader) or reader in self.joins:
            return 1
        each = reader in self.elements or slices(reader)
        return self.times.get(reader.outputs[0], 0) if each else 0

    def _selected(self, node: Node) -> Var:
        """The elements of a Concat, selected from its parts."""
        shape, axis, end = node.outputs[0].abstract.shape, _joined_axis(node), 0
        inner = shape[axis + 1 :]
        inner = inner if prod(inner) < _LONG else (1,) * len(inner)
        number = np.arange(shape[axis]).repeat(prod(inner)).reshape(-1, *inner)
        parts: list[tuple[Var, Var]] = []
        for var in node.inputs:
            begin, end = end, end + var.abstract.shape[axis]
            runs = [(begin, end) if a == axis else (0, n) for a, n in enumerate(shape)]
            first, last = zip(*runs, strict=True)
            put = SliceGrad(shape, first, last, (1,) * len(shape))
            value = self._put(var, (put,), 0, node.where)
            parts.append((self.rewriter.constant(number < end), value))
        _, total = parts.pop()
        for before, value in reversed(parts):
            total = self.rewriter.new(Select(), (before, value, total), node.where)
        return total

    def _put(
        self, var: Var, windows: tuple[Primitive, ...], zeros: int, where: Location | None
    ) -> Var:
        """Windows on a value, one on another, or what is made of such. zeros: as of `_is_cheap`."""
        node = self.maker.get(var)
        if node is not None and slices(node):
            return self._put(node.inputs[0], (node.primitive, *windows), zeros, where)
        if node is not None and self._is_cheap(node, zeros):
            inputs = [v if literal(v) else self._put(v, windows, zeros, where) for v in node.inputs]
            return self.rewriter.new(node.primitive, tuple(inputs), node.where)
        value = self.rewriter.now(var)
        for window in windows:
            value = self.rewriter.new(window, (value,), where)
        return value

    def _is_cheap(self, node: Node, zeros: int) -> bool:
        """True for what may be computed of parts. zeros: 1 if it has to be 0 where its inputs are,
        2 if that is to be positive."""
        out, given = node.outputs[0], [v for v in node.inputs if not literal(v)]
        if node not in self.elements or out not in self.times or node.consts:
            return False
        alone = len(given) == 1 or self.times[out] == 1
        alike = all(v.abstract.shape == out.abstract.shape for v in given)
        if (
            not alike
            or any(v.abstract.dtype in HALVES for v in given)
            or self.work[out] > (_WORK if alone else _AGAIN)
        ):
            return False
        dear = scalar_of(node).expression.words & (DEAR | {"index"})  # or different there
        return not dear and (not zeros or self._of_zeros(node) >= zeros)

    def _of_zeros(self, node: Node) -> int:
        """2 for a function that gives 0 where its inputs are 0, 1 for one that gives -0, else 0."""
        given = [(v, v.abstract.dtype) for v in node.inputs]
        inputs = [v if literal(v) else Var(Abstract((), d, np.zeros((), d))) for v, d in given]
        outputs = (Var(Abstract((), node.outputs[0].abstract.dtype)),)
        found = folded(self.rewriter, replace(node, inputs=tuple(inputs), outputs=outputs))
        if found is None or found[0].any():
            return 0
        return 2 - bool(np.signbit(found[0].real).any())


def _joined_axis(node: Node) -> int:
    axis: int = node.attrs["axis"] % len(node.outputs[0].abstract.shape)
    return axis


def _puts(node: Node) -> bool:
    """True for a part among zeros."""
    return type(node.primitive) is SliceGrad and kind_of(node) == "window"


# --- Fusion ---------------------------------------------------------------------------------------


def fuse(graph: Graph, target: Target) -> Graph:
    """The graph with groups of nodes as Fused nodes; the same graph if no C kernels are wanted."""
    if not native(target):
        return graph
    return graph_of_groups(Grouping(graph, target))


def graph_of_groups(g: Grouping) -> Graph:
    """The graph with every group that joins as a Fused node."""
    outputs, kept = _needed(g)
    _Arrangement(g, outputs, kept).arrange()
    units: list[tuple[int, Node]] = []
    for group, made in outputs.items():
        # An update follows the product that it is fused with, whose inputs can then be dropped.
        anchor = anchor_of(group.nodes) if group.late else None
        last = g.position[anchor] if anchor else max(g.position[n] for n in group.nodes)
        units.append((last, _fused(group, made, g.kinds) if group.joins else group.nodes[0]))
    units += [(g.position[n], n) for n in kept]
    return replace(g.graph, nodes=tuple(sorted_topologically(units)))


def _needed(g: Grouping) -> tuple[dict[Group, dict[Var, None]], dict[Node, None]]:
    """Live groups, each with its values used outside, and live views and created values."""
    outputs: dict[Group, dict[Var, None]] = {}
    kept: dict[Node, None] = {}
    stack = list(g.graph.outputs)
    for node in g.graph.nodes:
        if node.effect != "pure":
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


class _Arrangement:
    """Order of memory of what groups store: where the loops of a group go over all other arrays in
    one order, its results have that, too. They are stored as the transposes that alone read them
    have them, which saves a copy, and such that other groups read them in the order of theirs."""

    def __init__(
        self, g: Grouping, outputs: dict[Group, dict[Var, None]], kept: dict[Node, None]
    ) -> None:
        self.g, self.outputs, self.kept = g, outputs, kept
        self.readers: dict[Var, list[Group]] = {}
        for group in outputs:
            for var in read_by(group.body or group.nodes):
                self.readers.setdefault(var, []).append(group)
        self.given = Counter([*g.graph.outputs, *(n.inputs[0] for n in kept if n.inputs)])
        views = (n for n in kept if type(n.primitive).view in ("reshape", "transpose"))
        self.views = {n.inputs[0]: n for n in views}

    def arrange(self) -> None:
        joined = (group for group in self.outputs if group.joins)
        for group in sorted(joined, key=lambda u: self.g.position[u.nodes[0]]):
            self._turn(group)

    def _stored(self, group: Group) -> tuple[list[Node], list[Var]]:
        """Views that alone read results of a group; the results, or what those make of them, that
        others than groups read."""
        found, ends = list[Node](), list[Var]()
        for var in filter(self.given.get, self.outputs[group]):
            chain, last = [], var
            while self.given[last] == 1 and last in self.views and last not in self.readers:
                chain.append(self.views[last])
                last = chain[-1].outputs[0]
            turned = any(map(_transposes, chain))
            found += chain if turned else ()
            ends.append(last if turned else var)
        return found, ends

    def _turn(self, group: Group) -> None:
        """Store all results of a group in the order of its loops, if these and those of readers
        then have one."""
        views, ends = self._stored(group)
        body = [*dict.fromkeys((*group.body, *views))]  # which may read them itself
        found = self.g.in_order(body, ends) if any(map(_transposes, body)) else None
        inner = [v for v in self.outputs[group] if not self.given[v]]
        plain = all(v.abstract.format is None for v in inner)  # views see the order of the shape
        if not (found and plain and all({*found[1]}.issuperset(found[0][v]) for v in inner)):
            return
        readers, stored, before = dict[Group, list[Node]](), dict.fromkeys(ends), len(body)
        for var in inner:
            turned, there, back = self._turned(var, found[0][var], found[1])
            stored[turned] = None
            body += there
            for reader in self.readers[var] if back else ():
                readers.setdefault(reader, []).extend(back)
        loops = len(body) == before or self.g.in_order(body, [*stored]) is not None
        if loops and all(self._reads(reader, back) for reader, back in readers.items()):
            self.outputs[group], group.body = stored, body
            for view in views:
                del self.kept[view]
            for reader, back in readers.items():
                reader.body = [*back, *reader.body]

    def _reads(self, group: Group, back: list[Node]) -> bool:
        """True if a group goes over all its arrays in one order when it reads such views."""
        views, ends = self._stored(group)
        body = [*dict.fromkeys((*back, *group.body, *views))]
        seen = {n.outputs[0] for n in back}
        windows = any(self.g.kinds[n] == "window" and n.inputs[0] in seen for n in body)
        return group.joins and not windows and self.g.in_order(body, ends) is not None

    def _turned(
        self, var: Var, axes: Compound, order: Compound
    ) -> tuple[Var, list[Node], list[Node]]:
        """A value in this order of axes, the views that put it there, and those back."""
        wanted = [a for a in order if a in axes]
        if wanted == [*axes]:
            return var, [], []
        shapes = [tuple([a.extent for a in of]) for of in (axes, axes, wanted)]
        apart, same, stored = (Var(Abstract(shape, var.abstract.dtype)) for shape in shapes)
        there = [
            Node(Reshape(apart.abstract.shape), (var,), (apart,)),
            Node(Transpose(tuple([axes.index(a) for a in wanted])), (apart,), (stored,)),
        ]
        back = [
            Node(Transpose(tuple([wanted.index(a) for a in axes])), (stored,), (same,)),
            Node(Reshape(var.abstract.shape), (same,), (var,)),
        ]
        self.g.kinds |= dict.fromkeys((*there, *back), "view")
        return stored, there, back


def _transposes(node: Node) -> bool:
    return type(node.primitive).view == "transpose"


def _fused(group: Group, made: dict[Var, None], kinds: Mapping[Node, Member]) -> Node:
    outputs = tuple(n.outputs[0] for n in group.body if n.outputs[0] in made)
    body = body_of(group.body, outputs, kinds)
    return Node(Fused(body), body.inputs, outputs, (), group.nodes[-1].where)


def sorted_topologically(units: Sequence[tuple[int, Node]]) -> Iterator[Node]:
    """Topological order of the nodes, near that of the program; those of one effect keep theirs.
    GraphError for a cycle."""
    maker = {v: i for i, (_, n) in enumerate(units) for v in n.outputs}
    before = [{maker[v] for v in n.inputs if v in maker} for _, n in units]
    effects: dict[str, list[tuple[int, int]]] = {"ordered": [], "state": []}
    for i, (at, node) in enumerate(units):
        if node.effect != "pure":
            effects[node.effect].append((at, i))
    for found in effects.values():
        for (_, one), (_, other) in pairwise(sorted(found)):
            before[other].add(one)
    sorter = TopologicalSorter(dict(enumerate(before)))
    with suppress(CycleError):  # said below
        sorter.prepare()
    count, ready = 0, list[tuple[int, int]]()
    while sorter.is_active():
        for i in sorter.get_ready():
            heappush(ready, (units[i][0], i))
        _, i = heappop(ready)
        count += 1
        yield units[i][1]
        sorter.done(i)
    if count < len(units):
        raise GraphError(
            f"{len(units) - count} nodes need each other's results; disabled_passes='fuse' leaves "
            "out the pass that joined them"
        )


# --- Grouping -------------------------------------------------------------------------------------

_RUN = 32  # elements of a joined row that fill vectors of expensive functions
LARGEST = 48  # nodes of a group: longer texts compile slowly and spill registers
ARRAYS = 24  # read and written by one loop: more streams than that are slow


class Grouping:
    """Partition of a graph's nodes into groups. group: of each node other than views and created
    values; those are duplicated in every group that reads them."""

    def __init__(self, graph: Graph, target: Target):
        self.graph, self.target = graph, target
        self.position = {n: i for i, n in enumerate(graph.nodes)}
        self.maker = graph.makers()
        self.kinds = {n: kind_of(n) for n in graph.nodes}
        self.free = {n for n, kind in self.kinds.items() if kind in FREE}
        self.in_loops = {n for n, kind in self.kinds.items() if _in_loops(n, kind, target)}
        self.roots: dict[Var, Var] = {}
        self.refusals: dict[object, str] = {}
        self.group: dict[Node, Group] = {}
        self._ordered: Group | None = None  # of the last node whose order is kept
        late = only_for_state(graph, self._total)
        for node in graph.nodes:
            if node not in self.free:
                self._place(node, node in late)
        self._join_readers()
        for node in graph.nodes:
            if self.kinds[node] == "join" and len(self.group[node].nodes) == 1:
                self.group[node].joins = False  # of values in memory, which its own kernel copies
        readers = graph.readers()
        for node in graph.nodes:
            if anchors(node) and select(node, target).entry.provider == "cc":
                self._anchor(self.group[node], readers)

    def _total(self, node: Node) -> bool:
        """True for nodes whose kernels cannot fail: those in C, and NumPy's declared so."""
        if node in self.free or node in self.in_loops:
            return True
        entry = select(node, self.target).entry
        return entry.built_in and (entry.view is not None or entry.total)

    def root(self, var: Var) -> Var:
        """The value that `var` is a view or a slice of."""
        if var not in self.roots:
            node = self.maker.get(var)
            viewed = node is not None and self.kinds[node] in ("view", "window")
            self.roots[var] = self.root(node.inputs[0]) if node is not None and viewed else var
        return self.roots[var]

    def _makers(self, roots: Iterable[Var]) -> set[Group]:
        """The groups that compute these values."""
        nodes = map(self.maker.get, roots)
        return {self.group[n] for n in nodes if n in self.group}

    def _maker(self, root: Var) -> Group | None:
        node = self.maker.get(root)
        return None if node is None else self.group.get(node)

    def _place(self, node: Node, late: bool) -> None:
        read = {self.root(v) for v in node.inputs}
        makers = self._makers(read)
        ordered = node.effect == "ordered"
        if ordered and self._ordered is not None:
            makers.add(self._ordered)
        before = 0
        for maker in makers:
            before |= maker.before | maker.bits
            maker.after.add(node)
        group = Group([node], 1 << self.position[node], before, late, False, read=read)
        self.group[node] = group
        if ordered:
            self._ordered = group
        if node not in self.in_loops:
            return
        group.joins, group.shape = True, self._plain_shape(node)
        if group.shape is None and self._refusal(self.body([node])):
            group.absorbs = False
            group.joins = not self._refusal([node])
            return
        # The last one first: it may depend on another.
        for maker in sorted(makers, key=lambda g: -self.position[g.nodes[-1]]):
            group = self._joined(maker, group) or group

    def _plain_shape(self, node: Node) -> tuple[int, ...] | None:
        """The shape of an elementwise node that reads no views."""
        free = any(self.maker.get(v) in self.free for v in node.inputs)
        if free or self.kinds[node] != "elements":
            return None
        return loop_shape(node.outputs[0])

    def _joined(self, first: Group, second: Group) -> Group | None:
        """The two groups as one, `second` reading `first`; None if they must stay apart."""
        if first is second:
            return first
        return None if self.why_apart(first, second) else self._merged(first, second)

    def _merged(self, first: Group, second: Group) -> Group:
        nodes = sorted({*first.nodes, *second.nodes}, key=self.position.__getitem__)
        bits = first.bits | (second.bits if second.after else 0)  # those in the `before` of others
        before = (first.before | second.before) & ~bits
        shape = first.shape if first.shape == second.shape else None
        after = (first.after | second.after).difference(nodes)
        read = first.read | second.read
        group = Group(nodes, bits, before, first.late, True, True, shape, after, read)
        for node in nodes:
            self.group[node] = group
        self._propagate(group)
        return group

    def _propagate(self, group: Group) -> None:
        """Add the predecessors of a group to those of all its successors."""
        before, stack = group.before | group.bits, [*group.after]
        while stack:
            other = self.group[stack.pop()]
            if before & ~other.before:
                other.before |= before
                stack += other.after

    def why_apart(self, first: Group, second: Group) -> str:
        """Reason why two groups cannot be one; "" if they can."""
        if not (first.joins and second.joins and first.absorbs and second.absorbs):
            return "one has a kernel of its own"
        if first.late != second.late:
            return "one is an update of parameters, which comes last"
        if first.late and first.shape == () != second.shape:
            return "one is a number of the whole update, which all of it would wait for"
        if len(first.nodes) + len(second.nodes) > LARGEST:
            return f"more than {LARGEST} nodes"
        if self._between(first, second) or self._between(second, first):
            return "one needs something else that needs the other"
        outside = first.read | second.read
        own = None if len(outside) <= ARRAYS else (first, second)
        if own and sum(not literal(v) and self._maker(v) not in own for v in outside) > ARRAYS:
            return f"more than {ARRAYS} arrays"
        alike = first.shape is not None and first.shape == second.shape
        if alike and any(self._maker(v) is first for v in second.read):
            return ""  # the loop nest would show the same
        body = self.body({*first.nodes, *second.nodes})
        if self._sliced(body):
            return "one reads a slice of the other"
        return self._refusal(body) or _dear_in_short_rows(body, self.kinds)

    def _sliced(self, body: Sequence[Node]) -> bool:
        """True if a slice of a value, or of a view of it, is read in the body that makes it."""
        windows = (n for n in body if self.kinds[n] == "window")
        return any(self.maker.get(self.root(n.outputs[0])) in body for n in windows)

    def _refusal(self, nodes: Sequence[Node]) -> str:
        """Reason why nodes do not share their loops, memoized for unrolled loops; "" if they do."""
        return self._memoized(_structure(nodes), lambda: Nest(nodes, self.kinds))

    def _memoized(self, key: object, question: Callable[[], object]) -> str:
        found = self.refusals.get(key)
        if found is None:
            try:
                question()
                found = ""
            except Apart as reason:
                found = str(reason)
            self.refusals[key] = found
        return found

    def in_order(
        self, nodes: Sequence[Node], outputs: Sequence[Var]
    ) -> tuple[Mapping[Var, Compound], Compound] | None:
        """The axes of all values, and the order in which the loops that nodes share go over what
        they read and over `outputs`; None if there is none."""
        try:
            flat = Nest(nodes, self.kinds).flat
        except Apart:
            return None
        made = {n.outputs[0] for n in nodes if self.kinds[n] != "window"}
        arrays = [flat[v] for v in (*flat.keys() - made, *outputs)]
        order = max(arrays, key=len, default=())
        alike = all(axes == tuple([a for a in order if a in axes]) for axes in arrays)
        return (flat, order) if alike else None

    def _between(self, first: Group, second: Group) -> bool:
        """True if a third group depends on `first` and has to run before `second`."""
        if not second.before & first.bits:
            return False
        makers = self._makers(second.read) - {first, second}
        return any((m.bits | m.before) & first.bits for m in makers)

    def body(self, nodes: Iterable[Node], absorb: bool = True) -> list[Node]:
        """The nodes with the views and created values that they read, in program order."""
        found = dict.fromkeys(nodes)
        loops = [n for n in found if self.kinds[n]]  # a product reads whole arrays
        stack = [v for n in loops for v in n.inputs] if absorb else []
        while stack:
            node = self.maker.get(stack.pop())
            if node in self.free and node not in found:
                found[node] = None
                inner = self.maker.get(node.inputs[0]) if node.inputs else None
                if self.kinds[node] != "window" or (inner and slices(inner)):
                    stack += node.inputs
        return sorted(found, key=self.position.__getitem__)

    def _join_readers(self) -> None:
        """Horizontal fusion: groups that read the same array, as gradients do, read it once."""
        readers: dict[Var, dict[Node, None]] = {}
        for group in dict.fromkeys(self.group.values()):
            read = dict.fromkeys(self.root(v) for n in group.nodes for v in n.inputs)
            for var in read if group.joins else ():  # in order, so that all runs make equal groups
                if max(var.abstract.shape, default=1) > 1:
                    readers.setdefault(var, {})[group.nodes[0]] = None
        for nodes in readers.values():
            first, *rest = nodes
            for node in rest:
                first = first if self._joined(self.group[first], self.group[node]) else node

    def _anchor(self, first: Group, readers: Mapping[Var, Sequence[Node]]) -> None:
        """Fuse the first group that reads a product element by element as its epilogue."""
        (made,) = first.nodes[0].outputs
        for second in dict.fromkeys(
            self.group[n] for n in readers.get(made, ()) if n in self.group
        ):
            fits = second.joins and second.absorbs and first.late == second.late
            if fits and not self._between(first, second) and self._follows(first, second):
                first.joins = True
                self._merged(first, second)
                return

    def _follows(self, first: Group, second: Group) -> bool:
        """True if the second group can be an epilogue of the product that is the first."""
        if anchor_of(second.nodes) is not None:
            return False
        anchor = first.nodes[0]
        nodes = anchor, *self.body(second.nodes)
        if self._sliced(nodes):
            return False
        outputs = tuple(n.outputs[0] for n in second.nodes)
        key = "epilogue", _structure(nodes)
        return not self._memoized(key, lambda: tail(body_of(nodes, outputs, self.kinds), anchor))


@dataclass(eq=False, slots=True)
class Group:
    """Nodes that become one.

    bits: its identity, as a set of bits. before: the bits of all groups that must run before it.
    after: a node of each group that reads it. late: it only serves new values of parameters. joins:
    loops can compute it. absorbs: these loops also compute the views that it reads. shape: that of
    all its values, if all nodes are elementwise. read: the roots of what its nodes read. body: its
    nodes with the views that it absorbs.
    """

    nodes: list[Node]
    bits: int
    before: int
    late: bool
    joins: bool
    absorbs: bool = True
    shape: tuple[int, ...] | None = None
    after: set[Node] = field(default_factory=set)
    read: set[Var] = field(default_factory=set)
    body: list[Node] = field(default_factory=list)


def _in_loops(node: Node, kind: Member, target: Target) -> bool:
    """True for a node that loops in C compute: no kernel that ranks higher does."""
    if kind not in ("elements", "reduction", "join") or node.consts or in_parts(node, target):
        return False
    provider, providers = select(node, target).entry.provider, target.providers
    return provider not in providers or providers.index(provider) >= providers.index("cc")


def _dear_in_short_rows(nodes: Sequence[Node], kinds: Mapping[Node, Member]) -> str:
    """Reason why expensive functions are computed apart from a Concat: its rows hold so few of
    their elements that vectors are not filled; "" if there is none."""
    joins = [n for n in nodes if kinds[n] == "join"]
    runs = [prod(n.inputs[0].abstract.shape[n.attrs["axis"] :]) for n in joins]
    if not any(1 < run < _RUN for run in runs):
        return ""
    calls = (n for n in nodes if kinds[n] == "elements")
    dear = any(scalar_of(n).expression.words & DEAR for n in calls)
    return "one joins short rows of what the other computes at length" if dear else ""


def _structure(nodes: Sequence[Node]) -> object:
    """Key of the loop nest of nodes: equal for the steps of an unrolled loop."""
    numbers: dict[Var, int] = {}
    calls = []
    for n in nodes:
        values = (*n.inputs, *n.outputs)
        calls.append((n.primitive, *[numbers.setdefault(v, len(numbers)) for v in values]))
    return tuple(calls), tuple([(v.abstract.shape, v.abstract.format) for v in numbers])
