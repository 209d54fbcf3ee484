"""The rules of a graph, checked: an error names the node, with its text and source line."""

from __future__ import annotations

from collections.abc import Iterable

from ..abstract import typed
from ..errors import GraphError
from ..infer import infer
from ..location import point_at
from .ir import Graph, Node, Var
from .printer import Names
from .state import versions


def verify(graph: Graph) -> Graph:
    """The graph itself, if it keeps all rules; else GraphError.

    Every Var is defined once, and before it is used; constants carry a value of their shape and
    dtype; state Vars have their parameter's; each node's outputs are those that inference gives for
    its inputs; a state node on a parameter writes its newest version; the graphs inside attributes
    keep the same rules. The work is linear in the number of nodes.
    """
    names = Names(graph)
    defined = _signature(graph, names)
    again = versions(graph).again
    for node in graph.nodes:
        try:
            _check_inputs(graph, node, names, defined)
            _check_types(node, names)
            if node in again:
                raise GraphError(f"it writes {names[node.inputs[0]]}, which was overwritten before")
            for label, inner in node.subgraphs():
                _check_inner(label, inner)
            _define(node.outputs, names, defined)
        except Exception as error:
            if not isinstance(error, GraphError):
                error = GraphError(f"inference refuses the node: {error}")
            refusal = GraphError(f"graph {graph.name!r}, {names.node(node)}: {error}")
            point_at(refusal, node.where)
            raise refusal from error
    for var in graph.outputs:
        if var not in defined:
            raise GraphError(f"graph {graph.name!r} returns a value that nothing defines: {var}")
    return graph


def _signature(graph: Graph, names: Names) -> set[Var]:
    """The Vars that are defined before the first node, checked."""
    defined: set[Var] = set()
    _define(graph.inputs, names, defined)
    _define((var for _, var in graph.state), names, defined)
    _define(graph.constants, names, defined)
    if len({id(p) for p, _ in graph.state}) != len(graph.state):
        raise GraphError(f"graph {graph.name!r} has one parameter twice in its state")
    for parameter, var in graph.state:
        if (parameter.shape, parameter.dtype) != (var.abstract.shape, var.abstract.dtype):
            raise GraphError(
                f"graph {graph.name!r} state {names.typed(var)} stands for {parameter.name!r}, "
                f"which is {typed(parameter)}"
            )
    for var in graph.constants:
        value = var.abstract.value
        if value is None:
            raise GraphError(f"graph {graph.name!r} constant {names.typed(var)} has no value")
        if (value.shape, value.dtype) != (var.abstract.shape, var.abstract.dtype):
            raise GraphError(
                f"graph {graph.name!r} constant {names.typed(var)} has a value of {typed(value)}"
            )
    return defined


def _define(variables: Iterable[Var], names: Names, defined: set[Var]) -> None:
    for var in variables:
        if var in defined:
            raise GraphError(f"{names[var]} is defined a second time")
        defined.add(var)


def _check_inputs(graph: Graph, node: Node, names: Names, defined: set[Var]) -> None:
    for index, var in enumerate(node.inputs):
        if var not in defined:
            raise GraphError(
                f"input {index}, {names[var]}, is used before it is defined: "
                + _why_undefined(graph, node, var, names)
            )


def _why_undefined(graph: Graph, node: Node, var: Var, names: Names) -> str:
    """Why a value that a node reads is not there yet: a dangling value, a cycle, a wrong order."""
    maker = {v: n for n in graph.nodes for v in n.outputs}
    if var not in maker:
        return "no node, input, constant or parameter of the graph gives it"
    seen, pending = set[Var](), [var]
    while pending:
        for needed in maker[pending.pop()].inputs:
            if needed in node.outputs:
                return f"{names.node(maker[var])} needs {names[needed]} in turn, which is a cycle"
            if needed in maker and needed not in seen:
                seen.add(needed)
                pending.append(needed)
    return f"{names.node(maker[var])} comes later; nodes stand in the order in which they run"


def _check_types(node: Node, names: Names) -> None:
    inferred = infer(node.primitive, node.rule_inputs())
    if len(inferred) != len(node.outputs):
        raise GraphError(f"it has {len(node.outputs)} outputs; inference gives {len(inferred)}")
    for var, expected in zip(node.outputs, inferred, strict=True):
        if (var.abstract.shape, var.abstract.dtype) != (expected.shape, expected.dtype):
            raise GraphError(f"output {names.typed(var)} is inferred to be {expected}")
        if var.abstract.value is not None:
            raise GraphError(f"output {names[var]} carries a constant value")


def _check_inner(label: str, inner: Graph) -> None:
    try:
        verify(inner)
    except GraphError as error:
        raise GraphError(f"in {label}: {error}") from error
