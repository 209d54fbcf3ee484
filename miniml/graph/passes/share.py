"""Common subexpression elimination: equal calls on equal values are made once."""

from __future__ import annotations

from ...attributes import key
from ..ir import Graph, Var
from .rewrite import SMALL, Rewriter


def share(graph: Graph) -> Graph:
    """The graph with every pure node that repeats an earlier one replaced by it.

    Two nodes are equal if primitive, attributes, const inputs and input values are: 1 and 1.0, 0.0
    and -0.0 differ. A random primitive is a function of its key and offset, so two draws are
    shared only where these are the same. State nodes are all kept. Constants up to 64 KB count by
    their contents.
    """
    rewriter = Rewriter(graph)
    seen: dict[object, tuple[Var, ...]] = {}
    for var in graph.constants:
        first = seen.setdefault(_constant_key(var), (var,))
        if first != (var,):
            rewriter.replace((var,), first)
    for node in graph.nodes:
        first = node.outputs
        if node.primitive.effect == "pure":
            name = node.primitive, node.consts and key(node.consts), rewriter.inputs(node)
            first = seen.setdefault(name, node.outputs)
        if first is node.outputs:
            rewriter.keep(node)
        else:
            rewriter.replace(node.outputs, first)
    return rewriter.finish()


def _constant_key(var: Var) -> object:
    return var.abstract.key() if var.abstract.nbytes <= SMALL else id(var.abstract.value)
