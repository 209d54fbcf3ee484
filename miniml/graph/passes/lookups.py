"""Products of looked-up rows: x[i] y as (x y)[i], where a table x has fewer rows than are read."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import NamedTuple

import numpy as np

from ...abstract import Abstract
from ...dtype import float32, float64
from ...ops.compare import Select
from ...ops.index import Gather, IndexAdd, Scatter
from ...ops.join import Slice
from ...ops.linalg import MatMul
from ...ops.shape import Reshape
from ...primitive import Primitive
from ..ir import Graph, Node, Var
from .rewrite import Rewriter

ADDED = 16
"""Multiply-adds of a product in the time in which one element is added where an index says."""

WIDE = (float32, float64)


class Lookup(NamedTuple):
    """Rows of a matrix, one for each of the indices."""

    table: Var
    indices: Var

    @property
    def read(self) -> int:
        """How many rows are looked up."""
        return prod(self.indices.abstract.shape)

    @property
    def pays(self) -> bool:
        """True if a product with the table, and adding to its rows, is less work than a product
        with the rows that are looked up."""
        rows, width = self.table.abstract.shape
        exact = self.table.abstract.dtype in WIDE  # others would be rounded once more
        return exact and (self.read - rows) * width > ADDED * self.read


def lookups(graph: Graph) -> Graph:
    """The graph with x[i] y as (x y)[i], and its gradients alike: updates are added to the rows of
    the table first, then multiplied once.

    Rounding may differ, as the order of additions does. Rows that are not looked up count for
    nothing in the gradients, even where they are not finite.
    """
    if not any(isinstance(n.primitive, Gather | IndexAdd) for n in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    uses = graph.uses()
    sliced = Counter(n.inputs[0] for n in graph.nodes if isinstance(n.primitive, Slice))
    for node in graph.nodes:
        call = Call(rewriter, node)
        found = None
        if isinstance(node.primitive, IndexAdd):
            found = _added_product(call, node.primitive, uses)
        elif isinstance(node.primitive, MatMul):
            found = _product(call, node.primitive)
        elif isinstance(node.primitive, Slice) and sliced[node.inputs[0]] == uses[node.inputs[0]]:
            found = _slice(call, node.primitive)
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.outputs, (found,))
    return rewriter.finish()


class Call:
    """A call in the graph under construction, in whose place others are put."""

    def __init__(self, rewriter: Rewriter, node: Node):
        self._rewriter, self._where = rewriter, node.where
        self.inputs, self.shape = rewriter.inputs(node), node.outputs[0].abstract.shape

    def new(self, primitive: Primitive, *inputs: Var) -> Var:
        """The output of another call."""
        return self._rewriter.new(primitive, inputs, self._where)

    def reshaped(self, x: Var, *shape: int) -> Var:
        """x in another shape."""
        return x if x.abstract.shape == shape else self.new(Reshape(shape), x)

    def made_by(self, x: Var, kind: type[Primitive]) -> Node | None:
        """The node of that kind which makes x."""
        node = self._rewriter.maker.get(x)
        return node if node is not None and isinstance(node.primitive, kind) else None

    def lookup(self, x: Var) -> Lookup | None:
        """What the rows of x are looked up in, if x is that or a Reshape of it."""
        view = self.made_by(x, Reshape)
        gather = self.made_by(x if view is None else view.inputs[0], Gather)
        if gather is None or gather.primitive != Gather(0):
            return None
        table = gather.inputs[0].abstract.shape
        by_rows = len(table) == 2 and x.abstract.shape[-1:] == table[1:]
        return Lookup(*gather.inputs) if by_rows else None

    def added(self, updates: Var, lookup: Lookup) -> Var:
        """For each row of the table, the sum of the updates of that row."""
        width = updates.abstract.shape[-1]
        shape = lookup.table.abstract.shape[0], width
        rows = self.reshaped(updates, lookup.read, width)
        return self.new(IndexAdd((0,), 0, shape), rows, self._indices(lookup))

    def where_read(self, x: Var, lookup: Lookup) -> Var:
        """x with zeros in the rows that no index names: these may be infinite in the table."""
        height, dtype = x.abstract.shape[0], x.abstract.dtype
        nowhere, true = (
            self._rewriter.constant(v) for v in (np.zeros(height, "?"), np.array(True))
        )
        read = self.new(Scatter(("tensor",)), nowhere, true, self._indices(lookup))
        zero = self._rewriter.constant(np.zeros((), dtype))
        return self.new(Select(), self.reshaped(read, height, 1), x, zero)

    def _indices(self, lookup: Lookup) -> Var:
        return self.reshaped(lookup.indices, lookup.read)


def _product(call: Call, product: MatMul) -> Var | None:
    """x[i] y = (x y)[i], and x[i]^T d = x^T (d added to the rows i)"""
    y, lookup = call.inputs[1], call.lookup(call.inputs[0])
    if lookup is None or not lookup.pays or len(y.abstract.shape) != 2:
        return None
    if not product.transpose_x:
        found = call.new(Gather(0), call.new(product, lookup.table, y), lookup.indices)
        return call.reshaped(found, *call.shape)
    if product.transpose_y or len(call.inputs[0].abstract.shape) != 2:
        return None
    return call.new(product, call.where_read(lookup.table, lookup), call.added(y, lookup))


def _slice(call: Call, part: Slice) -> Var | None:
    """Slices of (x y)[i], where nothing else is read of it, are looked up alone, each when it is
    needed: the whole is larger than what it is made of."""
    gather = call.made_by(call.inputs[0], Gather)
    if gather is None or call.made_by(gather.inputs[0], MatMul) is None:
        return None
    table, indices = gather.inputs
    whole = call.inputs[0].abstract.shape
    by_rows = gather.primitive == Gather(0) and len(indices.abstract.shape) == 1
    if not by_rows or part.dropped or call.shape[1:] != whole[1:] or set(part.strides[1:]) != {1}:
        return None
    rows = call.new(Slice(part.begin[:1], part.end[:1], part.strides[:1]), indices)
    return call.new(Gather(0), table, rows)


def _added_product(call: Call, add: IndexAdd, uses: Counter[Var]) -> Var | None:
    """(d y) added to the rows i = (d added to the rows i) y"""
    updates, indices, *others = call.inputs
    view = call.made_by(updates, Reshape)
    product = call.made_by(updates if view is None else view.inputs[0], MatMul)
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
    return call.where_read(call.new(product.primitive, call.added(d, lookup), y), lookup)
