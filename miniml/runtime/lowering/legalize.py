"""Legalization: casts around kernels that take wider dtypes, transposed products, and uses of C.

Dtypes: where no kernel takes a node's dtypes, Cast nodes widen its inputs. Transposed products: a
product that is transposed and then flattened is stored transposed. C: where generated C comes
before hand-written kernels, and which programs are too small for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...backends.registry import NATIVE
from ...backends.selection import Selection, Target
from ...core.abstract import Abstract, Shape
from ...core.dtype import DType
from ...core.errors import KernelNotFoundError, point_at
from ...graph.ir import Graph, Node, Var
from ...ops.elementwise import Cast
from ...ops.linalg import MatMul
from ..fusion.nest import kind_of, reduced_axes

# --- Dtypes ---------------------------------------------------------------------------------------


def legalize(graph: Graph, target: Target) -> Graph:
    """The graph with Cast nodes before and after every node whose kernel is a lossless widening;
    the same graph if there is none."""
    nodes: list[Node] = []
    for node in graph.nodes:
        try:
            selection = select(node, target)
        except KernelNotFoundError:
            if not _arranged(node, target):
                raise
            nodes.append(node)
            continue
        nodes += [node] if selection.cast is None else _widened(node, selection, selection.cast)
    return graph if len(nodes) == len(graph.nodes) else replace(graph, nodes=tuple(nodes))


def _arranged(node: Node, target: Target) -> bool:
    """True if a kernel takes these dtypes, but in other memory formats, which the pass `formats`
    handles."""
    return bool(target.arranging(node.primitive.name, *node.abstracts))


def select(node: Node, target: Target) -> Selection:
    """The kernel of a node on a target; an error points at the node's line."""
    try:
        return target.select(node.primitive.name, *node.abstracts)
    except Exception as error:
        point_at(error, node.where)
        raise


def _widened(node: Node, selection: Selection, wide: DType) -> list[Node]:
    _, given = selection.entry.signature.expanded(len(node.inputs), len(node.outputs))
    inputs = _like(node.inputs, [wide] * len(node.inputs))
    outputs = _like(node.outputs, given)
    return [
        *_casts(node, node.inputs, inputs),
        replace(node, inputs=inputs, outputs=outputs),
        *_casts(node, outputs, node.outputs),
    ]


def _like(variables: Sequence[Var], dtypes: Sequence[DType]) -> tuple[Var, ...]:
    """Vars of the same shapes and these dtypes: the same Vars if they have them."""
    return tuple(
        v if v.abstract.dtype == d else Var(Abstract(v.abstract.shape, d))
        for v, d in zip(variables, dtypes, strict=True)
    )


def _casts(node: Node, sources: Sequence[Var], targets: Sequence[Var]) -> list[Node]:
    return [
        Node(Cast(target.abstract.dtype), (source,), (target,), (), node.where)
        for source, target in zip(sources, targets, strict=True)
        if source is not target
    ]


# --- Transposed products --------------------------------------------------------------------------


def turn(graph: Graph, target: Target) -> Graph:
    """The graph with TurnedMatMul where only a Transpose reads a product, and then only Reshapes,
    which would have to copy; the same graph if no C kernels are wanted."""
    if not in_c(target):
        return graph
    maker, readers = graph.makers(), graph.readers()
    turned: dict[Node, Node] = {}
    for node in graph.nodes:
        made = maker.get(node.inputs[0]) if node.primitive.name == "Transpose" else None
        if made is None or readers[node.inputs[0]] != [node] or node.inputs[0] in graph.outputs:
            continue
        only = {n.primitive.name for n in readers[node.outputs[0]]} == {"Reshape"}
        if only and _storable(made, node.attrs["axes"], target):
            turned[made] = node
    gone = set(turned.values())
    nodes = (_turned(n, turned[n]) if n in turned else n for n in graph.nodes if n not in gone)
    return replace(graph, nodes=tuple(nodes)) if turned else graph


def _storable(node: Node, axes: Shape, target: Target) -> bool:
    """True for a product in C whose rows stay contiguous when its axes are permuted."""
    if node.primitive.name != "MatMul" or axes[-1] != len(axes) - 1:
        return False
    matrices = all(len(v.abstract.shape) > 1 for v in node.inputs)
    return matrices and select(node, target).entry.provider == "cc"


def _turned(node: Node, transpose: Node) -> Node:
    attributes = {**node.primitive.attributes, "axes": transpose.attrs["axes"]}
    return replace(node, primitive=TurnedMatMul(**attributes), outputs=transpose.outputs)


class TurnedMatMul(MatMul):
    """A product whose result is stored transposed by `axes`."""

    differentiable = False
    axes: tuple[int, ...] = ()

    def infer_shape(self, x: Shape, y: Shape) -> Shape:
        shape = super().infer_shape(x, y)
        return tuple([shape[a] for a in self.axes])


# --- Generated C ----------------------------------------------------------------------------------


def native(target: Target) -> bool:
    """True if kernels in generated C rank before others."""
    order = (*target.providers, "miniml")
    return "cc" in order and order.index("cc") < order.index("miniml")


def in_c(target: Target) -> bool:
    """True if they rank first, and are in C for the CPU."""
    return target.home == "cpu" and native(target)


def in_parts(node: Node, target: Target) -> bool:
    """True for a reduction of a few long rows that a hand-written kernel divides over a GPU."""
    if target.home != "cuda" or kind_of(node) != "reduction":
        return False
    device: Any = target.device
    shape, axes = node.inputs[0].abstract.shape, reduced_axes(node)
    n = prod(shape[a] for a in axes)
    whole = prod(shape[max(axes, default=-1) + 1 :]) == 1
    return whole and bool(device.rows.in_parts(prod(shape) // n, n))


# A C kernel of two such calls takes 50 ms to compile and saves at most 1 of their 3 us, or 10 for
# the most expensive functions: it pays after tens of thousands of calls. Three save 1.4 us, ten 8.
CALLS = 2
ELEMENTS = 1024
WHY = f"too small for kernels in C: at most {CALLS} elementwise calls of {ELEMENTS} elements"


def too_small(graph: Graph, target: Target) -> bool:
    """True for a program for which NumPy's kernels are about as fast as those in C."""
    if NATIVE not in target.providers:
        return False
    calls = (n for n in graph.nodes if kind_of(n) not in ("view", "window", "created"))
    numpy = target.without(NATIVE)
    return all(i < CALLS and _small(n, numpy) for i, n in enumerate(calls))


def _small(node: Node, numpy: Target) -> bool:
    """True for an expression of few elements, computed by the library's NumPy kernel."""
    few = all(v.abstract.size <= ELEMENTS for v in (*node.inputs, *node.outputs))
    return few and kind_of(node) == "elements" and select(node, numpy).entry.built_in
