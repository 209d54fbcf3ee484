"""The order in which nodes run, once some of them are one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from ...errors import GraphError
from ...graph.ir import Node


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
