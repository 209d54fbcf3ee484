"""Loops: scans of the same steps run once, and do no more than they must at each step."""

from __future__ import annotations

from dataclasses import replace

from ...ops.create import Full
from ...ops.scan import Scan
from ..ir import Graph, Node, Var
from .motion import Loop, move, trim
from .rewrite import Rewriter
from .share import share


def loops(graph: Graph) -> Graph:
    """The graph with every Scan simplified, up to the order in which products are summed.

    Scans with equal inputs and steps become one with the outputs of all: the rule of their
    gradient asks for a second one that keeps more. What does not depend on the step, products of
    rows and a captured matrix, and sums of products over time are computed before or after the
    loop. Outputs, carried values and inputs that nothing needs are dropped.
    """
    if not any(isinstance(n.primitive, Scan) for n in graph.nodes):
        return graph
    return share(_trimmed(_moved(_merged(graph))))


def _merged(graph: Graph) -> Graph:
    """Scans of the same steps over the same inputs as one, with the outputs of all of them."""
    groups: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.primitive, Scan):
            groups.setdefault(_steps(node.primitive, node), []).append(node)
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        group = groups[_steps(node.primitive, node)] if isinstance(node.primitive, Scan) else []
        if len(group) < 2:
            rewriter.keep(node)
        elif node is group[0]:
            _join(rewriter, group)
    return rewriter.finish()


def _steps(scan: Scan, node: Node) -> object:
    """Equal for scans that do the same at each step, whatever they give of it."""
    body: Graph = scan.body
    taken = replace(body, outputs=body.outputs[: scan.carried]).key
    return node.inputs, taken, scan.length, scan.carried, scan.scanned, scan.reverse


def _join(rewriter: Rewriter, group: list[Node]) -> None:
    """Keep the first node alone, with the rows of all."""
    node = group[0]
    scan = node.primitive
    assert isinstance(scan, Scan)
    rows: dict[Var, Var] = {}
    for other in group:
        # Bodies of equal steps define the same values in the same order.
        body: Graph = other.primitive.attributes["body"]
        ours = dict(zip(body.definitions(), scan.body.definitions(), strict=True))
        rewriter.replace(other.outputs[: scan.carried], node.outputs[: scan.carried])
        for var, out in [*zip(body.outputs, other.outputs, strict=True)][scan.carried :]:
            rewriter.replace((out,), (rows.setdefault(ours[var], out),))
    body = replace(scan.body, outputs=(*scan.body.outputs[: scan.carried], *rows))
    longer = Scan(body, scan.length, scan.carried, scan.scanned, scan.reverse)
    outputs = (*node.outputs[: scan.carried], *rows.values())
    rewriter.keep(replace(node, primitive=longer, outputs=outputs))


def _moved(graph: Graph) -> Graph:
    """What need not be done step by step is done before and after the loops."""
    nodes, constants = list[Node](), list(graph.constants)
    zeros = {v for v in constants if v.abstract.value is not None and not v.abstract.value.any()}
    for node in graph.nodes:
        if isinstance(node.primitive, Full) and not node.primitive.value:
            zeros.update(node.outputs)
        if isinstance(node.primitive, Scan):
            loop = Loop(node, constants, zeros)
            move(loop)
            nodes += loop.finish()
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=tuple(constants))


def _trimmed(graph: Graph) -> Graph:
    """Nodes that nothing needs are dropped, and so is what nothing needs of the loops."""
    needed, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.primitive.effect != "state" and needed.isdisjoint(node.outputs):
            continue
        if isinstance(node.primitive, Scan):
            loop = Loop(node)
            trim(loop, needed)
            (node,) = loop.finish()
        needed.update(node.inputs)
        nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))
