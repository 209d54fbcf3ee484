"""Checks in loops: what each step checks of what the loop is given is checked before the loop, so
that the steps cannot fail."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...backends.selection import Target
from ...graph.ir import Graph, Node, Var
from ...graph.passes.motion import Loop
from ...ops.norm import CheckedLabels
from ...ops.scan import Scan
from ...primitive import Primitive
from .decompose import decompose
from .legalize import legalize
from .movement import CheckedIndices, Window, movement
from .native import in_c


def checks(graph: Graph, target: Target) -> Graph:
    """The graph with labels and indices checked for all steps at once, where C for the CPU runs
    first."""
    if not in_c(target) or not any(isinstance(n.primitive, Scan) for n in graph.nodes):
        return graph
    given = {*graph.inputs, *graph.constants}
    nodes: list[Node] = []
    first: list[Node] = []  # what may fail and can run first does
    for node in graph.nodes:
        for made in _checked_before(node, target) if isinstance(node.primitive, Scan) else [node]:
            early = made is not node and given.issuperset(made.inputs)
            (first if early and _is_check(made) else nodes).append(made)
    return replace(graph, nodes=(*first, *nodes))


def _checked_before(node: Node, target: Target) -> list[Node]:
    """The nodes in place of a Scan; itself where no step checks what it is given."""
    scan = node.primitive
    assert isinstance(scan, Scan)
    body: Graph = scan.body
    for change in (legalize, decompose, movement, checks):
        body = change(body, target)
    sizes = scan.length, scan.carried, scan.scanned, scan.reverse
    loop = Loop(replace(node, primitive=Scan(body, *sizes)))
    for check in [n for n in loop.nodes if _is_check(n)]:
        _move(loop, check)
    return loop.finish() if loop.before else [node]


def _is_check(node: Node) -> bool:
    return isinstance(node.primitive, CheckedLabels | CheckedIndices)


def _move(loop: Loop, check: Node) -> None:
    """Let the loop get checked rows, or a checked capture, if it is given what is checked."""
    (x,), (out,) = check.inputs, check.outputs
    primitive = check.primitive
    if x in loop.scanned:
        places, primitive = loop.scanned, _of_all(primitive, x, loop.scan.length)
    elif x in loop.captured and loop.scan.length:  # else no step would check it
        places = loop.captured
    else:
        return
    places[out] = Var(places[x].abstract)
    made = replace(check, primitive=primitive, inputs=(places[x],), outputs=(places[out],))
    loop.before.append(made)
    loop.nodes.remove(check)


def _of_all(check: Primitive, row: Var, length: int) -> Primitive:
    """The check of a stack of rows."""
    if not isinstance(check, CheckedIndices):
        return check
    size = prod(row.abstract.shape)
    windows = [
        Window((length, *shape), (size, *steps), first) for shape, steps, first in check.windows
    ]
    return CheckedIndices(check.operation, check.extent, check.axis, tuple(windows))
