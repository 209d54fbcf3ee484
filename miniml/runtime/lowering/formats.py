"""Formats: chains of convolutions whose images have the batch as their innermost axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...abstract import Abstract, Shape
from ...backends.expressions.table import table as expressions
from ...backends.selection import Target
from ...dtype import DType
from ...graph.ir import Graph, Node, Var
from ...ops.shape import BroadcastTo, Reshape, SumTo
from ...primitive import Primitive, primitives
from ..fusion.members import REDUCTIONS, reduced_axes
from .legalize import select

LINE = 64  # bytes of a cache line: a pixel of all images fills whole ones, and so whole registers
MOST = 4096  # images, since kernels of pooling keep one number of each on the stack

# Which inputs and outputs of a primitive are images (N, C, H, W).
IMAGES: dict[str, tuple[tuple[bool, ...], tuple[bool, ...]]] = {
    "Conv2D": ((True, False), (True,)),
    "Conv2DInputGrad": ((True, False), (True,)),
    "Conv2DWeightGrad": ((True, True), (False,)),
    "MaxPool2D": ((True,), (True, True)),
    "MaxPool2DGrad": ((True, True), (True,)),
    "MaxPool2DGather": ((True, True), (True,)),
    "AvgPool2D": ((True,), (True,)),
    "AvgPool2DGrad": ((True,), (True,)),
}


def last(shape: Shape) -> Shape:
    """(N, C, H, W) as (C, H, W, N)."""
    return (*shape[1:], shape[0])


def first(shape: Shape) -> Shape:
    """(C, H, W, N) as (N, C, H, W)."""
    return (shape[-1], *shape[:-1])


class BatchLast(Primitive):
    """The primitive `operation` with `given` attributes, on images (C, H, W, N)."""

    operation: str
    given: tuple[tuple[str, Any], ...]
    outputs = "*parts"

    @property
    def wrapped(self) -> Primitive:
        """The primitive on images (N, C, H, W)."""
        return primitives[self.operation](**dict(self.given))

    def infer_shape(self, *xs: Shape) -> tuple[Shape, ...]:
        takes, gives = IMAGES[self.operation]
        shapes = [first(x) if image else x for x, image in zip(xs, takes, strict=True)]
        found: Any = self.wrapped.infer_shape(*shapes)
        outs = (found,) if len(gives) == 1 else found
        return tuple(last(s) if image else s for s, image in zip(outs, gives, strict=True))

    def infer_dtype(self, *xs: DType) -> tuple[DType, ...]:
        found: Any = self.wrapped.infer_dtype(*xs)
        return found if isinstance(found, tuple) else (found,)


class MoveBatch(Primitive):
    """x (N, C, H, W) with its first axis behind the others, or its last before them."""

    to_last: bool

    def infer_shape(self, x: Shape) -> Shape:
        return last(x) if self.to_last else first(x)

    def infer_dtype(self, x: DType) -> DType:
        return x


def formats(graph: Graph, target: Target) -> Graph:
    """The graph with the batch innermost from each native convolution on, through pooling,
    elementwise nodes, broadcasts and reductions, until something else reads the images."""
    writer = _Writer(graph, target)
    for node in graph.nodes:
        if not writer.follow(node):
            writer.keep(node)
    for var in graph.outputs:
        writer.row_major(var)
    return replace(graph, nodes=tuple(writer.nodes)) if writer.moved else graph


class _Writer:
    """The nodes of the new graph. moved: of Vars of the old one, those with the batch last."""

    def __init__(self, graph: Graph, target: Target):
        self.target = target
        self.nodes: list[Node] = []
        self.moved: dict[Var, Var] = {}
        self.there = {*graph.inputs, *graph.constants, *(v for _, v in graph.state)}
        self.maker = graph.makers()

    def keep(self, node: Node) -> None:
        for var in node.inputs:
            self.row_major(var, node)
        self.nodes.append(node)
        self.there.update(node.outputs)

    def row_major(self, var: Var, reader: Node | None = None) -> None:
        """Make the Var itself, if only its twin exists."""
        if var not in self.there:
            self.there.add(var)
            self._call(_move(False, var.abstract.shape), (self.moved[var],), (var,), reader)

    def batch_last(self, var: Var, reader: Node) -> Var:
        """The Var's twin."""
        if var not in self.moved:
            spread = self._source(var)
            given = var if spread is None else self.batch_last(spread, reader)
            shape = last(var.abstract.shape)
            move = _move(True, var.abstract.shape) if spread is None else BroadcastTo(shape)
            self._call(move, (given,), (self._twin(var, shape),), reader)
        return self.moved[var]

    def _source(self, var: Var) -> Var | None:
        """The fewer numbers, of as many axes, that are broadcast to an image."""
        node = self.maker.get(var)
        broadcast = node is not None and isinstance(node.primitive, BroadcastTo)
        source = node.inputs[0] if node is not None and broadcast else var
        return source if source is not var and len(source.abstract.shape) == 4 else None

    def follow(self, node: Node) -> bool:
        """Write the node on images with the batch last; False where it cannot or need not be."""
        if node.primitive.name in IMAGES:
            return self._images(node)
        if not any(v in self.moved for v in node.inputs) or len(node.outputs) != 1:
            return False
        if isinstance(node.primitive, SumTo):
            return self._summed(node)
        if node.primitive.name in REDUCTIONS:
            return self._reduced(node)
        return _elementwise(node) and self._spread(node)

    def _images(self, node: Node) -> bool:
        takes, gives = IMAGES[node.primitive.name]
        known = any(v in self.moved for v in node.inputs)
        worth = known or node.primitive.name.startswith("Conv2D")
        if not (worth and all(v.abstract.size for v in node.inputs) and _fills(node.inputs[0])):
            return False
        if select(node, self.target).entry.provider != "cc":
            return False
        inputs = [
            self.batch_last(v, node) if image else self._plain(v, node)
            for v, image in zip(node.inputs, takes, strict=True)
        ]
        outputs = [
            self._twin(v, last(v.abstract.shape)) if image else v
            for v, image in zip(node.outputs, gives, strict=True)
        ]
        self.there.update(v for v in outputs if v in node.outputs)
        given = tuple(node.primitive.attributes.items())
        self._call(BatchLast(node.primitive.name, given), inputs, outputs, node)
        return True

    def _spread(self, node: Node) -> bool:
        """An elementwise node: what lacks the batch gets an axis of extent 1 for it."""
        shape = node.outputs[0].abstract.shape
        sides = [_beside(v.abstract.shape, shape) for v in node.inputs]
        if None in sides:
            return False
        inputs = [
            self.batch_last(v, node) if v.abstract.shape == shape else self._reshaped(v, side, node)
            for v, side in zip(node.inputs, sides, strict=True)
        ]
        twin = self._twin(node.outputs[0], last(shape))
        self._call(node.primitive, inputs, (twin,), node)
        return True

    def _summed(self, node: Node) -> bool:
        """A sum down to a shape without the batch."""
        shape = node.outputs[0].abstract.shape
        side = _beside(shape, node.inputs[0].abstract.shape)
        if side is None or shape == node.inputs[0].abstract.shape:
            return False
        total = Var(Abstract(side, node.outputs[0].abstract.dtype))
        self._call(SumTo(side), (self.moved[node.inputs[0]],), (total,), node)
        self._call(Reshape(shape), (total,), node.outputs, node)
        self.there.update(node.outputs)
        return True

    def _reduced(self, node: Node) -> bool:
        """A reduction. What it takes together keeps an extent of 1 in the images."""
        axes, (image,), (out,) = reduced_axes(node), node.inputs, node.outputs
        kept = tuple(1 if a in axes else n for a, n in enumerate(image.abstract.shape))
        turned = tuple(sorted((a - 1) % 4 for a in axes))
        given = {**node.primitive.attributes, "axis": turned, "keepdims": True}
        whole = out if out.abstract.shape == kept else Var(Abstract(kept, out.abstract.dtype))
        twin = self._twin(whole, last(kept))
        self._call(type(node.primitive)(**given), (self.moved[image],), (twin,), node)
        if whole is not out:
            self.row_major(whole, node)
            self._call(Reshape(out.abstract.shape), (whole,), (out,), node)
            self.there.add(out)
        return True

    def _plain(self, var: Var, reader: Node) -> Var:
        self.row_major(var, reader)
        return var

    def _reshaped(self, var: Var, shape: Shape | None, reader: Node) -> Var:
        self.row_major(var, reader)
        if shape is None or shape == var.abstract.shape:
            return var
        seen = Var(Abstract(shape, var.abstract.dtype))
        self._call(Reshape(shape), (var,), (seen,), reader)
        return seen

    def _twin(self, var: Var, shape: Shape) -> Var:
        self.moved[var] = Var(Abstract(shape, var.abstract.dtype))
        return self.moved[var]

    def _call(
        self, op: Primitive, inputs: Sequence[Var], outputs: Sequence[Var], reader: Node | None
    ) -> None:
        consts = reader.consts if reader is not None and op is reader.primitive else ()
        where = None if reader is None else reader.where
        self.nodes.append(Node(op, tuple(inputs), tuple(outputs), consts, where))


def _move(to_last: bool, images: Shape) -> Primitive:
    """What brings the batch of images (N, C, H, W) behind the other axes, or back."""
    if 1 in (images[0], prod(images[1:])):
        return Reshape(last(images) if to_last else images)
    return MoveBatch(to_last)


def _fills(var: Var) -> bool:
    """True if a pixel of all images fills whole lines."""
    shape = var.abstract.shape
    return shape[0] <= MOST and shape[0] * var.abstract.dtype.itemsize % LINE == 0


def _elementwise(node: Node) -> bool:
    """True where elements depend on elements alone: no expression of inputs reads their number."""
    return any(name == node.primitive.name for name, _ in expressions)


def _beside(shape: Shape, images: Shape) -> Shape | None:
    """A shape that broadcasts to images (N, C, H, W), as one that broadcasts to (C, H, W, N); None
    where it has the batch and is not the images' own."""
    if shape == images:
        return last(shape)
    whole = (1,) * (4 - len(shape)) + shape
    return () if not shape else None if len(images) != 4 or whole[0] != 1 else last(whole)
