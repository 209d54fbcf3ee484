"""Constant folding: nodes that depend on constants alone are computed once, ahead of time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...settings import context, unwatched
from ...tensor import Tensor
from ...trace import eager_trace
from ..ir import Graph, Node, interleave
from .rewrite import SMALL, Rewriter


def fold(graph: Graph) -> Graph:
    """The graph with every pure node whose inputs are all constants replaced by its value.

    The eager kernels of the CPU compute it, so dtypes and bits are those of an eager call. A
    constant lives as long as the compiled program does: a value above 64 KB is folded only if it is
    no larger than the constants it is computed from, so that zeros and ranges stay cheap to hold. A
    node that raises is left in the graph, so that the run reports it.
    """
    rewriter = Rewriter(graph)
    known = set(graph.constants)
    for node in graph.nodes:
        values = _values(rewriter, node) if known.issuperset(node.inputs) else None
        if values is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.outputs, [rewriter.constant(v) for v in values])
            known.update(node.outputs)
    return rewriter.finish()


def _values(rewriter: Rewriter, node: Node) -> list[np.ndarray[Any, Any]] | None:
    """The outputs of a node of constants, or None where this pass must not compute them."""
    given = [v.abstract.value for v in rewriter.inputs(node)]
    arrays = [a for a in given if a is not None]
    if len(arrays) != len(given) or node.primitive.effect != "pure":
        return None
    size = sum(v.abstract.nbytes for v in node.outputs)
    if size > max(SMALL, sum(a.nbytes for a in arrays)) or any(node.subgraphs()):
        return None
    tensors = [Tensor.wrap(a, "cpu") for a in arrays]
    try:
        with unwatched(), context(device_target="cpu"):
            outs = eager_trace().bind(
                node.primitive, interleave(node.primitive, tensors, dict(node.consts))
            )
    except Exception:
        return None
    found = [out.asnumpy() for out in outs]
    for value in found:
        value.setflags(write=False)
    return found
