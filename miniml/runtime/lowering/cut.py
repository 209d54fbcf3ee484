"""A minimum cut: which nodes take part in something that costs where it begins and ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Value(NamedTuple):
    """What one node makes and others read. source, readers: nodes that may take part or not, True
    for one that does, False for one that does not. cost: of each of its two versions, if the source
    does not make it and a reader needs it."""

    cost: int
    source: Hashable
    readers: tuple[Hashable, ...]


class _Edge:
    __slots__ = ("back", "left", "to")

    def __init__(self, to: Hashable, left: int):
        self.to, self.left = to, left
        self.back: _Edge


def taking_part(values: Iterable[Value]) -> set[Hashable]:
    """The nodes that take part where the sum of costs is least; of equal choices, as many as can.

    Exact: the costs are those of a cut between True and False, the least of which is the largest
    flow (Ford and Fulkerson 1956), found along shortest paths (Edmonds and Karp 1972): at most
    nodes * edges of them, each in time linear in the edges.
    """
    edges: dict[Hashable, list[_Edge]] = {True: [], False: []}
    values = [v for v in values if v.source is not False or any(r is not False for r in v.readers)]
    nodes = {n for v in values for n in (v.source, *v.readers)}.difference((True, False))
    endless = 1 + sum(2 * v.cost for v in values)
    for number, (cost, source, readers) in enumerate(values):
        entering, leaving = ("in", number), ("out", number)
        _connect(edges, entering, source, cost)
        _connect(edges, source, leaving, cost)
        for reader in dict.fromkeys(readers):
            _connect(edges, reader, entering, endless)
            _connect(edges, leaving, reader, endless)
    while path := _path(edges):
        flow = min(e.left for e in path)
        for edge in path:
            edge.left -= flow
            edge.back.left += flow
    outside = _reaching(edges)
    return nodes - outside


def _connect(edges: dict[Hashable, list[_Edge]], u: Hashable, v: Hashable, capacity: int) -> None:
    there, back = _Edge(v, capacity), _Edge(u, 0)
    there.back, back.back = back, there
    edges.setdefault(u, []).append(there)
    edges.setdefault(v, []).append(back)


def _path(edges: dict[Hashable, list[_Edge]]) -> list[_Edge]:
    """A shortest path from True to False along which more can flow; empty if there is none."""
    by: dict[Hashable, _Edge | None] = {True: None}
    queue: deque[Hashable] = deque([True])
    while queue and False not in by:
        for edge in edges[queue.popleft()]:
            if edge.left and edge.to not in by:
                by[edge.to] = edge
                queue.append(edge.to)
    path: list[_Edge] = []
    while last := by.get(path[-1].back.to if path else False):
        path.append(last)
    return path


def _reaching(edges: dict[Hashable, list[_Edge]]) -> set[Hashable]:
    """The nodes from which more can flow to False."""
    found: set[Hashable] = {False}
    stack: list[Hashable] = [False]
    while stack:
        for edge in edges[stack.pop()]:
            if edge.back.left and edge.to not in found:
                found.add(edge.to)
                stack.append(edge.to)
    return found
