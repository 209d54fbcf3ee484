"""Memory format propagation: layouts of images in memory, and the fewest conversions between them.

Formats: of each node's inputs and outputs, and the rewritten graph. Minimum cut: which nodes take
part in a format, at the least cost of conversions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..backends.kernel import Formats, Kernel, KernelEntry, KernelNode
from ..backends.selection import Target, follows
from ..backends.signature import ArraySpec
from ..core.abstract import FORMATS, PLAIN, Abstract, Shape, known, moves, unknown
from ..core.errors import DeclarationError, Location
from ..graph.ir import Graph, Node, Var
from ..ops.shape import Convert, Reshape
from .launch import native

Ports = tuple[Formats, Formats]  # the formats of a node's inputs and outputs


# --- Formats --------------------------------------------------------------------------------------


def formats(graph: Graph, target: Target) -> Graph:
    """The graph with images in the formats that kernels ask for, and with one Convert for each
    other format in which a value is read; the same graph if no kernel asks.

    Nodes whose kernels work in several formats get the one that converts the fewest bytes, among
    all choices between row-major order and one format. If kernels ask for several formats, these
    are decided one after the other.
    """
    plan = _Plan(graph, target)
    return _Writer(graph, plan.ports).graph() if plan.ports else graph


class _Plan:
    """Formats of a graph's nodes. ports: of nodes that use other formats than row-major order."""

    def __init__(self, graph: Graph, target: Target):
        self.target = target
        self.nodes = [
            n for n in graph.nodes if any(v.abstract.ndim == 4 for v in (*n.inputs, *n.outputs))
        ]
        self.ports: dict[Node, Ports] = {}
        self.made: dict[Var, str] = {}
        for node in self.nodes:
            self._ask(node)
        asked = {f: None for ports in self.ports.values() for part in ports for f in part}
        for format in asked:
            if format != PLAIN:
                self._decide(format, graph)

    def _ask(self, node: Node) -> None:
        """Note the formats that a node asks for: for row-major inputs, then for the actual ones."""
        ports = self._asked(node, (PLAIN,) * len(node.inputs))
        if ports is not None:
            actual = tuple([self.made.get(v, PLAIN) for v in node.inputs])
            self.ports[node] = ports = self._asked(node, actual) or ports
        else:
            format = next((self.made[v] for v in node.inputs if v in self.made), PLAIN)
            ports = self._following(node, format) if format != PLAIN else None
        for var, format in zip(node.outputs, ports[1] if ports else (), strict=False):
            if format != PLAIN:
                self.made[var] = format

    def _asked(self, node: Node, actual: Formats) -> Ports | None:
        """The formats that a kernel asks for; None for row-major order alone."""
        if isinstance(node.primitive, Convert):
            format = node.primitive.attributes["format"]
            return None if format == PLAIN else ((format,), (format,))
        found = _arranging(node, self.target) or [
            e
            for e in self._candidates(node)[:1]
            if _selects(e)  # if in vain, `_selected` raises an error
        ]
        if not found:
            return None
        if all(e.signature.arranged for e in self._candidates(node)):
            return self._chosen(found, node, actual) or _declared(found[0], node)
        some = all(v.abstract.size for v in (*node.inputs, *node.outputs))
        return self._chosen(found, node, actual) if some else None

    def _chosen(self, found: Sequence[KernelEntry], node: Node, actual: Formats) -> Ports | None:
        """The formats of the first kernel that selects them, else of one that the target ranks."""
        refused = set()
        for entry in found:
            ports, own = _selected(entry, node, actual, self.target), _declared(entry, node)
            if ports == own and own not in refused:
                return ports
            refused.add(own)
        for format in self.target.formats:
            if format == PLAIN:
                return None
            for ports in (_declared(e, node) for e in found if not _selects(e)):
                if format in (*ports[0], *ports[1]):
                    return ports
        return None

    def _candidates(self, node: Node) -> Sequence[KernelEntry]:
        return self.target.ranked(node.primitive.name, *node.abstracts)

    def _following(self, node: Node, format: str) -> Ports | None:
        """The formats of a node's inputs and outputs, this one among them, if it is free to have
        it without a kernel of a lower-ranked provider; else None."""
        if not all(v.abstract.size for v in (*node.inputs, *node.outputs)):
            return None
        if follows(node.primitive.name):
            return _spread(node, format)
        if type(node.primitive).reduces and native(self.target) and _has_ragged(node, format):
            return None  # loops in C reduce full blocks of channels, and row-major images
        images = tuple([format if v.abstract.ndim == 4 else PLAIN for v in node.inputs])
        best = next(iter(self._candidates(node)), None)
        for entry in _arranging(node, self.target):
            ports = _declared(entry, node)
            if best is not None and entry.provider != best.provider:
                return None
            if {*ports[0], *ports[1]} <= {PLAIN, format}:
                return _selected(entry, node, images, self.target) if _selects(entry) else ports
        return None

    def _decide(self, format: str, graph: Graph) -> None:
        """Let free nodes take part in the format if that converts the fewest bytes."""
        free = {}
        for node in self.nodes:
            ports = None if node in self.ports else self._following(node, format)
            if ports is not None:
                free[node] = ports
        chosen = taking_part(self._values(format, free, graph))
        self.ports |= {n: p for n, p in free.items() if n in chosen}

    def _values(self, format: str, free: Mapping[Node, Ports], graph: Graph) -> Iterator[Value]:
        """Every value that can be in the format, for the minimum cut."""

        def part(node: Node, at: str) -> Hashable:
            return at == format and (node if node in free else True)

        source: dict[Var, Hashable] = {}
        readers: dict[Var, list[Hashable]] = {v: [False] for v in graph.outputs}
        for node in self.nodes:
            takes, gives = self.ports.get(node) or free.get(node) or ((), ())
            source |= {v: part(node, f) for v, f in zip(node.outputs, gives, strict=False)}
            for var, at in zip(node.inputs, takes or (PLAIN,) * len(node.inputs), strict=True):
                readers.setdefault(var, []).append(part(node, at))
        others = set(graph.nodes).difference(self.nodes)
        for var in {v for n in others for v in n.inputs}:
            readers.setdefault(var, []).append(False)
        for var, found in readers.items():
            if moves(_images(var.abstract.shape), PLAIN, format) and var.abstract.ndim <= 4:
                yield Value(var.abstract.nbytes, source.get(var, False), tuple(found))


def _has_ragged(node: Node, format: str) -> bool:
    """True where the last block of channels of an input would not be full."""
    block = FORMATS[format].block
    shapes = [v.abstract.shape for v in node.inputs if v.abstract.ndim == 4]
    return bool(block) and any(shape[1] % block for shape in shapes)


class _Writer:
    """Writer of the new graph. made: the Var that replaces one of the old graph, in the format in
    which it is made; read: those in other formats, by Var and format."""

    def __init__(self, graph: Graph, ports: Mapping[Node, Ports]):
        self.old, self.ports = graph, ports
        self.nodes: list[Node] = []
        self.made: dict[Var, Var] = {}
        self.read: dict[tuple[Var, str], Var] = {}

    def graph(self) -> Graph:
        for node in self.old.nodes:
            self._write(node)
        where = {v: n.where for n in self.old.nodes for v in n.outputs}
        for var in self.old.outputs:
            self._at(var, PLAIN, where.get(var))
        return replace(self.old, nodes=tuple(self.nodes))

    def _write(self, node: Node) -> None:
        takes, gives = self.ports.get(node) or (_plain(node.inputs), _plain(node.outputs))
        pairs = zip(node.inputs, takes, strict=True)
        inputs = tuple([self._at(v, f, node.where) for v, f in pairs])
        if isinstance(node.primitive, Convert) and gives != (PLAIN,):
            self.made[node.outputs[0]] = inputs[0]
            return
        outputs = tuple(map(_in, node.outputs, gives))
        self.made.update(zip(node.outputs, outputs, strict=True))
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs))

    def _at(self, var: Var, format: str, where: Location | None) -> Var:
        """The Var in a format, converted once."""
        made = self.made.get(var, var)
        if (made.abstract.format or PLAIN) == format:
            return made
        if (var, format) not in self.read:
            images = self._images(made, where)
            target = var if format == PLAIN else _in(images, format)
            self.read[var, format] = target
            self.nodes.append(Node(Convert(format), (images,), (target,), (), where))
        return self.read[var, format]

    def _images(self, var: Var, where: Location | None) -> Var:
        """A Var of four axes."""
        shape = _images(var.abstract.shape)
        if shape == var.abstract.shape:
            return var
        made = Var(Abstract(shape, var.abstract.dtype))
        self.nodes.append(Node(Reshape(shape), (var,), (made,), (), where))
        return made


def _images(shape: Shape) -> Shape:
    """The shape with axes of extent 1 before its own, so that there are four."""
    return (1,) * (4 - len(shape)) + shape


def _plain(variables: Sequence[Var]) -> Formats:
    return (PLAIN,) * len(variables)


def _in(var: Var, format: str) -> Var:
    """A Var of that format in its stead; itself if that is row-major order."""
    if format == PLAIN:
        return var
    return Var(Abstract(var.abstract.shape, var.abstract.dtype, None, format))


def _arranging(node: Node, target: Target) -> list[KernelEntry]:
    """The kernels that declare formats."""
    return target.arranging(node.primitive.name, *node.abstracts)


def _declared(entry: KernelEntry, node: Node) -> Ports:
    """The formats in a kernel's signature."""
    takes, gives = entry.signature.arrangement(len(node.inputs), len(node.outputs))
    return tuple(f or PLAIN for f in takes), tuple(f or PLAIN for f in gives)


def _selects(entry: KernelEntry) -> bool:
    """True for a class that selects formats itself."""
    return getattr(entry.body, "select_format", Kernel.select_format) is not Kernel.select_format


def _selected(entry: KernelEntry, node: Node, actual: Formats, target: Target) -> Ports | None:
    """The formats that a class selects; None for row-major order alone."""
    if not _selects(entry):
        return None
    inputs, outputs = node.abstracts
    named = (None if f == PLAIN else f for f in actual)
    takes = tuple(ArraySpec(a.shape, a.dtype, f) for a, f in zip(inputs, named, strict=True))
    gives = tuple(ArraySpec(a.shape, a.dtype) for a in outputs)
    body: type[Kernel] = entry.body  # type: ignore[assignment]
    call = KernelNode(node.primitive.name, takes, gives, node.attrs, target)
    given: Any = body().select_format(call)
    if not _pair(given) or tuple(map(len, given)) != (len(inputs), len(outputs)):
        raise DeclarationError(
            f"{node.primitive.name} kernel {body.__name__}: select_format gave {given!r} for "
            f"{len(inputs)} inputs and {len(outputs)} outputs; it gives a format for each, as in "
            "(('NHWC',), (None,))"
        )
    found = tuple(f or PLAIN for f in given[0]), tuple(f or PLAIN for f in given[1])
    for format in (*found[0], *found[1]):
        if not known(format):
            raise DeclarationError(
                f"{node.primitive.name} kernel {body.__name__}, select_format: {unknown(format)}"
            )
    if {*found[0], *found[1]} == {PLAIN}:
        return None
    if found not in [_declared(e, node) for e in _arranging(node, target)]:
        raise DeclarationError(
            f"{node.primitive.name} kernel {body.__name__}: select_format gave {_spelt(found)}, "
            "for which no kernel is registered; register it with a KernelAttr of these formats"
        )
    return found


def _pair(given: object) -> bool:
    parts = given if isinstance(given, (tuple, list)) else ()
    return len(parts) == 2 and all(isinstance(part, (tuple, list)) for part in parts)


def _spelt(ports: Ports) -> str:
    return "->".join(",".join(part) for part in ports)


def _spread(node: Node, format: str) -> Ports | None:
    """Formats of an elementwise node: all its images have the format; numbers have none."""
    (out, *more), block = node.outputs, FORMATS[format].block
    shape = out.abstract.shape
    if more or len(shape) != 4 or node.consts or not moves(shape, PLAIN, format):
        return None
    channels = [_images(v.abstract.shape)[1] for v in node.inputs if v.abstract.size > 1]
    if block and any(c != shape[1] for c in channels):
        return None  # padding channels are zeros, not the broadcast channel
    takes = tuple([format if v.abstract.size > 1 else PLAIN for v in node.inputs])
    return takes, (format,)


# --- Minimum cut ----------------------------------------------------------------------------------


class Value(NamedTuple):
    """A value that one node makes and others read.

    source, readers: nodes that may take part or not, True for one that does, False for one that
    does not. cost: of converting it to a version that the source does not make and a reader needs.
    """

    cost: int
    source: Hashable
    readers: tuple[Hashable, ...]


def taking_part(values: Iterable[Value]) -> set[Hashable]:
    """The nodes that take part at the least total cost; among equal choices, the most nodes.

    Exact: the cost is that of a cut between True and False, whose minimum is the maximum flow
    (Ford and Fulkerson 1956), found along shortest paths (Edmonds and Karp 1972): at most
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


class _Edge:
    __slots__ = ("back", "left", "to")

    def __init__(self, to: Hashable, left: int):
        self.to, self.left = to, left
        self.back: _Edge


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
