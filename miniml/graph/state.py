"""State: which Vars are versions of which parameters, and which nodes only serve new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..parameter import Parameter
from ..primitive import Primitive
from .ir import Graph, Node, Var


@dataclass(frozen=True, slots=True)
class Versions:
    """How a graph reads and writes parameters.

    parameter: the parameter of every Var that is a version of one. writes: the parameter of every
    node that makes a new version; `again` are those among them that overwrite a version other than
    the newest, which no valid graph does. final: each written parameter, with the Var of its value
    at the end.
    """

    parameter: dict[Var, Parameter]
    writes: dict[Node, Parameter]
    again: frozenset[Node]
    final: tuple[tuple[Parameter, Var], ...]


def versions(graph: Graph) -> Versions:
    """The versions of the parameters of a graph, in one walk over its nodes."""
    parameter = {var: p for p, var in graph.state}
    newest = {id(p): (p, var) for p, var in graph.state}
    writes: dict[Node, Parameter] = {}
    again = set()
    for node in graph.nodes:
        target = parameter.get(node.inputs[0]) if node.writes else None
        if target is not None:
            if newest[id(target)][1] is not node.inputs[0]:
                again.add(node)
            writes[node] = parameter[node.outputs[0]] = target
            newest[id(target)] = target, node.outputs[0]
    first = {var for _, var in graph.state}
    final = tuple((p, var) for p, var in newest.values() if var not in first)
    return Versions(parameter, writes, frozenset(again), final)


def only_for_state(graph: Graph, total: Callable[[Node], bool]) -> set[Node]:
    """The nodes that may run last: they cannot fail, and only serve new values of parameters."""
    useful = {var for _, var in versions(graph).final}
    early, late = set(graph.outputs), set()
    for node in reversed(graph.nodes):
        serves = any(v in useful for v in node.outputs) and not early.intersection(node.outputs)
        if serves and total(node):
            late.add(node)
            useful.update(node.inputs)
        else:
            early.update(node.inputs)
    return late


def written(primitive: Primitive, args: Sequence[Any]) -> Parameter | None:
    """The parameter that a call of the primitive on these arguments writes to, if any."""
    if primitive.effect != "state" or not args:
        return None
    return args[0] if isinstance(args[0], Parameter) else None
