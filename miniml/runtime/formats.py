"""Formats of values: of images in memory, with the fewest conversions, and of integers as bytes.

Formats: of each node's inputs and outputs, and the rewritten graph. Minimum cut: which nodes take
part in a format, at the least cost of conversions. Products of bytes in the place of products of
the integers made of them: what an operand stands for; the compositions in bytes; the primitives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..backends.cc.quads import quads_of
from ..backends.kernel import Array, Formats, Kernel, KernelEntry, KernelNode
from ..backends.selection import Target, follows
from ..core.abstract import (
    FORMATS,
    PLAIN,
    Abstract,
    ArraySpec,
    Shape,
    float64,
    int8,
    int32,
    known,
    moves,
    uint8,
    unknown,
)
from ..core.errors import DeclarationError
from ..core.primitive import Primitive
from ..core.scope import Location
from ..graph.ir import Graph, Node, Var
from ..graph.passes.rewrite import Rewriter, prune
from ..graph.tracing import trace_graph
from ..ops.elementwise import Cast, Sub
from ..ops.images import Conv2D
from ..ops.linalg import MatMul
from ..ops.rules import always
from ..ops.shape import Convert, Reshape
from .launch import in_c, native

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
            n for n in graph.nodes if 4 in [v.abstract.ndim for v in (*n.inputs, *n.outputs)]
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
    return tuple([format if v.abstract.size > 1 else PLAIN for v in node.inputs]), (format,)


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


# --- Products of bytes ----------------------------------------------------------------------------

# A quantized network computes with bytes that stand for numbers: x for scale (x - zero). The pass
# `narrow` finds products whose operands are bytes that were cast, perhaps shifted by a zero point,
# or constant integers, and computes them of the bytes, four in each step. What the zero points add
# are sums over one operand, mostly constants, which the product's epilogue subtracts. All is exact.
_BYTES = int8, uint8
_LEAST = 16  # terms of a sum, from which on it pays to make quads of bytes


def narrow(graph: Graph, target: Target) -> Graph:
    """The graph with integer products of bytes, where C for the CPU ranks first; else itself."""
    if not in_c(target) or not any(isinstance(n.primitive, MatMul | Conv2D) for n in graph.nodes):
        return graph
    maker, rewriter = graph.makers(), Rewriter(graph)
    sums: dict[Var, Var] = {}  # of the products of float64
    for node in graph.nodes:
        made = _made(node, maker)
        if made is not None:
            inputs, inner = made
            rewriter.inline(inner, inputs)
            for part in inner.nodes:
                rewriter.keep(replace(part, where=node.where))
            rewriter.replace(node.outputs, inner.outputs[-1:])
            sums[node.outputs[0]] = inner.outputs[0]
        elif sums and node.primitive == Cast(int32) and node.inputs[0] in sums:
            rewriter.replace(node.outputs, (sums[node.inputs[0]],))
        else:
            rewriter.keep(node)
    return prune(rewriter.finish()) if sums else graph


def _made(node: Node, maker: Mapping[Var, Node]) -> tuple[tuple[Var, ...], Graph] | None:
    """The graph of bytes for what a node does, and what it reads; None where there is none."""
    product = isinstance(node.primitive, MatMul)
    wide = (int32, float64) if product else (float64,)
    if type(node.primitive) not in (MatMul, Conv2D) or node.outputs[0].abstract.dtype not in wide:
        return None
    x, w = (_operand(v, maker) for v in node.inputs)
    if x is None or w is None or isinstance(x.bytes, np.ndarray):
        return None
    fn = _product(node, x, w) if product else _convolution(node, x, w)
    if fn is None or (node.outputs[0].abstract.dtype == float64 and not _fits(node, w)):
        return None
    inputs = tuple(v for v in (x.bytes, x.zero, w.bytes, w.zero) if isinstance(v, Var))
    graph, _ = trace_graph(fn, [v.abstract for v in inputs], "cpu", node.primitive.name.lower())
    return inputs, graph


def _fits(node: Node, w: _Operand) -> bool:
    """True where the sums of a product of float64 are in the range of int32."""
    if not isinstance(w.bytes, np.ndarray):
        return False
    axes = _inner(node) if isinstance(node.primitive, MatMul) else (1, 2, 3)
    return int(np.abs(w.bytes).sum(axes).max(initial=0)) * 255 < 2**31


# --- Operands -------------------------------------------------------------------------------------


class _Operand(NamedTuple):
    """Integers: bytes less a zero point, which is a number or a 0-d Var of bytes; or constants."""

    bytes: Var | Array
    zero: int | Var = 0


def _operand(var: Var, maker: Mapping[Var, Node]) -> _Operand | None:
    """An operand of a product, where it is made of bytes or of constants like them."""
    value, node = _known(var, maker), maker.get(var)
    if value is not None:
        return _constant(value)
    if node is None:
        return None
    if type(node.primitive) is Cast:
        source = node.inputs[0]
        return _Operand(source) if source.abstract.dtype in _BYTES else None
    if type(node.primitive) is not Sub or var.abstract.shape != node.inputs[0].abstract.shape:
        return None
    shifted, zero = _operand(node.inputs[0], maker), _zero(node.inputs[1], maker)
    if shifted is None or zero is None or isinstance(shifted.bytes, np.ndarray) or shifted.zero:
        return None
    return _Operand(shifted.bytes, zero)


def _known(var: Var, maker: Mapping[Var, Node]) -> Array | None:
    """The value of a constant, or of what is made of constants too large to be folded."""
    if var.abstract.value is not None:
        return np.asarray(var.abstract.value)
    node = maker.get(var)
    if node is None or type(node.primitive) not in (Cast, Sub, Reshape):
        return None
    values = [v for v in (_known(i, maker) for i in node.inputs) if v is not None]
    if len(values) < len(node.inputs):
        return None
    value = np.subtract(values[0], values[1]) if type(node.primitive) is Sub else values[0]
    return np.asarray(value).astype(var.abstract.dtype).reshape(var.abstract.shape)


def _constant(value: Array) -> _Operand | None:
    """Constants that are differences of bytes."""
    if value.dtype.kind not in "iuf" or not value.size or not np.all(np.abs(value) <= 255):
        return None
    whole = value.astype(np.int64)
    return _Operand(whole) if np.array_equal(whole, value) else None


def _zero(var: Var, maker: Mapping[Var, Node]) -> int | Var | None:
    """A zero point: a number, or the 0-d Var of a byte that was cast."""
    value = _known(var, maker)
    if value is not None:
        known = _constant(value)
        found = None if known is None else np.unique(np.asarray(known.bytes))
        return int(found[0]) if found is not None and len(found) == 1 else None
    node = maker.get(var)
    while node is not None and type(node.primitive) is Reshape:
        node = maker.get(node.inputs[0])
    if node is None or type(node.primitive) is not Cast or node.inputs[0].abstract.shape:
        return None
    return node.inputs[0] if node.inputs[0].abstract.dtype in _BYTES else None


class _Weights(NamedTuple):
    """Constants as signed bytes less `shift`, which has their rank; 0 where they are such bytes."""

    bytes: Array
    shift: Array


def _weights(value: Array, axes: tuple[int, ...]) -> _Weights | None:
    """axes: those of a sum, along which there is one shift. None where no bytes stand for all."""
    if value.min() >= -128 and value.max() <= 127:
        return _Weights(value.astype(np.int8), np.zeros((), np.int32))
    low = value.min(axes, keepdims=True)
    if np.any(value.max(axes, keepdims=True) - low > 255):
        return None
    return _Weights((value - low - 128).astype(np.int8), (-low - 128).astype(np.int32))


# --- Compositions ---------------------------------------------------------------------------------


def _inner(node: Node) -> tuple[int, ...]:
    """The axis of y along which a product of matrices sums."""
    return (-1,) if node.attrs["transpose_y"] else (-2,)


def _product(node: Node, x: _Operand, y: _Operand) -> Callable[..., Any] | None:
    """The composition of a product of matrices: x' y' - zero_x sum(y') - zero_y sum(x - zero_x), of
    the bytes x', unsigned, and y', signed, with their zero points."""
    shapes = [v.abstract.shape for v in node.inputs]
    turned, k = node.attrs["transpose_x"], _inner(node)
    if any(len(s) < 2 for s in shapes) or shapes[1][k[0]] < _LEAST:
        return None
    weights = _weights(y.bytes, k) if isinstance(y.bytes, np.ndarray) else None
    if weights is None and (isinstance(y.bytes, np.ndarray) or node.attrs["transpose_y"]):
        return None

    def fn(*given: Any) -> Sequence[Any]:
        rest = iter(given)
        x_bytes, x_zero = next(rest), next(rest) if isinstance(x.zero, Var) else x.zero
        quads = ByteQuads(-2 if turned else -1, False)(x_bytes)
        made = ByteMatMul(turned, node.attrs["transpose_y"])
        if weights is not None:
            y_zero: Any = weights.shift
            total = made(quads, quads_of(weights.bytes, k[0], True))
            sums = weights.bytes.sum(k, dtype=np.int32, keepdims=True)
            sums = np.swapaxes(sums, -1, -2) if node.attrs["transpose_y"] else sums
            y_zero = np.swapaxes(y_zero, -1, -2) if np.ndim(y_zero) and k == (-1,) else y_zero
        else:
            y_bytes = next(rest)
            y_zero = _unflipped(next(rest) if isinstance(y.zero, Var) else y.zero, y_bytes, True)
            total = made(quads, ByteQuads(-2, True)(y_bytes))
            sums = ops.sum(ops.cast(y_bytes, int32), -2, True)
            sums = sums - 128 * shapes[1][-2] if y_bytes.dtype == uint8 else sums
        total = _without(total, _unflipped(x_zero, x_bytes, False), sums)
        if not _absent(y_zero):
            wide = ops.cast(x_bytes, int32)
            rows = ops.sum(wide, -2 if turned else -1, True) - _wide(x_zero) * shapes[1][k[0]]
            total = _without(total, y_zero, ops.swapaxes(rows, -1, -2) if turned else rows)
        return total, ops.cast(total, node.outputs[0].abstract.dtype)

    return fn


def _unflipped(zero: Any, like: Any, signed: bool) -> Any:
    """The zero point of bytes that become signed, or unsigned."""
    shift = 0 if (like.dtype == int8) == signed else -128 if signed else 128
    return zero + shift if isinstance(zero, int) else _wide(zero) + shift


def _wide(zero: Any) -> Any:
    return zero if isinstance(zero, int) else ops.cast(zero, int32)


def _without(total: Any, zero: Any, sums: Any) -> Any:
    """total - zero * sums, modulo 2^32."""
    if _absent(zero):
        return total
    if isinstance(zero, int) and isinstance(sums, np.ndarray):
        return total - (zero * sums.astype(np.int64)).astype(np.int32)
    return total - zero * sums


def _absent(zero: Any) -> bool:
    return isinstance(zero, int | np.ndarray) and not np.any(zero)


def _convolution(node: Node, x: _Operand, w: _Operand) -> Callable[..., Any] | None:
    """The composition of a convolution, as that of a product. Where weights have a zero point, one
    more filter of ones gives the sums of x."""
    attrs, shape = node.attrs, node.inputs[0].abstract.shape
    weights = _weights(w.bytes, (1, 2, 3)) if isinstance(w.bytes, np.ndarray) else None
    if weights is None or 0 in shape or (np.any(weights.shift) and attrs["groups"] > 1):
        return None
    filters, count = weights.bytes, len(weights.bytes)
    if np.any(weights.shift):
        filters = np.concatenate([filters, np.ones_like(filters[:1])])
    sums = filters.sum((1, 2, 3), dtype=np.int32).reshape(-1, 1, 1)

    def fn(x_bytes: Any, x_zero: Any = x.zero) -> Sequence[Any]:
        padding, zero = attrs["padding"], 0
        if isinstance(x_zero, int):
            zero = _unflipped(x_zero, x_bytes, False)
        elif np.any(padding):
            x_bytes, padding = _surrounded(x_bytes, padding, x_zero), ((0, 0), (0, 0))
        made = ByteConv2D(attrs["stride"], padding, attrs["dilation"], attrs["groups"], zero=zero)
        total = made(x_bytes, quads_of(filters, 1, True))
        total = _without(total, _unflipped(x_zero, x_bytes, False), sums)
        if np.any(weights.shift):
            shift = weights.shift.reshape(-1, 1, 1)
            total = total[:, :count] - shift * total[:, count:]
        return total, ops.cast(total, node.outputs[0].abstract.dtype)

    return fn


def _surrounded(x: Any, padding: Any, zero: Any) -> Any:
    """Images surrounded by a zero point that is known when the program runs."""
    inside = np.pad(np.ones((1, 1, *x.shape[2:]), np.bool_), ((0, 0), (0, 0), *padding))
    return ops.where(inside, ops.pad(x, ((0, 0), (0, 0), *padding)), zero)


# --- Primitives -----------------------------------------------------------------------------------


class ByteQuads(Primitive):
    """Bytes x with each four along `axis` as one int32, the first in its lowest bits, filled up
    with zeros; unsigned ones plus 128 where they were signed, or signed ones less 128."""

    differentiable = False
    infer_dtype = always(int32)
    axis: int
    signed: bool

    def infer_shape(self, x: Shape) -> Shape:
        axis = self.axis % len(x)
        return (*x[:axis], -(-x[axis] // 4), *x[axis + 1 :])


class ByteMatMul(MatMul):
    """The product of matrices of quads, modulo 2^32: unsigned bytes in x, signed ones in y."""

    differentiable = False

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        """2 m n k, for each matrix of a batch, for k bytes."""
        return 4 * super().flops(inputs, outputs)


class ByteConv2D(Conv2D):
    """The convolution of images of bytes with filters of quads of signed bytes, whose channels are
    four in each, modulo 2^32. x is unsigned, or becomes so, plus 128; `zero` surrounds it then."""

    differentiable = False
    promote = False  # type: ignore[assignment]  # bytes and quads stay what they are
    infer_dtype = always(int32)
    zero: int = 0

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return 4 * super().flops(inputs, outputs)

    def infer_shape(self, x: Shape, w: Shape) -> Shape:
        return self.convolved(x, (w[0], x[1] // self.groups, *w[2:]))
