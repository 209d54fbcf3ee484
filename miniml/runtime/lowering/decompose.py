"""Decomposition: primitives whose hand-written kernels are no faster than their parts, fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ... import ops
from ...backends.selection import Target
from ...core.abstract import Abstract
from ...core.dtype import DType, bfloat16, float16, float32, int32
from ...core.primitive import Primitive
from ...graph.ir import Graph, Node, Var
from ...graph.passes.rewrite import prune
from ...graph.tracing import trace_graph
from ...ops.norm import CheckedLabels
from .legalize import in_parts, native

Composition = Callable[..., Sequence[Any]]  # composition(primitive, *inputs) -> the outputs
_LARGEST = 2**31 - 1  # classes that fit in an int32


def softmax(self: Any, x: Any) -> Sequence[Any]:
    terms = ops.exp(x - ops.max(x, self.axis, True))
    return (terms / ops.sum(terms, self.axis, True),)


def log_softmax(self: Any, x: Any) -> Sequence[Any]:
    shifted = x - ops.max(x, self.axis, True)
    return (shifted - ops.log(ops.sum(ops.exp(shifted), self.axis, True)),)


def log_sum_exp(self: Any, x: Any) -> Sequence[Any]:
    peak = ops.max(x, self.axis, True)
    peak = ops.select(ops.isinf(peak), ops.zeros_like(peak), peak)
    total = ops.sum(ops.exp(x - peak), self.axis, self.keepdims)
    return (ops.log(total) + ops.reshape(peak, total.shape),)


def layer_norm(self: Any, x: Any, gamma: Any, beta: Any) -> Sequence[Any]:
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    # Widened after the broadcast, or they would be computed in loops of their own.
    x, gamma, beta = (_wide(ops.broadcast_to(v, x.shape)) for v in (x, gamma, beta))
    mean = ops.mean(x, axes, True)
    centred = x - mean
    rstd = _inverse_root(ops.mean(ops.square(centred), axes, True), self.eps)
    return centred * rstd * gamma + beta, mean, rstd


def batch_norm(self: Any, x: Any, gamma: Any, beta: Any) -> Sequence[Any]:
    axes, rest = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    mean = ops.mean(x, axes)
    centred = x - ops.reshape(mean, rest)
    var = ops.mean(ops.square(centred), axes)
    scale = _inverse_root(var, self.eps) * gamma
    return centred * ops.reshape(scale, rest) + ops.reshape(beta, rest), mean, var


def _inverse_root(var: Any, eps: float) -> Any:
    return ops.reciprocal(ops.sqrt(var + eps))


def cross_entropy(self: Any, logits: Any, labels: Any) -> Sequence[Any]:
    losses, probs = _entropies(logits, CheckedLabels(logits.shape[1])(labels))
    return _reduced(self, losses), probs


def marked_cross_entropy(self: Any, logits: Any, labels: Any) -> Sequence[Any]:
    """Cross entropy without synchronization: labels outside the classes give NaN."""
    known = _numbers(labels, logits.shape[1])
    losses, probs = _entropies(logits, labels)
    inside = ops.logical_and(known >= 0, known < logits.shape[1])
    return _reduced(self, ops.select(inside, losses, ops.full_like(losses, np.nan))), probs


def _entropies(logits: Any, labels: Any) -> tuple[Any, Any]:
    """The loss of each row, and the probabilities of its classes."""
    shifted = logits - ops.max(logits, 1, True)
    terms = ops.exp(shifted)
    total = ops.sum(terms, 1, True)
    chosen = ops.select(_hits(labels, logits.shape[1]), shifted, ops.zeros_like(shifted))
    return ops.reshape(ops.log(total), labels.shape) - ops.sum(chosen, 1), terms / total


def _reduced(self: Any, losses: Any) -> Any:
    reduce = {"mean": ops.mean, "sum": ops.sum}.get(self.reduction)
    return losses if reduce is None else reduce(losses)


def cross_entropy_grad(self: Any, probs: Any, labels: Any, dloss: Any) -> Sequence[Any]:
    return marked_cross_entropy_grad(self, probs, CheckedLabels(probs.shape[1])(labels), dloss)


def marked_cross_entropy_grad(self: Any, probs: Any, labels: Any, dloss: Any) -> Sequence[Any]:
    """Gradient of cross entropy without synchronization."""
    share = dloss / float(probs.shape[0]) if self.reduction == "mean" else dloss
    share = ops.reshape(share, (-1, 1)) if self.reduction == "none" else share
    hits = _hits(labels, probs.shape[1])
    return (probs * share - ops.select(hits, share, ops.zeros_like(share)),)


def _hits(labels: Any, classes: int) -> Any:
    """Mask (N, classes): True for the label of each row."""
    labels = _numbers(labels, classes)
    return ops.equal(ops.reshape(labels, (-1, 1)), ops.arange(0, classes, dtype=labels.dtype))


def _numbers(labels: Any, classes: int) -> Any:
    """The labels in a dtype that can hold the number of classes."""
    return ops.cast(labels, int32) if classes > np.iinfo(labels.dtype).max else labels


COMPOSITIONS: dict[str, Composition] = {
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "LogSumExp": log_sum_exp,
    "LayerNorm": layer_norm,
    "BatchNorm": batch_norm,
    "CrossEntropy": cross_entropy,
    "CrossEntropyGrad": cross_entropy_grad,
}
ON_CUDA = COMPOSITIONS | {
    "CrossEntropy": marked_cross_entropy,
    "CrossEntropyGrad": marked_cross_entropy_grad,
}


def decompose(graph: Graph, target: Target) -> Graph:
    """The graph with primitives replaced by their compositions, if C kernels rank first; 16-bit
    floats are computed in float32 in between, as by the primitive."""
    if not native(target) or not any(n.primitive.name in COMPOSITIONS for n in graph.nodes):
        return graph
    nodes: list[Node] = []
    first: list[Node] = []
    constants = list(graph.constants)
    checked: dict[tuple[Primitive, Var], Var] = {}
    for node in graph.nodes:
        made = [node]
        if _composed(node, target):
            made, extra = _inlined(node, target.home, checked)
            constants += extra
        for each in made:  # checks may fail: they run first, so as not to interrupt kernels in C
            early = isinstance(each.primitive, CheckedLabels) and each.inputs[0] in graph.inputs
            (first if early else nodes).append(each)
            if isinstance(each.primitive, CheckedLabels) and each.primitive.ignored is None:
                checked[CheckedLabels(each.primitive.classes), each.outputs[0]] = each.outputs[0]
    # An unused output leaves dead nodes.
    return prune(replace(graph, nodes=(*first, *nodes), constants=tuple(constants)))


def _composed(node: Node, target: Target) -> bool:
    if node.primitive.name not in COMPOSITIONS:
        return False
    shapes = [v.abstract.shape for v in node.inputs]
    if not all(0 not in s and max(s, default=0) < _LARGEST for s in shapes):
        return False
    return not any(in_parts(n, target) for n in _of(node, target.home).nodes)


def _inlined(
    node: Node, home: str, checked: dict[tuple[Primitive, Var], Var]
) -> tuple[list[Node], tuple[Var, ...]]:
    """The nodes of the composition that replace a node, and the constants that they read. checked:
    labels that are not checked again."""
    graph = _of(node, home)
    stand_in = dict(zip(graph.inputs, node.inputs, strict=True))
    stand_in.update(zip(graph.outputs, node.outputs, strict=True))
    stand_in.update((v, Var(v.abstract)) for v in graph.constants)
    made = []
    for part in graph.nodes:
        inputs = tuple([stand_in[v] for v in part.inputs])
        if isinstance(part.primitive, CheckedLabels):
            key = part.primitive, inputs[0]
            if key in checked:
                stand_in[part.outputs[0]] = checked[key]
                continue
            stand_in[part.outputs[0]] = checked[key] = Var(part.outputs[0].abstract)
        outputs = tuple([stand_in.setdefault(v, Var(v.abstract)) for v in part.outputs])
        made.append(replace(part, inputs=inputs, outputs=outputs, where=node.where))
    return made, tuple(stand_in[v] for v in graph.constants)


def _of(node: Node, home: str) -> Graph:
    return composition(node.primitive, node.abstracts[0], home)


@lru_cache(maxsize=256)
def composition(primitive: Primitive, abstracts: tuple[Abstract, ...], home: str) -> Graph:
    """The composition as a graph; each of its outputs is made by a node."""

    made = (COMPOSITIONS if home == "cpu" else ON_CUDA)[primitive.name]

    def composed(*inputs: Any) -> Sequence[Any]:
        wide = inputs if made is layer_norm else map(_wide, inputs)
        outs = made(primitive, *wide)
        return [_in(out, abstracts[0].dtype) for out in outs]

    known = [Abstract(a.shape, a.dtype) for a in abstracts]
    return trace_graph(composed, known, "cpu", primitive.name.lower())[0]


def _wide(x: Any) -> Any:
    return ops.cast(x, float32) if x.dtype in (float16, bfloat16) else x


def _in(out: Any, dtype: DType) -> Any:
    return ops.cast(out, dtype) if out.dtype != dtype else out
