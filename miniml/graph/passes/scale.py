"""Scales and shifts of channels, as of a batch norm that is not trained, are put into the weights
and the bias of the convolution or product before them, which are smaller."""

from __future__ import annotations

from collections import Counter
from math import prod

from ...abstract import Shape
from ...ops.arithmetic import Add, Mul
from ...ops.linalg import MatMul
from ...ops.shape import Reshape
from ...ops.window import Conv2D
from ...primitive import Primitive
from ..ir import Graph, Node, Var
from .rewrite import Rewriter


def scale(graph: Graph) -> Graph:
    """The graph with (conv(x, w) + b) s + t as conv(x, w s) + (b s + t), and products alike, where
    b, s and t have an element for each channel and nothing else reads what is in between.

    Rounding may differ. This pays where w has less than half as many elements as the output.
    """
    if not any(isinstance(n.primitive, Conv2D | MatMul) for n in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    uses = graph.uses()
    for node in graph.nodes:
        found = _found(Channels(rewriter, node, uses), node)
        if found is None:
            rewriter.keep(node)
        else:
            uses[found] = uses[node.outputs[0]]
            rewriter.replace(node.outputs, (found,))
    return rewriter.finish()


def _found(at: Channels, node: Node) -> Var | None:
    if not isinstance(node.primitive, Add | Mul):
        return None
    x, y = at.rewriter.inputs(node)
    shape = node.outputs[0].abstract.shape
    if x.abstract.shape != shape:
        x, y = y, x
    change = at.scaled if isinstance(node.primitive, Mul) else at.shifted
    return change(x, y) if x.abstract.shape == shape else None


class Channels:
    """A place in the graph under construction. uses: how often a Var is read."""

    def __init__(self, rewriter: Rewriter, node: Node, uses: Counter[Var]):
        self.rewriter, self._where, self._uses = rewriter, node.where, uses

    def new(self, primitive: Primitive, *inputs: Var) -> Var:
        """The output of a call."""
        return self.rewriter.new(primitive, inputs, self._where)

    def scaled(self, x: Var, s: Var) -> Var | None:
        """x s with the scale inside, where that is less work."""
        maker = self.rewriter.maker.get(x)
        if maker is None or self._uses[x] != 1:
            return None
        if isinstance(maker.primitive, Add):
            inner, b = maker.inputs
            found = self.scaled(inner, s) if b.abstract.shape == s.abstract.shape else None
            return None if found is None else self.new(Add(), found, self.new(Mul(), b, s))
        shape = _scale_of_weights(maker, s.abstract.shape)
        if shape is None:
            return None
        inputs, weights = maker.inputs
        if 2 * prod(weights.abstract.shape) > prod(x.abstract.shape):
            return None
        factors = s if s.abstract.shape == shape else self.new(Reshape(shape), s)
        return self.new(maker.primitive, inputs, self.new(Mul(), weights, factors))

    def shifted(self, x: Var, t: Var) -> Var | None:
        """(y + b) + t as y + (b + t)"""
        maker = self.rewriter.maker.get(x)
        if maker is None or self._uses[x] != 1 or not isinstance(maker.primitive, Add):
            return None
        y, b = maker.inputs
        channels = b.abstract.shape == t.abstract.shape != x.abstract.shape
        return self.new(Add(), y, self.new(Add(), b, t)) if channels else None


def _scale_of_weights(node: Node, shape: Shape) -> Shape | None:
    """The shape in which a scale of the channels of the node's output scales its weights."""
    out = node.outputs[0].abstract.shape
    if isinstance(node.primitive, Conv2D):
        of_channels = shape in ((*out[1:2], 1, 1), (1, *out[1:2], 1, 1))
        return (*out[1:2], 1, 1, 1) if of_channels else None
    if isinstance(node.primitive, MatMul) and shape == out[-1:]:
        by_matrix = len(node.inputs[1].abstract.shape) == 2
        turned = (*shape, 1) if node.primitive.transpose_y else shape
        return turned if by_matrix else None
    return None
