"""Graph rewriting: a graph is rebuilt node by node, with some values replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...core.abstract import Abstract
from ...core.dtype import canonical
from ...core.errors import Location
from ...core.infer import infer
from ...core.primitive import Primitive
from ..ir import Graph, Node, Var

SMALL = 64 * 1024  # bytes up to which a constant is folded and compared by value


class Rewriter:
    """The graph under construction. Walk `graph.nodes` in order and, for each node, `keep` it,
    `call` another primitive in its place, or `replace` its outputs; then `finish`."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.maker: dict[Var, Node] = {}
        self._constants = list(graph.constants)
        self._stand_in: dict[Var, Var] = {}
        self._made: dict[object, Var] = {}
        self._new: dict[tuple[Primitive, tuple[Var, ...]], Var] = {}

    def now(self, var: Var) -> Var:
        """The Var of the new graph for a Var of the old one."""
        return self._stand_in.get(var, var)

    def inputs(self, node: Node) -> tuple[Var, ...]:
        """The inputs of an old node in the new graph."""
        return tuple(map(self._stand_in.get, node.inputs, node.inputs))

    def replace(self, old: Sequence[Var], new: Sequence[Var]) -> None:
        """Use these Vars of the new graph for those of the old one from here on."""
        self._stand_in.update(zip(old, map(self.now, new), strict=True))

    def keep(self, node: Node) -> None:
        """Keep the node, on its new inputs."""
        if self._stand_in:
            inputs = self.inputs(node)
            node = node if inputs == node.inputs else replace(node, inputs=inputs)
        self._append(node)

    def call(self, node: Node, primitive: Primitive, inputs: Sequence[Var]) -> None:
        """Append a call of `primitive` instead of `node`, with its outputs and its line."""
        self._append(Node(primitive, tuple(inputs), node.outputs, (), node.where))

    def new(self, primitive: Primitive, inputs: tuple[Var, ...], where: Location | None) -> Var:
        """The output of a new call, made once for equal ones."""
        if (primitive, inputs) not in self._new:
            (made,) = infer(primitive, tuple([v.abstract for v in inputs]))
            self._new[primitive, inputs] = Var(made)
            self._append(Node(primitive, inputs, (self._new[primitive, inputs],), (), where))
        return self._new[primitive, inputs]

    def inline(self, graph: Graph, inputs: Sequence[Var]) -> None:
        """Use these Vars for the inputs of a graph whose nodes come next."""
        self.replace(graph.inputs, inputs)
        self._constants += graph.constants

    def constant(self, value: np.ndarray[Any, Any]) -> Var:
        """A new constant of the graph; equal ones up to 64 KB are one."""
        made = Abstract(value.shape, canonical(value.dtype), value)
        name = made.key() if value.nbytes <= SMALL else id(value)
        if name not in self._made:
            self._made[name] = Var(made)
            self._constants.append(self._made[name])
        return self._made[name]

    def finish(self) -> Graph:
        """The new graph; the old one if nothing has changed."""
        graph, nodes = self.graph, tuple(self.nodes)
        outputs = tuple(map(self._stand_in.get, graph.outputs, graph.outputs))
        if nodes == graph.nodes and outputs == graph.outputs:
            return graph
        return replace(graph, nodes=nodes, outputs=outputs, constants=tuple(self._constants))

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        for var in node.outputs:
            self.maker[var] = node


def everywhere(change: Callable[[Graph], Graph], graph: Graph) -> Graph:
    """`change` applied to the graphs inside the attributes, innermost first, then to the graph."""
    inside = partial(everywhere, change)
    nodes = tuple([n.map_subgraphs(inside) if n.primitive.attributes else n for n in graph.nodes])
    return change(graph if nodes == graph.nodes else replace(graph, nodes=nodes))
