"""Orders: which nodes may run last, and in which order nodes run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from ...errors import GraphError
from ...graph.ir import Graph, Node
from ...graph.state import versions


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


def in_order(units: Sequence[tuple[int, Node]]) -> Iterator[Node]:
    """The nodes in an order in which each runs after what it reads, near that of the program; those
    with effects keep theirs. GraphError where some need each other."""
    maker = {v: i for i, (_, n) in enumerate(units) for v in n.outputs}
    before = [{maker[v] for v in n.inputs if v in maker} for _, n in units]
    effects = sorted((at, i) for i, (at, n) in enumerate(units) if n.primitive.effect != "pure")
    for (_, one), (_, other) in pairwise(effects):
        before[other].add(one)
    after: dict[int, list[int]] = {}
    for i, needs in enumerate(before):
        for need in needs:
            after.setdefault(need, []).append(i)
    count = 0
    ready: list[tuple[int, int]] = []
    for i, (at, _) in enumerate(units):
        if not before[i]:
            heappush(ready, (at, i))
    while ready:
        _, i = heappop(ready)
        count += 1
        yield units[i][1]
        for other in after.get(i, ()):
            before[other].discard(i)
            if not before[other]:
                heappush(ready, (units[other][0], other))
    if count < len(units):
        raise GraphError(
            f"{len(units) - count} nodes need each other's results; disabled_passes='fuse' leaves "
            "out the pass that joined them"
        )
