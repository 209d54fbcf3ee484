"""Stacks: values one behind the other along axis 0, without a copy where they lie so already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

from ...infer import infer
from ...ops.index import Gather
from ...ops.join import Concat, Slice
from ...ops.shape import Reshape
from ...primitive import Primitive
from ..ir import Graph, Node, Var
from .identities import RESHAPES


class Rows(NamedTuple):
    """Rows `start` to `stop` of `base` along axis 0."""

    base: Var
    start: int
    stop: int


class Stacks:
    """A graph, the calls that take the place of some of its nodes, and the stacks among them.

    A node that has none in its place stays. Calls may read what later ones make: `finish` puts all
    in order.
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
        """When the last of a node's inputs is made."""
        return max(self._made[v] for v in node.inputs)

    def note(self, order: Sequence[Var]) -> None:
        """These are going to be stacked in this order."""
        self._orders.setdefault(frozenset(order), {v: i for i, v in enumerate(order)})

    def in_known_order(self, calls: Sequence[Node]) -> Sequence[Node]:
        """The calls in the order in which their first inputs are stacked elsewhere, if they are."""
        order = self._orders.get(frozenset([n.inputs[0] for n in calls]), {})
        return sorted(calls, key=lambda n: order.get(n.inputs[0], 0))

    def copied(self, parts: Sequence[Var]) -> int:
        """The bytes that a stack of these copies: none where another needs the same."""
        known = frozenset(parts) in self._orders or self._side_by_side(parts)
        return 0 if known else sum(v.abstract.nbytes for v in parts)

    def call(self, place: Node, primitive: Primitive, *inputs: Var, out: Var | None = None) -> Var:
        """The output of a new call, which is made in the place of a node."""
        (made,) = infer(primitive, tuple([v.abstract for v in inputs]))
        node = Node(primitive, inputs, (out or Var(made),), (), place.where)
        self._instead.setdefault(place, []).append(node)
        self._maker[node.outputs[0]] = node
        return node.outputs[0]

    def drop(self, node: Node) -> None:
        """Take out a node whose outputs others make."""
        self._instead.setdefault(node, [])

    def name_last(self, node: Node) -> None:
        """The last call in the place of the node gives its outputs."""
        calls = self._instead[node]
        calls[-1] = replace(calls[-1], outputs=node.outputs)

    def slice(self, place: Node, x: Var, start: int, stop: int, out: Var | None = None) -> Var:
        """Rows `start` to `stop` of x."""
        shape = x.abstract.shape
        begin, end = (start, *(0,) * (len(shape) - 1)), (stop, *shape[1:])
        return self.call(place, Slice(begin, end, (1,) * len(shape)), x, out=out)

    def stacked(self, place: Node, parts: Sequence[Var]) -> Var:
        """The parts one behind the other."""
        name = tuple(parts)
        if name not in self._stacked:
            self._stacked[name] = self._stack(place, name)
        return self._stacked[name]

    def _stack(self, place: Node, parts: tuple[Var, ...]) -> Var:
        whole = self._side_by_side(parts)
        if whole is not None:
            return self._view(place, whole, parts)
        makers = [self._maker.get(v) for v in parts]
        calls = [n for n in makers if n is not None and n.primitive == Gather(0)]
        if len(calls) == len(parts) and len({n.inputs[0] for n in calls}) == 1:
            indices = self.stacked(place, [n.inputs[1] for n in calls])
            return self.call(place, Gather(0), calls[0].inputs[0], indices)
        return self.call(place, Concat(0), *parts)

    def _side_by_side(self, parts: Sequence[Var]) -> Rows | None:
        """The rows of one Var that the parts are, one behind the other."""
        found = [self._rows(v) for v in parts]
        rows = [r for r in found if r is not None]
        joined = all(a.base is b.base and a.stop == b.start for a, b in pairwise(rows))
        if not joined or len(rows) < len(found):
            return None
        return Rows(rows[0].base, rows[0].start, rows[-1].stop)

    def _rows(self, var: Var) -> Rows | None:
        maker = self._maker.get(var)
        while maker is not None and isinstance(maker.primitive, RESHAPES):
            maker = self._maker.get(maker.inputs[0])
        if maker is None or not isinstance(maker.primitive, Slice):
            return None
        begin, end = maker.primitive.begin, maker.primitive.end
        whole = (*(0,) * len(begin[1:]),), maker.inputs[0].abstract.shape[1:]
        if (begin[1:], end[1:]) != whole or set(maker.primitive.strides) != {1}:
            return None
        return Rows(maker.inputs[0], begin[0], end[0])

    def _view(self, place: Node, rows: Rows, parts: Sequence[Var]) -> Var:
        base, shape = rows.base, parts[0].abstract.shape
        if rows.stop - rows.start < base.abstract.shape[0]:
            base = self.slice(place, base, rows.start, rows.stop)
        shape = sum(v.abstract.shape[0] for v in parts), *shape[1:]
        return base if base.abstract.shape == shape else self.call(place, Reshape(shape), base)

    def finish(self) -> Graph:
        """The new graph; the old one if nothing has changed."""
        if not self._instead:
            return self.graph
        nodes = chain.from_iterable([self._instead.get(n, [n]) for n in self.graph.nodes])
        return replace(self.graph, nodes=in_order([*nodes]))


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, moved only so far that each comes behind those that it depends on."""
    maker = {v: n for n in nodes for v in n.outputs}
    done: dict[Node, None] = {}
    for node in nodes:
        path = [node]
        while path:
            made = [maker[v] for v in path[-1].inputs if v in maker]
            waiting = [n for n in made if n not in done]
            if waiting:
                path += reversed(waiting)
            else:
                done.setdefault(path.pop())
    return tuple(done)
