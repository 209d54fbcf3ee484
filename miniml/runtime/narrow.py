"""Integer products: products of bytes in the place of products of the integers made of them.

A quantized network computes with bytes that stand for numbers: x for scale (x - zero). The pass
`narrow` finds products whose operands are bytes that were cast, perhaps shifted by a zero point, or
constant integers, and computes them of the bytes, four in each step. What the zero points add are
sums over one operand, mostly constants, which the product's epilogue subtracts. All is exact. Next:
what an operand stands for; the compositions in bytes; the primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..backends.cc.quads import quads_of
from ..backends.kernel import Array
from ..backends.selection import Target
from ..core.abstract import Abstract, Shape
from ..core.dtype import DType, float64, int8, int32, uint8
from ..core.primitive import Primitive
from ..graph.ir import Graph, Node, Var
from ..graph.passes.rewrite import prune
from ..graph.tracing import trace_graph
from ..ops.elementwise import Cast, Sub
from ..ops.images import Conv2D
from ..ops.linalg import MatMul
from ..ops.shape import Reshape
from .launch import in_c

_BYTES = int8, uint8
_LEAST = 16  # terms of a sum, from which on it pays to make quads of bytes


def narrow(graph: Graph, target: Target) -> Graph:
    """The graph with integer products of bytes, where C for the CPU ranks first; else itself."""
    if not in_c(target) or not any(isinstance(n.primitive, MatMul | Conv2D) for n in graph.nodes):
        return graph
    maker, nodes, constants = graph.makers(), list[Node](), list(graph.constants)
    sums: dict[Var, Var] = {}  # of the products of float64
    instead: dict[Var, Var] = {}
    for node in graph.nodes:
        made = _made(node, maker)
        if made is not None:
            sums[node.outputs[0]] = _inlined(node, *made, nodes, constants)
        elif node.primitive == Cast(int32) and node.inputs[0] in sums:
            instead[node.outputs[0]] = sums[node.inputs[0]]
        else:
            given = tuple([instead.get(v, v) for v in node.inputs])
            nodes.append(node if given == node.inputs else replace(node, inputs=given))
    if not sums:
        return graph
    outputs = tuple([instead.get(v, v) for v in graph.outputs])
    made_of = replace(graph, nodes=tuple(nodes), outputs=outputs, constants=tuple(constants))
    return prune(made_of)


def _inlined(
    node: Node, inputs: tuple[Var, ...], inner: Graph, nodes: list[Node], constants: list[Var]
) -> Var:
    """Append the nodes and constants of a graph that computes what a node does; its sums."""
    stand_in = dict(zip(inner.inputs, inputs, strict=True))
    stand_in[inner.outputs[-1]] = node.outputs[0]
    stand_in.update((v, Var(v.abstract)) for v in inner.constants)
    constants += (stand_in[v] for v in inner.constants)
    for part in inner.nodes:
        outputs = tuple([stand_in.setdefault(v, Var(v.abstract)) for v in part.outputs])
        given = tuple([stand_in[v] for v in part.inputs])
        nodes.append(replace(part, inputs=given, outputs=outputs, where=node.where))
    return stand_in[inner.outputs[0]]


def _made(node: Node, maker: Mapping[Var, Node]) -> tuple[tuple[Var, ...], Graph] | None:
    """The graph of bytes that computes what a node does, and what it reads; None where there is
    none."""
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
    axis: int
    signed: bool

    def infer_shape(self, x: Shape) -> Shape:
        axis = self.axis % len(x)
        return (*x[:axis], -(-x[axis] // 4), *x[axis + 1 :])

    def infer_dtype(self, x: DType) -> DType:
        return int32


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
    zero: int = 0

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return 4 * super().flops(inputs, outputs)

    def infer_shape(self, x: Shape, w: Shape) -> Shape:
        return self.convolved(x, (w[0], x[1] // self.groups, *w[2:]))

    def infer_dtype(self, x: DType, w: DType) -> DType:
        return int32
